"""What is declared, shown by rows of the scheduler."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_image, make_run_summary
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerCapabilitiesContract"]

LARGE: Final = 17 * 2**20
TOUCHES: Final = 25
SECOND: Final = timedelta(seconds=1)
TIMEOUT_SECONDS: Final = 60
# Without the kit, whose import would take longer than everything else.
OTHER_PROCESS: Final = """
import json, sys
from datetime import datetime, timedelta
from twinstore.storage.open import open_module
from twinstore.scheduler.run_summaries import RunSummary

told = json.loads(sys.argv[1])
tenant, schedule, start = told["tenant"], told["schedule"], datetime.fromisoformat(told["start"])

def later(stored):
    instant = start if stored is None else stored.updated_at
    return RunSummary.of(tenant, schedule, (), instant + timedelta(seconds=1))

with open_module("scheduler", told["driver"], told["settings"]) as storage:
    storage.run_summaries.get(tenant, schedule)
    print("ready", flush=True)
    for _ in range(told["times"]):
        storage.run_summaries.modify(tenant, schedule, later)
"""


def touch(storage: SchedulerStorage, tenant: str, schedule_id: str) -> None:
    """Move the instant of a summary on by a second; what two writers read at once would count once."""
    storage.run_summaries.modify(
        tenant,
        schedule_id,
        lambda stored: make_run_summary(
            tenant, schedule_id, updated_at=(at() if stored is None else stored.updated_at) + SECOND
        ),
    )


@contextmanager
def other_process(
    workspace: SchedulerWorkspace, settings: Mapping[str, object]
) -> Generator[subprocess.Popen[str]]:
    """Start a process that touches the summary as often as this one; it has begun when the block begins."""
    request = {
        "driver": workspace.storage.driver,
        "settings": settings,
        "tenant": workspace.tenant,
        "schedule": workspace.id("s"),
        "start": at().isoformat(),
        "times": TOUCHES,
    }
    command = [sys.executable, "-c", OTHER_PROCESS, json.dumps(request)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603  # this interpreter
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


class SchedulerCapabilitiesContract(SchedulerCases):
    """Precision of instants, writers of other processes, a document of 17 megabytes."""

    def test_instants_keep_the_declared_precision(self, workspace: SchedulerWorkspace) -> None:
        step = workspace.storage.capabilities.time_precision_ms
        assert step >= 1
        for number in (1, 7):
            instant = at(number * step / 1000)
            run = workspace.storage.runs.create(workspace.run(str(number), created_at=instant))
            assert workspace.storage.runs.get_required(workspace.tenant, run.id).created_at == instant

    def test_writers_of_other_processes_are_kept_out_exactly_when_declared(
        self, workspace: SchedulerWorkspace
    ) -> None:
        settings = workspace.deployment.settings()
        assert (settings is not None) is workspace.storage.capabilities.cross_process_locks
        if settings is not None:
            with other_process(workspace, settings) as child:
                for _ in range(TOUCHES):
                    touch(workspace.storage, workspace.tenant, workspace.id("s"))
                assert child.wait(TIMEOUT_SECONDS) == 0
            summary = workspace.storage.run_summaries.get_required(workspace.tenant, workspace.id("s"))
            assert summary.updated_at == at(2 * TOUCHES)

    def test_a_document_of_17_megabytes_is_refused_whatever_the_store_would_take(
        self, workspace: SchedulerWorkspace
    ) -> None:
        images = (make_image(1, labels={f"{number:08}": "x" * 1000 for number in range(LARGE // 1000)}),)
        snapshot = workspace.snapshot("large", images=images)
        with pytest.raises(ValidationError, match=r"has 18\.09 MB, and a row may have 16\.71 MB"):
            workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot)
        assert workspace.count(IMPACT_SNAPSHOTS) == 0

"""What is declared works, and what is not declared fails loudly."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access import Moment, Ref, Rows
from twinstore.backend import CAPABILITY_NAMES
from twinstore.bulk import KeyRange
from twinstore.catalog import TenancyKind
from twinstore.clock import FixedClock
from twinstore.errors import TwinstoreError, UnsupportedCapabilityError
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS
from twinstore.scheduler.module import MODULE
from twinstore.tenancy import Tenant
from twinstore.testing.base import USES, Contract, assert_refused, needs
from twinstore.testing.builders import at, make_image, make_run_summary
from twinstore.testing.entities import by_access
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from datetime import datetime

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.probe import BackendFactory
    from twinstore.testing.workspace import Workspace

__all__ = ["CapabilitiesContract"]

LARGE: Final = 17 * 2**20
TOUCHES: Final = 25
SECOND: Final = timedelta(seconds=1)
PATIENCE_SECONDS: Final = 60
# Without the kit, whose import would take longer than everything else.
OTHER_PROCESS: Final = """
import json, sys
from datetime import datetime, timedelta
from twinstore.storage import open_module
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
def other_process(workspace: Workspace, settings: Mapping[str, object]) -> Generator[subprocess.Popen[str]]:
    """Start a process that touches the summary as often as this one; it has begun when the block begins."""
    told = {
        "driver": workspace.storage.driver,
        "settings": settings,
        "tenant": workspace.tenant,
        "schedule": workspace.id("s"),
        "start": at().isoformat(),
        "times": TOUCHES,
    }
    command = [sys.executable, "-c", OTHER_PROCESS, json.dumps(told)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603  # this interpreter
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield child


class CapabilitiesContract(Contract):
    """The declaration of the driver on the connected server."""

    @pytest.mark.parametrize("name", sorted(CAPABILITY_NAMES))
    def test_require_passes_what_is_declared_and_explains_what_is_not(
        self, workspace: Workspace, name: str
    ) -> None:
        capabilities = workspace.storage.capabilities
        if getattr(capabilities, name):
            capabilities.require(name)
        else:
            with pytest.raises(UnsupportedCapabilityError) as refusal:
                capabilities.require(name)
            assert capabilities.backend in refusal.value.message
            assert capabilities.server_version in refusal.value.message
            assert name.replace("_", " ") in refusal.value.message

    def test_an_unknown_capability_is_a_programming_error(self, workspace: Workspace) -> None:
        with pytest.raises(ValueError, match="no capability"):
            workspace.storage.capabilities.require("teleportation")

    def test_the_declaration_is_the_same_at_every_call(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,):
            assert other.capabilities == workspace.storage.capabilities == workspace.storage.capabilities

    @pytest.mark.parametrize("name", sorted(USES))
    def test_using_it_works_exactly_when_declared(self, workspace: Workspace, name: str) -> None:
        if getattr(workspace.storage.capabilities, name):
            USES[name](workspace.storage)
        else:
            assert_refused(workspace.storage, name)

    def test_the_declaration_names_the_driver_and_a_way_out(self, workspace: Workspace) -> None:
        capabilities = workspace.storage.capabilities
        assert capabilities.backend == workspace.storage.driver
        assert capabilities.backend.strip()
        assert capabilities.server_version == capabilities.server_version.strip()
        missing = [name for name in CAPABILITY_NAMES if not getattr(capabilities, name)]
        for name in missing:
            with pytest.raises(UnsupportedCapabilityError) as refusal:
                capabilities.require(name)
            _, _, remedy = refusal.value.message.partition(f"has no {name.replace('_', ' ')}.")
            assert remedy.strip().endswith(".")

    def test_instants_keep_the_declared_precision(self, workspace: Workspace) -> None:
        step = workspace.storage.capabilities.time_precision_ms
        assert step >= 1
        for number in (1, 7):
            instant = at(number * step / 1000)
            run = workspace.storage.runs.create(workspace.run(str(number), created_at=instant))
            assert workspace.storage.runs.get_required(workspace.tenant, run.id).created_at == instant

    def test_expired_rows_are_removed_by_the_store_exactly_when_declared(
        self, backend_factory: BackendFactory
    ) -> None:
        with backend_factory(migrated=False) as bare, bare.open(expiring=True) as storage:
            storage.initializer.ensure_migrations()
            told = [
                entity
                for entity in SCHEDULER_EXAMPLES.entities
                if entity.retention is not None and bare.probe.removes_expired(entity)
            ]
            assert bool(told) is storage.capabilities.server_ttl

    def test_the_server_checks_the_tenant_exactly_when_declared(self, workspace: Workspace) -> None:
        for owner in (workspace, workspace.elsewhere):
            SCHEDULER_EXAMPLES.store_each(workspace.storage.unbound, owner.tenant, owner.id("a"))
        for entity in SCHEDULER_EXAMPLES.entities:
            if entity.tenancy.kind in {TenancyKind.REQUIRED, TenancyKind.PARENT}:
                shown = workspace.probe.shown_to(workspace.tenant, entity)
                declared = workspace.storage.capabilities.row_level_security
                assert shown == (workspace.count(entity) if declared else None)

    def test_a_clock_outside_the_client_judges_exactly_when_declared(self, workspace: Workspace) -> None:
        told: list[datetime] = []

        def ask(rows: Rows, now: Moment) -> Rows:
            told.append(now())
            return rows

        ref = Ref(RUNS, Tenant(workspace.tenant), (workspace.id("any"),))
        instant = at(0.007)  # of milliseconds, because the clock of the client is passed on as it is
        with workspace.deployment.open_module(by_access(MODULE), clock=FixedClock(instant)) as backend:
            backend.repositories.change([ref], ask)
        assert (told[-1] != instant) is workspace.storage.capabilities.server_clock

    def test_writers_of_other_processes_are_kept_out_exactly_when_declared(
        self, workspace: Workspace
    ) -> None:
        settings = workspace.deployment.settings()
        assert (settings is not None) is workspace.storage.capabilities.cross_process_locks
        if settings is not None:
            with other_process(workspace, settings) as child:
                for _ in range(TOUCHES):
                    touch(workspace.storage, workspace.tenant, workspace.id("s"))
                assert child.wait(PATIENCE_SECONDS) == 0
            summary = workspace.storage.run_summaries.get_required(workspace.tenant, workspace.id("s"))
            assert summary.updated_at == at(2 * TOUCHES)

    def test_changes_can_be_followed_exactly_when_declared(self, workspace: Workspace) -> None:
        feed = workspace.probe.changes(RUNS)
        assert (feed is not None) is workspace.storage.capabilities.change_stream
        if feed is not None:
            with feed as following:
                run = workspace.storage.runs.create(workspace.run())
                assert following() == (run.id,)

    @needs("bulk")
    def test_reads_of_the_past_work_exactly_when_declared(self, workspace: Workspace) -> None:
        bulk, everything = workspace.storage.bulk, KeyRange()
        workspace.storage.runs.create(workspace.run("before"))
        position = bulk.position()
        workspace.storage.runs.create(workspace.run("after"))
        if workspace.storage.capabilities.point_in_time_reads:
            assert position is not None
            with bulk.view(as_of=position) as view:
                assert view.position == position
                batches = view.records(RUNS, everything, tenant_id=workspace.tenant)
                assert [record.key for batch in batches for record in batch] == [(workspace.id("before"),)]
                rows = view.rows(RUNS, everything, tenant_id=workspace.tenant)
                assert [row.key for batch in rows for row in batch] == [(workspace.id("before"),)]
        else:
            with pytest.raises(UnsupportedCapabilityError), bulk.view(as_of="0") as view:
                list(view.records(RUNS, everything))

    def test_a_document_of_17_megabytes_is_stored_or_refused_as_declared(self, workspace: Workspace) -> None:
        images = (make_image(1, labels={f"{number:08}": "x" * 1000 for number in range(LARGE // 1000)}),)
        snapshot = workspace.snapshot("large", images=images)
        if (workspace.storage.capabilities.largest_document_bytes or math.inf) > LARGE:
            workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot)
            assert workspace.storage.impact_snapshots.get(workspace.tenant, workspace.id("large")) == snapshot
        else:
            with pytest.raises(TwinstoreError):
                workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot)
            assert workspace.count(IMPACT_SNAPSHOTS) == 0

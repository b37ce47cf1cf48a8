"""Whatever makes the processes, each sees its own tenant's rows and does not break what another has open.

A separate program makes the processes, ``tests.resilience.processes``.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support import forked
from tests.support.server_supervisor import ROOT

if TYPE_CHECKING:
    from tests.support.servers import Settings

CLEAN: Final = {"foreign": 0, "errors": []}
REFUSED: Final = "TransactionAbortedError: This session or unit of work was opened before"


def run(scenario: str, settings: Settings) -> dict[str, Any]:
    """Run a scenario and return its report; whatever it writes to stderr is a failure."""
    environment = {**os.environ, "TWINSTORE_PRELOADED": json.dumps(settings)}
    done = forked.run(["-m", "tests.resilience.processes", scenario], env=environment, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def clean(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: report[name] for name in CLEAN} for report in reports]


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_processes_and_pools_of_every_start_method_see_their_own_rows(
    forking_store: Settings, method: str
) -> None:
    report = run(method, forking_store)
    assert clean(report["children"]) == [CLEAN] * 4
    assert clean(report["parent"]) == [CLEAN] * 2
    # What spawn begins has imported the module itself; the others were forked with open storages.
    assert [child["inherited"] for child in report["children"]] == [method != "spawn"] * 4
    assert report["model"] is True
    assert report["storage"].startswith("ConfigurationError: A SchedulerStorage cannot be passed")


@pytest.mark.parametrize("server", ["server", "asyncio server"])
def test_a_preloading_process_server_answers_each_tenant_with_its_rows(
    forking_store: Settings, server: str
) -> None:
    report = run(server, forking_store)
    assert (report["answers"], report["wrong"]) == (120, [])
    assert clean(report["parent"]) == [CLEAN] * 3


def test_a_child_of_a_running_event_loop_runs_one_of_its_own(forking_store: Settings) -> None:
    report = run("inside a loop", forking_store)
    (child,) = report["children"]
    assert clean([child, report["parent"]]) == [CLEAN] * 2
    assert child["unit"].startswith(REFUSED)
    assert (child["held"], report["held"], report["stored"]) == (False, True, True)


def test_a_child_does_not_wait_for_a_session_that_a_thread_uses(forking_store: Settings) -> None:
    report = run("with a session in use", forking_store)
    refused, worked = report["children"]
    assert refused["session"].startswith(REFUSED)
    assert clean([worked]) == [CLEAN]
    assert report["parent"] == "None"


def test_a_child_that_ends_with_the_handlers_of_its_parent_ends_nothing(forking_store: Settings) -> None:
    report = run("at the end", forking_store)
    assert report["children"] == [{}, {}, {"forked": True}]
    assert report["stored"] == ["kept", "kept too"]
    assert clean([report["parent"]]) == [CLEAN]

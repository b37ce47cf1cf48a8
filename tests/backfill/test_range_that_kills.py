"""A range that kills each process that copies it fails after five of them; the copy goes on without it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.backfill.poisoned import repeat
from tests.backfill.toolkit import AS_OF, invoke, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore.ledger import RangeState
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record, make_run
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase

KILLED: Final = -9
COUNT: Final = 6
REASON: Final = "its worker died 5 times; the next run tries it again"


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    return write_config(tmp_path / "settings.json", server_settings(mongo_database, postgres_database))


# What the ledger does is in the kit, on every driver.
@pytest.mark.parametrize(
    ("source", "target"), [("Mongo", "Postgres"), pytest.param("Postgres", "Mongo", marks=pytest.mark.long)]
)
def test_a_range_that_kills_five_processes_fails_and_the_others_are_copied(
    source: str, target: str, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load_settings(settings, environ={})
    with open_store("scheduler", source, loaded) as store:
        for number in range(COUNT):
            store.storage.runs.create(make_run("acme", f"run-{number}", created_at=at(number)))
        store.storage.audit.append(make_audit_record("acme", "audit-1"))
    sides = ["--module", "scheduler", "--from", source, "--to", target, "--as-of", AS_OF.isoformat()]
    options = ["--execute", "--jobs", "1", "--range-size", "2", "--out", str(tmp_path)]
    command = ["--config", str(settings), "backfill", "copy", *sides, *options]

    program = [sys.executable, "-m", repeat.__module__, *command]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=240)
    assert done.stderr.splitlines()[-1:] == [str([*[KILLED] * 5, int(Exit.FAILED)])], done.stderr
    assert REASON in done.stdout
    report = json.loads((tmp_path / "backfill-report.json").read_text())
    (shown,) = report["failed_ranges"]["shown"]
    assert (shown["entity"], shown["lower"], shown["reason"]) == ("runs", None, REASON)
    with open_store("scheduler", target, loaded) as store:
        (job,) = store.ledger.jobs()
        states = [item.state for item in store.ledger.ranges(job.id, "runs")]
        assert states == [RangeState.FAILED, RangeState.LIVE, RangeState.LIVE]
        assert {item.state for item in store.ledger.ranges(job.id, "audit")} == {RangeState.LIVE}
    status = ("--config", settings, "backfill", "status", "--module", "scheduler", "--to", target)
    (job_status,) = invoke(capsys, *status, "--format", "json").json["jobs"]
    assert job_status["failed_ranges"]["shown"] == [shown]

    # What killed the process is gone: the next run copies the rest.
    assert invoke(capsys, *command).code == Exit.OK
    with open_store("scheduler", target, loaded) as store:
        counted = [(item.state, item.attempts, item.deaths) for item in store.ledger.ranges(job.id, "runs")]
        assert counted[0] == (RangeState.LIVE, 1, 0)
        assert sum(store.bulk.counts(RUNS).values()) == COUNT

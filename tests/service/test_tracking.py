"""`twinstore smoke` and a copy with its verification, on real servers: what a deployment of tracking runs."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from pymongo import MongoClient

from tests.support.copies import invoke, write_config
from tests.support.databases import DRIVERS
from tests.support.modules import tracking_on, tracking_settings
from twinstore.testing.instants import at
from twinstore.tracking import SessionStatus, TrackingMachine, TrackingSession, TrackingTask

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.tracking.storage import TrackingStorage


def fill(storage: TrackingStorage) -> None:
    """Store what a service has after a while: machines, sessions that live and have ended, and tasks."""
    now = datetime.now(UTC)
    for number in range(3):
        machine = TrackingMachine.new(machine_id=f"m{number}", hostname="h", docker_slots=(1, 2), now=now)
        storage.machines.create(machine)
    for number in range(9):
        key = f"s{number}"
        new = TrackingSession.new(project_id="p", machine_id="m0", session_id=key, now=now)
        storage.tracking_sessions.create(new.evolve(metadata={"n": number, "at": {"$date": "x"}}))
        storage.tasks.create(TrackingTask.new(session_id=key, project_id="p", task_name=key, now=now))
    for number in range(3):
        storage.machines.assign_session(f"m{number}", f"s{number}", docker_slot=1)
    storage.tracking_sessions.complete("s1", now)
    storage.tracking_sessions.fail("s2", now, reason="out of memory", details={"exit": 137})


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_sound_store_passes_and_keeps_its_rows(
    driver: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tracking_settings(driver, request) as settings, tracking_on(settings) as storage:
        fill(storage)
        config = write_config(tmp_path / "s.json", settings)
        answer = invoke(capsys, "--config", config, "smoke", "--module", "tracking", "--format", "json")
        found: dict[str, Any] = json.loads(answer.out)
        failed = [step for step in found["steps"] if step["result"] == "fail"]
        assert (answer.code, found["verdict"], failed) == (0, "OK", [])
        assert "session in a slot, with a task, to its end, rolled back" in [
            step["step"] for step in found["steps"]
        ]
        assert len(storage.machines.list()) == 3
        assert storage.tracking_sessions.count_by_status("p") == {
            SessionStatus.ACTIVE: 7,
            SessionStatus.COMPLETED: 1,
            SessionStatus.FAILED: 1,
        }


@pytest.mark.parametrize(("source", "target"), [("mongo", "postgres"), ("postgres", "mongo")])
def test_a_copy_is_proved_and_the_service_goes_on_where_it_was(
    source: str,
    target: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with (
        tracking_settings(source, request) as left,
        tracking_settings(target, request) as right,
        tracking_on(left) as before,
        tracking_on(right) as after,
    ):
        fill(before)
        source_config = write_config(tmp_path / "l.json", left)
        target_config = write_config(tmp_path / "r.json", right)
        sides = ("--source-config", source_config, "--target-config", target_config)
        names = ("--module", "tracking", "--from", source.capitalize(), "--to", target.capitalize())
        assert invoke(capsys, "backfill", "copy", *names, *sides, "--execute").code == 0
        report = invoke(capsys, "backfill", "verify", *names, *sides, "--format", "json").json
        assert (report["verdict"], report["cutover_ready"]) == ("PASS", True)
        # A slot that is occupied on one side is so on the other.
        assert [item.free_slots for item in after.machines.list_available()] == [
            item.free_slots for item in before.machines.list_available()
        ]
        assert after.tracking_sessions.recover("s2", "m0", at(9), docker_slot=2).recovery_attempts == 1
        assert after.machines.get_required("m0").active_sessions == ("s0", "s2")


def test_a_count_that_is_written_out_at_zero_is_named_and_leaves_no_gap(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        tracking_settings("mongo", request) as left,
        tracking_settings("postgres", request) as right,
        tracking_on(left) as before,
        tracking_on(right),
        MongoClient[dict[str, Any]](cast("Any", left)["Persistence"]["Mongo"]["ConnectionString"]) as client,
    ):
        fill(before)
        sessions = client[cast("Any", left)["Persistence"]["Mongo"]["Database"]]["sessions"]
        # As an application with the default 0 in its own schema writes it.
        sessions.update_one({"session_id": "s3"}, {"$set": {"recovery_attempts": 0}})
        sides = (
            *("--source-config", write_config(tmp_path / "l.json", left)),
            *("--target-config", write_config(tmp_path / "r.json", right)),
            *("--module", "tracking", "--from", "Mongo", "--to", "Postgres"),
        )
        assert invoke(capsys, "backfill", "copy", *sides, "--execute").code == 0
        report = invoke(capsys, "backfill", "verify", *sides, "--format", "json").json
        assert (report["verdict"], report["cutover_ready"]) == ("PASS", True)
        assert "null_for_absent" in str(report["equivalences"])

"""A copy that is killed at any moment goes on where it stopped, and copies no finished range twice."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient

from tests.support import forked
from tests.support.copies import AS_OF, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore.ledger import RangeState
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.ledger import CopyJob, Lease, Ledger, RangeProgress
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.stores import Store

RANGE: Final = 150
# A killed copy finishes a few ranges first: this many documents for each kill keep it from its end.
PER_KILL: Final = 750
# If a test is slow to check, on a busy machine, the copy is still at work: for seconds after each kill, for a
# quarter of a minute if it is stopped once, and for most of a minute if another copy starts in parallel.
BETWEEN_KILLS: Final = ("--max-rate", "250")
SLOWLY: Final = ("--max-rate", "120")
VERY_SLOWLY: Final = ("--max-rate", "40", "--range-size", "20")
DOCUMENTS: Final = 2000
JOBS: Final = 2
PATIENCE: Final = 240
LONG: Final = timedelta(minutes=10)


@pytest.fixture
def config(
    request: pytest.FixtureRequest,
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> Path:
    documents: int = getattr(request, "param", DOCUMENTS)
    path = write_config(tmp_path / "settings.json", server_settings(mongo_database, postgres_database))
    with open_store("scheduler", "mongo", load_settings(path, environ={})) as source:
        source.storage.initializer.ensure_migrations()
        source.storage.runs.create(make_run("acme", "run-0"))
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        runs = client[mongo_database.name]["runs"]
        model = runs.find_one() or {}
        runs.insert_many(
            [
                {
                    **model,
                    "_id": f"run-{number:05}",
                    "createdAt": at(number),
                    "tenantId": f"tenant-{number % 3}",
                }
                for number in range(1, documents)
            ]
        )
    return path


@pytest.fixture
def target(config: Path) -> Iterator[Store]:
    with open_store("scheduler", "postgres", load_settings(config, environ={})) as store:
        yield store


def command(config: Path, name: str, *more: str) -> list[str]:
    sides = ["--module", "scheduler", "--from", "Mongo", "--to", "Postgres", "--as-of", AS_OF.isoformat()]
    start = ["-m", "twinstore_backfill", "--config", str(config), "backfill", name, *sides]
    return [*start, "--out", str(config.parent / "out"), *more]


def copying(config: Path, *more: str) -> list[str]:
    return command(config, "copy", "--execute", "--jobs", str(JOBS), "--range-size", str(RANGE), *more)


def start(arguments: list[str]) -> forked.Popen:
    return forked.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def only_job(store: Store) -> CopyJob | None:
    try:
        return next(store.ledger.jobs(), None) if has_ledger(store) else None
    except PreflightError:
        # The copy has not applied all migrations yet.
        return None


def live(store: Store) -> dict[int, RangeProgress]:
    job = only_job(store)
    ranges = store.ledger.ranges(job.id, state=RangeState.LIVE) if job else ()
    return {item.number: item for item in ranges}


def wait_until_live(store: Store, wanted: int, process: forked.Popen) -> None:
    """Wait until the copy has finished some ranges."""
    deadline = time.monotonic() + PATIENCE
    while len(live(store)) < wanted and process.poll() is None:
        assert time.monotonic() < deadline, "the copy does not get on"
        os.sched_yield()


def wait_until_at_work(store: Store, fence: int, process: forked.Popen) -> int:
    """Wait until the copy has taken the lease; return its fence."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None:
        job = only_job(store)
        lease = store.ledger.lease(job.id) if job else None
        if lease is not None and lease.fence > fence:
            return lease.fence
        assert time.monotonic() < deadline, "the copy does not begin"
        os.sched_yield()
    return fence


@pytest.mark.parametrize(
    ("config", "kills"),
    [(3 * PER_KILL, 3), pytest.param(20 * PER_KILL, 20, marks=pytest.mark.long)],
    indirect=["config"],
)
def test_killed_again_and_again_it_ends_equal_and_repeats_no_finished_range(
    config: Path, target: Store, kills: int
) -> None:
    """Kill a copy at moments left to chance; each time look what is finished; let the last one end."""
    documents = kills * PER_KILL
    chance = random.Random(20)
    finished: dict[int, RangeProgress] = {}
    fence = 0
    for kill in range(kills):
        process = start(copying(config, *BETWEEN_KILLS))
        fence = wait_until_at_work(target, fence, process)
        wait_until_live(target, len(finished) + chance.randrange(3), process)
        moment = time.monotonic() + chance.uniform(0, 0.05)
        while time.monotonic() < moment:
            os.sched_yield()
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL, f"kill {kill} came too late"
        now = live(target)
        assert {number: now[number] for number in finished} == finished
        finished = now
    assert 0 < len(finished) < documents // RANGE + 5
    done = forked.run(copying(config))
    assert done.returncode == Exit.OK, done.stderr
    after = live(target)
    assert {number: after[number] for number in finished} == finished
    verified = forked.run(command(config, "verify"))
    assert verified.returncode == Exit.OK, verified.stdout
    assert f"PASS: {documents:,} documents equal." in verified.stdout


RULE: Final = """
[[map]]
path = "runs.trigger"
values = {{ manual = "{word}" }}
reason = "another word"
"""


@pytest.mark.parametrize("config", [PER_KILL], indirect=True)
def test_killed_while_it_follows_other_rules_it_ends_as_they_say(
    config: Path, target: Store[SchedulerStorage]
) -> None:
    """Copy under one rule; kill the copy under another; let that under a third one end."""
    job = config.with_name("job.toml")

    def under_rules(arguments: list[str]) -> list[str]:
        place = arguments.index("backfill") + 1
        return [*arguments[:place], "--job-file", str(job), *arguments[place:]]

    job.write_text(RULE.format(word="cron"))
    assert forked.run(under_rules(copying(config))).returncode == Exit.OK
    job.write_text(RULE.format(word="policy"))
    process = start(under_rules(copying(config, *BETWEEN_KILLS)))
    while target.storage.runs.get_required("tenant-1", "run-00001").trigger != "policy":
        assert process.poll() is None, process.communicate()
        os.sched_yield()
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the kill came too late"
    job.write_text(RULE.format(word="content-refresh"))
    done = forked.run(under_rules(copying(config)))
    assert done.returncode == Exit.OK, done.stderr
    verified = forked.run(under_rules(command(config, "verify")))
    assert verified.returncode == Exit.OK, verified.stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_it_at_a_safe_point(config: Path, target: Store, number: int, code: int) -> None:
    process = start(copying(config, *SLOWLY))
    wait_until_live(target, 2, process)
    process.send_signal(number)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert "run the same command again" in errors
    assert "Traceback" not in errors
    job = only_job(target)
    assert job is not None
    assert target.ledger.lease(job.id) is None
    before = live(target)
    assert forked.run(copying(config)).returncode == Exit.OK
    after = live(target)
    assert {number: after[number] for number in before} == before


def test_another_worker_is_refused_and_the_error_names_the_working_one(config: Path, target: Store) -> None:
    process = start(copying(config, *VERY_SLOWLY))
    try:
        wait_until_live(target, 1, process)
        second = forked.run(copying(config, *VERY_SLOWLY, "--format", "json"))
    finally:
        process.kill()
        process.communicate()
    assert second.returncode == Exit.LEASE_HELD
    error = json.loads(second.stdout)["error"]
    assert error["exit_code"] == Exit.LEASE_HELD
    assert f"/{process.pid}/" in error["message"]


def take_everything_away(ledger: Ledger, held: Lease) -> set[int]:
    """Take the lease of a job and every range of it, as if the worker were dead.

    Return the numbers of those that it was just committing: their rows are locked, and stay its own.
    """
    ledger.acquire(held.job_id, "usurper", LONG, dead=held.holder)
    begun = time.monotonic()
    while left := open_of(ledger, held.job_id, held.holder):
        # Each of its threads commits one at most.
        if time.monotonic() - begun > (2 if len(left) <= JOBS else PATIENCE):
            break
        # Said again each time: a sign of life may have been on its way to the server.
        ledger.leave(held.job_id, held.holder)
        for entity in SCHEDULER.entities:
            while ledger.take(held.job_id, "usurper", entity.name, LONG):
                pass
    return {item.number for item in left}


def open_of(ledger: Ledger, job_id: str, worker: str) -> list[RangeProgress]:
    """Return the ranges that a worker may still take or finish."""
    pending = ledger.ranges(job_id, state=RangeState.PENDING)
    copying = ledger.ranges(job_id, state=RangeState.COPYING)
    return [*pending, *(item for item in copying if item.worker == worker)]


def test_a_stopped_worker_that_wakes_up_too_late_cannot_commit(config: Path, target: Store) -> None:
    process = start(copying(config, *SLOWLY))
    try:
        wait_until_live(target, 1, process)
        process.send_signal(signal.SIGSTOP)
        job = only_job(target)
        assert job is not None
        held = target.ledger.lease(job.id)
        assert held is not None
        committing = take_everything_away(target.ledger, held)
        before = live(target)
        process.send_signal(signal.SIGCONT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == Exit.LEASE_HELD
    assert "\nerror: " in f"\n{errors}"
    assert "Traceback" not in errors
    assert len(committing) <= JOBS
    assert {number: item for number, item in live(target).items() if number not in committing} == before

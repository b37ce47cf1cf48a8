"""Workers that join a copy: the command ``work``, slices of an engine, and their tickets."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest
from typing_extensions import override

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.support.copies import AS_OF, contents_of, fill, invoke, server_settings, write_config
from tests.support.databases import PASSWORD
from twinstore.errors import UnavailableError
from twinstore.ledger import JobState, RangeState
from twinstore.scheduler.catalog import AUDIT, RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy import ranges, workers
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.slices import SliceResult, run_slice
from twinstore_backfill.copy.workers import WorkReport, run_work
from twinstore_backfill.engines.pool import Refused
from twinstore_backfill.engines.sites import Ticket
from twinstore_backfill.outcome import Exit, PreflightError, UnknownJobError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import RecordedProgress, SilentProgress
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.ledger import CopyJob
    from twinstore_backfill.copy.report import CopyResult

ROWS: Final = 200
TICKET_BYTES: Final = 400
SIGTERM_SECONDS: Final = 5.0


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, Any]:
    return server_settings(mongo_database, postgres_database)


@pytest.fixture(params=[DIRECTIONS[0], pytest.param(DIRECTIONS[1], marks=pytest.mark.long)])
def pair(
    request: pytest.FixtureRequest,
    settings: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    monkeypatch.setattr(ranges, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(ranges, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(workers, "AGAIN_SECONDS", 0.0)
    with opened(settings, request.param, tmp_path) as pair:
        fill(pair.source.storage)
        for number in range(ROWS):
            pair.source.storage.runs.create(make_run("acme", f"many-{number:04}"))
        yield pair


class Planned(RecordedProgress):
    """Says when a copy has begun with an entity, so that its plan is there."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = Event()

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        super().start(name, total, done, estimated=estimated)
        self.begun.set()


@contextmanager
def coordinated(pair: Pair, **options: Any) -> Iterator[Future[CopyResult]]:  # noqa: ANN401  # those of a copy
    """Run a copy that leaves all ranges to workers, and yield its result."""
    given = {"range_size": 20, "as_of": AS_OF, "execute": True, "out": pair.directory, **options}
    progress, stop = Planned(), StopSwitch()
    with ThreadPoolExecutor(1) as pool:
        asked = CopyOptions(engine="workers://", **given)
        copying = pool.submit(run_copy, pair.source, pair.target, asked, progress, stop)
        try:
            assert progress.begun.wait(60)
            yield copying
        finally:
            if not copying.done():
                stop.request()


def worked(
    pair: Pair, name: str | None = None, *, drain: bool = False, execute: bool = True, slots: int = 2
) -> WorkReport:
    progress, stop = SilentProgress(), StopSwitch()
    sides = pair.source, pair.target
    return run_work(sides, name, slots=slots, drain=drain, execute=execute, progress=progress, stop=stop)


def job_of(pair: Pair) -> CopyJob:
    (job,) = pair.target.ledger.jobs()
    return job


def ticket_of(pair: Pair) -> Ticket:
    return Ticket.of(pair.source, pair.target, pair.source.bulk.entities(), job_of(pair).id)


def test_workers_copy_everything_and_the_coordinator_reports_it(pair: Pair) -> None:
    with coordinated(pair) as copying:
        report = worked(pair)
        result = copying.result(60)
    assert (result.exit, result.complete) == (Exit.OK, True)
    assert (report.exit_code, report.stopped) == (Exit.OK, "")
    assert report.rows == result.totals.all()["written"]
    assert contents_of(pair.target.bulk, RUNS) == contents_of(pair.source.bulk, RUNS)
    # One that comes late has nothing to do.
    assert worked(pair) == WorkReport(job=job_of(pair).id, executed=True)


def test_rows_that_refer_to_moved_unique_values_are_left_to_the_coordinator(pair: Pair) -> None:
    with coordinated(pair, on_conflict="overwrite", jobs=1) as copying:
        worked(pair)
        assert copying.result(60).complete
    assert pair.verify().verdict == "PASS"


def test_without_execute_it_only_names_the_job(pair: Pair) -> None:
    with pytest.raises(UnknownJobError):
        worked(pair, execute=False)
    with coordinated(pair):
        assert worked(pair, execute=False) == WorkReport(job=job_of(pair).id, executed=False)
        assert sum(pair.target.bulk.counts(RUNS).values()) == 0


def test_with_drain_it_does_not_wait_for_the_ranges_of_others(pair: Pair) -> None:
    with coordinated(pair) as copying:
        ledger, job = pair.target.ledger, job_of(pair)
        held = ledger.take_pending(job.id, "slow", AUDIT.name, CopyOptions().lease)
        assert held is not None
        assert worked(pair, drain=True).exit_code == Exit.OK
        left = [item.number for item in ledger.ranges(job.id) if item.state is not RangeState.LIVE]
        assert left == [held.number]
        ledger.sign_off(job.id, "slow")
        worked(pair)
        assert copying.result(60).complete


def test_a_stopped_job_ends_its_workers_with_the_reason(pair: Pair) -> None:
    with coordinated(pair) as copying:
        pair.target.ledger.halt(job_of(pair).id, "the disk is nearly full")
        report = worked(pair)
        assert (report.exit_code, report.stopped) == (Exit.FAILED, "the disk is nearly full")
        assert copying.result(60).stopped == report.stopped


def test_a_worker_that_stops_the_job_itself_says_why(pair: Pair) -> None:
    pair.target.storage.initializer.ensure_migrations()
    pair.target.storage.runs.create(make_run("acme", "many-0007", schedule_id="another"))
    with coordinated(pair) as copying:
        report = worked(pair)
        assert (report.exit_code, report.stopped) == (Exit.FAILED, "more than 0 conflicts (--max-conflicts)")
        assert copying.result(60).stopped == report.stopped


def test_a_worker_of_another_release_or_description_is_refused_and_the_job_goes_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with coordinated(pair) as copying:
        with monkeypatch.context() as patch:
            patch.setattr("twinstore_backfill.copy.description.RELEASE", "9.9")
            with pytest.raises(
                PreflightError, match=r"release .* of twinstore has begun it, and this is 9\.9"
            ):
                worked(pair)
        ticket, specs = ticket_of(pair), (pair.source.spec, pair.target.spec)
        assert specs[0] is not None
        assert specs[1] is not None
        others = {
            "the release of twinstore": ticket._replace(release="9.9"),
            "the description of an entity": ticket._replace(descriptions="another"),
            "a store": ticket._replace(identities=(ticket.identities[0], "another"), job="not there"),
        }
        for what, other in others.items():
            refused = run_slice(other, specs=(specs[0], specs[1]))
            assert isinstance(refused, Refused)
            assert f"cannot be done from here, where this differs: {what}." in refused.reason
        worked(pair)
        assert copying.result(60).complete


def test_two_runs_of_one_slice_at_the_same_time_copy_no_range_twice(pair: Pair) -> None:
    with coordinated(pair, range_size=2) as copying:
        source, target = pair.source.spec, pair.target.spec
        assert source is not None
        assert target is not None
        with ThreadPoolExecutor(2) as pool:
            run = partial(run_slice, ticket_of(pair), 60.0, 1, (source, target))
            found = [item.result(60) for item in (pool.submit(run), pool.submit(run))]
        slices = [item for item in found if isinstance(item, SliceResult)]
        assert [item.error for item in slices] == [None, None]
        result = copying.result(60)
    assert result.complete
    assert all(item.rows for item in slices)
    assert sum(item.rows for item in slices) == result.totals.all()["written"]
    assert {item.attempts for item in pair.target.ledger.ranges(job_of(pair).id)} == {1}


def test_a_worker_waits_for_the_copy_with_which_it_is_started(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOOK_SECONDS", 0.05)
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(worked, pair)
        with coordinated(pair) as copying:
            assert early.result(60).rows
            assert copying.result(60).complete
        monkeypatch.setattr(workers, "AGAIN_SECONDS", 60.0)
        early = pool.submit(worked, pair)
        with coordinated(pair) as copying:
            assert early.result(60).rows
            assert copying.result(60).complete
    monkeypatch.setattr(workers, "JOB_SECONDS", 0.0)
    with pytest.raises(UnavailableError, match="A worker waits"):
        worked(pair, "no-such-job")


def test_a_job_that_begins_again_is_joined_again(pair: Pair) -> None:
    with coordinated(pair) as copying:
        worked(pair)
        copying.result(60)
    with coordinated(pair) as copying:
        assert job_of(pair).generation == 2
        worked(pair)
        assert copying.result(60).complete
    assert job_of(pair).state is JobState.COMPLETE


def test_a_ticket_is_small_and_holds_no_secret(pair: Pair) -> None:
    with coordinated(pair, jobs=1):
        ticket = pickle.dumps(ticket_of(pair))
    assert len(ticket) < TICKET_BYTES
    assert f":{PASSWORD}@".encode() not in ticket


@pytest.mark.long
def test_at_sigterm_a_worker_gives_its_ranges_back_within_seconds(
    pair: Pair, settings: dict[str, Any], tmp_path: Path
) -> None:
    config = write_config(tmp_path / "settings.json", settings)
    sides = "--module", "scheduler", "--from", pair.source.backend, "--to", pair.target.backend
    # So slowly that it is in the middle of a range.
    with coordinated(pair, max_rate=2):
        command = ["--config", str(config), "backfill", "work", *sides, "--execute"]
        process = subprocess.Popen([sys.executable, "-m", "twinstore_backfill", *command])
        job, ledger = job_of(pair), pair.target.ledger
        while not (held := list(ledger.ranges(job.id, state=RangeState.COPYING))):
            assert process.poll() is None
        asked = monotonic()
        process.terminate()
        assert process.wait(SIGTERM_SECONDS) == Exit.TERMINATED
        # Although its lease is longer than that.
        taken = {ledger.take(job.id, "another", item.entity, CopyOptions().lease) for item in held}
        assert None not in taken
        assert monotonic() - asked < SIGTERM_SECONDS + 1


def test_status_names_the_workers_with_their_last_sign(
    pair: Pair, settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "settings.json", settings)
    with coordinated(pair):
        job = job_of(pair)
        pair.target.ledger.heartbeat(job.id, "host/77/1/boot/1/1", CopyOptions().lease)
        status = "backfill", "status", "--module", "scheduler", "--to", pair.target.backend
        answer = invoke(capsys, "--config", config, *status, "--format", "json")
        (found,) = json.loads(answer.out)["jobs"][0]["workers"]
        assert (found["worker"], found["alive"]) == ("host/77/1/boot/1/1", True)
        assert found["seconds_since_sign"] < CopyOptions().lease.total_seconds()
        assert "worker 77 on host, last sign " in invoke(capsys, "--config", config, *status).out


@pytest.mark.parametrize(
    "url", ["processes", "processes://0", "processes://x", "workers://somewhere", "no://1"]
)
def test_an_engine_that_cannot_be_is_refused_before_anything_is_written(
    url: str, settings: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(settings, DIRECTIONS[0], tmp_path) as pair:
        fill(pair.source.storage)
        config = write_config(tmp_path / "settings.json", settings)
        sides = "--module", "scheduler", "--from", "mongo", "--to", "postgres"
        answer = invoke(capsys, "--config", config, "backfill", "copy", *sides, "--execute", "--engine", url)
        assert answer.code == Exit.USAGE
        assert len(answer.err.splitlines()) == 1
        assert not has_ledger(pair.target)

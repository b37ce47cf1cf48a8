"""Rows that retention removes while a verification runs: by a real TTL monitor, or by a purge."""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.read_concern import ReadConcern
from typing_extensions import override

import twinstore_embedded
from tests.migration_tool.verify.test_resume import compared, interrupted
from tests.support.copies import memory_pair, open_store
from twinstore.bulk.rows import ScanRow
from twinstore.catalog.tenancy import Tenant
from twinstore.clock import ManualClock
from twinstore.config import load_settings
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState
from twinstore.testing.entities import NOTES
from twinstore.testing.scheduler.builders import make_run, moved
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.retention import is_expired
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions
from twinstore_backfill.verify.ranges import ServerTime, counted_rows, sampled_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.copies import MemoryPair
    from tests.support.databases import PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.report.model import EntityReport, ParityReport
    from twinstore_backfill.stores import Store
    from twinstore_embedded import MongoServer

Step = str
Database = dict[str, Any]
RETENTION: Final = timedelta(days=180)
# By the clocks of the servers rows are due already; they are copied and compared by an instant before.
PATIENCE: Final = 60.0
DUE = [f"due-{number:02}" for number in range(12)]
KEPT = [f"kept-{number:02}" for number in range(8)]
COUNTED, COMPARED = "after the rows were counted", "before the lists are asked for"


@cache
def due_at() -> datetime:
    """Return when rows fell due: a minute before the first test, which may come long after the import."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=1)


def as_of() -> datetime:
    """Return the instant by which they are compared."""
    return due_at() - timedelta(minutes=1)


def store_finished(storage: SchedulerStorage, name: str, finished: datetime) -> None:
    """Store a run that ended at an instant."""
    run = make_run("acme", name, created_at=finished - timedelta(hours=1))
    storage.runs.create(run)
    storage.runs.update(moved(run, RunState.CANCELLED).evolve(finished_at=finished))


def fill(storage: SchedulerStorage) -> None:
    """Store runs that are due since a moment, and others that stay for months."""
    for name in DUE:
        store_finished(storage, name, due_at() - RETENTION)
    for name in KEPT:
        store_finished(storage, name, due_at() - timedelta(days=1))


@pytest.fixture(scope="module")
def busy() -> Iterator[MongoServer]:
    """Run a server whose TTL monitor comes every second, as soon as it is let."""
    with tempfile.TemporaryDirectory(prefix="twinstore-ttl-") as directory:
        parameters = {"ttlMonitorSleepSecs": 1, "ttlMonitorEnabled": "false"}
        server = twinstore_embedded.start_mongo(directory, parameters=parameters, owned=True)
        yield server
        server.stop()


@dataclass
class Hook(SilentProgress):
    """Does something at one moment of a verification."""

    step: Step
    action: Callable[[], None]
    done: list[Step] = field(default_factory=list)

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        self._at(COUNTED)

    @override
    def finish(self, name: str) -> None:
        self._at(COMPARED)

    def _at(self, step: Step) -> None:
        if step == self.step and not self.done:
            self.done.append(step)
            self.action()


@dataclass(frozen=True)
class Sides:
    """A source and a target, of which one is MongoDB with its monitor."""

    source: Store[SchedulerStorage]
    target: Store[SchedulerStorage]
    runs: Any

    def let_the_monitor_remove(self, *names: str) -> None:
        """Let the server remove runs, and wait until it has done so."""
        admin, deadline = self.runs.database.client.admin, time.monotonic() + PATIENCE
        admin.command("setParameter", 1, ttlMonitorEnabled=True)
        while self.runs.count_documents({"_id": {"$in": names or DUE}}):
            assert time.monotonic() < deadline, "the TTL monitor removes nothing"
            os.sched_yield()
        admin.command("setParameter", 1, ttlMonitorEnabled=False)

    def copy(self, directory: Path) -> None:
        options = CopyOptions(execute=True, out=directory, as_of=as_of())
        result = run_copy(self.source, self.target, options, SilentProgress(), StopSwitch())
        assert result.exit == 0

    def verify(self, progress: SilentProgress, **options: Any) -> ParityReport:  # noqa: ANN401  # options
        given = VerifyOptions(as_of=as_of(), **options)
        return run_verify(self.source, self.target, given, progress, StopSwitch())


@contextmanager
def sides_of(busy: MongoServer, postgres: PostgresDatabase, source: str) -> Iterator[Sides]:
    name = f"ttl_{uuid4().hex[:8]}"
    persistence = cast("Database", postgres.config["Persistence"])
    mongo = {"ConnectionString": busy.url, "Database": name}
    settings = load_settings(
        {"Persistence": {**persistence, "Mongo": mongo, "Scheduler": source}}, environ={}
    )
    other = "postgres" if source == "mongo" else "mongo"
    with ExitStack() as stack:
        client = stack.enter_context(closing(MongoClient[Database](busy.url)))
        stack.callback(client.drop_database, name)
        left = stack.enter_context(open_store("scheduler", source, settings))
        right = stack.enter_context(open_store("scheduler", other, settings))
        for side in (left, right):
            side.storage.initializer.ensure_migrations()
        fill(left.storage)
        # As the driver reads: what a majority has not removed yet is still there for it.
        runs = client[name].get_collection("runs", read_concern=ReadConcern("majority"))
        yield Sides(left, right, runs)


def runs_in(report: ParityReport) -> EntityReport:
    return next(item for item in report.entities if item.entity == "runs")


# Each moment and each side once.
@pytest.mark.parametrize(
    ("source", "step"),
    [
        ("mongo", COUNTED),
        ("postgres", COMPARED),
        pytest.param("mongo", COMPARED, marks=pytest.mark.long),
        pytest.param("postgres", COUNTED, marks=pytest.mark.long),
    ],
)
def test_what_the_ttl_monitor_removes_meanwhile_counts_as_expired(
    busy: MongoServer, postgres_database: PostgresDatabase, tmp_path: Path, source: str, step: Step
) -> None:
    with sides_of(busy, postgres_database, source) as sides:
        sides.copy(tmp_path)
        assert runs_in(sides.verify(SilentProgress())).counts.equal == len(KEPT) + len(DUE)
        hook = Hook(step, sides.let_the_monitor_remove)
        report = sides.verify(hook)
        assert hook.done == [step]
        assert (report.verdict, report.reasons) == ("PASS", ())
        assert report.cutover_ready
        assert runs_in(report).counts.equal == len(KEPT) + (len(DUE) if step == COMPARED else 0)
        # Afterwards only one side has them.
        after = sides.verify(SilentProgress())
        assert (after.verdict, after.reasons) == ("PASS", ())


def test_a_ttl_of_the_source_alone_explains_what_goes_meanwhile(
    busy: MongoServer, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """The source keeps runs for 30 days, the target for 180."""
    with sides_of(busy, postgres_database, "mongo") as sides:
        store_finished(sides.source.storage, "short", due_at() - timedelta(days=30))
        store_finished(sides.source.storage, "gone", due_at() - timedelta(days=31))
        age = {"keyPattern": {"finishedAt": 1}, "expireAfterSeconds": 30 * 86_400}
        sides.runs.database.command("collMod", "runs", index=age)
        sides.copy(tmp_path)
        remove = partial(sides.let_the_monitor_remove, "short", "gone", *DUE)
        report = sides.verify(Hook(COUNTED, remove), entities=("runs",))
    # What the source had due long before is extra in a target that keeps it for longer.
    assert [item.key for item in runs_in(report).extra.shown] == [("gone",)]


@dataclass(frozen=True)
class Purged:
    """A pair in memory, where nothing is removed but by a purge; its clock goes on while it is compared."""

    pair: MemoryPair
    clock: ManualClock

    def purge(self) -> None:
        self.clock.advance(timedelta(seconds=2))
        assert self.pair.source.storage.runs.purge_finished(due_at() - RETENTION) == len(DUE)

    def purge_one_more(self) -> None:
        self.purge()
        with self.pair.source.bulk.writer(RUNS) as writer:
            writer.remove([(KEPT[0],)])
            writer.flush()
            writer.commit()

    def verify(self, progress: SilentProgress, **options: Any) -> ParityReport:  # noqa: ANN401  # options
        given = VerifyOptions(**options)
        return run_verify(self.pair.source, self.pair.target, given, progress, StopSwitch())


@pytest.fixture
def purged(tmp_path: Path) -> Iterator[Purged]:
    clock = ManualClock(due_at() - timedelta(seconds=1))
    with memory_pair(tmp_path) as pair:
        for store in pair.stores:
            store.clock = clock
        fill(pair.source.storage)
        pair.copy(as_of=None)
        yield Purged(pair, clock)


def test_what_a_purge_removes_meanwhile_counts_as_expired(purged: Purged) -> None:
    for progress in (Hook(COUNTED, purged.purge), SilentProgress()):
        report = purged.verify(progress)
        assert (report.verdict, report.reasons) == ("PASS", ())
    # Much later it is no longer to be seen what was removed when.
    purged.clock.advance(timedelta(hours=1))
    late = purged.verify(SilentProgress(), as_of=due_at() - timedelta(1))
    assert runs_in(late).counts.extra == len(DUE)


def test_what_is_removed_before_a_verification_is_continued_counts_as_expired(
    purged: Purged, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("twinstore_backfill.verify.plan.RANGES_AT_ONCE", 2)
    given: dict[str, Any] = {"as_of": None, "range_size": 3, "entities": ("runs",)}
    interrupted(purged.pair, tmp_path, 1, **given)
    purged.purge()
    purged.clock.advance(timedelta(hours=1))
    report, *_ = compared(purged.pair, tmp_path, resume=True, **given)
    assert (report.verdict, report.reasons) == ("PARTIAL", ())
    assert report.envelope.as_of == report.envelope.continued
    counts = runs_in(report).counts
    assert (counts.equal, counts.expired_target) == (6 + len(KEPT), len(DUE) - 6)


def test_a_sample_is_not_misled_either(purged: Purged) -> None:
    report = purged.verify(Hook(COUNTED, purged.purge), mode="sample")
    assert {check.id: check.result for check in report.checks}["C1"] == "pass"
    assert report.verdict == "INCONCLUSIVE"


def test_a_row_that_is_not_due_is_still_missed(purged: Purged) -> None:
    report = purged.verify(Hook(COUNTED, purged.purge_one_more))
    assert report.verdict == "FAIL"
    assert [item.key for item in runs_in(report).extra.shown] == [(KEPT[0],)]


def test_the_other_conditions_of_retention_count_too() -> None:
    limit = datetime(2026, 1, 1, tzinfo=UTC)

    def note(level: str) -> ScanRow:
        content = b'{"doc":{"level":"%s"},"storage":{}}' % level.encode()
        return ScanRow(("n",), Tenant("acme"), content, expires=limit - timedelta(days=1))

    assert is_expired(NOTES, note("low"), limit)
    assert not is_expired(NOTES, note("high"), limit)
    assert not is_expired(NOTES, note("low"), limit - timedelta(days=2))
    assert not is_expired(NOTES, note("low"), None)


def test_rows_that_a_scan_skipped_are_not_taken_for_removed_ones() -> None:
    assert counted_rows((10, 10), (8, 10), (8, 10)) == (8, 10)
    assert counted_rows((10, 10), (7, 10), (8, 10)) == (8, 10)
    # Still there afterwards, so the scan did not see them.
    assert counted_rows((10, 10), (10, 10), (8, 10)) == (10, 10)
    # More than were counted: another process writes.
    assert counted_rows((10, 10), (12, 10), (12, 10)) == (10, 10)


def test_a_sample_accepts_only_numbers_that_were_possible() -> None:
    assert sampled_rows((10, 10), (7, 10), -3) == (7, 10)
    assert sampled_rows((10, 10), (9, 10), -3) == (10, 10)
    assert sampled_rows((10, 10), (10, 10), 0) == (10, 10)


def test_servers_are_asked_once_a_second_and_the_later_one_counts() -> None:
    ticks = [0.0]
    asked: list[int] = []
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def clock() -> datetime:
        asked.append(1)
        return noon + timedelta(seconds=ticks[0])

    time_of = ServerTime((clock, lambda: noon - timedelta(hours=1)), lambda: ticks[0])
    assert time_of.now(at_least=noon) == noon
    assert time_of.now(at_least=noon + timedelta(seconds=5)) == noon
    ticks[0] = 2.0
    assert time_of.now(at_least=noon) == noon
    assert time_of.now(at_least=noon + timedelta(seconds=5)) == noon + timedelta(seconds=2)
    assert len(asked) == 2

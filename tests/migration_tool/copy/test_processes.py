"""A copy with more threads than one process is good for: others help, as workers of their own."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from typing_extensions import override

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.support.copies import AS_OF, contents_of, fill
from twinstore.errors import ValidationError
from twinstore.fast.library import SWITCH
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy import engine, others
from twinstore_backfill.copy.control import SHARE_SECONDS, RateLimiter
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.worker import copy_ranges
from twinstore_backfill.engines import pool
from twinstore_backfill.engines.processes import Processes
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.stopping import StopRequestedError, StopSwitch
from twinstore_backfill.progress.record import RecordedProgress, SilentProgress
from twinstore_backfill.stores import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore_backfill.copy.report import CopyResult
    from twinstore_backfill.copy.worker import CopyContext

ROWS = 300


@pytest.fixture
def pair(
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    monkeypatch.setattr(engine, "THREADS_PER_PROCESS", 1)
    sides: dict[str, Any] = {}
    for database in (mongo_database, postgres_database):
        persistence = database.config["Persistence"]
        assert isinstance(persistence, dict)
        sides.update(persistence)
    settings: dict[str, object] = {
        "Persistence": sides,
        "Scheduler": {"Storage": {"RunRetentionDays": 0}},
    }
    with opened(settings, DIRECTIONS[0], tmp_path) as pair:
        fill(pair.source.storage)
        for number in range(ROWS):
            pair.source.storage.runs.create(make_run("acme", f"many-{number:04}"))
        yield pair


@pytest.fixture(autouse=True)
def slow_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process copy nothing before another has, or nothing would be left for that."""
    honest, look, heard = copy_ranges, others.Others.look, Event()

    def looked(self: others.Others) -> bool:
        found = look(self)
        if found:
            heard.set()
        return found

    def later(context: CopyContext, jobs: int) -> None:
        while not context.stop.requested and not heard.wait(0.1):
            pass
        honest(context, jobs)

    monkeypatch.setattr(others, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(others.Others, "look", looked)
    monkeypatch.setattr(engine, "copy_ranges", later)


class AtFirst(RecordedProgress):
    """Does something when it hears of the first range, which another process has copied."""

    def __init__(self, do: Callable[[], object]) -> None:
        super().__init__()
        self._do: Callable[[], object] | None = do

    @override
    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        super().count(name, outcomes)
        do = self._do
        if do is not None and outcomes.get("ranges"):
            self._do = None
            do()


def workers_of(pair: Pair) -> set[str | None]:
    (job,) = pair.target.ledger.jobs()
    return {item.worker for item in pair.target.ledger.ranges(job.id)}


def kill_children() -> None:
    for child in multiprocessing.active_children():
        child.kill()


def copied(
    pair: Pair,
    progress: RecordedProgress | None = None,
    stop: StopSwitch | None = None,
    **options: Any,  # noqa: ANN401  # those of a copy
) -> CopyResult:
    given = {"jobs": 2, "range_size": 20, "as_of": AS_OF, "execute": True, "out": pair.directory, **options}
    told = progress or SilentProgress()
    return run_copy(pair.source, pair.target, CopyOptions(**given), told, stop or StopSwitch())


def assert_copied(pair: Pair, result: CopyResult) -> None:
    assert (result.exit, result.complete) == (Exit.OK, True)
    assert contents_of(pair.target.bulk, RUNS) == contents_of(pair.source.bulk, RUNS)


@pytest.mark.parametrize("engine_url", [None, pytest.param("processes://2", marks=pytest.mark.long)])
def test_other_processes_copy_ranges_and_the_progress_hears_of_them(
    pair: Pair, engine_url: str | None
) -> None:
    progress = RecordedProgress()
    assert_copied(pair, copied(pair, progress, engine=engine_url))
    assert len(workers_of(pair)) > 1
    for state in progress.states():
        assert (state.done, state.finished) == (state.total, True), state
    assert progress.state("runs").outcomes["read"] == progress.state("runs").done


@pytest.mark.parametrize("engine_url", [None, pytest.param("processes://2", marks=pytest.mark.long)])
def test_a_killed_process_causes_no_loss(pair: Pair, engine_url: str | None) -> None:
    progress = AtFirst(kill_children)
    assert_copied(pair, copied(pair, progress, range_size=2, engine=engine_url))
    assert progress.state("runs").done == progress.state("runs").total


def test_a_stop_reaches_every_process_and_the_next_run_goes_on(pair: Pair) -> None:
    stop = StopSwitch()
    with suppress(StopRequestedError):
        # Slowly, or the other process may be at the end before it hears of the stop.
        stopped = copied(pair, AtFirst(stop.request), stop, max_rate=60)
        assert not stopped.complete
    assert not multiprocessing.active_children()
    assert_copied(pair, copied(pair, jobs=1))


@pytest.mark.long
def test_conflicts_of_all_processes_count_for_the_limit(pair: Pair) -> None:
    for number in range(0, ROWS, 10):
        pair.target.storage.runs.create(make_run("acme", f"many-{number:04}", schedule_id="another"))
    assert "conflicts" in copied(pair, max_conflicts=5).stopped


@pytest.mark.long
def test_a_process_that_cannot_open_a_store_is_named_and_the_others_copy(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert pair.source.spec is not None
    broken = StoreSpec(pair.source.spec.module, "no-such-driver", pair.source.spec.entries)
    warn, warned = pool.log.warning, Event()

    def warning(message: str, *given: object) -> None:
        warn(message, *given)
        warned.set()

    def later(context: CopyContext, jobs: int) -> None:
        assert warned.wait(60)
        copy_ranges(context, jobs)

    monkeypatch.setattr(pool.log, "warning", warning)
    monkeypatch.setattr(engine, "copy_ranges", later)
    assert_copied(pair, copied(replace(pair, source=replace(pair.source, spec=broken))))
    assert "cannot take part: Unknown driver 'no-such-driver'" in caplog.text


def without_fast_path(function: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401  # as there
    """Run a function in a process that does not use the native library."""
    os.environ[SWITCH] = "off"
    return function(*arguments)


class Slow(Processes):
    """Child processes without the fast path."""

    @override
    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        return super().submit(without_fast_path, function, *arguments)


@pytest.mark.native
def test_a_worker_without_the_fast_path_is_named_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine, "open_engine", lambda _url: Slow("2"))
    assert_copied(pair, copied(pair, engine="processes://2"))
    (said,) = [text for text in caplog.messages if "without the fast path" in text]
    assert said.endswith(f"{SWITCH}=off")


def test_a_store_of_this_process_alone_needs_no_engine(pair: Pair) -> None:
    own = replace(pair, source=replace(pair.source, spec=None))
    with pytest.raises(ValidationError, match="lives in this process"):
        copied(own, engine="processes://2")


def test_each_process_keeps_to_its_part_of_the_rate() -> None:
    waited: list[float] = []

    class Waiting(StopSwitch):
        def pause(self, seconds: float) -> None:
            waited.append(seconds)

    now, workers = [0.0], [4]
    limiter = RateLimiter(100.0, Waiting(), now=lambda: now[0], workers=lambda: workers[0])
    limiter.take(50)
    workers[0] = 1
    limiter.take(50)
    now[0] += SHARE_SECONDS
    limiter.take(250)
    assert waited == [2.0, 4.0, 1.5]

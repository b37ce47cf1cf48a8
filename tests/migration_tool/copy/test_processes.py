"""A copy with more threads than one process is good for: others help, as workers of their own."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.support.copies import AS_OF, contents_of, fill
from twinstore.errors import ConfigurationError
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy import engine, processes
from twinstore_backfill.copy.control import SHARE_SECONDS, RateLimiter
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.processes import Advanced, Begun, Finished, HelperProcess, threads_of_processes
from twinstore_backfill.copy.worker import copy_ranges
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.stopping import StopRequestedError, StopSwitch
from twinstore_backfill.progress.record import RecordedProgress, SilentProgress
from twinstore_backfill.stores import StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
    monkeypatch.setattr(processes, "THREADS_PER_PROCESS", 1)
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
    """Let this process copy nothing before a helper has, or nothing would be left for that."""
    honest, begun = copy_ranges, Event()
    take = HelperProcess._handle  # noqa: SLF001  # what a helper says can be seen nowhere else

    def taken(self: HelperProcess, message: object) -> None:
        take(self, message)
        if not isinstance(message, Begun):
            begun.set()

    def later(context: CopyContext, jobs: int) -> None:
        assert begun.wait(60)
        honest(context, jobs)

    monkeypatch.setattr(HelperProcess, "_handle", taken)
    monkeypatch.setattr(engine, "copy_ranges", later)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the messages of helpers."""
    messages: list[object] = []
    honest = HelperProcess._handle  # noqa: SLF001  # as above

    def take(self: HelperProcess, message: object) -> None:
        messages.append(message)
        honest(self, message)

    monkeypatch.setattr(HelperProcess, "_handle", take)
    return messages


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


@contextmanager
def at_first(
    kind: type[object], do: Callable[[HelperProcess], object], patch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Do something at the first message of this kind from a helper."""
    honest, done = HelperProcess._handle, Counter[str]()  # noqa: SLF001  # as above

    def take(self: HelperProcess, message: object) -> None:
        honest(self, message)
        if isinstance(message, kind) and not done["once"]:
            done["once"] += 1
            do(self)

    with patch.context() as patched:
        patched.setattr(HelperProcess, "_handle", take)
        yield
    assert done["once"]


def test_another_process_copies_some_of_the_ranges(pair: Pair, heard: list[object]) -> None:
    progress = RecordedProgress()
    assert_copied(pair, copied(pair, progress))
    ranges = [message for message in heard if isinstance(message, Finished)]
    assert ranges
    for state in progress.states():
        assert (state.done, state.finished) == (state.total, True), state
    assert progress.state("runs").outcomes["read"] == progress.state("runs").done


def test_a_killed_helper_causes_no_delay_and_no_loss(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(helper: HelperProcess) -> None:
        os.kill(helper._process.pid or 0, signal.SIGKILL)  # noqa: SLF001  # the one that was started here

    progress = RecordedProgress()
    with at_first(Advanced, kill, monkeypatch):
        assert_copied(pair, copied(pair, progress))
    assert progress.state("runs").done == progress.state("runs").total


def test_a_stop_reaches_every_process_and_the_next_run_goes_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = StopSwitch()
    with at_first(Finished, lambda _: stop.request(), monkeypatch), suppress(StopRequestedError):
        # Slowly, or the other process may be at the end before it hears of the stop.
        stopped = copied(pair, stop=stop, max_rate=60)
        assert not stopped.complete
    assert_copied(pair, copied(pair, jobs=1))


@pytest.mark.long
def test_conflicts_of_all_processes_count_for_the_limit(pair: Pair) -> None:
    for number in range(0, ROWS, 10):
        pair.target.storage.runs.create(make_run("acme", f"many-{number:04}", schedule_id="another"))
    assert "conflicts" in copied(pair, max_conflicts=5).stopped


@pytest.mark.long
def test_what_ends_a_helper_ends_the_copy_with_its_reason(pair: Pair) -> None:
    assert pair.source.spec is not None
    broken = StoreSpec(pair.source.spec.module, "no-such-driver", pair.source.spec.entries)
    with pytest.raises(ConfigurationError, match="no-such-driver"):
        copied(replace(pair, source=replace(pair.source, spec=broken)))


def test_threads_are_spread_over_processes_where_a_copy_allows_it(pair: Pair) -> None:
    def threads(number: int, **options: Any) -> list[int]:  # noqa: ANN401  # those of a copy
        return threads_of_processes(pair.source, pair.target, CopyOptions(**options), number)

    assert threads(1) == [1]
    assert threads(3) == [1, 1, 1]
    assert threads(3, on_conflict="overwrite") == [3]
    own = replace(pair.source, spec=None)
    assert threads_of_processes(own, pair.target, CopyOptions(), 16) == [16]


def test_beyond_eight_jobs_no_process_has_more_than_eight(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "THREADS_PER_PROCESS", 8)
    spread = [
        threads_of_processes(pair.source, pair.target, CopyOptions(), number) for number in (8, 9, 16, 17)
    ]
    assert spread == [[8], [5, 4], [8, 8], [6, 6, 5]]


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

"""A running copy reports batch by batch, without batches that are empty or were rolled back."""

from __future__ import annotations

from collections import Counter
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from rich.progress import Progress as RichProgress
from typing_extensions import override

from tests.support.copies import AS_OF, memory_pair
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.bars import BarProgress
from twinstore_backfill.progress.record import LineProgress, Progress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import MemoryPair

RUNS = 50


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a source with runs and nothing else, and an empty target."""
    with memory_pair(tmp_path) as pair:
        for number in range(RUNS):
            pair.source.storage.runs.create(make_run("acme", f"run-{number:02}"))
        yield pair


class Heard(Progress):
    """Keeps what it hears, and asks for a stop after some documents."""

    def __init__(self, stop: StopSwitch, after: int) -> None:
        self.done: Counter[str] = Counter()
        self.steps: list[int] = []
        self.finished: list[str] = []
        self._stop, self._after = stop, after

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        """Keep what was done before."""
        self.done[name] += done

    @override
    def advance(self, name: str, count: int) -> None:
        """Count."""
        self.steps.append(count)
        self.done[name] += count
        if self.done[name] >= self._after:
            # As a signal does.
            self._stop.request(2)

    @override
    def finish(self, name: str) -> None:
        """Keep the name."""
        self.finished.append(name)


class Impatient(StopSwitch):
    """Does not wait for the rate."""

    @override
    def pause(self, seconds: float) -> None:
        """Look at the switch only."""
        self.check()


def copied(pair: MemoryPair, progress: Progress, stop: StopSwitch, **options: object) -> None:
    given = {"out": pair.directory, "as_of": AS_OF, "range_size": 20, "jobs": 1, "execute": True, **options}
    run_copy(pair.source, pair.target, CopyOptions(**given), progress, stop)  # type: ignore[arg-type]  # options of a test


def test_a_stopped_copy_has_reported_finished_ranges_only_and_resumes_there(pair: MemoryPair) -> None:
    stop = StopSwitch()
    heard = Heard(stop, after=33)
    with pytest.raises(InterruptedRunError):
        copied(pair, heard, stop, batch_size=4)
    assert 4 in heard.steps
    # The second range of twenty was rolled back.
    assert (heard.done["runs"], "runs" in heard.finished) == (20, False)
    again = Heard(StopSwitch(), after=RUNS + 1)
    copied(pair, again, StopSwitch(), batch_size=4)
    assert (again.done["runs"], "runs" in again.finished) == (RUNS, True)


@pytest.mark.parametrize("execute", [True, False])
def test_at_a_limited_rate_every_second_reports_something(pair: MemoryPair, *, execute: bool) -> None:
    heard = Heard(StopSwitch(), after=RUNS + 1)
    copied(pair, heard, Impatient(), max_rate=7.9, execute=execute, range_size=1000)
    assert heard.steps == [7] * 7 + [1]
    assert CopyOptions(max_rate=1e9).rows_per_batch == CopyOptions().batch_size


def test_an_empty_entity_is_not_shown(pair: MemoryPair) -> None:
    lines = StringIO()
    copied(pair, LineProgress(lines), StopSwitch())
    assert [line.split(":")[0] for line in lines.getvalue().splitlines()] == ["runs"]


class TestBars:
    def test_of_a_stopped_part_keeps_its_total(self) -> None:
        shown, bars = _bars()
        bars.start("runs", 100)
        bars.advance("runs", 40)
        bars.advance("runs", -10)
        (task,) = shown.tasks
        assert (task.completed, task.total, task.finished) == (30, 100, False)

    def test_of_an_empty_part_appears_when_there_is_something_after_all(self) -> None:
        shown, bars = _bars()
        bars.start("audit", 0)
        assert not shown.tasks[0].visible
        bars.advance("audit", 3)
        bars.finish("audit")
        assert (shown.tasks[0].visible, shown.tasks[0].total) == (True, 3)


def _bars() -> tuple[RichProgress, BarProgress]:
    shown = RichProgress(console=Console(file=StringIO(), force_terminal=True))
    return shown, BarProgress(shown)

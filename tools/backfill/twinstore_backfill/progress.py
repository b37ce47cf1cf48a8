"""Progress on stderr: a bar with rate and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from twinstore_backfill.messages import LogFormat, chosen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import TextIO

    from rich.progress import Task, TaskID

__all__ = ["Progress", "SilentProgress", "progress_on"]

# Columns of a terminal: from here on there is room for a bar of its usual length, for any bar and the rate.
ROOM_FOR_ALL: Final = 100
ROOM_FOR_A_BAR: Final = 60


class Progress(Protocol):
    """Hears what was done; may be called from several threads, which may work on several parts at a time."""

    def start(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part of ``total`` documents, of which an earlier run left ``done`` finished."""
        ...

    def advance(self, name: str, count: int) -> None:
        """Count documents of a part that has begun; a negative count takes back what came to nothing."""
        ...

    def finish(self, name: str) -> None:
        """End a part of which everything is done; one that is stopped or has failed is not finished."""
        ...

    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        """Count what became of documents of a part, range by range. Default: nobody asks."""
        del name, outcomes


class SilentProgress(Progress):
    """Says nothing."""

    @override
    def start(self, name: str, total: int, done: int = 0) -> None:
        """Say nothing."""

    @override
    def advance(self, name: str, count: int) -> None:
        """Say nothing."""

    @override
    def finish(self, name: str) -> None:
        """Say nothing."""


class CountColumn(ProgressColumn):
    """Documents that are done, of all."""

    @override
    def render(self, task: Task) -> Text:
        """Return the count of a part."""
        return Text(f"{int(task.completed):,}/{int(task.total or 0):,}", style="progress.download")


class RateColumn(ProgressColumn):
    """Documents per second."""

    @override
    def render(self, task: Task) -> Text:
        """Return the rate of a part."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class BarProgress(Progress):
    """A bar per part on a terminal."""

    def __init__(self, progress: RichProgress) -> None:
        """Take the running display."""
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    @override
    def start(self, name: str, total: int, done: int = 0) -> None:
        """Add a bar; that of an empty part appears when there is something after all."""
        visible = bool(total or done)
        self._tasks[name] = self._progress.add_task(name, total=total, completed=done, visible=visible)

    @override
    def advance(self, name: str, count: int) -> None:
        """Move the bar."""
        self._progress.update(self._tasks[name], advance=count, visible=True)

    @override
    def finish(self, name: str) -> None:
        """Fill the bar: a part may hold fewer documents than were counted before."""
        number = self._tasks[name]
        completed = next(task.completed for task in self._progress.tasks if task.id == number)
        self._progress.update(number, total=completed, completed=completed)
        self._progress.stop_task(number)


@contextmanager
def progress_on(stream: TextIO | None = None) -> Iterator[Progress]:
    """Show progress on a stream, stderr by default, in the way it can."""
    from twinstore_backfill.progress_record import LineProgress  # noqa: PLC0415  # it needs this module

    shown: TextIO = stream or sys.stderr
    if chosen().quiet:
        yield SilentProgress()
        return
    console = Console(file=shown)
    # Bars redraw a line, which fills a log with control characters.
    if not shown.isatty() or console.is_dumb_terminal or chosen().format is LogFormat.JSON:
        yield LineProgress(shown)
        return
    with RichProgress(*_columns(console.width), console=console) as progress:
        yield BarProgress(progress)


def _columns(width: int) -> Iterator[ProgressColumn]:
    """Yield what fits beside each other; no name or number is broken, the bar gives way."""

    def whole() -> Column:
        return Column(no_wrap=True)

    yield TextColumn("{task.description}", table_column=whole())
    if width >= ROOM_FOR_A_BAR:
        yield BarColumn(bar_width=40 if width >= ROOM_FOR_ALL else None)
    yield CountColumn(table_column=whole())
    if width >= ROOM_FOR_A_BAR:
        yield RateColumn(table_column=whole())
    yield TimeRemainingColumn(table_column=whole())

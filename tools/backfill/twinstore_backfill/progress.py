"""Progress on stderr: a bar with rate and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from rich.progress import Task, TaskID

__all__ = ["Progress", "Silent", "progress_on"]

SECONDS_BETWEEN_LINES: Final = 5.0


class Progress(Protocol):
    """Hears what was done; may be called from several threads."""

    def start(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part of ``total`` documents, of which an earlier run left ``done`` finished."""
        ...

    def advance(self, count: int) -> None:
        """Count documents of the current part."""
        ...

    def finish(self) -> None:
        """End the current part."""
        ...


class Silent:
    """Says nothing."""

    def start(self, name: str, total: int, done: int = 0) -> None:
        """Say nothing."""

    def advance(self, count: int) -> None:
        """Say nothing."""

    def finish(self) -> None:
        """Say nothing."""


class Lines:
    """Writes a line every few seconds and one at the end of each part."""

    def __init__(self, stream: TextIO) -> None:
        """Take the stream to write to."""
        self._stream = stream
        self._lock = Lock()
        self._name, self._total, self._done, self._before = "", 0, 0, 0
        self._started = self._said = monotonic()

    def start(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part."""
        with self._lock:
            self._name, self._total, self._done, self._before = name, total, done, done
            self._started = self._said = monotonic()

    def advance(self, count: int) -> None:
        """Count, and write a line when the last one is old."""
        with self._lock:
            self._done += count
            if monotonic() - self._said >= SECONDS_BETWEEN_LINES:
                self._said = monotonic()
                self._write(left=True)

    def finish(self) -> None:
        """Write the last line of the part."""
        with self._lock:
            self._write(left=False)

    def _write(self, *, left: bool) -> None:
        seconds = max(monotonic() - self._started, 1e-3)
        # What an earlier run finished says nothing of the speed of this one.
        rate = (self._done - self._before) / seconds
        more = self._total - self._done
        remaining = f", about {more / rate:.0f} s left" if left and rate and more > 0 else ""
        self._stream.write(f"{self._name}: {self._done:,} of {self._total:,}, {rate:,.0f}/s{remaining}\n")
        self._stream.flush()


class RateColumn(ProgressColumn):
    """Documents per second."""

    def render(self, task: Task) -> Text:
        """Return the rate of a part."""
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class Bars:
    """A bar per part on a terminal."""

    def __init__(self, progress: RichProgress) -> None:
        """Take the running display."""
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, name: str, total: int, done: int = 0) -> None:
        """Add a bar."""
        self._task = self._progress.add_task(name, total=total, completed=done)

    def advance(self, count: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.advance(self._task, count)

    def finish(self) -> None:
        """Fill the bar: a part may hold fewer documents than were counted before."""
        if self._task is not None:
            task = self._progress.tasks[self._task]
            self._progress.update(self._task, total=task.completed or 1, completed=task.completed or 1)
            self._progress.stop_task(self._task)


@contextmanager
def progress_on(stream: TextIO | None = None) -> Iterator[Progress]:
    """Show progress on a stream, stderr by default, in the way it can."""
    shown: TextIO = stream or sys.stderr
    if not shown.isatty():
        yield Lines(shown)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(file=shown)) as progress:
        yield Bars(progress)

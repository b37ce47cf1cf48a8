"""Progress on stderr: a bar with rate and time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text
from typing_extensions import override

from twinstore_backfill.process.messages import LogFormat, message_settings
from twinstore_backfill.progress.record import LineProgress, Progress, SilentProgress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO

    from rich.progress import Task, TaskID


class RateColumn(ProgressColumn):
    """Documents per second; the column of rich counts bytes."""

    @override
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="progress.data.speed")


class BarProgress(Progress):
    """A bar per part on a terminal."""

    def __init__(self, progress: RichProgress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        """Add a bar; that of an empty part appears when there is something after all."""
        visible = bool(total or done)
        self._tasks[name] = self._progress.add_task(
            name, total=total, completed=done, visible=visible, about="~" if estimated else ""
        )

    @override
    def advance(self, name: str, count: int) -> None:
        self._progress.update(self._tasks[name], advance=count, visible=True)

    @override
    def finish(self, name: str) -> None:
        """Fill the bar: a part may hold fewer documents than were counted before."""
        number = self._tasks[name]
        completed = next(task.completed for task in self._progress.tasks if task.id == number)
        self._progress.update(number, total=completed, completed=completed, about="")
        self._progress.stop_task(number)


@contextmanager
def progress_on(stream: TextIO | None = None) -> Iterator[Progress]:
    """Show progress on a stream, stderr by default, in the way it can."""
    shown: TextIO = stream or sys.stderr
    if message_settings().quiet:
        yield SilentProgress()
        return
    console = Console(file=shown)
    # Bars redraw a line, which fills a log with control characters.
    if not shown.isatty() or console.is_dumb_terminal or message_settings().format is LogFormat.JSON:
        yield LineProgress(shown)
        return
    counts = "{task.completed:,.0f}/{task.fields[about]}{task.total:,.0f}"
    columns = ("{task.description}", BarColumn(None), counts, RateColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=console) as progress:
        yield BarProgress(progress)

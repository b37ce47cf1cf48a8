"""How the demo talks: what comes next, a bar of the steps that are done, and what each step took."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn

from twinstore_backfill.messages import chosen

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import TracebackType

__all__ = ["STEPS", "Story"]

# Each is shown as done where it ends.
STEPS: Final = 17
ROOM_FOR_A_BAR: Final = 60


class Story:
    """Tells on stdout what happens; where that is a terminal, below it moves a bar."""

    def __init__(self) -> None:
        """Begin."""
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._bar: Progress | None = None
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        """Show the bar."""
        lively = sys.stdout.isatty() and not self.console.is_dumb_terminal and not chosen().quiet
        if lively:
            columns: list[ProgressColumn] = [SpinnerColumn(), MofNCompleteColumn()]
            if self.console.width >= ROOM_FOR_A_BAR:
                columns.insert(1, BarColumn(40))
            self._bar = self._shown.enter_context(Progress(*columns, console=self.console, transient=True))
            self._bar.add_task("", total=STEPS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the bar away."""
        self._shown.close()

    def say(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """Print a line, unless only the result is wanted; one to be copied is not broken by us."""
        if not chosen().quiet:
            self.console.print(text, style=style, soft_wrap=whole or not self.console.is_terminal)

    @contextmanager
    def step(self, title: str) -> Generator[None]:
        """Say what begins, so that nobody takes a long step for a silent one, and then how long it took."""
        self.say(f".. {title}", "dim")
        started = time.monotonic()
        yield
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])
        self.say(f"-- {title} ({time.monotonic() - started:.1f} s)")

"""How the demo talks: what comes next, a bar that says how long it still takes, and what each step took."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn
from rich.progress_bar import ProgressBar
from rich.text import Text
from typing_extensions import override

from twinstore_backfill.messages import chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from types import TracebackType

    from rich.progress import Task

__all__ = ["Pace", "Story"]

# Seconds on two cores that have nothing else to do, and how often there is such a step. They place the bar.
USUAL: Final[Mapping[str, tuple[float, int]]] = {
    "start": (1.5, 1),
    "serve": (2.5, 1),
    "write": (5.5, 1),
    "copy": (2.0, 1),
    "verify": (3.0, 1),
    "corrupt": (9.0, 1),
    "switch": (0.5, 1),
    "serve on": (2.5, 1),
    "write more": (1.0, 2),
    "copy more": (1.5, 2),
    "verify more": (1.5, 2),
    "stop": (1.5, 1),
}
TOTAL: Final = sum(seconds * often for seconds, often in USUAL.values())
# A step that takes longer than usual holds the bar here until it ends.
ALMOST: Final = 0.95
ROOM_FOR_A_BAR: Final = 60


class Pace:
    """How far the demo is, by the clock and by how long its steps took until now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin now."""
        self._clock = clock
        self._began = self._step_began = clock()
        self._before = self._usual = 0.0

    def begin(self, kind: str) -> None:
        """A step begins."""
        self._step_began, self._usual = self._clock(), USUAL[kind][0]

    def end(self) -> None:
        """The step has ended."""
        self._before, self._usual = self._before + self._usual, 0.0

    @property
    def done(self) -> float:
        """The part that is done, from 0 to 1."""
        within = (self._clock() - self._step_began) / self._slowness
        return (self._before + min(within, self._usual * ALMOST)) / TOTAL

    @property
    def seconds_left(self) -> float:
        """How long it still takes."""
        return (1 - self.done) * TOTAL * self._slowness

    @property
    def _slowness(self) -> float:
        # On a slower machine every step takes longer in about the same proportion.
        return (self._step_began - self._began) / self._before if self._before else 1.0


class PaceColumn(ProgressColumn):
    """The bar, computed whenever the terminal is drawn."""

    def __init__(self, pace: Pace, width: int) -> None:
        """Take what tells how far it is, and how wide the bar may be."""
        super().__init__()
        self._pace, self._width = pace, width

    @override
    def render(self, task: Task) -> ProgressBar:
        """Return the bar."""
        return ProgressBar(total=1, completed=self._pace.done, width=self._width)


class LeftColumn(ProgressColumn):
    """How long it still takes."""

    def __init__(self, pace: Pace) -> None:
        """Take what tells how far it is."""
        super().__init__()
        self._pace = pace

    @override
    def render(self, task: Task) -> Text:
        """Return the seconds."""
        return Text(f"about {self._pace.seconds_left:.0f} s left", no_wrap=True)


class Story:
    """Tells on stdout what happens; where that is a terminal, below it moves a bar."""

    def __init__(self) -> None:
        """Begin."""
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._pace = Pace()
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        """Show the bar."""
        lively = sys.stdout.isatty() and not self.console.is_dumb_terminal and not chosen().quiet
        if lively:
            columns: list[ProgressColumn] = [SpinnerColumn(), LeftColumn(self._pace)]
            if self.console.width >= ROOM_FOR_A_BAR:
                columns.insert(1, PaceColumn(self._pace, 40))
            bar = self._shown.enter_context(Progress(*columns, console=self.console, transient=True))
            bar.add_task("", total=None)
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
    def step(self, kind: str, title: str) -> Generator[None]:
        """Say what begins, so that nobody takes a long step for a silent one, and then how long it took."""
        self.say(f".. {title}", "dim")
        started = time.monotonic()
        self._pace.begin(kind)
        yield
        self._pace.end()
        self.say(f"-- {title} ({time.monotonic() - started:.1f} s)")

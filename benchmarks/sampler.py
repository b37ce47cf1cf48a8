"""Runs the command line and counts what all of its threads are doing, a hundred times a second.

``python benchmarks/sampler.py profile.txt backfill copy …`` writes the places that were seen most often:
``self`` is the line that ran, ``within`` counts every function on the stack. A thread that waits for a
server or for the interpreter lock counts at the line that waits.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from types import FrameType

SECONDS: Final = 0.01
SHOWN: Final = 45


class Sampler:
    """Counts frames in the background."""

    def __init__(self) -> None:
        """Start without a count."""
        self.own: Counter[str] = Counter()
        self.within: Counter[str] = Counter()
        self.polls = 0
        self._done = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        """Start counting."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop counting."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(SECONDS):
            self.polls += 1
            for thread, frame in sys._current_frames().items():  # noqa: SLF001  # the documented way
                if thread != get_ident():
                    self._count(frame)

    def _count(self, frame: FrameType) -> None:
        stack = list(_stack(frame))
        self.own[f"{stack[0]}:{frame.f_lineno}"] += 1
        self.within.update(set(stack))

    def write(self, path: Path) -> None:
        """Write what was met most often, as a part of all looks."""
        path.write_text("\n".join((*self._lines("within", self.within), "", *self._lines("self", self.own))))

    def _lines(self, title: str, counts: Counter[str]) -> list[str]:
        return [
            f"{title}: % of {self.polls} looks (several threads may add up to more than 100)",
            *(f"{100 * count / self.polls:6.1f}  {name}" for name, count in counts.most_common(SHOWN)),
        ]


def _stack(frame: FrameType) -> list[str]:
    names: list[str] = []
    current: FrameType | None = frame
    while current is not None:
        code = current.f_code
        names.append(f"{'/'.join(Path(code.co_filename).parts[-3:])} {code.co_qualname}")
        current = current.f_back
    return names


def main() -> int | None:
    """Run the command line under the sampler; return its exit code."""
    path = Path(sys.argv.pop(1))
    from twinstore_backfill.cli import main as command_line  # noqa: PLC0415  # its import is not measured

    sampler = Sampler()
    try:
        with sampler:
            return command_line()
    finally:
        sampler.write(path)


if __name__ == "__main__":
    sys.exit(main())

"""Runs the command line as a process of its own, as a user would, and watches what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Child", "run_child"]

LOOK_SECONDS: Final = 0.02
PROGRAM: Final = (
    sys.executable,
    "-c",
    "import sys; from twinstore_backfill.cli import main; sys.exit(main())",
)
SAMPLER: Final = (sys.executable, str(Path(__file__).with_name("sampler.py")))


@dataclass(frozen=True, slots=True)
class Child:
    """A finished run of the command line."""

    seconds: float
    peak_bytes: int
    output: dict[str, Any]


class PeakMemory:
    """Adds up the resident memory of a process and its children again and again."""

    def __init__(self, pid: int) -> None:
        """Take the process to watch."""
        self._process = psutil.Process(pid)
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self.peak = 0

    def __enter__(self) -> Self:
        """Start watching."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(LOOK_SECONDS):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        with suppress(psutil.Error):
            family = [self._process, *self._process.children(recursive=True)]
            return sum(Counter({member.pid: member.memory_info().rss for member in family}).values())
        return 0


def run_child(arguments: Sequence[str], *, expected: int, profile: Path | None = None) -> Child:
    """Run ``twinstore`` with some arguments and return its JSON output.

    Args:
        arguments: what follows the name of the program.
        expected: the exit code; any other one ends the benchmark.
        profile: where to write a profile of all its threads, ``None`` for none.
    """
    program = PROGRAM if profile is None else (*SAMPLER, str(profile))
    began = perf_counter()
    with (
        subprocess.Popen(
            [*program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
        PeakMemory(process.pid) as memory,
    ):
        output, complaint = process.communicate()
    seconds = perf_counter() - began
    if process.returncode != expected:
        raise RuntimeError(f"twinstore {arguments[0]} ended with {process.returncode}:\n{complaint[-2000:]}")
    return Child(seconds, memory.peak, json.loads(output))

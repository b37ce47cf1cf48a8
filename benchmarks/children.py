"""Runs the command line in a separate process, as a user would, and measures what it needs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from benchmarks.memory import PeakMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["PROGRAM", "Child", "run_child"]

PROGRAM: Final = (
    sys.executable,
    "-c",
    "import sys; from twinstore_backfill.cli import main; sys.exit(main())",
)
SAMPLER: Final = (sys.executable, str(Path(__file__).with_name("sampler.py")))


@dataclass(frozen=True, slots=True)
class Child:
    """A finished run of the command line.

    Attributes:
        seconds: how long it took, the start of the process included.
        processor_seconds: the processor time of it and its children.
        peak_bytes: the largest sum of their proportional memory, ``None`` if the system does not report it.
        watch_seconds: the processor time that measuring them took from the same cores.
        text: what it printed.
    """

    seconds: float
    processor_seconds: float
    peak_bytes: int | None
    watch_seconds: float
    text: str

    @property
    def output(self) -> dict[str, Any]:
        """What it printed, which is JSON."""
        found: dict[str, Any] = json.loads(self.text)
        return found


def run_child(
    arguments: Sequence[str],
    *,
    expected: int,
    program: Sequence[str] = PROGRAM,
    profile: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Child:
    """Run a program, by default ``twinstore``, with some arguments and return what it took.

    Args:
        arguments: what follows the name of the program.
        expected: the exit code; any other one ends the benchmark.
        program: what is started.
        profile: where to write a profile of all its threads, ``None`` for none.
        environment: its environment, ``None`` for the present one.
    """
    started = program if profile is None else (*SAMPLER, str(profile))
    used, began = ended_seconds(), perf_counter()
    with (
        subprocess.Popen(
            [*started, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        ) as process,
        PeakMemory(process.pid) as memory,
    ):
        output, complaint = process.communicate()
    seconds = perf_counter() - began
    if process.returncode != expected:
        raise RuntimeError(f"{arguments[0]} ended with {process.returncode}:\n{complaint[-2000:]}")
    return Child(
        seconds=seconds,
        processor_seconds=ended_seconds() - used,
        peak_bytes=memory.peak,
        watch_seconds=memory.used_seconds,
        text=output,
    )


def ended_seconds() -> float:
    """Return the processor time of all children that have ended, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime

"""How much memory a command takes, with its children, while it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from twinstore_backfill.outcome import Exit

__all__ = ["MEGABYTE", "peak"]

MEGABYTE: Final = 1_000_000
# A peak between two looks would have to be over in this time, in seconds.
LOOK: Final = 0.1
PROGRAM: Final = "import sys; from twinstore_backfill.cli import main; sys.exit(main(sys.argv[1:]))"


def peak(arguments: list[str], expected: Exit) -> int:
    """Run a command to its end; return the most memory that it and its children had of their own."""
    sizes = [0]
    ended = Event()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as command:

        def look() -> None:
            while not ended.wait(LOOK):
                sizes.append(sum(map(proportional_bytes, family(command.pid))))

        watch = Thread(target=look)
        watch.start()
        out, err = command.communicate()
        ended.set()
        watch.join()
    assert command.returncode == expected, (out, err)
    return max(sizes)


def family(process: int) -> list[int]:
    """Return a process and its children, theirs included."""
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # it has ended
        return []
    return [process, *(one for child in children for one in family(child))]


def proportional_bytes(process: int) -> int:
    """Return what a process has of its own, 0 of one that has ended.

    Without the pages of files: how much of these counts depends on how many other processes have them.
    """
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss_Anon:"))

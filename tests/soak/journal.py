"""What processes intended and what they were answered, line by line, whatever becomes of them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from tests.faults.notes import append_line, opened, whole_lines

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Journal", "Line", "read_journal"]

Line = dict[str, Any]
"""``at``: monotonic nanoseconds; ``by``: the process; ``what``; and what belongs to it."""


class Journal:
    """A file that all processes append to."""

    def __init__(self, path: Path) -> None:
        self._file = opened(path)

    def add(self, what: str, **told: object) -> int:
        """Append one line, which the system keeps whatever becomes of the process; return its instant."""
        at = time.monotonic_ns()
        append_line(self._file, {"at": at, "by": os.getpid(), "what": what, **told})
        return at

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_journal(path: Path) -> list[Line]:
    """Return the lines in the order of their instants.

    One that a killed worker has not ended says as little as one that it has not begun.

    Raises:
        ValueError: more lines are broken than workers were killed.
    """
    lines, torn = whole_lines(path)
    kills = sum(line["what"] == "killed" for line in lines)
    if torn > kills:
        raise ValueError(f"{torn} lines of the journal are broken, but {kills} workers were killed.")
    return sorted(lines, key=lambda line: (line["at"], line["by"]))

"""What processes intended and what they were answered, line by line, whatever becomes of them."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Journal", "Line", "read_journal"]

Line = dict[str, Any]
"""``at``: monotonic nanoseconds; ``by``: the process; ``what``; and what belongs to it."""


class Journal:
    """A file that all processes append to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def add(self, what: str, **told: object) -> int:
        """Append one line and wait until the disk has it; return its instant.

        The system appends it as a whole or not at all, whenever the process is killed.
        """
        at = time.monotonic_ns()
        line = {"at": at, "by": os.getpid(), "what": what, **told}
        os.write(self._file, json.dumps(line).encode() + b"\n")
        os.fdatasync(self._file)
        return at

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_journal(path: Path) -> list[Line]:
    """Return the lines in the order of their instants."""
    lines: list[Line] = [json.loads(text) for text in path.read_text("utf-8").splitlines()]
    return sorted(lines, key=lambda line: (line["at"], line["by"]))

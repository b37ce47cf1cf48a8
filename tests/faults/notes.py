"""A file of JSON lines that several processes append to, any of which may be killed."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["append_line", "opened", "whole_lines"]


def opened(path: Path) -> int:
    """Return the file for appending."""
    return os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)


def append_line(file: int, content: object) -> None:
    """Append a line.

    The system writes page by page, so a process that is killed may leave the beginning of a line. Every line
    begins with a line feed too, so that such a rest is a line of its own and spoils no other one.
    """
    os.write(file, b"\n" + json.dumps(content).encode() + b"\n")


def whole_lines(path: Path) -> tuple[list[Any], int]:
    """Return the lines that are whole, and how many are not."""
    found: list[Any] = []
    torn = 0
    for text in filter(None, path.read_bytes().splitlines()):
        try:
            found.append(json.loads(text))
        except ValueError:
            torn += 1
    return found, torn

"""Files that survive a crash: replaced as a whole, or appended and forced to disk."""

from __future__ import annotations

import os
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import orjson

from twinstore.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["json_text", "require_writable", "sync_directory", "write_whole"]


def json_text(value: object) -> bytes:
    """Return readable JSON with one final line feed; keys keep their order."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file: after a crash it holds the old content or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_directory(path.parent)


def require_writable(directory: Path) -> None:
    """Make a directory, and make sure that files can be written there, before any work is done.

    Raises:
        ConfigurationError: it is no directory, or the system refuses.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise ConfigurationError(
            f"Nothing can be written to the directory {directory} of --out: {error.strerror}. "
            "Name another one, or run the command where this one can be written to."
        ) from None


def sync_directory(directory: Path) -> None:
    """Force the names in a directory to disk, where the system can do that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

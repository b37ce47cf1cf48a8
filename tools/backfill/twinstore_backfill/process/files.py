"""Files that survive a crash: replaced as a whole, and forced to disk."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, ClassVar, Final

import orjson

from twinstore.errors import ConfigurationError, TwinstoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

PRIVATE: Final = 0o600
TEMPORARY: Final = "/tmp"  # noqa: S108  # of the system, for messages
# What the system says of a place that takes no more.
REFUSED: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO})


class FileError(TwinstoreError):
    """A file of a command could not be written."""

    code: ClassVar[str] = "file_failed"


@contextmanager
def wrap_write_errors(path: Path | None) -> Iterator[None]:
    """Name the file or directory that a command writes to, where the system refuses.

    Raises:
        FileError: it did.
    """
    try:
        yield
    except OSError as error:
        raise FileError(write_failure(path, error)) from error


def write_failure(path: Path | None, error: OSError) -> str:
    """Return what happened and what to do, where the system refused a write.

    Args:
        path: where the command writes to, ``None`` if it has no such place.
        error: of the system. If a write failed, it names no file, and that may be a temporary one.
    """
    temporary = f"the directory of temporary files ({os.environ.get('TMPDIR') or TEMPORARY}, see TMPDIR)"
    where = f"{path} or {temporary}" if path else temporary
    if isinstance(error.filename, str):
        where = error.filename
    return (
        f"Nothing more can be written to {where}: {error.strerror}. Make room there or name another place, "
        "and run the same command again."
    )


def json_text(value: object) -> bytes:
    """Return readable JSON with one final line feed; keys keep their order."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def write_atomic(path: Path, content: bytes | Iterable[bytes]) -> None:
    """Replace a file: after a crash it holds the old content or the new one, never a part."""
    with _atomic_replace(path) as draft, draft.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        fsync(file)


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Replace a file that only its owner may read, line by line; a failure leaves the old one."""
    with line_writer(path) as write:
        write(lines)


@contextmanager
def line_writer(path: Path) -> Iterator[Callable[[Iterable[bytes]], None]]:
    """Yield what takes the lines of a file that only its owner may read; a failure leaves the old one."""
    with _atomic_replace(path) as draft, open(draft, "wb", opener=_private) as file:
        yield file.writelines
        fsync(file)


@contextmanager
def _atomic_replace(path: Path) -> Iterator[Path]:
    """Yield where to write; what was written there takes the place of the file at normal exit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same directory, because a rename is atomic within one file system only.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    # The name is in the directory, which a crash could lose although the content is safe.
    sync_directory(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, PRIVATE)


def fsync(file: IO[bytes]) -> None:
    """Force what was written to a file to disk."""
    file.flush()
    os.fsync(file.fileno())


def require_writable(directory: Path) -> None:
    """Make a directory, and make sure that files can be written there, before any work is done.

    Raises:
        ConfigurationError: it is not a directory, or the system refuses.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # Tried, because permissions alone do not reveal a full or read-only file system.
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

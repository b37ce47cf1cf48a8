"""The tree of files below the root: opened by name without following links, replaced as a whole.

A file is written next to its final place, flushed, renamed over it, and the folder is flushed: a reader sees
the old file or the new one, even after a crash. Only logs grow in place, see
:mod:`twinstore_filesystem.appending`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from twinstore.errors import ConfigurationError, Outcome, TwinstoreError, UnavailableError
from twinstore_filesystem.errors import DRIVER, foreign, translated
from twinstore_filesystem.names import TEMPORARY

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Without waiting: if a named pipe is there, its other end may never open.
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
FRESH: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
GROW: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
# What the umask of the process leaves of it: plans and logs are not for every local user.
MODE: Final = 0o640
FOLDER_MODE: Final = 0o777
LARGEST: Final = 6 * 16 * 1024 * 1024
"""The most bytes that a row has in a file: JSON takes six bytes for one that MongoDB counts, of 16 MiB."""
BUFFER: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file is below the root.

    Attributes:
        folder: a fixed folder, such as ``logs``.
        name: the name of the file.
        own: the folder of one run between both, where there is one.
    """

    folder: str
    name: str
    own: str = ""

    @property
    def path(self) -> str:
        """The path below the root, for messages."""
        return "/".join(filter(None, (self.folder, self.own, self.name)))


@dataclass(frozen=True, slots=True)
class Entry:
    """What a name in a folder is: ``file``, ``folder``, or something else."""

    name: str
    kind: str


class Tree:
    """Everything below a root. Nothing is touched before the first call."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        """Take the root, and whether it is a source, which is never created."""
        self.root = Path(os.path.abspath(root))  # noqa: PTH100  # resolve would follow the links of the user
        self.read_only = read_only
        self._ready = read_only

    def prepare(self) -> None:
        """Create the root when it is absent; called before the first use.

        Raises:
            ConfigurationError: it is a file, or this process may not write there.
        """
        if self._ready:
            return
        with translated(self.root):
            if not self.root.exists():
                self._made(self.root)
        if not self.root.is_dir():
            raise ConfigurationError(
                f"The root {self.root} is not a directory; set Root to a directory.", driver=DRIVER
            )
        if not os.access(self.root, os.R_OK | os.W_OK | os.X_OK):
            raise ConfigurationError(
                f"The root {self.root} is not writable; let the user of this process read and write there.",
                driver=DRIVER,
            )
        self._ready = True

    @contextmanager
    def folder(self, folder: str, own: str = "", *, create: bool = False) -> Generator[int | None]:
        """Open a folder for the length of a block; ``None`` where it is absent and not to be created."""
        self.prepare()
        path = self.root / folder
        with translated(path):
            outer = self._outer(folder, create=create)
        if outer is None:
            yield None
            return
        try:
            if not own:
                yield outer
                return
            with translated(path / own):
                inner = _inner(outer, own, create=create)
            try:
                yield inner
            finally:
                if inner is not None:
                    os.close(inner)
        finally:
            os.close(outer)

    def entries(self, folder: str, own: str = "") -> list[Entry]:
        """Return the entries of a folder, in no particular order; nothing if it is absent."""
        with self.folder(folder, own) as opened:
            if opened is None:
                return []
            with translated(self.root / folder / own), os.scandir(opened) as found:
                return [Entry(item.name, _kind(item)) for item in found]

    @contextmanager
    def opened(self, place: Place) -> Generator[int | None]:
        """Open a file for reading for the length of a block; ``None`` where it is absent."""
        with self.folder(place.folder, place.own) as folder:
            file = None if folder is None else self._opened(place, folder)
        try:
            yield file
        finally:
            if file is not None:
                os.close(file)

    def read(self, place: Place) -> bytes | None:
        """Return what a file holds, of one that is larger than any row the beginning. Absent: ``None``."""
        with self.opened(place) as file:
            if file is None:
                return None
            with translated(self.root / place.path), os.fdopen(file, "rb", closefd=False) as content:
                # As much as is asked for is allocated at once.
                return content.read(min(LARGEST, os.fstat(file).st_size) + 1)

    def pieces(self, place: Place, start: int, size: int | None, piece: int) -> Iterator[bytes]:
        """Yield a part of a file in pieces; ``None`` for all that follows. Absent: nothing.

        Of what is larger than any row it yields the first piece.
        """
        if size == 0:
            return  # entries that are not files are not opened
        with self.opened(place) as file:
            position, left = start, size
            if file is not None and (os.fstat(file).st_size - start if size is None else size) > LARGEST:
                left = piece
            while file is not None and left != 0:
                with translated(self.root / place.path):
                    found = os.pread(file, piece if left is None else min(piece, left), position)
                if not found:
                    return
                yield found
                position += len(found)
                left = None if left is None else left - len(found)

    def replace(self, place: Place, chunks: Iterable[bytes]) -> None:
        """Put a file in its place, or in that of the one that is there, as a whole.

        Raises:
            UnavailableError: it could not be written; the outcome says whether the old file may be gone.
        """
        path = self.root / place.path
        with self.folder(place.folder, place.own, create=True) as folder:
            if folder is None:
                raise LookupError(place.folder)  # met by programmers only: it was created
            temporary = place.name + TEMPORARY
            try:
                with translated(path):
                    _write(os.open(temporary, FRESH, MODE, dir_fd=folder), chunks)
                    os.rename(temporary, place.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise
            with translated(path, Outcome.UNKNOWN):
                os.fsync(folder)

    def remove_unfinished(self, place: Place) -> None:
        """Remove what an interrupted write left; it may be anything by now, so it is never opened."""
        # Where this fails, the write that follows reports why.
        with suppress(TwinstoreError, OSError), self.folder(place.folder, place.own) as folder:
            if folder is not None:
                os.unlink(place.name + TEMPORARY, dir_fd=folder)

    def remove(self, place: Place) -> None:
        """Remove a file; an absent one needs no more."""
        path = self.root / place.path
        with self.folder(place.folder, place.own) as folder:
            if folder is None:
                return
            with translated(path, Outcome.UNKNOWN), suppress(FileNotFoundError):
                os.unlink(place.name, dir_fd=folder)
                os.fsync(folder)

    @contextmanager
    def open_for_append(self, place: Place) -> Generator[int]:
        """Open a file to append to it, made when absent, for the length of a block."""
        path = self.root / place.path
        with self.folder(place.folder, place.own, create=True) as folder:
            if folder is None:
                raise LookupError(place.folder)  # met by programmers only: it was created
            with translated(path):
                file = os.open(place.name, GROW, MODE, dir_fd=folder)
            try:
                with translated(path, Outcome.UNKNOWN):
                    if not stat.S_ISREG(os.fstat(file).st_mode):
                        raise foreign(path)
                    is_new = os.fstat(file).st_size == 0
                    yield file
                    if is_new:
                        os.fsync(folder)
            finally:
                with translated(path, Outcome.UNKNOWN):
                    os.close(file)

    def _opened(self, place: Place, folder: int) -> int | None:
        path = self.root / place.path
        with translated(path):
            try:
                file = os.open(place.name, READ, dir_fd=folder)
            except FileNotFoundError:
                return None
            if not stat.S_ISREG(os.fstat(file).st_mode):
                os.close(file)
                raise foreign(path)
            return file

    def _outer(self, folder: str, *, create: bool) -> int | None:
        try:
            return self._descended(folder)
        except FileNotFoundError as error:
            if not self.read_only and not self.root.is_dir():
                # It was there at the first use: an unmounted disk must not read as an empty one.
                raise UnavailableError(
                    f"The root {self.root} is missing; restore it and repeat the call.",
                    outcome=Outcome.NOT_APPLIED,
                    driver=DRIVER,
                ) from error
        if not create:
            return None
        self._made(self.root / folder)
        return self._descended(folder)

    def _descended(self, folder: str) -> int:
        """Open a folder below the root; the root may be a link, and nothing below it."""
        opened = os.open(self.root, FOLDER)
        for part in Path(folder).parts:
            try:
                inner = os.open(part, FOLDER | os.O_NOFOLLOW, dir_fd=opened)
            finally:
                os.close(opened)
            opened = inner
        return opened

    def _made(self, path: Path) -> None:
        """Make a folder and those above it that are absent, each durably."""
        missing = [path, *path.parents]
        for one in reversed([item for item in missing if not item.exists()]):
            with suppress(FileExistsError):
                one.mkdir(FOLDER_MODE)
            parent = os.open(one.parent, FOLDER)
            try:
                os.fsync(parent)
            finally:
                os.close(parent)


def _inner(outer: int, own: str, *, create: bool) -> int | None:
    try:
        return os.open(own, FOLDER | os.O_NOFOLLOW, dir_fd=outer)
    except FileNotFoundError:
        if not create:
            return None
    with suppress(FileExistsError):
        os.mkdir(own, FOLDER_MODE, dir_fd=outer)
    os.fsync(outer)
    return os.open(own, FOLDER | os.O_NOFOLLOW, dir_fd=outer)


def _kind(item: os.DirEntry[str]) -> str:
    if item.is_symlink():
        return "symbolic link"
    if item.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if item.is_file(follow_symlinks=False) else "special file"


def _write(file: int, chunks: Iterable[bytes]) -> None:
    with os.fdopen(file, "wb", buffering=BUFFER) as stream:
        stream.writelines(chunks)
        stream.flush()
        os.fsync(stream.fileno())

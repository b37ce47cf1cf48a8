"""One writer per run: an exclusive lock on a file, among threads and processes.

A lock belongs to an open file, so threads exclude each other as processes do, and the kernel releases it when
the process that held it is gone. Within a process :class:`~twinstore.documents.RowLocks` wakes the waiting
threads; a lock of another process is polled with a short pause.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.documents import RowLocks
from twinstore.errors import ConcurrencyError
from twinstore.runtime.forks import Renewable, renew_in_child
from twinstore_filesystem.errors import DRIVER, translated
from twinstore_filesystem.tree import MODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_filesystem.tree import Place, Tree

LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
FIRST_PAUSE: Final = 0.0005
LONGEST_PAUSE: Final = 0.02


class RunLocks(Renewable):
    """Who may write the files of which run."""

    def __init__(self, tree: Tree, seconds: float) -> None:
        self._tree = tree
        self._seconds = seconds
        self._threads = RowLocks(DRIVER, seconds)
        self._unit_files: dict[object, dict[Place, int]] = {}
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Let go in a forked child of the files of the parent, which keeps its locks."""
        inherited, self._unit_files = self._unit_files, {}
        for files in inherited.values():
            for file in files.values():
                # Closed and not unlocked: the lock would be taken from the parent.
                with suppress(OSError):
                    os.close(file)

    def acquire(self, unit: object, lock: Place) -> bool:
        """Give a unit the right to write until :meth:`release`; return whether it has it only now.

        Raises:
            ConcurrencyError: another writer kept it for too long.
        """
        mine = self._unit_files.get(unit, {})
        if lock in mine:
            return False
        end = time.monotonic() + self._seconds
        self._threads.acquire(unit, lock, isolated=False)
        file = self._locked(lock, end)
        self._unit_files.setdefault(unit, {})[lock] = file
        return True

    def release(self, unit: object, kept: Mapping[Place, bool]) -> None:
        """Take back every right of a unit; a second call does nothing.

        Args:
            unit: whose rights.
            kept: by lock, whether the run exists; the file of a lock that no run needs is removed.
        """
        for lock, file in self._unit_files.pop(unit, {}).items():
            try:
                if not kept.get(lock, True):
                    self._discard(lock)
                with suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)
            finally:
                # Nothing is written there; an error would hide that of the write, and keep the other locks.
                with suppress(OSError):
                    os.close(file)
        self._threads.release(unit)

    def _locked(self, lock: Place, end: float) -> int:
        pause = FIRST_PAUSE
        while True:
            file = self._attempt(lock)
            if file is not None:
                return file
            if time.monotonic() >= end:
                error = ConcurrencyError(
                    f"Another process has written the same run for {self._seconds:g} s; repeat the call.",
                    driver=DRIVER,
                )
                # Separate from the message, which a client of a service gets.
                error.add_note(
                    f"It holds {self._tree.root / lock.path}; if nothing writes there, look for the process "
                    "with `fuser`."
                )
                raise error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _attempt(self, lock: Place) -> int | None:
        """Return the open file once it is locked; ``None`` when another writer holds it."""
        with self._tree.folder(lock.folder, create=True) as folder, translated(self._tree.root / lock.path):
            file = os.open(lock.name, LOCK, MODE, dir_fd=folder)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # If it was removed meanwhile, this file has no name, and the next writer opens another file.
                if _same(file, lock.name, folder):
                    return file
            except BlockingIOError:
                pass
            except BaseException:
                os.close(file)
                raise
            os.close(file)
            return None

    def _discard(self, lock: Place) -> None:
        with self._tree.folder(lock.folder) as folder, suppress(OSError):
            if folder is not None:
                os.unlink(lock.name, dir_fd=folder)


def _same(file: int, name: str, folder: int | None) -> bool:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(file))

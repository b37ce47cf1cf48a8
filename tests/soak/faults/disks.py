"""A file system of a server's own that is full for a while.

It is mounted, which takes the rights of root; where they are missing no disk is ever full.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["fill", "small_disk"]

# Far more than a soak stores; memory is taken for what is stored only.
ROOM: Final = "4g"
ATTEMPTS: Final = 100


@contextmanager
def small_disk(path: Path) -> Iterator[bool]:
    """Mount a file system in memory for the length of the block; answer whether that was possible."""
    done = _mount("-t", "tmpfs", "-o", f"size={ROOM},mode=0711", "tmpfs", str(path))
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", str(path)], check=True)  # noqa: S607  # found where the system has it


def fill(path: Path, meanwhile: Callable[[], object]) -> None:
    """Leave no room on the file system for a while.

    It is made as small as what it holds: a file that fills it would cost memory, and give way to whoever
    removes another one.

    Raises:
        RuntimeError: it grows faster than it can be limited.
    """
    if not any(_limit(path) for _ in range(ATTEMPTS)):
        raise RuntimeError(f"The file system of {path} could not be filled.")
    try:
        meanwhile()
    finally:
        _mount("-o", f"remount,size={ROOM}", str(path))


def _limit(path: Path) -> bool:
    now = os.statvfs(path)
    used = (now.f_blocks - now.f_bfree) * now.f_frsize
    return _mount("-o", f"remount,size={used}", str(path))


def _mount(*options: str) -> bool:
    done = subprocess.run(["mount", *options], check=False, capture_output=True)  # noqa: S607  # as above
    return done.returncode == 0

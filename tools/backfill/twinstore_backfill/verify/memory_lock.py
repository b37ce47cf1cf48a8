"""Turns of the threads and processes of a verification at what takes much memory for a moment.

As Python objects a document of many small values takes several times its bytes, and while it is judged two or
three such forms exist at the same time. Two documents of the largest size a store admits need not meet there.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

try:
    import fcntl
except ImportError:  # Windows: the threads of one process still take turns
    fcntl = None  # type: ignore[assignment]  # what a platform lacks

# Below it a turn would cost more time than it saves memory.
LARGE_BYTES: Final = 2_000_000

_thread_lock: Final = Lock()
_lock_files: Final[list[Path]] = []
NO_LOCK: Final = nullcontext()
# There is one on every host, and it is never written: for processes that have no parent to make one.
HOST_FILE: Final = Path(__file__)


@contextmanager
def lock_file() -> Generator[Path | None]:
    """Make a file that processes can share; ``None`` where none can be made: each has its own turns then."""
    with ExitStack() as stack:
        file = None
        with suppress(OSError):
            file = Path(stack.enter_context(NamedTemporaryFile(prefix="twinstore-turns-")).name)
        yield file


@contextmanager
def use_lock_file(file: Path | None) -> Generator[None]:
    """Take turns also with the other processes that share the same file, until the block ends."""
    before, _lock_files[:] = list(_lock_files), [] if file is None else [file]
    try:
        yield
    finally:
        _lock_files[:] = before


def set_lock_file(file: Path) -> None:
    """Take turns with the other processes that share the same file, as long as this process lives."""
    _lock_files[:] = [file]


def large_row_lock(size: int) -> AbstractContextManager[None]:
    """Wait until no other document of :data:`LARGE_BYTES` or more is judged; smaller ones do not wait.

    Turns do not nest.
    """
    return NO_LOCK if size < LARGE_BYTES else _locked()


@contextmanager
def _locked() -> Generator[None]:
    with _thread_lock, ExitStack() as stack:
        if _lock_files and fcntl is not None:
            # The system gives it to the next one also when a process is killed. Not every file system can.
            with suppress(OSError):
                fcntl.flock(stack.enter_context(_lock_files[-1].open("rb")), fcntl.LOCK_EX)
        yield

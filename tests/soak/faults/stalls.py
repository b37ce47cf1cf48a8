"""A server that stands still and goes on later."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["stall_process"]


def stall_process(find: Callable[[], int | None], meanwhile: Callable[[], object]) -> None:
    """Stop a server and its children; they keep their connections, and the system takes new ones for them."""
    pid = find()
    if pid is None:
        raise LookupError("The server to be stalled does not run.")
    server = psutil.Process(pid)
    # The parent first, so that no child is born meanwhile.
    _tell([server], signal.SIGSTOP)
    children = server.children(recursive=True)
    _tell(children, signal.SIGSTOP)
    try:
        meanwhile()
    finally:
        _tell([*children, server], signal.SIGCONT)


def _tell(processes: list[psutil.Process], what: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(what)

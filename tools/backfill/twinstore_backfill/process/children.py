"""Processes that work for a command: what they do first, and how they end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from twinstore_backfill.process.memory import limit_cached_memory
from twinstore_backfill.process.messages import Messages, install_exception_hooks, set_messages
from twinstore_backfill.process.process import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def block_signals() -> Iterator[None]:
    """Start a process in which signals wait for :func:`begin_child`.

    It inherits the mask: until it ignores the signals, one would show a traceback of its imports.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_child(messages: Messages) -> None:
    """Get this process ready to work for its parent."""
    # The parent decides when to stop; a signal from the terminal reaches both.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    set_messages(messages)
    install_exception_hooks()
    limit_cached_memory()
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A killed parent cannot end its children, and they would keep their connections.
        parent.join()
        # Not sys.exit, which would end this thread alone.
        os._exit(1)

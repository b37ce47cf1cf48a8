"""Processes that work for a command: what they do first, and how they end with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from twinstore_backfill.process.memory import limit_cached_memory
from twinstore_backfill.process.messages import Messages, install_exception_hooks, set_messages
from twinstore_backfill.process.process import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from twinstore_backfill.process.stopping import StopSwitch

# What the parent has said, and what its work here stops by.
_told_to_stop: Final = Event()
_stops: Final = WeakSet["StopSwitch"]()


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


def begin_child(messages: Messages, told: Connection | None = None) -> None:
    """Get this process ready to work for its parent.

    Args:
        messages: how the parent talks.
        told: ends when the parent wants this process to stop.
    """
    # The parent decides when to stop; a signal from the terminal reaches both.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    set_messages(messages)
    install_exception_hooks()
    limit_cached_memory()
    Thread(target=_end_with_parent, daemon=True).start()
    if told is not None:
        Thread(target=_listen, args=(told,), daemon=True).start()


def stop_with_parent(stop: StopSwitch) -> StopSwitch:
    """Return a switch that the parent of this process also flips, where it has one."""
    _stops.add(stop)
    # After it was added, so that no word of the parent is missed.
    if _told_to_stop.is_set():
        stop.request()
    return stop


def _listen(told: Connection) -> None:
    with suppress(EOFError, OSError):
        told.recv()
    _told_to_stop.set()
    for stop in list(_stops):
        stop.request()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A killed parent cannot end its children, and they would keep their connections.
        parent.join()
        # Not sys.exit, which would end this thread alone.
        os._exit(1)

"""Cancelling a call that runs in another thread: the driver cancels it on its server.

    facade for asyncio -> RunningCall, in a context variable of the thread that makes the call
    driver -> cancellable(cancel) around each statement that may wait
    the task is cancelled -> RunningCall.cancelled, and a thread that calls ``cancel`` until the call ends

A driver may also register nothing: its calls then end by themselves, and take their thread until then.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Final

from twinstore.errors import Outcome, TimeoutExceededError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType

__all__ = ["RunningCall", "cancellable", "cancelled", "running_call"]


log = logging.getLogger("twinstore.cancelling")


class RunningCall:
    """One call that its caller may give up while a thread makes it.

    Attributes:
        cancelled: no caller waits for it any more; never reset.
    """

    __slots__ = ("_cancel_callbacks", "_ended", "_lock", "cancelled")

    def __init__(self) -> None:
        self.cancelled = False
        self._cancel_callbacks: list[Callable[[], object]] = []
        self._ended = False
        self._lock = Lock()

    def cancel(self) -> bool:
        """Cancel what the call does on a server at this moment; return whether the call still runs.

        A statement that has not reached its server yet is not cancelled, so repeat this until it returns
        false. It waits for the server.
        """
        # Locked: as long as a cancellation is on its way, the call does not go on to another statement.
        with self._lock:
            for cancel in self._cancel_callbacks:
                try:
                    cancel()
                except Exception as error:  # noqa: BLE001  # of any driver; the call ends by its own limit
                    log.debug("A call could not be cancelled on its server (%s).", type(error).__name__)
            return not self._ended

    def begin(self, cancel: Callable[[], object]) -> None:
        """Note what cancels the statement that begins now.

        Raises:
            TimeoutExceededError: the call was given up; nothing of the statement may be sent.
        """
        with self._lock:
            if self.cancelled:
                raise TimeoutExceededError(
                    "The caller has cancelled this call; the next statement was not sent.",
                    outcome=Outcome.NOT_APPLIED,
                )
            self._cancel_callbacks.append(cancel)

    def end_statement(self) -> None:
        """Note that the statement that began last has ended; waits for a cancellation that is on its way."""
        with self._lock:
            self._cancel_callbacks.pop()

    def end(self) -> None:
        """Note that the call has ended."""
        with self._lock:
            self._ended = True


RUNNING: Final[ContextVar[RunningCall | None]] = ContextVar("twinstore_running_call", default=None)
NOT_CANCELLABLE: Final[AbstractContextManager[None]] = nullcontext()


class Cancellable:
    """A statement that is cancelled when its call is given up."""

    __slots__ = ("_call", "_cancel")

    def __init__(self, call: RunningCall, cancel: Callable[[], object]) -> None:
        self._call = call
        self._cancel = cancel

    def __enter__(self) -> None:
        """Let the statement begin, unless its call was given up."""
        self._call.begin(self._cancel)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; from now on nothing is cancelled."""
        self._call.end_statement()


def running_call() -> RunningCall | None:
    """Return the call that is made here, ``None`` if no caller can give it up."""
    return RUNNING.get()


def cancelled() -> bool:
    """Whether the call that is made here was given up, so that repeating or waiting is useless."""
    call = RUNNING.get()
    return call is not None and call.cancelled


def cancellable(cancel: Callable[[], object]) -> AbstractContextManager[None]:
    """Return a block for a statement that ``cancel`` ends on its server; for drivers.

    Args:
        cancel: is called from another thread while the block lasts, perhaps more than once, perhaps before
            the statement is sent; it must be bounded in time, and must have taken effect when it returns.

    Raises:
        TimeoutExceededError: by the block, at its begin: the call was given up before.
    """
    call = RUNNING.get()
    return NOT_CANCELLABLE if call is None else Cancellable(call, cancel)

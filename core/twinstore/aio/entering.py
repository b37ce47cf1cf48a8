"""Entering a block in a thread for a task that may be cancelled meanwhile."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from contextlib import AbstractContextManager
from threading import Lock
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.aio.jobs import Lease

__all__ = ["Entering", "of_block"]

log = logging.getLogger("twinstore.aio")

T = TypeVar("T")


class Entering(Generic[T]):
    """What is entered by one thread and left once, by whichever side is the last to know that it must be.

    Attributes:
        lease: the thread that is kept from the begin to the end.
    """

    def __init__(
        self, enter: Callable[[], T], leave: Callable[[T, BaseException | None], bool | None]
    ) -> None:
        """Take what enters it, and what leaves it with an error or without."""
        self._enter = enter
        self._leave = leave
        self._lock = Lock()
        self._values: list[T] = []
        self._abandoned = False
        self.lease: Lease | None = None

    def enter(self) -> T:
        """Enter it, and leave it at once where the task has been cancelled meanwhile; made by a thread."""
        value = self._enter()
        with self._lock:
            self._values.append(value)
            abandoned = self._abandoned
            if self.lease is not None:
                self.lease.entered = True
        if abandoned:
            try:
                self.leave(CancelledError())
            except Exception as error:  # noqa: BLE001  # nobody waits for it
                log.debug("A block that a cancelled task had opened ended with %s.", type(error).__name__)
        return value

    def abandon(self) -> bool:
        """Note that the task has been cancelled; return whether the block must be left by somebody else."""
        with self._lock:
            self._abandoned = True
            return bool(self._values)

    def leave(self, error: BaseException | None) -> bool:
        """Leave it and return whether it has dealt with the error; made by a thread."""
        with self._lock:
            if not self._values:
                return False
            value = self._values.pop()
        try:
            return bool(self._leave(value, error))
        finally:
            if self.lease is not None:
                self.lease.entered = False


def of_block(block: AbstractContextManager[T]) -> Entering[T]:
    """Return the entering of a synchronous block."""

    def leave(_: T, error: BaseException | None) -> bool | None:
        return block.__exit__(
            None if error is None else type(error), error, None if error is None else error.__traceback__
        )

    return Entering(block.__enter__, leave)

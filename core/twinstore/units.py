"""Which units of work of a storage are open, so that a second one in the same place is refused at once.

Units do not nest. A unit inside another one would wait for rows that the outer one has changed, until the
server gives up, and would commit although the outer one rolls back.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import current_thread
from typing import TYPE_CHECKING, Final
from weakref import ref

from typing_extensions import override

from twinstore.errors import ValidationError
from twinstore.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextvars import Context

__all__ = ["OpenUnits", "caller", "context_of_caller"]

_CALLER: Final[ContextVar[object]] = ContextVar("twinstore_caller")
"""The task for which a call runs in another thread."""


class Place:
    """What a unit takes up, as long as its block holds it."""

    __slots__ = ("__weakref__",)


class OpenUnits(Renewable):
    """The open units of one storage, by the asyncio task or else the thread that opened each."""

    def __init__(self) -> None:
        """Start without any."""
        # Weak: the handler of a signal may keep a block from ending, and a thread goes on to open units.
        self._open: dict[object, ref[Place]] = {}
        renew_in_child(self)

    @contextmanager
    def opened(self) -> Generator[None]:
        """Note a unit for the length of the block.

        Raises:
            ValidationError: this task or thread has a unit of this storage open; it stays usable.
        """
        context, place = present_context(), Place()
        found = self._open.get(context)
        if found is not None and found() is not None:
            raise ValidationError(
                "This thread or task already has an open unit of work of this storage, "
                "and units do not nest; use the open one, or end it first."
            )
        self._open[context] = ref(place, lambda _: self._open.pop(context, None))
        try:
            yield
        finally:
            self._open.pop(context, None)

    @override
    def renew(self) -> None:
        """Forget in a forked child the units of the parent."""
        self._open = {}


def present_context() -> object:
    """Return the running asyncio task, or else the thread.

    Not a context variable: a task inherits those of the task that made it, and is another one all the same.
    """
    return _present_task() or current_thread()


def caller() -> object:
    """Return the task or thread for which a call is made, also in a thread that makes it for a task."""
    return _present_task() or _CALLER.get(None) or current_thread()


def context_of_caller() -> Context:
    """Return a copy of the present context for a call in another thread that is made for this task."""
    context = copy_context()
    context.run(_CALLER.set, caller())
    return context


def _present_task() -> object:
    # To import it costs as much as a sixth of this library, and who has not runs no task.
    if "asyncio" not in sys.modules:
        return None
    from asyncio import current_task  # noqa: PLC0415

    try:
        return current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None

"""Which units of work of a storage are open, so that what their callers must not do meanwhile is refused.

Units do not nest, and a write outside of the unit that its caller has open is refused. Either could wait for
rows of the open unit, which cannot end before the call does, and would be committed although the unit rolls
back.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import current_thread, local
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import ValidationError
from twinstore.runtime.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Generator

# For whom the calls of a thread are made. No context variable, which a task inherits that a call starts.
_call_context: Final = local()


class OpenUnits(Renewable):
    """The open units of one module of a storage, by the asyncio task or else the thread that opened each."""

    def __init__(self) -> None:
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        self._open: set[object] = set()

    @contextmanager
    def opened(self) -> Generator[None]:
        """Note a unit for the length of the block.

        Raises:
            ValidationError: this task or thread has a unit of this storage open; it stays usable.
        """
        context = current_context()
        if context in self._open:
            raise ValidationError(
                "This thread or task already has an open unit of work of this storage, "
                "and units do not nest; use the open one, or end it first."
            )
        try:
            self._open.add(context)
            yield
        finally:
            self._open.discard(context)

    def refuse_outside(self, driver: str) -> None:
        """Refuse a write that is not made in the unit that its caller has open.

        Raises:
            ValidationError: the caller has one; it stays usable.
        """
        # Nearly always there is none at all, and who calls need not be asked.
        if self._open and caller() in self._open:
            raise ValidationError(
                "This thread or task has an open unit of work of this storage, and this write is not part of "
                "it; write through the repositories of the unit, or end the unit first.",
                driver=driver,
            )


def current_context() -> object:
    """Return the running asyncio task, or else the thread.

    Not a context variable: a task inherits those of the task that made it, and is another one all the same.
    """
    return _current_task() or current_thread()


def caller() -> object:
    """Return the task or thread for which a call is made, also in a thread that makes it for a task."""
    return getattr(_call_context, "context", None) or current_context()


@contextmanager
def calls_as(context: object) -> Generator[None]:
    """Count the calls of the block as made by ``context`` instead of this thread or its task."""
    before = getattr(_call_context, "context", None)
    _call_context.context = context
    try:
        yield
    finally:
        _call_context.context = before


def _current_task() -> object:
    # To import it costs as much as a sixth of this library, and who has not runs no task.
    if "asyncio" not in sys.modules:
        return None
    from asyncio import current_task  # noqa: PLC0415

    try:
        return current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None

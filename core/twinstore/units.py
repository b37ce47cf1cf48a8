"""Which units of work of a storage are open, so that a second one in the same place is refused at once.

Units do not nest. A unit inside another one would wait for rows that the outer one has changed, until the
server gives up, and would commit although the outer one rolls back.
"""

from __future__ import annotations

from asyncio import current_task
from contextlib import contextmanager
from threading import current_thread
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.errors import ValidationError
from twinstore.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["OpenUnits"]


class OpenUnits(Renewable):
    """The open units of one storage, by the asyncio task or else the thread that opened each."""

    def __init__(self) -> None:
        """Start without any."""
        self._contexts: set[object] = set()
        renew_in_child(self)

    @contextmanager
    def opened(self) -> Generator[None]:
        """Note a unit for the length of the block.

        Raises:
            ValidationError: this task or thread has a unit of this storage open; it stays usable.
        """
        context = present_context()
        if context in self._contexts:
            raise ValidationError(
                "This thread or task already has an open unit of work of this storage, "
                "and units do not nest; use the open one, or end it first."
            )
        self._contexts.add(context)
        try:
            yield
        finally:
            self._contexts.discard(context)

    @override
    def renew(self) -> None:
        """Forget in a forked child the units of the parent."""
        self._contexts = set()


def present_context() -> object:
    """Return the running asyncio task, or else the thread.

    Not a context variable: a task inherits those of the task that made it, and is another one all the same.
    """
    try:
        return current_task() or current_thread()
    except RuntimeError:  # no event loop runs in this thread
        return current_thread()

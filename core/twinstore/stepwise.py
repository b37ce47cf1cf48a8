"""Calls of several steps, each of which stands by itself: what is known when a later one fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from twinstore.errors import Outcome, UnavailableError

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Stepwise"]


class Stepwise:
    """Once a step was done, no failure of a later one says that nothing was applied.

    That a store could not be reached for the last batch of a purge is true, and of the call as a whole it
    would be told that nothing was removed.
    """

    __slots__ = ("_in_unit", "_some_done")

    def __init__(self, *, in_unit: bool) -> None:
        """Take whether the steps belong to a unit, of which nothing is applied before its end."""
        self._in_unit = in_unit
        self._some_done = False

    def done(self) -> None:
        """Note that a step was done."""
        self._some_done = True

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put right what an error of a later step says of the call."""
        if self._some_done and not self._in_unit and isinstance(error, UnavailableError):
            error.outcome = Outcome.UNKNOWN

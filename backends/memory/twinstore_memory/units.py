"""Which unit of work answers a call: one of its own, or the one that is open."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from twinstore.backend import UnitState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from twinstore_memory.store import MemoryDatabase, Unit

__all__ = ["Joined", "Link", "Single"]


class Link(Protocol):
    """How an access reaches the store.

    Attributes:
        state: whether the access can still be used.
        read_only: the unit was opened for reading.
        in_unit: somebody else ends the unit.
    """

    state: UnitState
    read_only: bool
    in_unit: bool

    def working(self) -> AbstractContextManager[Unit]:
        """Return the unit in which one call reads and writes."""
        ...


class Single(Link):
    """Each call is a unit of its own: an access without a transaction."""

    read_only = False
    in_unit = False

    def __init__(self, store: MemoryDatabase, *, unbound: bool = False) -> None:
        """Take the store, and whether the access belongs to no session."""
        self.state = UnitState(unbound=unbound)
        self._store = store

    @contextmanager
    @override
    def working(self) -> Iterator[Unit]:
        """Commit the unit of one call at its end."""
        unit = self._store.begin()
        try:
            yield unit
            unit.commit()
        finally:
            unit.rollback()  # does nothing after a commit


class Joined(Link):
    """All calls belong to one unit: an access in a transaction."""

    in_unit = True

    def __init__(self, unit: Unit) -> None:
        self.state = unit.state
        self.read_only = unit.read_only
        self._unit = unit

    @override
    def working(self) -> AbstractContextManager[Unit]:
        """Return the unit; whoever opened it ends it."""
        return nullcontext(self._unit)

"""Which unit of work answers a call: one of its own, or the one that is open."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

from twinstore.backend import UnitState

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from twinstore_memory.store import MemoryDatabase, Unit

__all__ = ["Joined", "Link", "Single"]


class Link(Protocol):
    """How an access reaches the store."""

    @property
    def state(self) -> UnitState:
        """Whether the access can still be used."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether the unit was opened for reading."""
        ...

    @property
    def in_unit(self) -> bool:
        """Whether somebody else ends the unit."""
        ...

    def working(self) -> AbstractContextManager[Unit]:
        """Return the unit in which one call reads and writes."""
        ...


class Single:
    """Each call is a unit of its own: an access without a transaction."""

    read_only = False
    in_unit = False

    def __init__(self, store: MemoryDatabase, *, unbound: bool = False) -> None:
        """Take the store, and whether the access belongs to no session."""
        self.state = UnitState(unbound=unbound)
        self._store = store

    @contextmanager
    def working(self) -> Iterator[Unit]:
        """Commit the unit of one call at its end."""
        unit = self._store.begin()
        try:
            yield unit
            unit.commit()
        finally:
            unit.rollback()


class Joined:
    """All calls belong to one unit: an access in a transaction."""

    in_unit = True

    def __init__(self, unit: Unit) -> None:
        """Take the unit."""
        self.state = unit.state
        self.read_only = unit.read_only
        self._unit = unit

    def working(self) -> AbstractContextManager[Unit]:
        """Return the unit; whoever opened it ends it."""
        return nullcontext(self._unit)

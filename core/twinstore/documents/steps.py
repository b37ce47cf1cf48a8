"""Which unit of work answers a call: one of its own, or the one that is open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from typing_extensions import override

from twinstore.backend import UnitState
from twinstore.forks import ending
from twinstore.retrying import repeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.documents.unit import DocumentUnit

__all__ = ["OneUnit", "OwnUnits", "Steps"]

T = TypeVar("T")


class Steps(Protocol):
    """How an access reaches the store.

    Attributes:
        state: whether the access can still be used.
        read_only: the unit was opened for reading.
        in_unit: somebody else ends the unit.
    """

    state: UnitState
    read_only: bool
    in_unit: bool

    def take(self, action: Callable[[DocumentUnit], T]) -> T:
        """Return what one step gives; all of its writes are kept, or none."""
        ...


class OwnUnits(Steps):
    """Each step is a unit of its own: an access without a transaction."""

    read_only = False
    in_unit = False

    def __init__(
        self, begin: Callable[[], DocumentUnit], *, unbound: bool = False, repeats: bool = True
    ) -> None:
        """Take the way to units.

        Args:
            begin: opens a unit.
            unbound: the access belongs to no session.
            repeats: a step that lost a race is repeated; not where units wait for each other.
        """
        self._repeats = repeats
        self.state = UnitState(unbound=unbound)
        self._begin = begin

    @override
    def take(self, action: Callable[[DocumentUnit], T]) -> T:
        """Commit the unit of one step at its end."""
        return repeat(lambda: self._once(action)) if self._repeats else self._once(action)

    def _once(self, action: Callable[[DocumentUnit], T]) -> T:
        unit = self._begin()
        with ending(unit.rollback):
            result = action(unit)
            unit.commit()
            return result


class OneUnit(Steps):
    """All steps belong to one unit, which somebody else ends: an access in a transaction."""

    in_unit = True

    def __init__(self, unit: DocumentUnit) -> None:
        """Take the unit."""
        self.state = unit.state
        self.read_only = unit.read_only
        self._unit = unit

    @override
    def take(self, action: Callable[[DocumentUnit], T]) -> T:
        """Take the step in the unit; one that fails takes back what it wrote, where the store can."""
        # A caller may catch the error of a step and commit; half of the step must not be in it then.
        with self._unit.part():
            return action(self._unit)

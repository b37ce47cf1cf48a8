"""Reader programs: what native code needs to know of an entity to take its rows, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from twinstore.fast.deriving import UnrecognisedError
from twinstore.fast.encoding import encoded

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.fast.nodes import DueWhere, Marked, Node, NodeKind

__all__ = ["NoProgram", "Program", "Slot", "program_of"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One value of a packed row.

    Attributes:
        name: the wire name of the field, or the name of the storage marker.
        is_marker: which of the two.
        node: the number of the node of its value.
        kind: the kind of that node.
    """

    name: str
    is_marker: bool
    node: int
    kind: NodeKind


@dataclass(frozen=True, eq=False, kw_only=True)
class Program:
    """What native code knows of an entity.

    Attributes:
        entity: the entity.
        slots: the fields of the model in canonical order, then the storage markers.
        nodes: what the values are; the first one is that of the model's object where ``root`` is 0.
        root: the node of the model.
        markers: the storage markers.
        key: the slots of the key, in order.
        tenant: the slot of the tenant, ``None`` where the row has none of its own.
        tenant_may_lack: whether a row may have no tenant.
        expires: the slot of the instant by which rows are due for removal.
        due_where: under which conditions a row is due then.
        exact_retention: whether only the description can tell which rows are due; ``expires`` is ``None``
            then, and who needs to know asks for records.
    """

    entity: Entity
    slots: tuple[Slot, ...]
    nodes: tuple[Node, ...]
    root: int
    markers: tuple[Marked, ...]
    key: tuple[int, ...]
    tenant: int | None = None
    tenant_may_lack: bool = False
    expires: int | None = None
    due_where: tuple[DueWhere, ...] = ()
    exact_retention: bool = False

    @cached_property
    def data(self) -> bytes:
        """The bytes for native code; see :mod:`twinstore.fast.encoding`."""
        return encoded(self)


@dataclass(frozen=True, slots=True)
class NoProgram:
    """Why the rows of an entity all go the exact way."""

    entity: Entity
    reason: str

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason


@cache
def program_of(entity: Entity) -> Program | NoProgram:
    """Return the reader program of an entity, or why there is none."""
    try:
        return _derived(entity)
    except UnrecognisedError as error:
        return NoProgram(entity, str(error))


def _derived(entity: Entity) -> Program:
    raise UnrecognisedError(f"no program is made for {entity.name} yet")

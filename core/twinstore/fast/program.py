"""Reader programs: what native code needs to know of an entity to take its rows, or why it has none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from twinstore.copylife import LifeInCopy
from twinstore.fast.constraints import UnrecognisedError
from twinstore.fast.deriving import Deriver, Variety
from twinstore.fast.encoding import encoded
from twinstore.fast.roles import Roles, conditions, needed_of
from twinstore.tenancy import TenancyKind

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


# By identity: two descriptions of one name are equal, and each is kept here, so no number comes again.
_programs: Final[dict[int, Program | NoProgram]] = {}


def program_of(entity: Entity) -> Program | NoProgram:
    """Return the reader program of an entity, or why there is none; it is made once."""
    found = _programs.get(id(entity))
    if found is None:
        found = _programs.setdefault(id(entity), _program(entity))
    return found


def _program(entity: Entity) -> Program | NoProgram:
    try:
        check_entity(entity)
        return _derived(entity)
    except UnrecognisedError as error:
        return NoProgram(entity, str(error))


def check_entity(entity: Entity) -> None:
    """Refuse an entity whose rows are more than its model and its markers.

    Raises:
        UnrecognisedError: they are; says what.
    """
    if entity.life is not LifeInCopy.COPIED:
        raise UnrecognisedError(f"its rows are {entity.life.value}")
    if entity.kept_apart:
        raise UnrecognisedError("some of its keys are kept apart")
    if entity.derived_key is not None:
        raise UnrecognisedError("its key is computed from the content of a row")
    # The number of an enumeration is none of the row: a table sorts by the column that holds it anyway.
    computed = [item.name for item in entity.derived if item.number_of is None or item.name in entity.key]
    if computed:
        names = ", ".join(computed)
        raise UnrecognisedError(f"functions compute what is stored beside its rows: {names}")
    if {*entity.markers} & entity.shapes.keys():
        raise UnrecognisedError("a storage marker and a field have one name")


def _derived(entity: Entity) -> Program:
    deriver = Deriver()
    required = frozenset(entity.shapes.keys() & needed_of(entity))
    roles = Roles(entity, deriver)
    whole = deriver.add(roles.root(deriver.model(entity.model, Variety(required))))
    marked = [roles.marker(marker) for marker in entity.storage]
    nodes, (root, *places) = deriver.used([whole, *(marker.node for marker in marked)])
    markers = tuple(replace(marker, node=node) for marker, node in zip(marked, places, strict=True))
    values = [(field.name, False, field.node) for field in nodes[root].fields]
    values += [(marker.name, True, marker.node) for marker in markers]
    slots = tuple(Slot(name, mark, node, nodes[node].kind) for name, mark, node in values)
    numbers = {slot.name: number for number, slot in enumerate(slots)}
    due_where = conditions(entity, slots, nodes)
    expires = None if entity.retention is None else numbers[entity.retention.field]
    return Program(
        entity=entity,
        slots=slots,
        nodes=nodes,
        root=root,
        markers=markers,
        key=tuple(numbers[name] for name in entity.key),
        tenant=None if entity.tenant_field is None else numbers[entity.tenant_field],
        tenant_may_lack=entity.tenancy.kind is TenancyKind.OPTIONAL,
        expires=None if due_where is None else expires,
        due_where=due_where or (),
        exact_retention=due_where is None,
    )

"""Reader programs: what native code needs to know of an entity to take its rows, or why it has none."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.catalog.conditions import Equals, IsPresent, OneOf
from twinstore.catalog.entity import CopyPolicy
from twinstore.catalog.keys import LONGEST_TEXT, KeyType
from twinstore.catalog.tenancy import MAX_LABEL_LENGTH, TenancyKind
from twinstore.fast.constraints import UnrecognisedError, flagged
from twinstore.fast.derive import Deriver, NodeContext
from twinstore.fast.library import Address, Size, declared
from twinstore.fast.nodes import NO_LIMIT, ExpiryCondition, MarkerNode, Node, NodeKind, TextFlag
from twinstore.models.fields import INT32_MAX, INT64_MAX, INT64_MIN
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity, Marker
    from twinstore.fast.nodes import NodeField, NodeRule, NodeText, Operand


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
        tenant: the slot of the tenant, ``None`` if the row has no tenant itself.
        tenant_may_lack: whether a row may have no tenant.
        expires: the slot of the instant by which rows expire.
        expiry_conditions: under which conditions a row expires then.
        exact_retention: whether only the description can decide which rows have expired; ``expires`` is
            ``None`` then, and callers that need to know read records.
    """

    entity: Entity
    slots: tuple[Slot, ...]
    nodes: tuple[Node, ...]
    root: int
    markers: tuple[MarkerNode, ...]
    key: tuple[int, ...]
    tenant: int | None = None
    tenant_may_lack: bool = False
    expires: int | None = None
    expiry_conditions: tuple[ExpiryCondition, ...] = ()
    exact_retention: bool = False

    @cached_property
    def data(self) -> bytes:
        """The bytes for native code."""
        return encoded(self)


@dataclass(frozen=True, slots=True)
class NoProgram:
    """Why the rows of an entity all go the exact way."""

    entity: Entity
    reason: str

    def __str__(self) -> str:
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
    if entity.copy_policy is not CopyPolicy.COPIED:
        raise UnrecognisedError(f"its rows are {entity.copy_policy.value}")
    if entity.local_keys:
        raise UnrecognisedError("some of its keys are stored separately")
    if entity.derived_key is not None:
        raise UnrecognisedError("its key is computed from the content of a row")
    # The number of an enumeration is none of the row: a table sorts by the column that holds it anyway.
    computed = [item.name for item in entity.derived if item.number_of is None or item.name in entity.key]
    if computed:
        names = ", ".join(computed)
        raise UnrecognisedError(f"functions compute values stored with its rows: {names}")
    if {*entity.markers} & entity.shapes.keys():
        raise UnrecognisedError("a storage marker and a field have one name")
    if entity.key_as_id:
        raise UnrecognisedError("documents hold its key as their id")
    if entity.has_free_names:
        raise UnrecognisedError("a field has a name that native code does not know")


def _derived(entity: Entity) -> Program:
    deriver = Deriver()
    required = frozenset(entity.shapes.keys() & needed_of(entity))
    roles = Roles(entity, deriver)
    whole = deriver.add(roles.root(deriver.model(entity.model, NodeContext(required))))
    marked = [roles.marker(marker) for marker in entity.storage]
    nodes, (root, *places) = deriver.used([whole, *(marker.node for marker in marked)])
    markers = tuple(replace(marker, node=node) for marker, node in zip(marked, places, strict=True))
    values = [(field.name, False, field.node) for field in nodes[root].fields]
    values += [(marker.name, True, marker.node) for marker in markers]
    slots = tuple(Slot(name, mark, node, nodes[node].kind) for name, mark, node in values)
    numbers = {slot.name: number for number, slot in enumerate(slots)}
    expiry_conditions = conditions(entity, slots, nodes)
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
        expires=None if expiry_conditions is None else expires,
        expiry_conditions=expiry_conditions or (),
        exact_retention=expiry_conditions is None,
    )


# The bytes of a reader program, as native code reads them.
#
# All numbers are signed, of 64 bits and little-endian (``q``). A text is its number of bytes and its bytes, a
# list its number of items and its items.
#
# - program: q version, list of nodes, q root, list of markers, list of q slots of the key, q slot of the
#   tenant (-1 for none), q whether the tenant may lack, q slot of the instant of removal (-1 for none), list
#   of conditions of the removal (q slot, list of q positions; none of them: it is there)
# - marker: text name, q node, q required
# - node: q kind, q flags, q low, q high, list of texts (text, q number, q rank), list of fields, list of
#   rules, q node of the items (-1), q list rule, q list flags (1 descending, 2 unique by the first key), q
#   most entries (-1 for any number), list of q sort keys (number of the field, and 2 to the power of 32 where
#   ranked), q number of the field that no two entries share (-1 for none)
# - field: text wire name, q node, q presence, q omitted, text of the default, q number of the default
# - rule: q op, list of operands; operand: list of q numbers of fields (a path), list of q numbers


T = TypeVar("T")
VERSION: Final = 1
RANKED: Final = 1 << 32
QUAD: Final = struct.Struct("<q")


class Writer:
    """Writes numbers, texts and lists one behind the other; drivers write their layouts with it too."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def number(self, value: int) -> None:
        """Write a number of 64 bits."""
        self._parts += QUAD.pack(value)

    def numbers(self, values: Iterable[int]) -> None:
        """Write a list of numbers."""
        self.many(list(values), self.number)

    def text(self, value: bytes | str) -> None:
        """Write a text."""
        data = value.encode() if isinstance(value, str) else value
        self.number(len(data))
        self._parts += data

    def many(self, values: Sequence[T], write: Callable[[T], None]) -> None:
        """Write a list, each item by ``write``."""
        self.number(len(values))
        for value in values:
            write(value)

    def tobytes(self) -> bytes:
        """Return what was written."""
        return bytes(self._parts)


def encoded(program: Program) -> bytes:
    """Return the bytes of a program."""
    writer = Writer()
    writer.number(VERSION)
    writer.many(program.nodes, lambda node: _node(writer, node))
    writer.number(program.root)
    writer.many(program.markers, lambda marker: _marker(writer, marker))
    writer.numbers(program.key)
    writer.number(_slot(program.tenant))
    writer.number(program.tenant_may_lack)
    writer.number(_slot(program.expires))
    writer.many(program.expiry_conditions, lambda condition: _condition(writer, condition))
    return writer.tobytes()


def _slot(number: int | None) -> int:
    return -1 if number is None else number


def _marker(writer: Writer, marker: MarkerNode) -> None:
    writer.text(marker.name)
    writer.number(marker.node)
    writer.number(marker.required)


def _condition(writer: Writer, condition: ExpiryCondition) -> None:
    writer.number(condition.slot)
    writer.numbers(condition.numbers)


def _node(writer: Writer, node: Node) -> None:
    for number in (node.kind, node.flags, node.low, node.high):
        writer.number(number)
    writer.many(node.texts, lambda text: _text(writer, text))
    writer.many(node.fields, lambda field: _field(writer, field))
    writer.many(node.rules, lambda rule: _rule(writer, rule))
    for number in (node.item, node.list_rule, node.descending | node.unique << 1, node.limit):
        writer.number(number)
    writer.numbers(key.field | (RANKED if key.ranked else 0) for key in node.keys)
    writer.number(node.distinct)


def _text(writer: Writer, text: NodeText) -> None:
    writer.text(text.text)
    writer.number(text.number)
    writer.number(text.rank)


def _field(writer: Writer, field: NodeField) -> None:
    writer.text(field.name)
    for number in (field.node, field.presence, field.left_out):
        writer.number(number)
    writer.text(field.default)
    writer.number(field.number)


def _rule(writer: Writer, rule: NodeRule) -> None:
    writer.number(rule.op)
    writer.many(rule.operands, lambda operand: _operand(writer, operand))


def _operand(writer: Writer, operand: Operand) -> None:
    writer.numbers(operand.path)
    writer.numbers(operand.numbers)


INT32_MIN: Final = -(2**31)
# The tenant that a row names is also the label under which the row is counted.
TENANT: Final = TextFlag.TENANT | TextFlag.NONEMPTY | TextFlag.NO_CONTROL
MARKERS: Final[Mapping[Kind, Node]] = {
    Kind.TEXT: Node(kind=NodeKind.TEXT, flags=TextFlag.NO_NUL),
    Kind.INTEGER: Node(kind=NodeKind.INT, low=INT64_MIN, high=INT64_MAX),
    Kind.INSTANT: Node(kind=NodeKind.INSTANT),
}


def needed_of(entity: Entity) -> frozenset[str]:
    """Return the fields and markers without which a row has no key, or no owner."""
    owner = {entity.tenant_field} if entity.tenancy.kind is TenancyKind.REQUIRED else set[str]()
    return frozenset(name for name in {*entity.key, *owner} if name is not None)


class Roles:
    """Narrows the nodes of an entity to what its key, its tenant and its table take."""

    def __init__(self, entity: Entity, deriver: Deriver) -> None:
        self._entity = entity
        self._deriver = deriver
        self._keys = {part.field: part.type for part in entity.key_parts}

    def root(self, node: Node) -> Node:
        """Return the node of the model of which each field is narrowed to its role.

        Raises:
            UnrecognisedError: a field cannot have its role.
        """
        fields = tuple(replace(field, node=self._narrowed(field.name, field.node)) for field in node.fields)
        return replace(node, fields=fields)

    def marker(self, marker: Marker) -> MarkerNode:
        """Return a storage marker.

        Raises:
            UnrecognisedError: no program knows such a marker, or it cannot have its role.
        """
        if marker.kind not in MARKERS:
            raise UnrecognisedError(f"its storage marker {marker.name} is of a kind that no program knows")
        number = self._deriver.add(MARKERS[marker.kind])
        required = marker.required or marker.name in needed_of(self._entity)
        return MarkerNode(marker.name, self._narrowed(marker.name, number), required)

    def _narrowed(self, name: str, number: int) -> int:
        node = self._deriver.nodes[number]
        if name in self._keys:
            node = _as_key(name, node, self._keys[name])
        if name == self._entity.tenant_field:
            node = _at_most(flagged(_as_text(name, node), TENANT), MAX_LABEL_LENGTH)
        if name in self._entity.filled:
            node = _filled(_as_text(name, node))
        return self._deriver.add(self._narrow(node) if name in self._entity.narrow else node)

    def _narrow(self, node: Node) -> Node:
        """Return a whole number, or a list of them, that fits into 32 bits."""
        if node.kind is NodeKind.LIST:
            return replace(node, item=self._deriver.add(self._narrow(self._deriver.nodes[node.item])))
        return replace(node, low=max(node.low, INT32_MIN), high=min(node.high, INT32_MAX))


TYPED_KEYS: Final[Mapping[KeyType, NodeKind]] = {
    KeyType.OBJECT_ID: NodeKind.OBJECT_ID,
    KeyType.BINARY_UUID: NodeKind.UUID,
}


def _filled(node: Node) -> Node:
    return flagged(node, TextFlag.NONEMPTY) if node.kind is NodeKind.TEXT else node


def _as_key(name: str, node: Node, kind: KeyType) -> Node:
    if kind is KeyType.INT64:
        if node.kind is not NodeKind.INT:
            raise UnrecognisedError(f"{name} of its key is not an integer")
        return node
    if kind in TYPED_KEYS:
        if node.kind is not TYPED_KEYS[kind]:
            raise UnrecognisedError(f"{name} of its key is not of the type {kind.value}")
        return node
    return _at_most(_as_text(name, node), LONGEST_TEXT)


def _as_text(name: str, node: Node) -> Node:
    if node.kind not in {NodeKind.TEXT, NodeKind.CONST}:
        raise UnrecognisedError(f"{name} of its key, its tenant or its filled fields is not a string")
    return node


def _at_most(node: Node, length: int) -> Node:
    return replace(node, high=length if node.high == NO_LIMIT else min(node.high, length))


def conditions(
    entity: Entity, slots: Sequence[Slot], nodes: Sequence[Node]
) -> tuple[ExpiryCondition, ...] | None:
    """Return the conditions under which a row is due for removal; ``None``: no program evaluates them."""
    found: list[ExpiryCondition] = []
    for condition in () if entity.retention is None else entity.retention.where:
        numbers = {slot.name: number for number, slot in enumerate(slots)}
        positions = _positions(condition, nodes[slots[numbers[condition.field]].node])
        if positions is None:
            return None
        found.append(ExpiryCondition(numbers[condition.field], positions))
    return tuple(found)


def _positions(condition: Condition, node: Node) -> tuple[int, ...] | None:
    """Return the positions in the texts of an enumeration of which a condition admits one; empty for any."""
    match condition:
        case IsPresent():
            return ()
        case OneOf(_, values) if node.kind is NodeKind.ENUM:
            wanted = {*values}
        case Equals(_, str() as value) if node.kind is NodeKind.ENUM:
            wanted = {value}
        case _:
            return None
    # No position at all would mean any value.
    return tuple(position for position, text in enumerate(node.texts) if text.text in wanted) or None


# Reader programs as the native library holds them: made once for each program, and kept as long as it.


FUNCTIONS: Final = {
    "ts_program_new": (Address, ctypes.c_char_p, Size),
    "ts_program_free": (None, Address),
}


class Handle:
    """Something that the library made, and that it forgets with this object."""

    __slots__ = ("_free", "_library", "address")

    def __init__(self, found: ctypes.CDLL, address: int | None, free: str) -> None:
        """Take the library, what it made, and the function that forgets it.

        Raises:
            ValueError: the library made nothing of what it was given.
        """
        self._library, self._free = found, free
        self.address = address
        if not address:
            raise ValueError(
                f"{free.removesuffix('_free')} does not accept this description; rebuild the library"
            )

    def __del__(self) -> None:
        address, self.address = getattr(self, "address", None), None
        if address:
            getattr(self._library, self._free)(address)


# By identity, which costs less than comparing programs; each is kept here, so no number comes again.
_handles: Final[dict[int, tuple[Program, Handle]]] = {}


def program_handle(found: ctypes.CDLL, program: Program) -> Handle:
    """Return a program as the library holds it."""
    known = _handles.get(id(program))
    if known is None:
        native = declared(found, FUNCTIONS)
        made = Handle(native, native.ts_program_new(program.data, len(program.data)), "ts_program_free")
        known = _handles.setdefault(id(program), (program, made))
    return known[1]

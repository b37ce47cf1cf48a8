"""How a table holds packed rows, derived from its columns."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import psycopg
from psycopg import pq

from twinstore.access import Row
from twinstore.fast.copying import NO_SLOT, NULL, ColumnKind, ColumnLayout, NativeColumns, copy_field
from twinstore.fast.native import library
from twinstore.fast.nodes import NodeKind, Presence
from twinstore.fast.program import Program, program_of
from twinstore_postgres.columns import Origin
from twinstore_postgres.derive import table_of
from twinstore_postgres.encoding import compile_encoder

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Mapping

    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.fast.program import Slot
    from twinstore_postgres.columns import Column
    from twinstore_postgres.derive import Table

__all__ = ["native_columns", "readable_columns"]

TEXTS: Final = frozenset({NodeKind.TEXT, NodeKind.CONST})
JSON: Final = frozenset({NodeKind.OBJECT, NodeKind.LIST, NodeKind.MAP, NodeKind.JSON})
LISTS: Final = frozenset({NodeKind.LIST})
# By the type of a column: how it holds a value, and which nodes have such values.
KINDS: Final[Mapping[str, tuple[ColumnKind, frozenset[NodeKind]]]] = {
    "text": (ColumnKind.TEXT, TEXTS),
    "int2": (ColumnKind.INT2, frozenset({NodeKind.INT})),
    "int4": (ColumnKind.INT4, frozenset({NodeKind.INT})),
    "int8": (ColumnKind.INT8, frozenset({NodeKind.INT})),
    "jsonb": (ColumnKind.JSONB, JSON),
    "timestamptz": (ColumnKind.TIMESTAMPTZ, frozenset({NodeKind.INSTANT})),
    "bool": (ColumnKind.BOOL, frozenset({NodeKind.FLAG})),
    "text[]": (ColumnKind.TEXTS, LISTS),
    "int4[]": (ColumnKind.INT4S, LISTS),
    "int8[]": (ColumnKind.INT8S, LISTS),
    "float8": (ColumnKind.FLOAT8, frozenset({NodeKind.NUMBER})),
    "uuid": (ColumnKind.UUID, TEXTS),
}


# By identity, as tables; what has none is remembered too.
_columns: Final[dict[int, tuple[Entity, NativeColumns | None]]] = {}
_readable: Final[dict[int, tuple[Entity, NativeColumns | None]]] = {}


def native_columns(entity: Entity) -> NativeColumns | None:
    """Return how the table of an entity holds packed rows, ``None`` where native code cannot write it."""
    found = library()
    if found is None:
        return None
    known = _columns.get(id(entity))
    if known is None:
        known = _columns.setdefault(id(entity), (entity, _made(found, entity)))
    return known[1]


def readable_columns(entity: Entity) -> NativeColumns | None:
    """Return how native code reads rows of the table of an entity, ``None`` where it cannot."""
    found = library()
    if found is None:
        return None
    known = _readable.get(id(entity))
    if known is None:
        known = _readable.setdefault(id(entity), (entity, _made_readable(found, entity)))
    return known[1]


def _made_readable(found: ctypes.CDLL, entity: Entity) -> NativeColumns | None:
    program, table = program_of(entity), table_of(entity)
    if not isinstance(program, Program) or any(item.name in entity.key for item in entity.derived):
        return None
    layouts = [
        # What follows from the others is not read.
        ColumnLayout(NO_SLOT, ColumnKind.TEXT)
        if column.origin is Origin.DERIVED
        else _layout(program, table, column)
        for column in table.columns
    ]
    known = [layout for layout in layouts if layout is not None]
    return NativeColumns(found, program, known) if len(known) == len(layouts) else None


def _made(found: ctypes.CDLL, entity: Entity) -> NativeColumns | None:
    program, table = program_of(entity), table_of(entity)
    # Of numbers that a store gives, whoever writes rows has to know the highest.
    if not isinstance(program, Program) or entity.assigned is not None:
        return None
    layouts = [_layout(program, table, column) for column in table.columns]
    known = [layout for layout in layouts if layout is not None]
    return NativeColumns(found, program, known) if len(known) == len(layouts) else None


def _layout(program: Program, table: Table, column: Column) -> ColumnLayout | None:
    """Return how a column holds its slot, ``None`` where native code cannot make its value."""
    if column.origin is Origin.PAYLOAD:
        return ColumnLayout(NO_SLOT, ColumnKind.PAYLOAD)
    slots = [
        (number, slot)
        for number, slot in enumerate(program.slots)
        if slot.name == column.field and slot.is_marker == (column.origin is Origin.MARKER)
    ]
    if not slots or column.origin is Origin.DERIVED:
        return None
    ((number, slot),) = slots
    absent = _absent(program, slot, table.entity, column)
    if slot.kind is NodeKind.ENUM:
        return ColumnLayout(number, ColumnKind.ENUM, absent, _members(program, slot, column))
    kind, nodes = KINDS.get(column.sql_type, (ColumnKind.PAYLOAD, frozenset[NodeKind]()))
    return ColumnLayout(number, kind, absent) if slot.kind in nodes else None


def _members(program: Program, slot: Slot, column: Column) -> tuple[bytes, ...]:
    """Return the fields of the texts of an enumeration."""
    texts = [item.text for item in program.nodes[slot.node].texts]
    numbers = column.numbers
    return tuple(_field(column, text if numbers is None else numbers(text).number) for text in texts)


def _absent(program: Program, slot: Slot, entity: Entity, column: Column) -> bytes:
    """Return the field of a value that a packed row lacks, empty where each row has one."""
    if slot.is_marker:
        (marker,) = (item for item in program.markers if item.name == slot.name)
        return b"" if marker.required else NULL
    (field,) = (item for item in program.nodes[program.root].fields if item.name == slot.name)
    if field.presence is not Presence.OPTIONAL and not field.left_out:
        return b""
    name = entity.shapes[column.field].name
    default = entity.model.model_fields[name].get_default(call_default_factory=True)
    if default is None:
        return NULL
    encode = compile_encoder(entity, (column,))
    (value,) = encode(Row(cast("CanonicalModel", SimpleNamespace(**{name: default}))))
    return _field(column, value)


def _field(column: Column, value: object) -> bytes:
    """Return the field that COPY has of a value, as the client sends it for this type of a column."""
    if value is None:
        return copy_field(None)
    oid = psycopg.adapters.types.get_oid(column.sql_type)
    dumper = psycopg.adapters.get_dumper_by_oid(oid, pq.Format.BINARY)
    sent = dumper(type(value)).dump(value)
    return copy_field(None if sent is None else bytes(sent))

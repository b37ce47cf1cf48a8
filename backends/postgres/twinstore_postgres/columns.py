"""The columns of an entity, derived from its description: names, types, and what each of them holds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, LiteralString, cast
from uuid import UUID

from pydantic.alias_generators import to_snake

from twinstore.catalog import KeyType, Layout, TenancyKind
from twinstore.enums import NumberedEnum
from twinstore.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from enum import StrEnum

    from twinstore.catalog import Derived, Entity, Index, Marker
    from twinstore.shapes import FieldShape, ValueShape

__all__ = ["PAYLOAD", "VERSION", "Column", "Origin", "column_name", "columns_of", "index_name"]

PAYLOAD: Final = "payload"
"""The column of a payload layout that holds the whole model."""
VERSION: Final = "row_version"
"""The column in which a versioned table counts the changes of a row; no column of the description."""

TYPES: Final[Mapping[Kind, LiteralString]] = {
    Kind.TEXT: "text",
    Kind.INTEGER: "int8",  # unless the description says that 32 bits do; documents keep as many bits
    Kind.NUMBER: "float8",
    Kind.FLAG: "bool",
    Kind.INSTANT: "timestamptz",
    Kind.NUMBERED: "int2",
    Kind.NAMED: "text",
    Kind.OBJECT: "jsonb",
    Kind.MAP: "jsonb",
    Kind.LIST: "jsonb",
}
NARROW: Final[LiteralString] = "int4"
TEXTS: Final = frozenset({Kind.TEXT, Kind.NAMED, Kind.NUMBERED})


class Origin(Enum):
    """What a column holds."""

    FIELD = "a field of the model"
    MARKER = "a storage marker"
    DERIVED = "what follows from model and markers"
    PAYLOAD = "the whole model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        name: its name.
        sql_type: its type, as casts and COPY name it.
        field: the wire name, storage marker or derived field it holds.
        origin: which of these.
        nullable: whether rows may lack it.
        numbers: the enumeration whose numbers it holds.
        texts: the enumeration whose texts it holds.
    """

    name: str
    sql_type: LiteralString
    field: str
    origin: Origin
    nullable: bool = False
    numbers: type[NumberedEnum] | None = None
    texts: type[StrEnum] | None = None

    def bound(self, value: object) -> object:
        """Return a value as the parameter that the column is compared with.

        One that no row can hold becomes ``None``, which equals nothing; the server would refuse it otherwise.
        """
        if self.numbers is not None:
            return self.numbers(value).number if isinstance(value, str) else None
        return None if self.sql_type == "uuid" and not is_uuid(value) else value


def is_uuid(value: object) -> bool:
    """Whether a value is the lower-case text of a UUID, as keys have it."""
    try:
        return isinstance(value, str) and str(UUID(value)) == value
    except ValueError:
        return False


def column_name(field: str) -> str:
    """Return the name of the column that holds a wire name, marker or derived field."""
    return to_snake(field)


def index_name(entity: Entity, index: Index) -> str:
    """Return the name of an index."""
    return index.table_name or f"{'uq' if index.unique else 'idx'}_{entity.name}_{index.name}"


def columns_of(entity: Entity) -> tuple[Column, ...]:
    """Return the columns that reads return and inserts write, in order: model, markers, derived, payload.

    Raises:
        TypeError: a storage marker and a field of the model need the same column; a programmer's mistake.
    """
    columns = tuple(_columns(entity))
    names = [column.name for column in columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TypeError(f"{entity.name} has two columns {', '.join(twice)}")
    return columns


def _columns(entity: Entity) -> Iterator[Column]:
    beside = entity.shapes if entity.layout is Layout.COLUMNS else entity.beside
    for wire in beside:
        yield _field(entity, entity.shapes[wire])
    for marker in entity.storage:
        yield _marker(entity, marker)
    for derived in entity.derived:
        if derived.number_of is None:
            yield _derived(derived)
    if entity.layout is Layout.PAYLOAD:
        yield Column(name=PAYLOAD, sql_type="jsonb", field=PAYLOAD, origin=Origin.PAYLOAD)


def _field(entity: Entity, shape: FieldShape) -> Column:
    value = shape.value
    return Column(
        name=column_name(shape.wire),
        sql_type=_key_type(entity, shape.wire) or _type(entity, shape.wire, value),
        field=shape.wire,
        origin=Origin.FIELD,
        nullable=shape.optional and not _required(entity, shape.wire),
        numbers=cast("type[NumberedEnum]", value.cls) if value.kind is Kind.NUMBERED else None,
        texts=cast("type[StrEnum]", value.cls) if value.kind is Kind.NAMED else None,
    )


def _marker(entity: Entity, marker: Marker) -> Column:
    return Column(
        name=column_name(marker.name),
        sql_type=_key_type(entity, marker.name) or TYPES[marker.kind],
        field=marker.name,
        origin=Origin.MARKER,
        nullable=not marker.required and not _required(entity, marker.name),
    )


def _derived(derived: Derived) -> Column:
    narrow = derived.kind is Kind.INTEGER and derived.bits == 32  # noqa: PLR2004  # the other width is 64
    return Column(
        name=column_name(derived.name),
        sql_type=NARROW if narrow else TYPES[derived.kind],
        field=derived.name,
        origin=Origin.DERIVED,
    )


def _required(entity: Entity, name: str) -> bool:
    """Whether every row has the field whatever its own description says: a part of the key, or the tenant."""
    required_tenant = entity.tenancy.kind is TenancyKind.REQUIRED and entity.tenant_field == name
    return required_tenant or name in entity.key


def _key_type(entity: Entity, name: str) -> LiteralString | None:
    """Return the type of a column of the key that is not a text."""
    for part in entity.key_parts:
        if part.field == name and part.type is KeyType.UUID:
            return "uuid"
        if part.field == name and part.type is KeyType.INT64:
            return "int8"
    return None


def _type(entity: Entity, wire: str, value: ValueShape) -> LiteralString:
    if wire in entity.narrow:
        return NARROW
    if value.kind is Kind.LIST and value.item is not None and value.item.kind in TEXTS:
        return "text[]"
    return TYPES[value.kind]

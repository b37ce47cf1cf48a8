"""The columns of an entity, derived from its description: names, types, and what each of them holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, LiteralString, cast
from uuid import UUID

from psycopg import sql
from pydantic.alias_generators import to_snake

from twinstore.catalog.entity import Layout
from twinstore.catalog.indexes import StoreKind
from twinstore.catalog.keys import KeyType
from twinstore.catalog.tenancy import TenancyKind
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import INT64_MAX, INT64_MIN
from twinstore.models.shapes import Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from enum import StrEnum

    from twinstore.catalog.entity import Derived, Entity, Marker
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key
    from twinstore.models.shapes import FieldShape, ValueShape

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
    Kind.HEX: "uuid",
    Kind.OBJECT_ID: "text",
    Kind.UUID: "uuid",
    Kind.DECIMAL: "numeric",
    Kind.BYTES: "bytea",
}
WIDTHS: Final[Mapping[int, LiteralString]] = {16: "int2", 32: "int4", 64: "int8"}
NARROW: Final = WIDTHS[32]
# What no name of a column has by convention: the letters of a name that marks around it would have to show.
UNQUOTED: Final = re.compile(r"[^a-z0-9_]")
# An expression, and the collation by which it is indexed, sorted and compared.
MEMBER: Final = '({}->>{}) COLLATE "C"'
TEXTS: Final = frozenset({Kind.TEXT, Kind.NAMED, Kind.NUMBERED})


class Origin(Enum):
    """What a column holds."""

    FIELD = "a field of the model"
    MARKER = "a storage marker"
    DERIVED = "what follows from model and markers"
    PAYLOAD = "the whole model"
    MEMBER = "no column: what the payload has under a name"


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
        digits: whether values are the 32 digits of the UUID alone.
        object_id: whether values are the 24 digits of an ObjectId.
    """

    name: str
    sql_type: LiteralString
    field: str
    origin: Origin
    nullable: bool = False
    numbers: type[NumberedEnum] | None = None
    texts: type[StrEnum] | None = None
    digits: bool = False
    object_id: bool = False

    def term(self, relation: sql.Composable | None = None) -> sql.Composable:
        """Return the column for a statement, of a relation where it has several."""
        name: sql.Composable = sql.Identifier(self.name)
        if relation is not None:
            name = sql.SQL("{}.{}").format(relation, name)
        if self.origin is Origin.MEMBER:
            return sql.SQL(MEMBER).format(name, sql.Literal(self.field))
        return name

    def bound(self, value: object) -> object:
        """Return a value as the parameter that the column is compared with.

        One that no row can hold becomes ``None``, which equals nothing; the server would refuse it otherwise.
        """
        if self.numbers is not None:
            return self.numbers(value).number if isinstance(value, str) else None
        if self.digits:
            return value if KeyType.HEX.admits(value) else None
        return None if self.sql_type == "uuid" and not is_uuid(value) else value


def object_id_check(column: Column) -> sql.Composable:
    """Return the condition that a column holds the digits of an ObjectId."""
    return sql.SQL("{} ~ '^[0-9a-f]{{24}}$'").format(column.term())


def is_uuid(value: object) -> bool:
    """Whether a value is the lower-case text of a UUID, as keys have it."""
    try:
        return isinstance(value, str) and str(UUID(value)) == value
    except ValueError:
        return False


def digits_of(value: object) -> object:
    """Return the digits of a UUID that a statement takes or returns."""
    if isinstance(value, UUID):
        return value.hex
    return value.replace("-", "") if isinstance(value, str) else value


def column_name(entity: Entity, field: str) -> str:
    """Return the name of the column that holds a wire name, marker or derived field."""
    return entity.columns.get(field) or UNQUOTED.sub("_", to_snake(field))


def key_in_payload(entity: Entity) -> Column | None:
    """Return the key of a table if it has no separate column, ``None`` if it has one."""
    name = entity.key_in_payload
    if name is None:
        return None
    return Column(name=PAYLOAD, sql_type="text", field=name, origin=Origin.MEMBER)


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
        if has_column(derived):
            yield _derived(entity, derived)
    if entity.layout is Layout.PAYLOAD:
        yield Column(name=PAYLOAD, sql_type="jsonb", field=PAYLOAD, origin=Origin.PAYLOAD)


def _field(entity: Entity, shape: FieldShape) -> Column:
    value = shape.value
    return Column(
        name=column_name(entity, shape.wire),
        sql_type=_key_type(entity, shape.wire) or _type(entity, shape.wire, value),
        field=shape.wire,
        origin=Origin.FIELD,
        nullable=shape.optional and not _required(entity, shape.wire),
        numbers=cast("type[NumberedEnum]", value.cls) if value.kind is Kind.NUMBERED else None,
        texts=cast("type[StrEnum]", value.cls) if value.kind is Kind.NAMED else None,
        object_id=value.kind is Kind.OBJECT_ID,
    )


def _marker(entity: Entity, marker: Marker) -> Column:
    return Column(
        name=column_name(entity, marker.name),
        sql_type=_key_type(entity, marker.name) or TYPES[marker.kind],
        field=marker.name,
        origin=Origin.MARKER,
        nullable=not marker.required and not _required(entity, marker.name),
    )


def has_column(derived: Derived) -> bool:
    """Whether a table has a separate column for a derived field; a number of an enumeration has none."""
    return StoreKind.TABLES in derived.stores and derived.number_of is None


def _derived(entity: Entity, derived: Derived) -> Column:
    return Column(
        name=column_name(entity, derived.name),
        sql_type=WIDTHS[derived.bits] if derived.kind is Kind.INTEGER else TYPES[derived.kind],
        field=derived.name,
        origin=Origin.DERIVED,
        digits=derived.kind is Kind.HEX,
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
    number = NARROW if wire in entity.narrow else TYPES[Kind.INTEGER]
    if value.kind is Kind.LIST and value.item is not None and not value.item.nullable:
        if value.item.kind in TEXTS:
            return "text[]"
        if value.item.kind is Kind.INTEGER:
            return number + "[]"
    return number if value.kind is Kind.INTEGER else TYPES[value.kind]


# Which keys a table can hold; about any other one the server would fail where it should find nothing.


def storable_keys(entity: Entity, keys: Sequence[Key]) -> list[Key]:
    """Return the keys that rows of an entity can have, in their order."""
    types = [part.type for part in entity.key_parts]
    return [key for key in keys if all(map(can_hold, types, key))]


def can_hold(kind: KeyType, value: object) -> bool:
    """Whether a column of the key can hold a value."""
    if kind is KeyType.UUID:
        return is_uuid(value)
    if kind in {KeyType.HEX, KeyType.OBJECT_ID, KeyType.BINARY_UUID}:
        return kind.admits(value)
    if kind is KeyType.INT64:
        return type(value) is int and INT64_MIN <= value <= INT64_MAX
    return isinstance(value, str) and is_text(value)


def is_text(value: str) -> bool:
    """Whether the server takes a text: one without U+0000 and lone surrogates."""
    return "\x00" not in value and (value.isascii() or value.encode(errors="ignore").decode() == value)


NAME: Final = re.compile(r'"([a-z_][a-z0-9_]*)"')
# What a name without its marks would be taken for, in every version of the server.
RESERVED: Final = frozenset(  # in the order of the manual
    """
    all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
    collation column concurrently constraint create cross current_catalog current_date current_role
    current_schema current_time current_timestamp current_user default deferrable desc distinct do else end
    except false fetch for foreign freeze from full grant group having ilike in initially inner intersect
    into is isnull join lateral leading left like limit localtime localtimestamp natural not notnull null
    offset on only or order outer overlaps placing primary references returning right select session_user
    similar some symmetric system_user table tablesample then to trailing true union unique user using
    variadic verbose when where window with
    """.split()  # noqa: SIM905  # a list of a hundred quoted words is no better to read
)


def text(part: sql.Composable) -> str:
    """Return a part of a statement as text, without the marks around names that need none."""
    return NAME.sub(lambda found: found[0] if found[1] in RESERVED else found[1], part.as_string())

"""Reading ranges of rows for comparison, straight from the stored values.

Nothing here is shared with the export: a COPY in text form, bounds written into the statement, and JSON that
is built from the text of the columns, without the models. The columns and their types come from the server.
The description only names them, so the comparison includes columns that the description forgot.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, cast

from psycopg import sql

from twinstore.bulk.rows import NO_ADDITIONAL_VALUES, ScanRow, marked
from twinstore.catalog.entity import Layout
from twinstore.catalog.keys import Key, KeyRange
from twinstore.catalog.tenancy import NO_TENANT, UNKNOWN_TENANT, TenancyKind, Tenant
from twinstore.errors import MigrationError, Outcome
from twinstore.models.json_text import INT64_MAX, INT64_MIN, dumps_sorted, loads
from twinstore.models.shapes import Kind, omitted_values
from twinstore_postgres.connection.errors import translated
from twinstore_postgres.mapping.columns import (
    PAYLOAD,
    VERSION,
    column_name,
    has_column,
    key_in_payload,
    storable_keys,
)
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.mapping.tenancy import ScopeKind, owner_condition
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.tenancy import StoredOwner
    from twinstore.models.enums import NumberedEnum
    from twinstore_postgres.bulk.snapshot import Snapshot
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.mapping.columns import Column

# Of one query, whose text grows with them.
FETCH_KEYS: Final = 500
# A batch ends at this size too, so that large documents do not pile up.
BATCH_BYTES: Final = 500_000
NULL: Final = marked("null", None)
# Goes with a row of which only a digest is shown; a unique object.
# JSON has no array that begins at another place than the first; inside an object it differs from all that do.
ARRAY: Final = (
    "CASE WHEN array_lower({0}, 1) <> 1 THEN jsonb_build_object('bounds', {0}) ELSE to_jsonb({0}) END"
)
DIGESTED: Final = bytes(bytearray(NO_ADDITIONAL_VALUES))


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedColumn:
    """One selected column: the name of its value, and how the text becomes a JSON value (``None``: text).

    A ``text`` has a collation, by which it is not to be compared. A ``member`` is a part of a column. The
    type and the enumeration of numbers say as data what ``convert`` does.
    """

    name: str
    column: str
    type_name: str = ""
    numbers: type[NumberedEnum] | None = None
    array: bool = False
    text: bool = False
    convert: Convert | None = None
    member: Column | None = None

    @property
    def expression(self) -> sql.Composable:
        """What is selected."""
        if self.member is not None:
            return self.member.term()
        column = sql.Identifier(self.column)
        return sql.SQL(ARRAY).format(column) if self.array else column

    @property
    def compared(self) -> sql.Composable:
        """What is sorted and compared."""
        if self.member is not None:
            return self.member.term()
        name = sql.Identifier(self.column)
        return name + sql.SQL(' COLLATE "C"') if self.text else name


@dataclass(frozen=True, kw_only=True)
class TableScan:
    """What one entity looks like in its table.

    Attributes:
        fields: the fields of the model, or the payload alone.
        markers: the storage markers.
        beside: the columns of the table in addition to the content.
        payload_key: the key, if it is stored in the payload.
        counter: the version of a row, where the table has one: shown only where it is none.
        payload: whether the one field is the whole wire form.
        left_out: by name, the value of a column when the wire form omits the field, such as an empty list.
    """

    entity: Entity
    fields: tuple[SelectedColumn, ...]
    markers: tuple[SelectedColumn, ...]
    beside: tuple[SelectedColumn, ...]
    counter: SelectedColumn | None
    payload: bool
    payload_key: tuple[SelectedColumn, ...] = ()
    left_out: Mapping[str, object] = field(default_factory=dict[str, object])

    def batches(
        self,
        snapshot: Snapshot,
        within: KeyRange,
        tenant_id: str | None,
        batch_size: int,
        *,
        nullable: bool,
    ) -> Iterator[list[ScanRow]]:
        """Yield the rows of a range in key order; ``nullable`` is true if some may have no key."""
        statement = sql.SQL("{} WHERE {} ORDER BY {}").format(
            self._select, self._within(within, tenant_id, nullable=nullable), self._key_list
        )
        batch: list[ScanRow] = []
        size = 0
        for row in self._rows(snapshot, statement):
            batch.append(row)
            size += row.size
            del row
            if len(batch) == batch_size or size > BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def fetch(self, snapshot: Snapshot, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Yield single rows."""
        known = storable_keys(self.entity, keys)
        for start in range(0, len(known), FETCH_KEYS):
            wanted = sql.SQL(", ").join(map(row_literal, known[start : start + FETCH_KEYS]))
            statement = sql.SQL("{} WHERE ({}) IN ({})").format(self._select, self._key_list, wanted)
            yield from self._rows(snapshot, statement)

    def unordered(
        self,
        within: KeyRange,
        tenant_id: str | None,
        conditions: Sequence[sql.Composable],
        *,
        nullable: bool,
    ) -> sql.Composed:
        """Return the statement that streams the rows of a range in the order of the table."""
        every = self._within(within, tenant_id, nullable=nullable)
        where = sql.SQL(" AND ").join([every, *conditions])
        return sql.SQL("COPY ({} WHERE {}) TO STDOUT").format(self._select, where)

    def row(self, values: Sequence[str | None]) -> ScanRow:
        """Return the row of the texts of the columns."""
        expires = None if self._expires is None else values[self._expires]
        content, beside = self._shown(values)
        row = ScanRow(self._key(values), self._owner(values), content, beside)
        if expires is not None:
            row.expires = instant_of(expires)
        if beside is DIGESTED:
            row.stored_bytes = sum(len(value) for value in values if value is not None)
        return row

    def _shown(self, values: Sequence[str | None]) -> tuple[bytes, bytes]:
        """Return content and other columns; what cannot be written as JSON is marked as a whole."""
        try:
            shown = {
                name: value if convert is None else convert(value)
                for (name, convert), value in zip(self._fields, values, strict=False)
                if value is not None
            }
            document, storage = self._split(shown)
            beside = {
                name: value if convert is None or value is None else convert(value)
                for (name, convert), value in zip(self._beside, values[len(self._fields) :], strict=False)
            }
            if self.counter is not None and not is_version(values[-1]):
                # Under a mark, because null represents a value that may be absent.
                beside[self.counter.name] = marked("version", values[-1])
            return dumps_sorted({"doc": document, "storage": storage}), dumps_sorted(beside)
        # Values nested deeper than a writer of JSON goes; the digest still distinguishes the rows.
        except (TypeError, ValueError, RecursionError):
            digest = sha256("\0".join(map(str, values)).encode()).hexdigest()
            return dumps_sorted({"doc": marked("row", digest), "storage": {}}), DIGESTED

    def _split(self, shown: dict[str, Any]) -> tuple[object, Mapping[str, object]]:
        storage = {part.name: shown.pop(part.name) for part in self.markers if part.name in shown}
        if self.payload:
            return shown.get(self.fields[0].name), storage
        for name, absent in self.left_out.items():
            # The column is never null where the driver wrote it.
            value = shown.setdefault(name, NULL)
            # By type as well: false is not 0.
            if type(value) is type(absent) and value == absent:
                del shown[name]
        return shown, storage

    def _owner(self, values: Sequence[str | None]) -> StoredOwner:
        tenant = None if self._tenant is None else values[self._tenant]
        if tenant is not None:
            return Tenant(tenant)
        return UNKNOWN_TENANT if self.entity.tenancy.kind is TenancyKind.REQUIRED else NO_TENANT

    def _key(self, values: Sequence[str | None]) -> Key | None:
        key = tuple(
            value if convert is None or value is None else convert(value)
            for value, convert in ((values[position], convert) for position, convert in self._keys)
        )
        return cast("Key", key) if self.entity.admits_key(key) else None

    def _rows(self, snapshot: Snapshot, statement: sql.Composable) -> Iterator[ScanRow]:
        # Text: it is what the server says of a value, whatever the client would make of it.
        copy_out = sql.SQL("COPY ({}) TO STDOUT").format(statement)
        with snapshot.copy(copy_out) as copy:
            # Not rows(), which remembers a row while the next is read.
            while message := copy.read():
                values = copy.formatter.parse_row(message)
                del message
                if values is not None:
                    row = self.row(values)
                    del values
                    yield row
                    del row

    @cached_property
    def parts(self) -> tuple[SelectedColumn, ...]:
        """Everything that is selected, in order."""
        counter = () if self.counter is None else (self.counter,)
        return (*self.fields, *self.markers, *self.beside, *self.payload_key, *counter)

    @cached_property
    def _fields(self) -> tuple[tuple[str, Convert | None], ...]:
        return tuple((part.name, part.convert) for part in (*self.fields, *self.markers))

    @cached_property
    def _beside(self) -> tuple[tuple[str, Convert | None], ...]:
        return tuple((part.name, part.convert) for part in self.beside)

    @cached_property
    def _keys(self) -> tuple[tuple[int, Convert | None], ...]:
        positions = [self._position(name) for name in self.entity.key]
        return tuple((position, self.parts[position].convert) for position in positions)

    @cached_property
    def _tenant(self) -> int | None:
        field = self.entity.tenant_field
        return None if field is None else self._position(field)

    @cached_property
    def _expires(self) -> int | None:
        retention = self.entity.retention
        return None if retention is None else self._position(retention.field)

    def _position(self, name: str) -> int:
        """Return where a value is stored; a marker hides a field of the same name."""
        names = [part.name for part in self.parts]
        return names.index(name)

    @cached_property
    def _select(self) -> sql.Composable:
        expressions = sql.SQL(", ").join(part.expression for part in self.parts)
        return sql.SQL("SELECT {} FROM {}").format(expressions, table_of(self.entity).name)

    @cached_property
    def _key_list(self) -> sql.Composable:
        """The key, compared by code point also where a column has another collation."""
        return sql.SQL(", ").join(self.parts[position].compared for position, _ in self._keys)

    def _within(self, within: KeyRange, tenant_id: str | None, *, nullable: bool) -> sql.Composable:
        clauses = [self._bounds(within)]
        if nullable and within != KeyRange():
            # Rows without a key belong to the open upper end.
            lacking = sql.SQL("num_nonnulls({}) < {}").format(self._key_list, len(self._keys))
            kind = "({1} OR {0})" if within.upper is None else "NOT {1} AND {0}"
            clauses = [sql.SQL(kind).format(clauses[0], lacking)]
        if tenant_id is not None:
            tenant = sql.SQL('{}::text COLLATE "C"').format(sql.Literal(tenant_id))
            owner = owner_condition(table_of(self.entity), ScopeKind.TENANT, tenant=tenant)
            clauses += [] if owner is None else [owner]
        return sql.SQL(" AND ").join(clauses)

    def _bounds(self, within: KeyRange) -> sql.Composable:
        clauses: list[sql.Composable] = [sql.SQL("true")]
        if within.lower is not None:
            clauses.append(sql.SQL("({}) >= {}").format(self._key_list, row_literal(within.lower)))
        if within.upper is not None:
            clauses.append(sql.SQL("({}) < {}").format(self._key_list, row_literal(within.upper)))
        return sql.SQL(" AND ").join(clauses)


def is_version(text: str | None) -> bool:
    """Whether the text of a column counts changes."""
    return text is not None and text.isdecimal() and int(text) >= 1


def row_literal(key: Key) -> sql.Composable:
    """Return a key as a row of literals."""
    return sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Literal, key)))


# What a scan selects: the columns that the server has, under the names of the description.
#
# From the description come names, the numbers of enumerations, key, tenant, layout, retention and what the
# wire form leaves out. Which columns there are and of which type, the catalog of the server says.


TEXTS: Final = frozenset({"text", "varchar"})
# Every column with the name of its type; that of an array begins with an underscore.
COLUMNS: Final = """
SELECT a.attname, t.typname
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""


class Scans:
    """What scans select; the catalog of the server is read once for each entity."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], TableScan] = {}

    def of(self, connection: Connection, entity: Entity) -> TableScan:
        """Return what a scan of an entity selects; see :func:`scan_of`."""
        name = (entity.module, entity.name)
        scan = self._known.get(name)
        if scan is None:
            # A savepoint: a table that is not as described must not end the view.
            with translated(outcome=Outcome.NOT_APPLIED), connection.transaction():
                scan = self._known.setdefault(name, scan_of(connection, entity))
        return scan


def scan_of(connection: Connection, entity: Entity) -> TableScan:
    """Return what a scan of an entity selects, from the catalog of the server.

    Raises:
        MigrationError: as :func:`described` says, or there is no such table.
    """
    relation = f'"{entity.module}"."{entity.name}"'
    return described(entity, dict(connection.execute(COLUMNS, [relation]).fetchall()))


def described(entity: Entity, types: Mapping[str, str]) -> TableScan:
    """Return what a scan of an entity selects, from the types of the columns by their names.

    Raises:
        MigrationError: the table has another set of columns than the description.
    """
    check_columns(entity, types)
    payload = entity.layout is Layout.PAYLOAD
    repeated = entity.beside if payload else ()
    key = key_in_payload(entity)
    return TableScan(
        entity=entity,
        fields=parts(entity, types, [PAYLOAD] if payload else list(entity.shapes)),
        markers=parts(entity, types, entity.markers),
        beside=parts(entity, types, [*repeated, *derived_names(entity)]),
        payload_key=() if key is None else (payload_key(key),),
        counter=part(entity, VERSION, types[VERSION])
        if entity.versioned_table and VERSION in types
        else None,
        payload=payload,
        left_out=omitted_values(entity.model),
    )


def check_columns(entity: Entity, types: Mapping[str, str]) -> None:
    """Refuse a table whose columns the description does not name one by one.

    Raises:
        MigrationError: names the columns that only one of the two has.
    """
    table = f"{entity.module}.{entity.name}"
    known = {column_name(entity, name) for name in stored_names(entity)}
    if forgotten := sorted(types.keys() - known):
        raise MigrationError(
            f"The description of {entity.name} does not know column {', '.join(forgotten)} of table {table}, "
            "so it would be neither copied nor compared. Describe it, or drop it.",
            **entity.located(driver=DRIVER),
        )
    # The version of a row is not read here, so the table of a source need not have one.
    if lacking := sorted(known - types.keys() - {VERSION}):
        raise MigrationError(
            f"The table {table} lacks column {', '.join(lacking)}, which the description of {entity.name} "
            "names. Run: twinstore migrate run",
            **entity.located(driver=DRIVER),
        )


def stored_names(entity: Entity) -> tuple[str, ...]:
    """Return every name for which there should be a column."""
    model = (*entity.beside, PAYLOAD) if entity.layout is Layout.PAYLOAD else tuple(entity.shapes)
    return (*model, *entity.markers, *derived_names(entity), *((VERSION,) if entity.versioned_table else ()))


def derived_names(entity: Entity) -> tuple[str, ...]:
    """Return the derived fields that tables have."""
    return tuple(item.name for item in entity.derived if has_column(item))


def payload_key(key: Column) -> SelectedColumn:
    """Return what is selected for a key that is stored in the payload."""
    return SelectedColumn(name=key.field, column=key.name, member=key)


def parts(entity: Entity, types: Mapping[str, str], names: Sequence[str]) -> tuple[SelectedColumn, ...]:
    """Return what is selected for some names."""
    return tuple(part(entity, name, types[column_name(entity, name)]) for name in names)


def part(entity: Entity, name: str, type_name: str) -> SelectedColumn:
    """Return what is selected for one name; the type is that of the server."""
    shape = None if name in entity.markers else entity.shapes.get(name)
    numbers = None
    if shape is not None and shape.value.kind is Kind.NUMBERED:
        numbers = cast("type[NumberedEnum]", shape.value.cls)
    return SelectedColumn(
        name=name,
        column=column_name(entity, name),
        type_name=type_name,
        numbers=numbers,
        array=is_array(type_name),
        text=type_name in TEXTS,
        convert=typed_converter(entity.known.get(name), type_name) or converter_of(type_name, numbers),
    )


def typed_converter(kind: Kind | None, type_name: str) -> Convert | None:
    """Return how the text of a column becomes a value that is no plain text or number, else ``None``."""
    if kind is Kind.HEX:
        return digits_text
    if kind is Kind.DECIMAL:
        return str if type_name == "numeric" else foreign_text
    if kind is Kind.BYTES:
        return base64_text if type_name == "bytea" else foreign_text
    return None


def base64_text(text: str) -> object:
    """Return the base64 of bytes, which the server shows as hexadecimal digits."""
    return b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()


def foreign_text(text: str) -> object:
    """Return the text of a column of another type than the driver gives it, under a mark."""
    return marked("column", text)


Convert = Callable[[str], object]

# Nearly every instant is one of these two, which need no more than a letter changed.
INSTANT_LENGTHS: Final = frozenset({len("2025-10-26 14:05:00+00"), len("2025-10-26 14:05:00.123+00")})
SEPARATOR: Final = 10
LONGEST: Final = len(str(INT64_MIN))
# A zero at the end of a fraction, or more digits than a double or 64 bits may hold. The server writes no
# exponents, and a blank after each colon and comma.
ODD_NUMBER: Final = re.compile(r"(?:^|[\[ ])-?(?:\d+\.\d*0(?=[],}]|$)|\d[\d.]{15})")


def is_array(type_name: str) -> bool:
    """Whether the server calls so the type of an array."""
    return type_name.startswith("_")


def converter_of(type_name: str, numbers: type[NumberedEnum] | None) -> Convert | None:
    """Return how the text of a column becomes a JSON value, ``None`` when it is the value.

    Args:
        type_name: the type, as the catalog of the server names it; arrays are selected as JSON.
        numbers: the enumeration whose members an integer represents.
    """
    if numbers is not None and CONVERTERS.get(type_name) is int:
        return member(numbers)
    return array_value if is_array(type_name) else CONVERTERS.get(type_name)


def instant_text(text: str) -> str:
    """Return the canonical text of an instant as the server writes it; one outside the calendar stays."""
    if len(text) in INSTANT_LENGTHS and text[SEPARATOR] == " ":
        return f"{text.replace(' ', 'T')}:00"
    # The server leaves out the zeros at the end of a fraction.
    if text[19:20] == "." and text.endswith("+00"):
        return f"{text[:SEPARATOR]}T{text[11:20]}{text[20:-3]:0<3}+00:00"
    return text


def digits_text(text: str) -> str:
    """Return the digits of a UUID, as keys have them."""
    return text.replace("-", "")


def instant_of(text: str) -> datetime | None:
    """Return an instant as the server writes it, ``None`` outside the calendar."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def json_value(text: str) -> object:
    """Return a JSONB value; a number whose text is not the one that a driver writes is marked.

    The server keeps ``1.50`` and ``1.0`` as they were given, although it calls them equal to others.
    """
    # Text inside a string that looks like such a number costs time only.
    if ODD_NUMBER.search(text):
        return json.loads(text, parse_float=fraction, parse_int=integer)
    return loads(text)


def array_value(text: str) -> object:
    """Return an array; one that begins at another place than the first comes in an object, and is marked."""
    value = json_value(text)
    return marked("bounds", value["bounds"]) if isinstance(value, dict) else value


def number(text: str) -> object:
    """Return a number of a column; one that JSON does not have is marked."""
    return integer(text) if text.removeprefix("-").isdecimal() else fraction(text)


def double(text: str) -> object:
    """Return a double of a column, which the server spells with an exponent where that is shorter."""
    if "e" not in text:
        return number(text)
    value = float(text)
    return integer(format(value, ".0f")) if value.is_integer() else value


def integer(text: str) -> object:
    """Return an integer; one that no model can hold is marked, in a form that no reader takes."""
    if len(text) <= LONGEST and INT64_MIN <= (value := int(text)) <= INT64_MAX:
        return value
    return marked("more digits than 64 bits have", text)


def fraction(text: str) -> object:
    """Return a number with a fraction; in another spelling than its shortest one, and whole, it is marked."""
    value = float(text)
    is_finite = value - value == 0
    shortest = Decimal(repr(value))
    if not is_finite or shortest != Decimal(text):
        return marked("more digits than a double has", text)
    return value if not value.is_integer() and format(shortest, "f") == text else marked("number", text)


def boolean(text: str) -> bool:
    """Return a boolean as the server writes it."""
    return text == "t"


def member(numbers: type[NumberedEnum]) -> Convert:
    """Return how a number becomes the text of an enumeration; an unknown number stays."""
    texts = {str(item.number): item.value for item in numbers}
    return lambda text: texts.get(text) or int(text)


CONVERTERS: Final[Mapping[str, Convert]] = {
    "bool": boolean,
    "int2": int,
    "int4": int,
    "int8": int,
    "float4": double,
    "float8": double,
    "numeric": number,
    "timestamptz": instant_text,
    "json": json_value,
    "jsonb": json_value,
}

"""How values become columns and rows become models; the tables themselves are described per module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Generic, LiteralString, TypeVar

import orjson
import psycopg
import pydantic
from psycopg import pq, sql
from psycopg.adapt import Dumper, Loader
from pydantic import TypeAdapter
from typing_extensions import override

from twinstore.canonical import CanonicalModel, decode_stored
from twinstore.errors import ValidationError
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from psycopg.abc import AdaptContext, Buffer

    from twinstore.catalog import Entity
    from twinstore.enums import NumberedEnum

__all__ = ["Column", "Json", "JsonLoader", "Replanned", "Row", "Table", "json_list", "json_of"]

Row = tuple[Any, ...]
M = TypeVar("M", bound=CanonicalModel)

JSONB_OID: Final = psycopg.adapters.types["jsonb"].oid
JSONB_VERSION: Final = b"\x01"


class Replanned(bytes):
    """A statement that the server plans anew for the values of each execution.

    A plan made for any values does not know how many rows a range or a limit stands for, and then prefers to
    sort a whole tenant. Lookups by key stay prepared: for them one plan is right for all values.
    """

    __slots__ = ()


class Json(bytes):
    """JSON text that becomes a JSONB value."""

    __slots__ = ()


class JsonDumper(Dumper):
    """Sends JSON text as JSONB, as it is."""

    oid = JSONB_OID

    @override
    def dump(self, obj: Json) -> Buffer:
        return obj


class JsonBinaryDumper(JsonDumper):
    """The same in the binary form of JSONB: a version byte before the text."""

    format = pq.Format.BINARY

    @override
    def dump(self, obj: Json) -> Buffer:
        return JSONB_VERSION + obj


class JsonLoader(Loader):
    """Reads JSONB; what no model could hold becomes :data:`UNREADABLE`, which every model refuses."""

    format = pq.Format.BINARY

    @override
    def load(self, data: Buffer) -> object:
        try:
            return orjson.loads(memoryview(data)[1:])
        except orjson.JSONDecodeError:
            return UNREADABLE


class Unreadable:
    """A stored value that Python cannot represent."""


UNREADABLE: Final = Unreadable()

# Json is a class of this driver, so the registration can disturb nobody else.
psycopg.adapters.register_dumper(Json, JsonDumper)
psycopg.adapters.register_dumper(Json, JsonBinaryDumper)


def register_loaders(context: AdaptContext) -> None:
    """Make a connection or cursor read JSONB with orjson."""
    context.adapters.register_loader(JSONB_OID, JsonLoader)


def json_of(model: type[M]) -> Callable[[M], Json]:
    """Return a function that encodes a nested model, or a whole one, as canonical JSON."""
    to_json = model.__pydantic_serializer__.to_json  # bound once: every row of a copy pays for the look-up
    return lambda part: Json(to_json(part, by_alias=True, exclude_none=True))


def json_list(adapter: TypeAdapter[tuple[M, ...]]) -> Callable[[tuple[M, ...]], Json]:
    """Return a function that encodes a tuple of nested models."""
    to_json = adapter.serializer.to_json
    empty = Json(b"[]")
    return lambda parts: Json(to_json(parts, by_alias=True, exclude_none=True)) if parts else empty


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its type, and the wire name or storage marker it holds (``None``: internal)."""

    name: LiteralString
    sql_type: LiteralString
    field: str | None
    enum: type[NumberedEnum] | None = None


@dataclass(frozen=True, eq=False)
class Table(Generic[M]):
    """One table and the two ways between its rows and models.

    Attributes:
        columns: those that reads return and inserts write, in this order.
        encode: the values of a row, from a model, its key and its storage markers.
        markers: how many of the last columns are no part of the model.
        payload: the column that holds the whole model, where the others only repeat parts of it.
        versioned: whether the table counts its updates in ``row_version``.
    """

    entity: Entity
    model: type[M]
    columns: tuple[Column, ...]
    key: tuple[LiteralString, ...]
    tenant: LiteralString
    encode: Callable[[M, Mapping[str, object]], Row]
    markers: int = 0
    payload: LiteralString | None = None
    versioned: bool = False

    @cached_property
    def name(self) -> sql.Composable:
        """The qualified name."""
        return sql.Identifier(self.entity.module, self.entity.name)

    @cached_property
    def column_list(self) -> sql.Composed:
        """The columns, separated by commas."""
        return sql.SQL(", ").join(sql.Identifier(column.name) for column in self.columns)

    @cached_property
    def key_list(self) -> sql.Composed:
        """The columns of the key, separated by commas."""
        return sql.SQL(", ").join(sql.Identifier(name) for name in self.key)

    @cached_property
    def placeholders(self) -> sql.Composed:
        """One placeholder per column."""
        return sql.SQL(", ").join([sql.Placeholder()] * len(self.columns))

    @cached_property
    def typed_placeholders(self) -> sql.Composed:
        """One placeholder per column with its type, where the server cannot infer it."""
        return sql.SQL(", ").join(sql.SQL("%s::") + sql.SQL(column.sql_type) for column in self.columns)

    @cached_property
    def by_field(self) -> dict[str, Column]:
        """The columns by wire name or storage marker."""
        return {column.field: column for column in self.columns if column.field is not None}

    def column(self, field: str) -> Column:
        """Return the column of a wire name or storage marker.

        Raises:
            ValidationError: there is none; names those that exist.
        """
        column = self.by_field.get(field)
        if column is None:
            known = ", ".join(sorted(self.by_field))
            raise ValidationError(f"{self.entity.name} has no field {field!r}; it has {known}.")
        return column

    def statement(self, template: LiteralString) -> bytes:
        """Return a statement with {table}, {columns}, {values} and {typed} (values with types) filled in."""
        parts = {"table": self.name, "columns": self.column_list, "values": self.placeholders}
        return sql.SQL(template).format(**parts, typed=self.typed_placeholders).as_bytes()

    @cached_property
    def _fields(self) -> tuple[str | None, ...]:
        columns = self.columns[: -self.markers] if self.markers else self.columns
        return tuple(column.field for column in columns)

    @cached_property
    def _enums(self) -> tuple[tuple[str, dict[int, str]], ...]:
        return tuple(
            (column.field, {member.number: member.value for member in column.enum})
            for column in self.columns
            if column.enum is not None and column.field is not None
        )

    def decode(self, row: Row) -> M:
        """Return the model of a row.

        Raises:
            DocumentDecodeError: the row does not form a model; names entity and key.
        """
        document = self._document(row)
        try:
            return self._validate(document, by_alias=True, by_name=False)
        except pydantic.ValidationError:
            # Once more for the message; the name of a row that is fine need not be made.
            key = self.key_text(row)
            return decode_stored(self.model, document, entity=self.entity.name, key=key, driver=DRIVER)

    @cached_property
    def _validate(self) -> Callable[..., M]:
        return self.model.__pydantic_validator__.validate_python

    def _document(self, row: Row) -> object:
        if self._payload_position is not None:
            return row[self._payload_position]
        document = dict(zip(self._fields, row, strict=False))
        for field, members in self._enums:
            number = document[field]
            document[field] = members.get(number, number)
        return document

    @cached_property
    def _payload_position(self) -> int | None:
        names = [column.name for column in self.columns]
        return None if self.payload is None else names.index(self.payload)

    @cached_property
    def _key_positions(self) -> tuple[int, ...]:
        names = [column.name for column in self.columns]
        return tuple(names.index(name) for name in self.key)

    def key_of(self, row: Row) -> tuple[str, ...]:
        """Return the key of a row."""
        return tuple(row[position] for position in self._key_positions)

    @cached_property
    def tenant_position(self) -> int:
        """The position of the tenant in a row."""
        return [column.name for column in self.columns].index(self.tenant)

    @cached_property
    def _marker_positions(self) -> tuple[tuple[str, int], ...]:
        fields = [column.field for column in self.columns]
        return tuple((marker, fields.index(marker)) for marker in self.entity.markers)

    def markers_of(self, row: Row) -> dict[str, object]:
        """Return the storage markers of a row; absent ones are left out."""
        return {name: row[at] for name, at in self._marker_positions if row[at] is not None}

    def key_text(self, row: Row) -> str:
        """Return the key of a row for messages."""
        return ":".join(map(str, self.key_of(row)))

    def sort_key(self, fields: Sequence[str]) -> Callable[[Row], Row]:
        """Return a function that takes the values of some fields out of a row."""
        names = [column.field for column in self.columns]
        positions = [names.index(field) for field in fields]
        return lambda row: tuple(row[position] for position in positions)

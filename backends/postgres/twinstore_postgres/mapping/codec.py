"""How values are sent: JSON without a detour, UUIDs as text, and statements that are planned each time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import UUID

import orjson
import psycopg
from psycopg import pq
from psycopg.adapt import Dumper, Loader
from pydantic import TypeAdapter
from typing_extensions import override

from twinstore.catalog.row import Row as StoredRow
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel, schema_serializer
from twinstore.models.json_text import LARGE_TEXT, exact_number, loads
from twinstore.models.shapes import Kind, has_floats, holds_floats
from twinstore_postgres.mapping.columns import TEXTS, Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg.abc import AdaptContext, Buffer

    from twinstore.catalog.entity import Entity
    from twinstore.models.shapes import FieldShape, ValueShape
    from twinstore_postgres.mapping.columns import Column

Values = tuple[Any, ...]
"""The values of a row, in the order of the columns."""
M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")

JSONB_OID: Final = psycopg.adapters.types["jsonb"].oid
UUID_OID: Final = psycopg.adapters.types["uuid"].oid
JSONB_VERSION: Final = b"\x01"
# In front of a fraction of a number that may have more than 15 digits, which a double always keeps. A pattern
# that begins with a point costs little; the server writes no exponents.
MANY_DIGITS: Final = re.compile(rb"\.(?:\d{4}|(?<=\d{13}\.)\d)")


class Unprepared(bytes):
    """A statement that the server plans again for the values of each execution.

    A plan made for any values does not know how many rows a range or a limit selects, and then prefers to
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
            # The first byte is the version of the form.
            if MANY_DIGITS.search(data):
                return json.loads(bytes(memoryview(data)[1:]), parse_float=exact_number)
            if len(data) > LARGE_TEXT:
                return loads(bytes(memoryview(data)[1:]))
            return orjson.loads(memoryview(data)[1:])
        except (ValueError, RecursionError):
            return UNREADABLE


class UuidLoader(Loader):
    """Reads a UUID as its lower-case text, which is what models and keys hold."""

    format = pq.Format.BINARY

    @override
    def load(self, data: Buffer) -> str:
        return str(UUID(bytes=bytes(data)))


class Unreadable:
    """A stored value that Python cannot represent."""

    def __repr__(self) -> str:
        """Return the same text for every such value, because it is written into files of quarantined rows."""
        return "(unreadable)"


UNREADABLE: Final = Unreadable()

# Json is a class of this driver, so the registration cannot affect other code.
psycopg.adapters.register_dumper(Json, JsonDumper)
psycopg.adapters.register_dumper(Json, JsonBinaryDumper)


def register_loaders(context: AdaptContext) -> None:
    """Make a connection or cursor read JSONB with orjson, and UUIDs as text."""
    context.adapters.register_loader(JSONB_OID, JsonLoader)
    context.adapters.register_loader(UUID_OID, UuidLoader)


def json_of(model: type[M]) -> Callable[[M], Json]:
    """Return a function that encodes a nested model, or a whole one, as canonical JSON."""
    if has_floats(model):
        return lambda part: Json(CanonicalJsonSerializer.serialize(part))  # a whole float is an integer there
    to_json = schema_serializer(model).to_json  # bound once: every row of a copy pays for the look-up
    return lambda part: Json(to_json(part, by_alias=True, exclude_none=True))


def json_by(adapter: TypeAdapter[T], empty: bytes, *, floats: bool) -> Callable[[T], Json]:
    """Return a function that encodes a list or map of nested values; ``empty`` is its text without any."""
    nothing = Json(empty)
    if floats:  # as of one model
        to_python = adapter.serializer.to_python
        return lambda parts: (
            Json(json_text.dumps(to_python(parts, by_alias=True, exclude_none=True))) if parts else nothing
        )
    to_json = adapter.serializer.to_json
    return lambda parts: Json(to_json(parts, by_alias=True, exclude_none=True)) if parts else nothing


# Rows from models and documents from rows: one function for each, compiled once per entity.
#
# A loop over the columns would pay for every column of every row what is the same for all rows. The text of a
# function is made of the Python names of fields and of numbered helpers, never of stored values.


Encode = Callable[[StoredRow[Any]], "Values"]
Decode = Callable[["Values"], object]

PLAIN: Final = frozenset(
    {
        Kind.TEXT,
        Kind.INTEGER,
        Kind.NUMBER,
        Kind.FLAG,
        Kind.INSTANT,
        Kind.OBJECT_ID,
        Kind.DECIMAL,
        Kind.BYTES,
    }
)
# The members of lists that have a column of an array.
LISTED: Final = TEXTS | {Kind.INTEGER}
# JSON of a map that needs no model.
JSON_SCALARS: Final = frozenset({Kind.TEXT, Kind.INTEGER, Kind.NUMBER, Kind.FLAG})


def compile_encoder(entity: Entity, columns: Sequence[Column]) -> Encode:
    """Return the function that makes the values of a row."""
    names: dict[str, object] = {"Json": Json}
    values = [_value(entity, column, names, f"f{number}") for number, column in enumerate(columns)]
    needs_content = any("(content)" in value for value in values)
    lines = [
        "def encode(row):",
        "    model, storage = row.model, row.storage",
        *(["    content = row.content"] if needs_content else []),
        f"    return ({', '.join(values)},)",
    ]
    return cast("Encode", _compiled("encode", lines, names))


def compile_decoder(columns: Sequence[Column]) -> Decode:
    """Return the function that makes the document of a row, as the model reads it."""
    origins = [column.origin for column in columns]
    if Origin.PAYLOAD in origins:
        return itemgetter(origins.index(Origin.PAYLOAD))
    names: dict[str, object] = {}
    items = []
    for number, column in enumerate(columns):
        if column.origin is Origin.FIELD:
            value = f"row[{number}]"
            if column.numbers is not None:
                names[f"f{number}"] = {item.number: item.value for item in column.numbers}.get
                value = f"f{number}({value}, {value})"  # an unknown number stays, and the model refuses it
            items.append(f"{column.field!r}: {value}")
    lines = ["def decode(row):", f"    return {{{', '.join(items)}}}"]
    return cast("Decode", _compiled("decode", lines, names))


def _compiled(name: str, lines: Sequence[str], names: dict[str, object]) -> object:
    text = "\n".join(lines)
    exec(compile(text, f"<{name} of twinstore_postgres>", "exec"), names)  # noqa: S102  # made of names alone, as dataclasses do
    return names[name]


def _value(entity: Entity, column: Column, names: dict[str, object], helper: str) -> str:
    """Return the expression of one column; what it needs is put into ``names``."""
    match column.origin:
        case Origin.PAYLOAD:
            return "Json(content)"
        case Origin.MARKER:
            return _marker(column, names)
        case Origin.DERIVED:
            return _derived(entity, column, names, helper)
        case Origin.FIELD:
            return _field(entity, column, names, helper)
        case Origin.MEMBER:
            raise LookupError(f"{column.field} is written with the payload")  # met by programmers only


def _marker(column: Column, names: dict[str, object]) -> str:
    found = f"storage.get({column.field!r})" if column.nullable else f"storage[{column.field!r}]"
    return _uuid(found, names) if column.sql_type == "uuid" else found


def _derived(entity: Entity, column: Column, names: dict[str, object], helper: str) -> str:
    derived = next(item for item in entity.derived if item.name == column.field)
    if derived.of_content is not None:
        names[helper] = derived.of_content
        return f"{helper}(content)"
    names[helper] = derived.value
    found = f"{helper}(model, storage)"
    return _uuid(found, names) if column.sql_type == "uuid" else found


def _field(entity: Entity, column: Column, names: dict[str, object], helper: str) -> str:
    shape = entity.shapes[column.field]
    found = f"model.{shape.name}"
    if column.sql_type == "uuid":
        uuid = _uuid("value" if column.nullable else found, names)
        return f"(None if (value := {found}) is None else {uuid})" if column.nullable else uuid
    if shape.value.kind in PLAIN:
        return found
    made = _converted("value" if shape.optional else found, entity, shape, names, helper)
    return f"(None if (value := {found}) is None else {made})" if shape.optional else made


def _uuid(value: str, names: dict[str, object]) -> str:
    names["UUID"] = UUID  # the client sends 16 bytes for its own class, and text for a text
    return f"UUID({value})"


def _converted(value: str, entity: Entity, shape: FieldShape, names: dict[str, object], helper: str) -> str:
    """Return the expression of a value that is there and is not stored as it is."""
    kind, item = shape.value.kind, shape.value.item
    if kind is Kind.NUMBERED:
        return f"{value}.number"
    if kind is Kind.NAMED:
        return f"{value}.value"
    if kind is Kind.LIST and item is not None and item.kind in LISTED and not item.nullable:
        return f"list({value})" if item.kind in PLAIN else f"[item.value for item in {value}]"
    names[helper] = _json(entity.model, shape, item)
    return f"{helper}({value})"


def _json(model: type[CanonicalModel], shape: FieldShape, item: ValueShape | None) -> object:
    """Return the function that encodes a value as JSON."""
    if shape.value.kind is Kind.OBJECT:
        return json_of(shape.value.model)
    if item is None or (shape.value.kind is Kind.MAP and item.kind in JSON_SCALARS):
        return lambda value: Json(json_text.dumps(value))
    adapter: TypeAdapter[object] = TypeAdapter(model.model_fields[shape.name].rebuild_annotation())
    empty = b"[]" if shape.value.kind is Kind.LIST else b"{}"
    return json_by(adapter, empty, floats=holds_floats(shape.value))

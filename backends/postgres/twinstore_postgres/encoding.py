"""Rows from models and documents from rows: one function for each, compiled once per entity.

A loop over the columns would pay for every column of every row what is the same for all rows. The text of a
function is made of the Python names of fields and of numbered helpers, never of stored values.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from pydantic import TypeAdapter

from twinstore import jsontext
from twinstore.access import Row as StoredRow
from twinstore.shapes import Kind, holds_floats
from twinstore_postgres.codec import Json, json_by, json_of
from twinstore_postgres.columns import TEXTS, Origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.shapes import FieldShape, ValueShape
    from twinstore_postgres.codec import Row
    from twinstore_postgres.columns import Column

__all__ = ["compile_decoder", "compile_encoder"]

Encode = Callable[[StoredRow[Any]], "Row"]
Decode = Callable[["Row"], object]

PLAIN: Final = frozenset({Kind.TEXT, Kind.INTEGER, Kind.NUMBER, Kind.FLAG, Kind.INSTANT})
# The members of lists that have a column of an array.
LISTED: Final = TEXTS | {Kind.INTEGER}
# What JSON of a map needs no model for; None stands for free JSON.
JSON_SCALARS: Final = frozenset({Kind.TEXT, Kind.INTEGER, Kind.NUMBER, Kind.FLAG, None})


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
        return _uuid(found, names)
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
    if kind is Kind.LIST and item is not None and item.kind in LISTED:
        return f"list({value})" if item.kind in PLAIN else f"[item.value for item in {value}]"
    names[helper] = _json(entity.model, shape, item)
    return f"{helper}({value})"


def _json(model: type[CanonicalModel], shape: FieldShape, item: ValueShape | None) -> object:
    """Return the function that encodes a value as JSON."""
    if shape.value.kind is Kind.OBJECT:
        return json_of(shape.value.model)
    if shape.value.kind is Kind.MAP and (None if item is None else item.kind) in JSON_SCALARS:
        return lambda value: Json(jsontext.dumps(value))
    adapter: TypeAdapter[object] = TypeAdapter(model.model_fields[shape.name].rebuild_annotation())
    empty = b"[]" if shape.value.kind is Kind.LIST else b"{}"
    return json_by(adapter, empty, floats=holds_floats(shape.value))

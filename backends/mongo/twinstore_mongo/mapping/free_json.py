"""A document whose decoded values differ from what is stored: the same values, with marks where they differ.

If a name occurs twice the client keeps one value, and it replaces some old types. A comparison that shows
such a document has to say where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import bson
from bson import Binary, DBRef, Decimal128, ObjectId
from bson.errors import InvalidDocument
from bson.int64 import Int64

from twinstore.bulk.rows import marked
from twinstore.models.fields import date_in, date_object
from twinstore.models.json_text import dumps
from twinstore.models.shapes import Kind, shapes_of
from twinstore.models.typed_objects import (
    binary_in,
    binary_object,
    decimal_in,
    decimal_object,
    oid_in,
    oid_object,
)
from twinstore_mongo.client.bson import EPOCH, NAIVE_EPOCH, elements
from twinstore_mongo.client.types import EXACT

if TYPE_CHECKING:
    from twinstore.models.canonical import CanonicalModel
    from twinstore.models.shapes import ValueShape
    from twinstore_mongo.client.types import Document

OBJECT: Final = 0x03
ARRAY: Final = 0x04
NESTED: Final = frozenset({OBJECT, ARRAY})
# How often a value is decoded again; deeper values are walked, or the time would grow with the depth.
SHORT: Final = 4
# What the client gives as something else, by its number. A pointer leads into another collection.
REPLACED: Final = {0x06: "undefined", 0x0C: "pointer", 0x0E: "symbol"}


def lossless_document(raw: bytes) -> Document | None:
    """Return a document whose values give it back byte by byte, ``None`` where none do.

    The client alone takes a map with ``$ref`` behind another name for a reference, and forgets the order.
    """
    found = exact_document(raw)
    try:
        return found if bson.encode(found) == raw else None
    except InvalidDocument:  # no name may hold what marks begin with
        return None


def exact_document(raw: bytes, depth: int = 0) -> Document:
    """Return a document that the client can decode, with marks where the decoded values are not exact.

    Args:
        raw: the document.
        depth: how many documents lie around it.
    """
    found: Document = {}
    repeated: dict[str, list[object]] = {}
    for kind, name, value in members(raw):
        if name in found:
            repeated.setdefault(name, [found[name]]).append(value_of(kind, value, depth))
        else:
            found[name] = value_of(kind, value, depth)
    return found | {name: marked("repeated", values) for name, values in repeated.items()}


def value_of(kind: int, value: bytes, depth: int) -> object:
    """Return one value."""
    if kind in REPLACED:
        return marked("bson", {f"${REPLACED[kind]}": value.hex()})
    if kind not in NESTED or depth < SHORT:
        element = bytes([kind]) + b"v\x00" + value
        document = (len(element) + 5).to_bytes(4, "little") + element + b"\x00"
        decoded = bson.decode(document, EXACT)
        # Most of it is as the client gives it, which is a hundred times faster.
        if kind not in NESTED or bson.encode(decoded) == document:
            return decoded["v"]
    if kind == OBJECT:
        return exact_document(value, depth + 1)
    items = members(value)
    values = [value_of(inner, item, depth + 1) for inner, _, item in items]
    regular = [name for _, name, _ in items] == [str(number) for number in range(len(items))]
    return values if regular else marked("array", values)


def members(raw: bytes) -> list[tuple[int, str, bytes]]:
    """Return type, name and bytes of each value of a document."""
    # The client does not look at the names in a list, which may be any bytes.
    return [
        (kind, name.decode(errors="backslashreplace"), raw[start:end])
        for kind, name, start, end in elements(raw)
    ]


# Free JSON in documents: where the documents of a model have it, and which parts BSON holds in another way.
#
# The objects of :mod:`twinstore.models.typed_objects` are values of BSON, and the client reads a map that
# looks like a database reference as an object of a special class.


MapConverter = Callable[[Any], Any]
"""Returns the replacement of a value."""
# What free JSON mostly holds; anything else may hide a reference or a date.
PLAIN: Final = frozenset({str, bool, int, float, type(None), Int64})
# How every name of a typed object begins. One byte is found much faster than two.
NAMED: Final = b"$"
# With this name in front the client reads an object as a reference.
REFERENCE: Final = "$ref"


def map_converters(
    model: type[CanonicalModel], free: MapConverter, described: MapConverter | None = None
) -> tuple[tuple[str, MapConverter], ...]:
    """Return the fields of a model in which there are maps, each with what changes those.

    Args:
        model: any model.
        free: is called with every object or list of free JSON that is the value of a field, or an item of
            one.
        described: is called with every map of which the description says what it holds.
    """
    found = ((shape.wire, map_converter(shape.value, free, described)) for shape in shapes_of(model))
    return tuple((name, converter) for name, converter in found if converter is not None)


def map_converter(
    value: ValueShape, free: MapConverter, described: MapConverter | None
) -> MapConverter | None:
    """Return what changes the maps in a value of some shape, ``None`` where there are none."""
    if value.kind is Kind.OBJECT:
        fields = map_converters(value.model, free, described)
        inside = partial(changed, fields) if fields else None
        may_be_reference = any(shape.wire == REFERENCE for shape in shapes_of(value.model))
        return partial(each_reference, described, inside) if described and may_be_reference else inside
    if value.item is None:
        if value.kind is Kind.LIST:
            return free
        # A value of several types is not free JSON: one of them may be a model that has instants.
        return None if value.kind is not Kind.MAP else free if value.cls is dict else described
    below = map_converter(value.item, free, described)
    if value.kind is Kind.LIST:
        return None if below is None else partial(each_item, below)
    return described if below is None else partial(each_member, described, below)


def within(fields: Sequence[tuple[str, MapConverter]], value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Change fields of an object in place; return it."""
    if type(value) is dict:
        for name, converter in fields:
            if (found := value.get(name)) is not None:
                value[name] = converter(found)
    return value


def changed(fields: Sequence[tuple[str, MapConverter]], value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a nested object with some fields changed; what was found is compared with later."""
    return within(fields, dict(value)) if type(value) is dict else value


def each_reference(described: MapConverter, inside: MapConverter | None, value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return an object that the client may take for a reference, with its fields changed."""
    value = described(value)
    return value if inside is None else inside(value)


def each_item(converter: MapConverter, value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a list with each item changed."""
    return [converter(item) for item in value] if isinstance(value, list | tuple) else value


def each_member(around: MapConverter | None, converter: MapConverter, value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a map with each member changed."""
    value = value if around is None else around(value)
    return {name: converter(item) for name, item in value.items()} if type(value) is dict else value


def encode_typed(value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Put values of BSON in place of the objects that represent them in a map or list; return that.

    The map itself stays a map, whatever it holds: the field accepts nothing else.
    """
    if type(value) is list:
        return list(map(encode_member, value)) if NAMED in dumps(value) else value
    # To look into the JSON costs a tenth of a walk, and hardly any has such a name.
    if type(value) is dict and not PLAIN.issuperset(map(type, value.values())) and NAMED in dumps(value):
        return {name: encode_member(item) for name, item in value.items()}
    return value


def encode_member(value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Return a member of free JSON as a document holds it."""
    if type(value) is dict:
        found = bson_value(value) if len(value) == 1 else None
        return {name: encode_member(item) for name, item in value.items()} if found is None else found
    return list(map(encode_member, value)) if type(value) is list else value


def bson_value(value: dict[str, Any]) -> object:
    """Return the value of BSON that an object represents, ``None`` for any other object."""
    if (instant := date_in(value)) is not None:
        return instant
    if (digits := oid_in(value)) is not None:
        return ObjectId(digits)
    if (number := decimal_in(value)) is not None:
        return Decimal128(number)
    content = binary_in(value)
    return None if content is None else Binary(*content)


def free_map(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return an object or a list of free JSON as models read it; of anything else nothing is known."""
    if type(value) is list:
        return restored(value)
    if type(value) is dict:
        if PLAIN.issuperset(map(type, value.values())):  # as nearly all of them
            return value
        return {name: item if type(item) in PLAIN else restored(item) for name, item in value.items()}
    return free_map(dict(value.as_doc())) if isinstance(value, DBRef) else value


def restored(value: Any) -> Any:  # noqa: ANN401  # free JSON
    """Return free JSON with every reference in it as a map, and every typed value as the object of one.

    What no object represents stays what it is, and the model refuses it by its name.
    """
    kind = type(value)
    if kind is dict:
        return free_map(value)
    if kind is list:
        is_plain = PLAIN.issuperset(map(type, value))
        return value if is_plain else [item if type(item) in PLAIN else restored(item) for item in value]
    if kind is datetime:
        return date_object(value if value.tzinfo is not None else EPOCH + (value - NAIVE_EPOCH))
    if kind is ObjectId:
        return oid_object(str(value))
    if kind is bytes or isinstance(value, Binary):
        # The client gives bytes of subtype 0 as plain ones.
        return binary_object(value, getattr(value, "subtype", 0))
    return decimal_part(value) if kind is Decimal128 else free_map(value)


def decimal_part(value: Decimal128) -> object:
    """Return a decimal as the object of one; one that has none as what the model names in its refusal."""
    number = value.to_decimal()
    try:
        found = decimal_object(number)
    except ValueError:
        return number
    # Another encoding of the same number would not come back.
    return found if Decimal128(number) == value else value


def references(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a value with every reference in it as a map."""
    if type(value) is dict:
        if PLAIN.issuperset(map(type, value.values())):
            return value
        return {name: references(item) for name, item in value.items()}
    if isinstance(value, DBRef):
        return references(dict(value.as_doc()))
    return [references(item) for item in value] if isinstance(value, list) else value

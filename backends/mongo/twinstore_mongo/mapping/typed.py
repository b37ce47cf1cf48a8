"""ObjectIds, UUIDs, decimals and bytes: texts and numbers in models and keys, types of their own in BSON.

Models hold the wire form of the first two, a text; :class:`~decimal.Decimal` and ``bytes`` of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from bson import Binary, Decimal128, ObjectId
from bson.binary import OLD_UUID_SUBTYPE, UUID_SUBTYPE

from twinstore.catalog.keys import KeyType
from twinstore.models.shapes import Kind, shapes_of

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.models.shapes import ValueShape

Converter = Callable[[Any], object]
Fields = tuple[tuple[str, Converter], ...]

UUID_BYTES: Final = 16
OLD_UUID: Final = (
    f"binary data of subtype {OLD_UUID_SUBTYPE}, a UUID whose bytes drivers put in different orders; write "
    f"it with subtype {UUID_SUBTYPE}"
)


class StoredTypeError(ValueError):
    """A stored value is of a type that no model reads at its place.

    Attributes:
        path: the place.
        reason: what is stored there.
    """

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def below(self, name: object) -> StoredTypeError:
        """Return the same about a value below a name or number."""
        return StoredTypeError(self.reason, f"{name}.{self.path}" if self.path else str(name))


def read_object_id(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return the digits of an ObjectId; anything else as it is."""
    return str(value) if type(value) is ObjectId else value


def read_uuid(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return the text of a UUID; anything else as it is.

    Raises:
        StoredTypeError: it is other binary data.
    """
    if type(value) is Binary and value.subtype == UUID_SUBTYPE and len(value) == UUID_BYTES:
        return str(UUID(bytes=bytes(value)))
    if isinstance(value, bytes):
        raise StoredTypeError(binary_reason(value))
    return value


def read_decimal(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return a decimal; anything else as it is."""
    return value.to_decimal() if type(value) is Decimal128 else value


def read_bytes(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return bytes; anything else as it is.

    Raises:
        StoredTypeError: it is of another subtype, or a text, which a model would take for base64.
    """
    if type(value) is Binary:
        raise StoredTypeError(binary_reason(value))
    if isinstance(value, str):
        raise StoredTypeError("a text, and not binary data")
    return value


def binary_reason(value: bytes) -> str:
    """Return what binary data is that a field does not take."""
    subtype = value.subtype if isinstance(value, Binary) else 0
    return OLD_UUID if subtype == OLD_UUID_SUBTYPE else f"binary data of subtype {subtype}"


def stored_object_id(value: Any) -> object:  # noqa: ANN401  # any value of a model, key or condition
    """Return the ObjectId of its digits; anything else, which no document holds, as it is."""
    return ObjectId(value) if KeyType.OBJECT_ID.admits(value) else value


def stored_uuid(value: Any) -> object:  # noqa: ANN401  # any value of a model, key or condition
    """Return the binary data of the text of a UUID; anything else as it is."""
    return Binary(UUID(value).bytes, UUID_SUBTYPE) if KeyType.BINARY_UUID.admits(value) else value


def stored_decimal(value: Any) -> object:  # noqa: ANN401  # any value of a model or condition
    """Return a decimal as BSON has it; an integer as it is, which the server compares with decimals."""
    return Decimal128(value) if isinstance(value, Decimal) else value


READERS: Final[Mapping[Kind, Converter]] = {
    Kind.OBJECT_ID: read_object_id,
    Kind.UUID: read_uuid,
    Kind.DECIMAL: read_decimal,
    Kind.BYTES: read_bytes,
}
# The client writes bytes with subtype 0.
WRITERS: Final[Mapping[Kind, Converter]] = {
    Kind.OBJECT_ID: stored_object_id,
    Kind.UUID: stored_uuid,
    Kind.DECIMAL: stored_decimal,
}
KEY_WRITERS: Final[Mapping[KeyType, Converter]] = {
    KeyType.OBJECT_ID: stored_object_id,
    KeyType.BINARY_UUID: stored_uuid,
}
# What a document must hold where a part of a key is such a value.
KEY_TYPES: Final[Mapping[KeyType, tuple[type, str]]] = {
    KeyType.OBJECT_ID: (ObjectId, "an ObjectId"),
    KeyType.BINARY_UUID: (Binary, f"binary data of subtype {UUID_SUBTYPE}"),
}


def read_key_part(kind: KeyType, value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return a part of a key as keys have it; a value of another type, a text too, is none: ``None``."""
    if type(value) is not KEY_TYPES[kind][0]:
        return None
    try:
        return read_object_id(value) if kind is KeyType.OBJECT_ID else read_uuid(value)
    except StoredTypeError:
        return None


def first_key_part(kind: KeyType, element: tuple[int, bytes] | None) -> str | None:
    """Return the same of an element as its type and bytes, without the client."""
    number, value = element or (0, b"")
    if kind is KeyType.OBJECT_ID:
        return value.hex() if number == OBJECT_ID_ELEMENT else None
    # The length, the subtype, and the bytes.
    head = UUID_BYTES.to_bytes(4, "little") + bytes([UUID_SUBTYPE])
    is_uuid = number == BINARY_ELEMENT and value.startswith(head)
    return str(UUID(bytes=value[len(head) :])) if is_uuid else None


OBJECT_ID_ELEMENT: Final = 0x07
BINARY_ELEMENT: Final = 0x05


def typed_fields(model: type[CanonicalModel], converters: Mapping[Kind, Converter]) -> Fields:
    """Return the fields of a model with such values in them, each with what converts them."""
    found = ((shape.wire, _converter(shape.value, converters)) for shape in shapes_of(model))
    return tuple((name, converter) for name, converter in found if converter is not None)


def _converter(value: ValueShape, converters: Mapping[Kind, Converter]) -> Converter | None:
    if value.kind is Kind.OBJECT:
        fields = typed_fields(value.model, converters)
        return partial(converted_fields, fields) if fields else None
    if value.kind is Kind.LIST and value.item is not None:
        below = _converter(value.item, converters)
        return None if below is None else partial(_each, below)
    return converters.get(value.kind)


def converted_fields(fields: Fields, value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return an object with some of its fields converted; it stays as it is itself.

    Raises:
        StoredTypeError: no model reads one of them.
    """
    if type(value) is not dict:
        return value
    found = dict(value)
    for name, converter in fields:
        if found.get(name) is not None:
            try:
                found[name] = converter(found[name])
            except StoredTypeError as error:
                raise error.below(name) from None
    return found


def _each(converter: Converter, value: Any) -> object:  # noqa: ANN401  # any stored value
    if not isinstance(value, list | tuple):
        return value
    found: list[object] = []
    for number, item in enumerate(value):
        try:
            found.append(converter(item))
        except StoredTypeError as error:
            raise error.below(number) from None
    return found


def key_writers(entity: Entity) -> Sequence[Converter | None] | None:
    """Return what makes the stored form of each part of a key, ``None`` where all are as keys have them."""
    found = [KEY_WRITERS.get(part.type) for part in entity.key_parts]
    return found if any(found) else None


def value_writers(entity: Entity) -> dict[str, Converter]:
    """Return what makes the stored form of a value by the field that a condition or a change names."""
    return {name: WRITERS[kind] for name, kind in entity.known.items() if kind in WRITERS}


def value_readers(entity: Entity) -> dict[str, Converter]:
    """Return what makes a sort value of a stored one, by field; what is of no such type stays as it is."""
    return {name: SORT_READERS[kind] for name, kind in entity.known.items() if kind in SORT_READERS}


def sort_uuid(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return the text of a UUID; anything else as it is, other binary data too."""
    try:
        return read_uuid(value)
    except StoredTypeError:
        return value


def sort_decimal(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return a decimal, also that of an integer; anything else as it is."""
    return Decimal(value) if isinstance(value, int) else read_decimal(value)


SORT_READERS: Final[Mapping[Kind, Converter]] = {
    Kind.OBJECT_ID: read_object_id,
    Kind.UUID: sort_uuid,
    Kind.DECIMAL: sort_decimal,
}

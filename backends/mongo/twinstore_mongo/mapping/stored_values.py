"""Stored values as tools read and write them, which know no class of the client."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bson import DBRef, Decimal128, ObjectId
from bson.binary import UUID_SUBTYPE, Binary
from bson.int64 import Int64
from typing_extensions import override

from twinstore.bulk.changes import StoredObjectId, StoredReference, StoredValues
from twinstore.catalog.keys import KeyType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MONGO_VALUES", "MongoValues", "object_id_digits"]


def _instant(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _decimal(value: Decimal128) -> object:
    found = value.to_decimal()
    return found if found.is_finite() else value


READ: Final[Mapping[type, Callable[..., object]]] = {
    ObjectId: lambda value: StoredObjectId(value.binary.hex()),
    Decimal128: _decimal,
    datetime: _instant,
    Int64: int,
    DBRef: lambda value: StoredReference(value.collection, value.id),
    bytes: bytes,
}


class MongoValues(StoredValues):
    """Values of BSON, as the client gives them."""

    @override
    def read(self, value: object) -> object:
        if type(value) is Binary:
            uuid = value.subtype == UUID_SUBTYPE and len(value) == len(UUID(int=0).bytes)
            return UUID(bytes=bytes(value)) if uuid else value
        read = READ.get(type(value))
        return value if read is None else read(value)

    @override
    def write(self, value: object) -> object:
        if isinstance(value, StoredObjectId):
            return ObjectId(value.digits)
        if isinstance(value, UUID):
            return Binary(value.bytes, UUID_SUBTYPE)
        if isinstance(value, Decimal):
            return Decimal128(value)
        if isinstance(value, datetime):
            # As the client gives instants: without a zone, in UTC.
            return value.astimezone(UTC).replace(tzinfo=None)
        return value


MONGO_VALUES: Final = MongoValues()


def object_id_digits(key: object, how: str) -> str | None:
    """Return the digits of the ObjectId that became a key, ``None`` for a key that none becomes.

    Args:
        key: the part of the key.
        how: what the ObjectId became: ``text``, or ``uuid``, of version 7: milliseconds in 48 bits, and around
            version and variant the last 8 bytes of the ObjectId.
    """
    if how == "text":
        return key if isinstance(key, str) and KeyType.OBJECT_ID.admits(key) else None
    try:
        value = UUID(str(key)).int
    except ValueError:
        return None
    seconds, beyond = divmod(value >> 80, 1000)
    rest = (value >> 64 & 0xFFF) << 52 | value >> 10 & (1 << 52) - 1
    # Everything else is of a UUID that was made otherwise.
    is_made = not beyond and not value & 0x3FF and value >> 76 & 0xF == 7 and value >> 62 & 3 == 2  # noqa: PLR2004
    return f"{seconds:08x}{rest:016x}" if is_made and seconds < 1 << 32 else None

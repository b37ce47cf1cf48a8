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
from twinstore.models.fields import INT64_MAX, INT64_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MONGO_VALUES", "MongoValues"]


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
        if isinstance(value, float) and value.is_integer() and INT64_MIN <= value <= INT64_MAX:
            return int(value)
        if isinstance(value, datetime):
            # As the client gives instants: without a zone, in UTC.
            return value.astimezone(UTC).replace(tzinfo=None)
        return value


MONGO_VALUES: Final = MongoValues()

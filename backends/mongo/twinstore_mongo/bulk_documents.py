"""Records as the documents that a copy writes, and whether a stored document says the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import InsertOne, ReplaceOne
from pymongo.errors import OperationFailure

from twinstore.access import Row
from twinstore_mongo.codec import FIRST_VERSION, next_version
from twinstore_mongo.derive import ID, VERSION
from twinstore_mongo.errors import DUPLICATE_KEY, violated_index
from twinstore_mongo.exact import given_back
from twinstore_mongo.raw import element_of, first_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.bulk import Key, Record
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Document

__all__ = ["DocumentWrite", "RefusedError", "UnfitError", "encoded", "is_equal", "operation", "replacing"]

EXACT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
LENGTH_BYTES: Final = 4
# The record waits with its document. As an object a small value takes about a hundred bytes, and it has about
# five zeros in the document.
HEAVY_BYTES: Final = 250_000
BYTES_OF_ZERO: Final = 16
VALIDATION_FAILURE: Final = 121
# The last bytes of a document that ends with a 64-bit _version: type, name, value, end.
VERSION_TAIL: Final = len(b"\x12_version\x00") + 8 + 1


class UnfitError(Exception):
    """A record cannot be stored in MongoDB so that a read gives the same again."""


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """One document on its way.

    Attributes:
        replaces: the filter of the document that it takes the place of.
        moves: that one has another ``_id``, which the server lets no replacement change.
    """

    record: Record
    raw: bytes
    replaces: RawBSONDocument | None = None
    moves: bool = False

    @property
    def key(self) -> Key:
        """The key of the record, which every write has."""
        return self.record.key or ()

    @property
    def weight(self) -> int:
        """About how many bytes it takes while it waits."""
        if len(self.raw) < HEAVY_BYTES:
            return len(self.raw)
        # Names and lengths of texts end with them, so they tell how many values there are.
        return len(self.raw) + BYTES_OF_ZERO * self.raw.count(b"\x00")


def encoded(codec: Codec[Any], record: Record, *, largest: int | None) -> DocumentWrite:
    """Return the write of a record.

    Raises:
        UnfitError: no document reads back as the same record, or it has more than ``largest`` bytes.
    """
    raw = bson.encode(document_of(codec, record))
    if largest is not None and len(raw) > largest:
        raise UnfitError("it is larger than the largest document that the server takes")
    return DocumentWrite(record, raw)


def replacing(codec: Codec[Any], write: DocumentWrite, stored: bytes) -> DocumentWrite:
    """Return the write that takes the place of a stored document."""
    document = document_of(codec, write.record, next_version(first_of(stored, VERSION)))
    identity = element_of(stored, ID)
    replaces = RawBSONDocument(framed(identity))
    raw = identified(codec, bson.encode(document), stored)
    # Of an id of its own beside the key: what stands there is another row, which the server then refuses to
    # become this one.
    moves = codec.entity.own_id is None and element_of(raw, ID) != identity
    return DocumentWrite(write.record, raw, replaces, moves=moves)


def identified(codec: Codec[Any], raw: bytes, stored: bytes) -> bytes:
    """Return a new document with the ``_id`` of a stored one, where that is free and has its type."""
    if not codec.entity.generated_id:
        return raw
    identity = element_of(stored, ID)
    # Of one type they are equally long, and a new document begins with its own.
    same_type = identity[0] == raw[LENGTH_BYTES]
    return raw[:LENGTH_BYTES] + identity + raw[LENGTH_BYTES + len(identity) :] if same_type else raw


def framed(elements: bytes) -> bytes:
    """Return the document of some elements."""
    return (len(elements) + LENGTH_BYTES + 1).to_bytes(LENGTH_BYTES, "little") + elements + b"\x00"


def document_of(codec: Codec[Any], record: Record, version: Int64 = FIRST_VERSION) -> Document:
    """Return the document of a record; its markers are kept as they are, not computed again.

    Raises:
        UnfitError: there is none that reads back as the same record.
    """
    if record.model is None or record.key is None:
        raise UnfitError(record.error or "it has no usable key")
    row = Row(record.model, record.storage)
    if codec.differs_when_read(row):
        own = codec.entity.single_key
        raise UnfitError(f"its key is neither its own {own} nor the one derived from its content")
    return codec.encode(row, version)


def is_equal(codec: Codec[Any], new: bytes, stored: bytes) -> bool:
    """Whether a stored document holds what would be written: each value with its type, names in any order.

    Free is the number of its changes, and an ``_id`` that is generated: any ObjectId. Every other one beside
    the key is made of it, and the validator refuses the next write of the service to a document with another.
    """
    versioned = codec.entity.versioned
    raw = identified(codec, new, stored)
    if raw == stored or (versioned and same_but_version(raw, stored)):
        return True
    wanted, found = bson.decode(raw, EXACT), lossless(stored)
    if found is None:
        return False
    if versioned and type(found.get(VERSION)) is Int64:
        found[VERSION] = wanted[VERSION]
    return same(wanted, found)


def lossless(raw: bytes) -> Document | None:
    """Return a stored document, ``None`` where its values do not give it back."""
    try:
        document = bson.decode(raw, EXACT)
    except bson.InvalidBSON:
        return None
    return document if bson.encode(document) == raw else given_back(raw)


def same(one: object, other: object) -> bool:
    """Whether two stored values are of one type and equal; the order of names does not matter."""
    # The client shows a map as a reference or not, depending on the order of its names.
    one, other = (dict(item.as_doc()) if isinstance(item, bson.DBRef) else item for item in (one, other))
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else one == other


def same_but_version(one: bytes, other: bytes) -> bool:
    """Whether two documents that end with ``_version`` are equal before it."""
    return (
        len(one) == len(other)
        and other[-VERSION_TAIL:-9] == b"\x12_version\x00"
        and one[LENGTH_BYTES:-VERSION_TAIL] == other[LENGTH_BYTES:-VERSION_TAIL]
    )


def operation(write: DocumentWrite) -> InsertOne[RawBSONDocument] | ReplaceOne[RawBSONDocument]:
    """Return the operation of a write."""
    new = RawBSONDocument(write.raw)
    return InsertOne(new) if write.replaces is None or write.moves else ReplaceOne(write.replaces, new)


class RefusedError(Exception):
    """The store refused one document of a bulk write."""

    def __init__(self, position: int, details: Mapping[str, Any]) -> None:
        super().__init__(position)
        self.position = position
        self.error = OperationFailure(str(details.get("errmsg", "")), details.get("code"), details)

    @property
    def reason(self) -> str:
        """Why, without any content of the document."""
        if self.error.code == DUPLICATE_KEY:
            return f"a unique value of index {violated_index(self.error) or 'unknown'} is taken in the target"
        if self.error.code == VALIDATION_FAILURE:
            return "the validator of the target refuses it"
        return f"the target refuses it with code {self.error.code}"

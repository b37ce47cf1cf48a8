"""Records as the documents that a copy writes, and whether a stored document says the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import bson
from bson.raw_bson import RawBSONDocument
from pymongo import InsertOne, ReplaceOne

from twinstore.access import Row
from twinstore_mongo.codec import FIRST_VERSION, next_version
from twinstore_mongo.derive import ID, VERSION

if TYPE_CHECKING:
    from bson.int64 import Int64

    from twinstore.bulk import Key, Record
    from twinstore_mongo.bulk_export import Exporter
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Document

__all__ = ["DocumentWrite", "UnfitError", "encoded", "is_equal", "operation", "replacing"]

LENGTH_BYTES: Final = 4
# The last bytes of a document that ends with a 64-bit _version: type, name, value, end.
VERSION_TAIL: Final = len(b"\x12_version\x00") + 8 + 1


class UnfitError(Exception):
    """A record cannot be stored in MongoDB so that a read gives the same again."""


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """One document on its way; ``replaces`` is the ``_id`` of the document that it takes the place of."""

    record: Record
    raw: bytes
    replaces: object | None = None

    @property
    def key(self) -> Key:
        """The key of the record, which every write has."""
        return self.record.key or ()


def encoded(codec: Codec[Any], record: Record, *, largest: int | None) -> DocumentWrite:
    """Return the write of a record.

    Raises:
        UnfitError: no document reads back as the same record, or it has more than ``largest`` bytes.
    """
    raw = bson.encode(document_of(codec, record))
    if largest is not None and len(raw) > largest:
        raise UnfitError("it is larger than the largest document that the server takes")
    return DocumentWrite(record, raw)


def replacing(codec: Codec[Any], write: DocumentWrite, stored: RawBSONDocument) -> DocumentWrite:
    """Return the write that takes the place of a stored document, under its ``_id``."""
    document = document_of(codec, write.record, next_version(stored.get(VERSION)))
    document[ID] = stored[ID]
    return DocumentWrite(write.record, bson.encode(document), stored[ID])


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


def is_equal(exporter: Exporter, write: DocumentWrite, stored: bytes) -> bool:
    """Whether a stored document has the content of a record: by bytes, else by what it decodes to."""
    versioned = exporter.codec.entity.versioned
    if write.raw == stored or (versioned and same_but_version(write.raw, stored)):
        return True
    # Another service may order the fields otherwise, or store nulls, and yet say the same.
    found, record = exporter.cautious(stored), write.record
    return found.error is None and found.model == record.model and dict(found.storage) == dict(record.storage)


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
    return InsertOne(new) if write.replaces is None else ReplaceOne({ID: write.replaces}, new)

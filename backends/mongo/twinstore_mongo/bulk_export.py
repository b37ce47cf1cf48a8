"""Reading ranges of rows as models: forward scans of the key index between two of its keys.

``min`` and ``max`` on a hinted index compare across types, so a key that is no text is seen too; a filter
would compare texts with texts only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from bson import InvalidBSON, decode, decode_all
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps

from twinstore.bulk import Record
from twinstore.errors import DocumentDecodeError
from twinstore.forks import ending
from twinstore_mongo.codec import FOREIGN_TYPES
from twinstore_mongo.derive import ID
from twinstore_mongo.paths import PathTree

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.bulk import Key, KeyRange
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Document, Store

__all__ = ["Exporter", "bounds", "index_of", "plain_part", "tenant_condition"]

# Naive instants decode twice as fast; they are marked as UTC where the model has one.
NAIVE: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, type_registry=FOREIGN_TYPES
)
LENIENT: Final = NAIVE.with_options(unicode_decode_error_handler="backslashreplace")
LENGTH_BYTES: Final = 4
# What no document has.
NO_FIELD: Final = "_no_tenant"
# Adding to an aware instant costs a tenth of `replace(tzinfo=UTC)`, and a document has about five.
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH: Final = EPOCH.replace(tzinfo=None)


def index_of(codec: Codec[Any]) -> list[tuple[str, int]]:
    """Return the index in key order."""
    return [(name, 1) for name in codec.key]


def bounds(codec: Codec[Any], within: KeyRange) -> dict[str, dict[str, str]]:
    """Return the ``min`` and ``max`` of a range; an open end has none."""
    ends = {"min": within.lower, "max": within.upper}
    return {name: dict(zip(codec.key, key, strict=True)) for name, key in ends.items() if key is not None}


def tenant_condition(codec: Codec[Any], tenant_id: str | None) -> Document:
    """Return the filter of the rows of one tenant, or of all; without a field for it no row has one."""
    if tenant_id is None:
        return {}
    return {NO_FIELD if codec.tenant is None else codec.tenant: tenant_id}


@dataclass(slots=True)
class Exporter:
    """Turns the documents of one entity into records."""

    codec: Codec[Any]
    instants: PathTree = field(init=False)

    def __post_init__(self) -> None:
        """Lay out where the instants are."""
        names = self.codec.names
        self.instants = PathTree.of((names[head], *rest) for head, *rest in self.codec.entity.instants)

    def batches(
        self,
        store: Store,
        collection: Collection[Document],
        within: KeyRange,
        *,
        tenant_id: str | None,
        batch_size: int,
    ) -> Iterator[list[Record]]:
        """Yield the records of a range in key order."""
        condition = tenant_condition(self.codec, tenant_id)
        index = index_of(self.codec)
        cursor = collection.find_raw_batches(
            condition, sort=index, hint=index, batch_size=batch_size, **bounds(self.codec, within)
        )
        with ending(cursor.close):
            while (batch := store.next_batch(cursor)) is not None:
                if records := self.decoded(batch):
                    yield records

    def decoded(self, batch: bytes) -> list[Record]:
        """Return the records of a raw batch; one broken document does not spoil the others."""
        try:
            documents = decode_all(batch, NAIVE)
        except InvalidBSON:
            return [self.cautious(raw) for raw in split(batch)]
        return [self.record(document) for document in documents]

    def cautious(self, raw: bytes) -> Record:
        """Return the record of one document that may be broken."""
        try:
            return self.record(decode(raw, NAIVE))
        except InvalidBSON:
            return self.unreadable(lenient(raw), "holds text that is not UTF-8")

    def record(self, document: Document) -> Record:
        """Return the record of a document."""
        text_timestamp = mark_utc(document, self.instants)
        try:
            row = self.codec.decode(document)
        except DocumentDecodeError as error:
            return self.unreadable(document, reason_of(error), text_timestamp=text_timestamp)
        key = self.key_of(document)
        if key is None:
            return self.unreadable(document, "its key is no text", text_timestamp=text_timestamp)
        return Record(key, self.tenant_of(document), row.model, row.storage, text_timestamp)

    def unreadable(self, document: Document, reason: str, *, text_timestamp: bool = False) -> Record:
        """Return the record of a document that forms no model."""
        raw = dumps(document, json_options=CANONICAL_JSON_OPTIONS)
        return Record(
            key=self.key_of(document),
            tenant_id=self.tenant_of(document),
            model=None,
            text_timestamp=text_timestamp,
            error=reason,
            raw=raw,
        )

    def tenant_of(self, document: Mapping[str, Any]) -> str | None:
        """Return the tenant of a document, ``None`` where none can be told."""
        tenant = None if self.codec.tenant is None else document.get(self.codec.tenant)
        return tenant if isinstance(tenant, str) else None

    def key_of(self, document: Mapping[str, Any]) -> Key | None:
        """Return the key of a document; ``None`` when a part is of another type."""
        if self.codec.entity.single_key is not None:
            key = document.get(ID)
            return (key,) if isinstance(key, str) else None
        values = tuple(plain_part(document.get(name)) for name in self.codec.key)
        return cast("Key", values) if self.codec.entity.admits_key(values) else None


def plain_part(value: object) -> object:
    """Return a part of a key; the client has a class of its own for integers of 64 bits."""
    return int(value) if isinstance(value, Int64) else value


def reason_of(error: DocumentDecodeError) -> str:
    """Return why a document forms no model, without the frame of the message."""
    _, _, reason = error.message.partition("cannot be read: ")
    return reason.removesuffix(". Repair or quarantine the document.") or error.message


def mark_utc(document: Document, tree: PathTree) -> bool:
    """Mark the naive instants of a document as UTC, in place; return whether one is stored as text."""
    found_text = False
    for name in tree.leaves:
        value = document.get(name)
        if type(value) is datetime:
            document[name] = EPOCH + (value - NAIVE_EPOCH)
        elif type(value) is str:
            found_text = True
    for name, below in tree.branches:
        value = document.get(name)
        for part in value if type(value) is list else (value,):
            if type(part) is dict:
                found_text |= mark_utc(part, below)
    return found_text


def split(batch: bytes) -> Iterator[bytes]:
    """Yield the documents of a raw batch; each starts with its length."""
    position = 0
    while position < len(batch):
        length = int.from_bytes(batch[position : position + LENGTH_BYTES], "little")
        yield batch[position : position + length]
        position += length


def lenient(raw: bytes) -> Document:
    """Return what can be read of a broken document."""
    try:
        return decode(raw, LENIENT)
    except InvalidBSON:
        return {"$bson": raw}

"""Reading ranges of rows as models: forward scans of the key index between two of its keys.

``min`` and ``max`` on a hinted index compare across types, so a key that is no text is seen too; a filter
would compare texts with texts only. Without such an index an expression compares, and the server sorts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from bson import InvalidBSON, decode, decode_all
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps

from twinstore.bulk import Record
from twinstore.errors import DocumentDecodeError
from twinstore.forks import ending
from twinstore_mongo.codec import FOREIGN_TYPES
from twinstore_mongo.key_order import SIMPLE, has_key_index, next_batch, order_of
from twinstore_mongo.validators import instant_paths

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.bulk import Key, KeyRange
    from twinstore_mongo.connection import Document, Store
    from twinstore_mongo.scheduler.transfer import Transfer

__all__ = ["Exporter", "between", "bounds"]

# Naive instants decode twice as fast; they are marked as UTC where the model has one.
NAIVE: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, type_registry=FOREIGN_TYPES
)
LENIENT: Final = NAIVE.with_options(unicode_decode_error_handler="backslashreplace")
LENGTH_BYTES: Final = 4
ID: Final = "_id"
BY_ID: Final = (ID,)
# Adding to an aware instant costs a tenth of `replace(tzinfo=UTC)`, and a document has about five.
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH: Final = EPOCH.replace(tzinfo=None)


@dataclass(frozen=True, slots=True)
class InstantPlan:
    """Where the instants of a document are: fields here, and objects or lists of objects below."""

    leaves: tuple[str, ...]
    branches: tuple[tuple[str, InstantPlan], ...]

    @classmethod
    def of(cls, paths: Iterable[tuple[str, ...]]) -> InstantPlan:
        """Return the plan of some paths."""
        below: dict[str, list[tuple[str, ...]]] = {}
        leaves: list[str] = []
        for head, *rest in paths:
            if rest:
                below.setdefault(head, []).append(tuple(rest))
            else:
                leaves.append(head)
        return cls(tuple(leaves), tuple((name, cls.of(rest)) for name, rest in below.items()))


def bounds(transfer: Transfer, within: KeyRange) -> dict[str, dict[str, str]]:
    """Return the ``min`` and ``max`` of a range; an open end has none."""
    ends = {"min": within.lower, "max": within.upper}
    return {name: dict(zip(transfer.key, key, strict=True)) for name, key in ends.items() if key is not None}


def between(transfer: Transfer, within: KeyRange) -> Document:
    """Return the filter of a range; arrays are compared element by element, across types."""
    stored = [f"${name}" for name in transfer.key]
    ends = (("$gte", within.lower), ("$lt", within.upper))
    clauses = [
        {operator: [stored, [{"$literal": part} for part in key]]}
        for operator, key in ends
        if key is not None
    ]
    return {"$expr": {"$and": clauses}} if clauses else {}


@dataclass(slots=True)
class Exporter:
    """Turns the documents of one entity into records."""

    transfer: Transfer
    plan: InstantPlan = field(init=False)

    def __post_init__(self) -> None:
        """Lay out where the instants are."""
        markers = self.transfer.codec.entity.marker_times
        self.plan = InstantPlan.of(
            [*instant_paths(self.transfer.codec.model), *((name,) for name in markers)]
        )

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
        condition = {} if tenant_id is None else {self.transfer.tenant: tenant_id}
        order = order_of(self.transfer.key)
        with store.limited():
            indexed = has_key_index(collection, order)
        reading = {"batch_size": batch_size, "collation": SIMPLE}
        if indexed:
            along: dict[str, Any] = {"sort": order, "hint": order, **bounds(self.transfer, within)}
        else:
            condition |= between(self.transfer, within)
            # Rows that share a key come in the same order in each pass.
            along = {"sort": [*order, *([] if (ID, 1) in order else [(ID, 1)])], "allow_disk_use": True}
        cursor = collection.find_raw_batches(condition, **reading, **along)
        with ending(cursor.close):
            while (batch := next_batch(store, cursor, indexed=indexed)) is not None:
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
        text_timestamp = mark_utc(document, self.plan)
        try:
            model = self.transfer.codec.decode(document)
            storage = self.transfer.markers(document)
        except DocumentDecodeError as error:
            return self.unreadable(document, reason_of(error), text_timestamp=text_timestamp)
        key = self.key_of(document)
        if key is None:
            return self.unreadable(document, "its key is no text", text_timestamp=text_timestamp)
        return Record(key, document[self.transfer.tenant], model, storage, text_timestamp)

    def unreadable(self, document: Document, reason: str, *, text_timestamp: bool = False) -> Record:
        """Return the record of a document that forms no model."""
        raw = dumps(document, json_options=CANONICAL_JSON_OPTIONS)
        tenant = document.get(self.transfer.tenant)
        return Record(
            key=self.key_of(document),
            tenant_id=tenant if isinstance(tenant, str) else None,
            model=None,
            text_timestamp=text_timestamp,
            error=reason,
            raw=raw,
        )

    def key_of(self, document: Mapping[str, Any]) -> Key | None:
        """Return the key of a document; ``None`` when it is no text."""
        if self.transfer.key == BY_ID:
            key = document.get("_id")
            return (key,) if isinstance(key, str) else None
        values = [document.get(name) for name in self.transfer.key]
        texts = tuple(value for value in values if isinstance(value, str))
        return texts if len(texts) == len(values) else None


def reason_of(error: DocumentDecodeError) -> str:
    """Return why a document forms no model, without the frame of the message."""
    _, _, reason = error.message.partition("cannot be read: ")
    return reason.removesuffix(". Repair or quarantine the document.") or error.message


def mark_utc(document: Document, plan: InstantPlan) -> bool:
    """Mark the naive instants of a document as UTC, in place; return whether one is stored as text."""
    found_text = False
    for name in plan.leaves:
        value = document.get(name)
        if type(value) is datetime:
            document[name] = EPOCH + (value - NAIVE_EPOCH)
        elif type(value) is str:
            found_text = True
    for name, below in plan.branches:
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

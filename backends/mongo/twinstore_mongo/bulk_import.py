"""Writing ranges of records: one transaction with the ledger, or several when a range is heavy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import ReplaceOne
from pymongo.errors import BulkWriteError, OperationFailure

from twinstore.access import Row
from twinstore.bulk import Conflict, ImportOutcome, Rejected
from twinstore_mongo.bulk_export import Exporter
from twinstore_mongo.codec import FIRST_VERSION, codec_of, next_version
from twinstore_mongo.derive import ID, VERSION
from twinstore_mongo.errors import DUPLICATE_KEY, violated_index
from twinstore_mongo.units import translating

if TYPE_CHECKING:
    from bson.int64 import Int64
    from pymongo.collection import Collection

    from twinstore.bulk import Claim, Key, OnConflict, Record, Tally
    from twinstore.catalog import Entity
    from twinstore_mongo.bulk_ledger import MongoLedger
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Document
    from twinstore_mongo.units import Unit

__all__ = ["MongoImporter"]

# A transaction of the server must end within 60 s; this much is written in a few of them.
PART_BYTES: Final = 8 * 1024 * 1024
RAW: Final[CodecOptions[RawBSONDocument]] = CodecOptions(document_class=RawBSONDocument)
AWARE: Final[CodecOptions[dict[str, Any]]] = CodecOptions(tz_aware=True)
LENGTH_BYTES: Final = 4
# The last bytes of a document that ends with a 64-bit _version: type, name, value, end.
VERSION_TAIL: Final = len(b"\x12_version\x00") + 8 + 1
VALIDATION_FAILURE: Final = 121


class UnfitError(Exception):
    """A record cannot be stored in MongoDB so that a read gives the same again."""


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


@dataclass(frozen=True, slots=True)
class Write:
    """One document on its way; ``replaces`` is the ``_id`` of the document that it takes the place of."""

    record: Record
    raw: bytes
    replaces: object | None = None

    @property
    def key(self) -> Key:
        """The key of the record, which every write has."""
        return self.record.key or ()


@dataclass(slots=True)
class Outcome:
    """What has become of the records so far."""

    written: Counter[str] = field(default_factory=Counter)
    unchanged: Counter[str] = field(default_factory=Counter)
    conflicts: list[Conflict] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    def note_written(self, writes: Iterable[Write]) -> None:
        """Count documents that are in the store now."""
        for write in writes:
            self.written[write.record.tenant_id or ""] += 1
            if write.replaces is not None:
                self.conflicts.append(Conflict(write.key, write.record.tenant_id, overwritten=True))

    def result(self) -> ImportOutcome:
        """Return the outcome as the contract has it."""
        return ImportOutcome(
            dict(self.written), dict(self.unchanged), tuple(self.conflicts), tuple(self.rejected)
        )


@dataclass(frozen=True, slots=True)
class MongoImporter:
    """Implements :class:`~twinstore.bulk.RangeImporter`."""

    unit: Unit
    ledger: MongoLedger

    def import_range(
        self,
        entity: Entity,
        batches: Iterator[list[Record]],
        *,
        on_conflict: OnConflict,
        claim: Claim,
        tally: Tally,
    ) -> ImportOutcome:
        """Write the records of a claimed range and mark it live; see the Protocol."""
        self.unit.state.check()
        work = RangeWork(
            self.unit,
            self.ledger,
            codec_of(entity),
            claim,
            overwrite=on_conflict == "overwrite" and not entity.append_only,
        )
        for batch in batches:
            work.add(batch)
        return work.finish(tally)


class RangeWork:
    """The writes of one range, gathered up to a few megabytes."""

    def __init__(
        self, unit: Unit, ledger: MongoLedger, codec: Codec[Any], claim: Claim, *, overwrite: bool
    ) -> None:
        """Take where to write and under which claim."""
        self._unit = unit
        self._ledger = ledger
        self._codec = codec
        self._claim = claim
        self._exporter = Exporter(codec)
        self._overwrite = overwrite
        self._outcome = Outcome()
        self._pending: list[Write] = []
        self._bytes = 0

    def add(self, batch: Sequence[Record]) -> None:
        """Decide about each record of a batch, and write when enough has gathered."""
        writes = list(self._encoded(batch))
        stored = self._stored([write.key for write in writes])
        for write in writes:
            self._decide(write, stored.get(write.key))
            if self._bytes >= PART_BYTES:
                self._flush()

    def finish(self, tally: Tally) -> ImportOutcome:
        """Write the rest and mark the range as live, in one transaction."""
        self._write(lambda unit: self._ledger.finish(unit, self._claim, tally(self._outcome.result())))
        return self._outcome.result()

    def _flush(self) -> None:
        self._write(lambda unit: self._ledger.touch(unit, self._claim))

    def _encoded(self, batch: Sequence[Record]) -> Iterator[Write]:
        for record in batch:
            try:
                raw = bson.encode(document_of(self._codec, record))
            except UnfitError as error:
                self._reject(record, str(error))
                continue
            if len(raw) > (self._unit.store.capabilities.largest_document_bytes or len(raw)):
                self._reject(record, "it is larger than the largest document that the server takes")
            else:
                yield Write(record, raw)

    def _reject(self, record: Record, reason: str) -> None:
        self._outcome.rejected.append(Rejected(record, reason))

    def _decide(self, write: Write, stored: RawBSONDocument | None) -> None:
        """Keep what is equal, note what differs, and gather what is to be written."""
        record = write.record
        if stored is None:
            self._gather(write)
        elif self._equal(write, bytes(stored.raw)):
            self._outcome.unchanged[record.tenant_id or ""] += 1
        elif self._overwrite:
            self._gather(self._replacing(write, stored))
        else:
            self._outcome.conflicts.append(Conflict(write.key, record.tenant_id))

    def _gather(self, write: Write) -> None:
        self._pending.append(write)
        self._bytes += len(write.raw)

    def _equal(self, write: Write, stored: bytes) -> bool:
        """Whether the stored document has the content of the record: by bytes, else by what it decodes to."""
        versioned = self._codec.entity.versioned
        if write.raw == stored or (versioned and same_but_version(write.raw, stored)):
            return True
        found, record = self._exporter.cautious(stored), write.record
        return (
            found.error is None
            and found.model == record.model
            and dict(found.storage) == dict(record.storage)
        )

    def _replacing(self, write: Write, stored: RawBSONDocument) -> Write:
        """Return the write that takes the place of a stored document, under its ``_id``."""
        document = document_of(self._codec, write.record, next_version(stored.get(VERSION)))
        document[ID] = stored[ID]
        return Write(write.record, bson.encode(document), stored[ID])

    def _stored(self, keys: Sequence[Key]) -> Mapping[Key, RawBSONDocument]:
        """Return the stored documents of some keys, undecoded."""
        names = self._codec.key
        store = self._unit.store
        collection: Collection[Any] = self._unit.collection(self._codec.entity)
        if store.complete:
            collection = collection.with_options(codec_options=RAW)
        found: dict[Key, RawBSONDocument] = {}
        for condition in conditions_of(names, keys):
            with translating(store.where), store.limited():
                documents = list(collection.find(condition))
            for document in documents:
                raw = document if store.complete else RawBSONDocument(bson.encode(document))
                found[tuple(raw[name] for name in names)] = raw
        return found

    def _write(self, conclude: Callable[[Unit], None]) -> None:
        """Write what has gathered together with a conclusion; refused documents are set aside one by one.

        Documents before a refused one are committed on their own, so each is written twice at most.
        """
        pending, self._pending, self._bytes = self._pending, [], 0
        while True:
            try:
                self._attempt(pending, conclude)
            except RefusedError as refused:
                self._keep(pending[: refused.position])
                self._set_aside(pending[refused.position], refused)
                pending = pending[refused.position + 1 :] + self._pending
                self._pending, self._bytes = [], 0
            else:
                return

    def _keep(self, writes: Sequence[Write]) -> None:
        """Write the documents before a refused one; without transactions they are written already."""
        if self._unit.store.capabilities.transactions:
            self._attempt(writes, lambda unit: self._ledger.touch(unit, self._claim))
        else:
            self._outcome.note_written(writes)

    def _attempt(self, writes: Sequence[Write], conclude: Callable[[Unit], None]) -> None:
        """Write some documents and conclude, in one transaction where the server has them."""
        before = Counter(self._outcome.written), list(self._outcome.conflicts)

        def work(unit: Unit) -> None:
            self._outcome.written, self._outcome.conflicts = Counter(before[0]), list(before[1])
            with translating(unit.store.where), unit.store.limited():
                self._send(unit, writes)
                self._outcome.note_written(writes)
                conclude(unit)

        try:
            self._unit.atomic(work)
        except BaseException:
            self._outcome.written, self._outcome.conflicts = before
            raise

    def _send(self, unit: Unit, writes: Sequence[Write]) -> None:
        collection = unit.collection(self._codec.entity)
        if not unit.store.complete:
            for position, write in enumerate(writes):
                send_to_double(collection, write, position)
            return
        new = [RawBSONDocument(write.raw) for write in writes]
        try:
            if all(write.replaces is None for write in writes):
                if writes:
                    collection.insert_many(new, session=unit.session)
            else:
                collection.bulk_write([operation(write) for write in writes], session=unit.session)
        except BulkWriteError as error:
            if error.has_error_label("TransientTransactionError") or not error.details["writeErrors"]:
                raise
            first = error.details["writeErrors"][0]
            raise RefusedError(first["index"], first) from error

    def _set_aside(self, write: Write, refused: RefusedError) -> None:
        """Reject a refused record, unless its key came into the store meanwhile."""
        index = violated_index(refused.error)
        if index in self._codec.key_indexes and write.replaces is None:
            stored = self._stored([write.key]).get(write.key)
            if stored is not None:
                self._decide(write, stored)
                return
        self._reject(write.record, refused.reason)


class RefusedError(Exception):
    """The store refused one document of a bulk write."""

    def __init__(self, position: int, details: Mapping[str, Any]) -> None:
        """Take the place of the document and what the server said of it."""
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


def operation(write: Write) -> Any:  # noqa: ANN401  # one of the operations of pymongo
    """Return the operation of a write."""
    # Without an earlier document this inserts; with one, it must still be there.
    identity = {"_id": RawBSONDocument(write.raw)["_id"] if write.replaces is None else write.replaces}
    return ReplaceOne(identity, RawBSONDocument(write.raw), upsert=write.replaces is None)


def send_to_double(collection: Collection[Document], write: Write, position: int) -> None:
    """Write to a test double, which takes neither raw documents nor bulk operations."""
    document: Document = bson.decode(write.raw, AWARE)
    try:
        if write.replaces is None:
            collection.insert_one(document)
        else:
            collection.replace_one({"_id": write.replaces}, document)
    except OperationFailure as error:
        raise RefusedError(position, {"code": error.code, "errmsg": str(error)}) from error


def conditions_of(names: Sequence[str], keys: Sequence[Key]) -> Iterator[Document]:
    """Yield filters that together find some keys by the key index."""
    if not keys:
        return
    *heads, last = names
    groups: dict[Key, list[str]] = {}
    for key in keys:
        groups.setdefault(key[:-1], []).append(key[-1])
    for head, tails in groups.items():
        yield {**dict(zip(heads, head, strict=True)), last: {"$in": tails}}


def same_but_version(one: bytes, other: bytes) -> bool:
    """Whether two documents that end with ``_version`` are equal before it."""
    return (
        len(one) == len(other)
        and other[-VERSION_TAIL:-9] == b"\x12_version\x00"
        and one[LENGTH_BYTES:-VERSION_TAIL] == other[LENGTH_BYTES:-VERSION_TAIL]
    )

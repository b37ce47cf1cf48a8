"""Writing one range: parts of a few megabytes, the last of them in one transaction with the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pymongo.errors import BulkWriteError
from typing_extensions import override

from twinstore.access.guard import GuardedAccess
from twinstore.access.retry import retry
from twinstore.bulk.parts import WriteCounts
from twinstore.bulk.port import Conflict, RangeWriter, Record, Rejected
from twinstore.bulk.unique_moves import conflict_reason, index_taken, unique_conflicts
from twinstore.errors import ConcurrencyError, ValidationError
from twinstore.fast.records import AcceptsPacked, PackedBatch
from twinstore.runtime.forks import ProcessGuard, cleanup_unless_forked
from twinstore_mongo.access.access import MongoAccess
from twinstore_mongo.access.changing import raise_above
from twinstore_mongo.access.execution import translating
from twinstore_mongo.access.removing import remove_keys
from twinstore_mongo.bulk.export import Exporter, conditions_of
from twinstore_mongo.bulk.places import WrittenCodec
from twinstore_mongo.bulk.records import (
    DocumentWrite,
    PackedWrites,
    RefusedError,
    UnfitError,
    documents_in,
    encoded,
    expanded,
    highest_of,
    is_equal,
    is_same_row,
    keys_of,
    operation,
    packed_pieces,
    plain_inserts,
    replacing,
    runs_of,
    split_at,
)
from twinstore_mongo.client.bson import documents_of
from twinstore_mongo.client.errors import DRIVER, TRANSIENT, violated_index
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.key_order import SIMPLE
from twinstore_mongo.mapping.layout import ID, index_specs

if TYPE_CHECKING:
    from bson.raw_bson import RawBSONDocument

    from twinstore.access.protocol import Access
    from twinstore.bulk.changes import DocumentChanges
    from twinstore.bulk.port import CommitCheck, ImportOutcome
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.bulk.records import Run, Write
    from twinstore_mongo.client.types import Document

# What a transaction has changed stays in the cache of the server until it ends. Beyond a fifth of that, which
# is 50 MB in the smallest one, the server works ten times as long for each document and ends transactions.
PART_BYTES: Final = 2 * 1024 * 1024
# So do the entries of all indexes, which small documents with many indexes have more of than bytes.
PART_ENTRIES: Final = 35_000


class MongoRangeWriter(AcceptsPacked, RangeWriter):
    """Implements :class:`~twinstore.bulk.port.RangeWriter`.

    A part is committed on its own as soon as it is heavy, because the server bounds transactions. The last
    one stays open from :meth:`flush` on. A part that loses against another writer is repeated a few times
    here, and the range as a whole by the caller. Without transactions the writes simply follow each other.
    """

    def __init__(
        self,
        context: RepositoryContext,
        entity: Entity,
        entities: Sequence[Entity],
        *,
        overwrite: bool,
        check: CommitCheck | None,
        changes: DocumentChanges,
    ) -> None:
        """Take where to write, the entities that may be children, and what runs before each part.

        The documents are those before some changes, if these say how they are written.
        """
        self._context = context
        self._entity = entity
        self._entities = entities
        self._overwrite = overwrite
        self._check = check
        written = changes.written.get(entity.name)
        self._codec = codec_of(entity) if written is None else WrittenCodec(entity, written)
        read_back = None if written is None else changes.documents.get(entity.name)
        self._read_back = None if read_back is None else Exporter(codec_of(entity), change=read_back)
        self._process = ProcessGuard()
        self._outcome = PartCounts()
        self._pending: list[Write] = []
        self._bytes = self._documents = 0
        self._most = max(1, PART_ENTRIES // (1 + len(index_specs(entity))))
        self._removals: list[Key] = []
        self._last: LastPart | None = None
        # What finds a unique value taken that may still move.
        self._waiting: list[DocumentWrite] = []

    @override
    def write(self, records: Sequence[Record]) -> None:
        self._must_be_open()
        pieces = None
        if isinstance(records, PackedBatch) and self._read_back is None:
            pieces = packed_pieces(records, self._largest)
        self._write(records if pieces is None else pieces)

    @override
    def take_rejected(self) -> Sequence[Rejected]:
        return self._outcome.take_rejected()

    @override
    def conflicts(self) -> Sequence[Conflict]:
        return tuple(self._outcome.conflicts)

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        self._must_be_open()
        self._removals.extend(keys)

    @override
    def flush(self) -> ImportOutcome:
        self._process.check("This writer")
        while self._last is None:
            self._write_moves()
            try:
                self._last = retry(self._open_last)
            except RefusedError as refused:
                self._resolve(refused)
        return self._outcome.outcome()

    @property
    @override
    def access(self) -> Access:
        if self._last is None:
            raise ValidationError(
                "This writer has no transaction before flush(); call it first.", driver=DRIVER
            )
        return GuardedAccess(MongoAccess(self._last.context, self._entities))

    @override
    def commit(self) -> None:
        self.flush()
        if self._last is not None:
            self._last.commit()

    def close(self) -> None:
        """Roll back what was not committed."""
        if self._last is not None:
            self._last.roll_back()

    def _must_be_open(self) -> None:
        self._process.check("This writer")
        if self._last is not None:
            raise ValidationError(
                "This writer was flushed, and the transaction of its range takes no more rows; commit it and "
                "open another writer.",
                driver=DRIVER,
            )

    # ------------------------------------------------------------------------------------- deciding

    @property
    def _largest(self) -> int | None:
        return self._context.store.capabilities.largest_document_bytes

    def _encoded(self, record: Record) -> DocumentWrite | None:
        try:
            return encoded(self._codec, record, largest=self._largest)
        except UnfitError as error:
            self._reject(record, str(error))
            return None

    def _reject(self, record: Record, reason: str) -> None:
        self._outcome.rejected.append(Rejected(record, reason))

    def _decide(self, write: DocumentWrite, stored: bytes | None) -> None:
        """Keep equal records, note differing ones, and gather those to be written."""
        record = write.record
        if stored is None:
            self._gather(write)
        elif self._is_equal(write, stored):
            self._outcome.unchanged[record.label] += 1
        elif self._overwrite:
            self._gather(replacing(self._codec, write, stored))
        else:
            self._outcome.conflicts.append(Conflict(write.key, record.owner))

    def _is_equal(self, write: DocumentWrite, stored: bytes) -> bool:
        if self._read_back is None:
            return is_equal(self._codec, write.raw, stored)
        (found,) = self._read_back.records(stored)
        return is_same_row(write.record, found)

    def _gather(self, write: Write) -> None:
        self._pending.append(write)
        self._bytes += write.weight
        self._documents += 1

    # --------------------------------------------------------------------------------- packed rows

    def _write(self, pieces: Sequence[PackedWrites | Record]) -> None:
        packed = [piece for piece in pieces if isinstance(piece, PackedWrites)]
        records = [piece for piece in pieces if isinstance(piece, Record)]
        # A key that was removed and comes again: what was asked for first is done first.
        if self._removals and (packed or not {item.key for item in records}.isdisjoint(self._removals)):
            self._commit_part()
        raise_above(self._context, self._entity, highest_of(self._entity, records, packed))
        writes: list[Write] = []
        for piece in pieces:
            write = self._encoded(piece) if isinstance(piece, Record) else piece
            writes += [] if write is None else [write]
        is_new = not packed or is_vacant(self._context, self._entity, packed[0].key(0), packed[-1].key(-1))
        stored = self._stored([key for write in writes for key in keys_of(write, but_packed=is_new)])
        for write in writes:
            if isinstance(write, DocumentWrite):
                self._decide(write, stored.get(write.key))
            else:
                self._decide_packed(write, {} if is_new else stored)
            if self._is_full:
                self._commit_part()

    def _decide_packed(self, writes: PackedWrites, stored: Mapping[Key, bytes]) -> None:
        """Decide about each row, and gather those together that are new."""
        new = 0
        for at in range(len(writes)) if stored else ():
            found = stored.get(writes.key(at))
            if found is None:
                continue
            self._gather_packed(writes.within(new, at))
            new = at + 1
            if is_equal(self._codec, writes.raw(at), found):
                self._outcome.unchanged[writes.label(at)] += 1
            else:
                self._decide(writes.write(at), found)
        self._gather_packed(writes.within(new, len(writes)))

    def _gather_packed(self, writes: PackedWrites) -> None:
        while len(writes):
            fitting = min(writes.fitting(PART_BYTES - self._bytes), max(1, self._most - self._documents))
            self._pending.append(writes.within(0, fitting))
            self._bytes += self._pending[-1].weight
            self._documents += fitting
            writes = writes.within(fitting, len(writes))
            if self._is_full:
                self._commit_part()

    @property
    def _is_full(self) -> bool:
        return self._bytes >= PART_BYTES or self._documents >= self._most

    def _stored(self, keys: Sequence[Key]) -> Mapping[Key, bytes]:
        return stored_documents(self._context, self._entity, keys)

    # -------------------------------------------------------------------------------------- writing

    def _commit_part(self) -> None:
        """Commit what has gathered on its own; refused documents are set aside one by one."""
        while self._pending or self._removals:
            try:
                self._commit_alone(self._pending, self._removals)
            except RefusedError as refused:
                self._resolve(refused)
            else:
                self._pending, self._removals, self._bytes, self._documents = [], [], 0, 0

    def _commit_alone(self, writes: Sequence[Write], removals: Sequence[Key]) -> None:
        def work(context: RepositoryContext) -> int:
            # In the transaction: a worker that has lost the range by now cannot commit any of it.
            if self._check is not None:
                self._check(GuardedAccess(MongoAccess(context, self._entities)))
            return self._send(context, writes, removals)

        self._outcome.count(writes, self._context.atomic(work))

    def _open_last(self) -> LastPart:
        """Write the rest in a transaction that stays open."""
        last = LastPart(self._context)
        try:
            removed = self._send(last.context, self._pending, self._removals)
        except BaseException:
            last.roll_back()
            raise
        self._outcome.count(self._pending, removed)
        self._pending, self._removals, self._bytes, self._documents = [], [], 0, 0
        return last

    def _resolve(self, refused: RefusedError) -> None:
        """Commit the documents before a refused one and set that one aside; the others stay to be written.

        So each document is written twice at most. Without transactions those before it are written already.
        """
        removals = self._removals
        before, refused_write, after = split_at(self._pending, refused.position)
        self._pending, self._removals, self._bytes, self._documents = [], [], 0, 0
        if self._context.store.capabilities.transactions:
            self._pending = before
            self._commit_part()
        else:
            self._outcome.count(before)
        self._removals = removals
        for write in after:
            self._gather(write)
        self._reject_refused(refused_write, refused)

    def _reject_refused(self, write: DocumentWrite, refused: RefusedError) -> None:
        """Reject a refused record, unless its key came into the store meanwhile."""
        index = violated_index(refused.error)
        # Another writer inserted the key after the lookup; now it can be compared like any other. Its index
        # may have another name, and the server names the first index that refuses, which may be another one.
        if index is not None and write.replaces is None:
            stored = self._stored([write.key]).get(write.key)
            if stored is not None:
                self._decide(write, stored)
                return
        described = self._codec.uniques.get(index or "")
        if self._overwrite and described is not None:
            self._waiting.append(write)
        else:
            # By its described name, which is the same on every server.
            self._reject(write.record, refused.reason if described is None else index_taken(described))

    def _write_moves(self) -> None:
        """Write documents whose unique values move between them; name what is in the way of the others."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # With what is not written yet, for it may give up a value.
        writes = [*waiting, *expanded(self._pending)]
        self._pending, self._bytes, self._documents = [], 0, 0
        access = GuardedAccess(MongoAccess(self._context, self._entities))
        found = unique_conflicts(access, self._entity, [write.record for write in writes])
        for write in writes:
            if write.key in found:
                self._reject(write.record, conflict_reason(self._entity, found[write.key]))
        self._move([write for write in writes if write.key not in found])

    def _move(self, writes: Sequence[DocumentWrite]) -> None:
        """Write documents together; a concurrent writer may still take a value."""
        while writes:
            try:
                self._outcome.count(writes, self._context.atomic(partial(self._replace_all, writes=writes)))
            except RefusedError as refused:
                self._reject(writes[refused.position].record, refused.reason)
                writes = [write for at, write in enumerate(writes) if at != refused.position]
            else:
                return

    def _replace_all(self, context: RepositoryContext, writes: Sequence[DocumentWrite]) -> int:
        """Remove the documents that are replaced and insert all, so that every value is free when wanted.

        Without transactions a crash in between leaves some out until the range is copied again.
        """
        if self._check is not None:
            self._check(GuardedAccess(MongoAccess(context, self._entities)))
        replaced = [write.replaces for write in writes if write.replaces is not None]
        with translating(context.store.where.of(self._entity)), context.store.limited():
            self._remove(context, replaced)
        return self._send(context, [replace(write, replaces=None, moves=False) for write in writes], ())

    def _send(self, context: RepositoryContext, writes: Sequence[Write], removals: Sequence[Key]) -> int:
        """Write documents and then remove others; return how many were removed."""
        store, sent = context.store, 0
        with translating(store.where.of(self._entity)), store.limited():
            for run in runs_of(writes):
                try:
                    self._send_writes(context, run)
                except BulkWriteError as error:
                    if error.has_error_label(TRANSIENT) or not error.details["writeErrors"]:
                        raise
                    # Writes are ordered (the default), so everything before the first refused one was done.
                    first = error.details["writeErrors"][0]
                    raise RefusedError(sent + first["index"], first) from error
                sent += documents_in(run)
        return remove_keys(context, self._entities, self._entity, removals) if removals else 0

    def _remove(self, context: RepositoryContext, filters: Sequence[RawBSONDocument]) -> int:
        """Remove documents by their filters as they are, for an _id may be of any type; return how many."""
        if not filters:
            return 0
        collection = context.collection(self._entity)
        return collection.delete_many(
            {"$or": filters}, collation=SIMPLE, session=context.session
        ).deleted_count

    def _send_writes(self, context: RepositoryContext, run: Run) -> None:
        collection: Any = context.collection(self._entity)
        # As most parts: into an empty target a plain insert is the fastest that the server takes.
        if (new := plain_inserts(run)) is not None:
            collection.insert_many(new, session=context.session)
            return
        writes = list(expanded(run))
        moved = [write.replaces for write in writes if write.moves and write.replaces is not None]
        gone = self._remove(context, moved)
        done = collection.bulk_write([operation(write) for write in writes], session=context.session)
        if gone < len(moved) or done.inserted_count + done.matched_count < len(writes):
            raise ConcurrencyError(
                f"A row of {self._entity.name} that was to be overwritten was removed meanwhile; repeat the "
                "range.",
                driver=DRIVER,
                entity=self._entity.name,
            )


@dataclass(slots=True)
class PartCounts(WriteCounts):
    """What has become of the records so far, part by part."""

    def count(self, writes: Sequence[DocumentWrite | PackedWrites], removed: int = 0) -> None:
        """Count documents that are in the store now, and those that are there no more."""
        self.removed += removed
        for write in writes:
            if isinstance(write, PackedWrites):
                self.written += write.labels()
                continue
            self.written[write.record.label] += 1
            if write.replaces is not None:
                self.conflicts.append(Conflict(write.key, write.record.owner, overwritten=True))


class NotCommittedError(Exception):
    """Rolls a transaction back; it never leaves this module."""


class LastPart:
    """The transaction of the last part, which the caller commits; without transactions just the store."""

    def __init__(self, context: RepositoryContext) -> None:
        self._ending = ExitStack()
        transactions = context.store.capabilities.transactions
        self.context = self._ending.enter_context(context.opened()) if transactions else context

    def commit(self) -> None:
        """Commit; does nothing the second time."""
        self._ending.close()

    def roll_back(self) -> None:
        """Roll back, unless it has ended."""
        with suppress(NotCommittedError), self._ending:  # only an exception makes the unit roll back
            raise NotCommittedError


# A field that no document has, so that nothing of one is sent or decoded, whatever it is.
NOTHING: Final = {ID: 0, "_nothing": 1}


def stored_documents(context: RepositoryContext, entity: Entity, keys: Sequence[Key]) -> Mapping[Key, bytes]:
    """Return the stored documents of some keys, undecoded: what another has put there may be anything."""
    codec, store = codec_of(entity), context.store
    collection = context.collection(entity)
    found: dict[Key, bytes] = {}
    with translating(store.where.of(entity)):
        for condition in conditions_of(codec, keys):
            cursor = collection.find_raw_batches(condition, collation=SIMPLE)
            with cleanup_unless_forked(cursor.close):
                while (batch := store.next_batch(cursor)) is not None:
                    for raw in documents_of(batch):
                        found[codec.first_values(raw)] = raw
    return found


def is_vacant(context: RepositoryContext, entity: Entity, first: Key, last: Key) -> bool:
    """Whether the store certainly has no row from a key to another one, both included."""
    store = context.store
    condition = spanned(codec_of(entity).key, first, last)
    with translating(store.where.of(entity)), store.limited():
        return context.collection(entity).find_one(condition, NOTHING, collation=SIMPLE) is None


def spanned(names: Sequence[str], first: Key, last: Key) -> Document:
    """Return a filter of all keys from one to another, and perhaps of more, that an index answers."""
    condition: Document = {}
    for name, lower, upper in zip(names, first, last, strict=True):
        if lower != upper:
            # What follows is in no order beyond the first part that differs.
            return condition | {name: {"$gte": lower, "$lte": upper}}
        condition[name] = lower
    return condition

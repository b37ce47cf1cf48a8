"""Writing one range: parts of a few megabytes, the last of them in one transaction with the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from bson.raw_bson import RawBSONDocument
from pymongo.errors import BulkWriteError
from typing_extensions import override

from twinstore.bulk import Conflict, ImportOutcome, RangeWriter, Rejected
from twinstore.errors import ConcurrencyError, ValidationError
from twinstore.forks import OwnProcess, ending
from twinstore.guard import GuardedAccess
from twinstore.moving import obstacles, reason_of_obstacle
from twinstore.retrying import repeat
from twinstore_mongo.access import MongoAccess
from twinstore_mongo.bulk_documents import (
    DocumentWrite,
    RefusedError,
    UnfitError,
    encoded,
    is_equal,
    operation,
    replacing,
)
from twinstore_mongo.bulk_export import conditions_of
from twinstore_mongo.codec import codec_of
from twinstore_mongo.context import translating
from twinstore_mongo.counters import raise_above
from twinstore_mongo.errors import DRIVER, violated_index
from twinstore_mongo.key_order import SIMPLE
from twinstore_mongo.raw import documents_of, first_of
from twinstore_mongo.removing import remove_keys

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.bulk import CommitCheck, Key, Record
    from twinstore.catalog import Entity
    from twinstore_mongo.context import RepositoryContext

__all__ = ["PART_BYTES", "MongoRangeWriter"]

# A transaction of the server must end within 60 s; this much is written in a few of them.
PART_BYTES: Final = 8 * 1024 * 1024
TRANSIENT: Final = "TransientTransactionError"


@dataclass(slots=True)
class WriteCounts:
    """What has become of the records so far."""

    written: Counter[str] = field(default_factory=Counter)
    unchanged: Counter[str] = field(default_factory=Counter)
    conflicts: list[Conflict] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    removed: int = 0

    def note(self, writes: Sequence[DocumentWrite], removed: int = 0) -> None:
        """Count documents that are in the store now, and those that are there no more."""
        self.removed += removed
        for write in writes:
            self.written[write.record.label] += 1
            if write.replaces is not None:
                self.conflicts.append(Conflict(write.key, write.record.owner, overwritten=True))

    def result(self) -> ImportOutcome:
        """Return the outcome as the contract has it."""
        return ImportOutcome(
            dict(self.written),
            dict(self.unchanged),
            tuple(self.conflicts),
            tuple(self.rejected),
            self.removed,
        )


class MongoRangeWriter(RangeWriter):
    """Implements :class:`~twinstore.bulk.RangeWriter`.

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
    ) -> None:
        """Take where to write, the entities that may be children, and what runs before each part."""
        self._context = context
        self._entity = entity
        self._entities = entities
        self._overwrite = overwrite
        self._check = check
        self._codec = codec_of(entity)
        self._process = OwnProcess()
        self._outcome = WriteCounts()
        self._pending: list[DocumentWrite] = []
        self._bytes = 0
        self._removals: list[Key] = []
        self._last: LastPart | None = None
        # What finds a unique value taken that may still move.
        self._waiting: list[DocumentWrite] = []

    @override
    def write(self, records: Sequence[Record]) -> None:
        self._must_be_open()
        # A key that was removed and comes again: what was asked for first is done first.
        if self._removals and not {record.key for record in records}.isdisjoint(self._removals):
            self._commit_part()
        raise_above(self._context, self._entity, records)
        writes = [write for record in records if (write := self._encoded(record)) is not None]
        stored = self._stored([write.key for write in writes])
        for write in writes:
            self._decide(write, stored.get(write.key))
            if self._bytes >= PART_BYTES:
                self._commit_part()

    @override
    def take_rejected(self) -> Sequence[Rejected]:
        taken, self._outcome.rejected = self._outcome.rejected, []
        return taken

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        self._must_be_open()
        self._removals.extend(keys)

    @override
    def flush(self) -> ImportOutcome:
        self._process.check("This writer")
        while self._last is None:
            self._settle()
            try:
                self._last = repeat(self._open_last)
            except RefusedError as refused:
                self._resolve(refused)
        return self._outcome.result()

    @property
    @override
    def access(self) -> Access:
        """The rows of any entity inside the transaction of this range, from :meth:`flush` on.

        The ledger of a copy is written through it: rows and what it says of them become visible together.
        """
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

    def _encoded(self, record: Record) -> DocumentWrite | None:
        try:
            return encoded(
                self._codec, record, largest=self._context.store.capabilities.largest_document_bytes
            )
        except UnfitError as error:
            self._reject(record, str(error))
            return None

    def _reject(self, record: Record, reason: str) -> None:
        self._outcome.rejected.append(Rejected(record, reason))

    def _decide(self, write: DocumentWrite, stored: bytes | None) -> None:
        """Keep what is equal, note what differs, and gather what is to be written."""
        record = write.record
        if stored is None:
            self._gather(write)
        elif is_equal(self._codec, write, stored):
            self._outcome.unchanged[record.label] += 1
        elif self._overwrite:
            self._gather(replacing(self._codec, write, stored))
        else:
            self._outcome.conflicts.append(Conflict(write.key, record.owner))

    def _gather(self, write: DocumentWrite) -> None:
        self._pending.append(write)
        self._bytes += write.weight

    def _stored(self, keys: Sequence[Key]) -> Mapping[Key, bytes]:
        """Return the stored documents of some keys, undecoded: what another has put there may be anything."""
        names, store = self._codec.key, self._context.store
        collection = self._context.collection(self._entity)
        found: dict[Key, bytes] = {}
        with translating(store.where.of(self._entity)):
            for condition in conditions_of(names, keys):
                cursor = collection.find_raw_batches(condition, collation=SIMPLE)
                with ending(cursor.close):
                    while (batch := store.next_batch(cursor)) is not None:
                        for raw in documents_of(batch):
                            key: Any = tuple(first_of(raw, name) for name in names)
                            found[key] = raw
        return found

    # -------------------------------------------------------------------------------------- writing

    def _commit_part(self) -> None:
        """Commit what has gathered on its own; refused documents are set aside one by one."""
        while self._pending or self._removals:
            try:
                self._commit_alone(self._pending, self._removals)
            except RefusedError as refused:
                self._resolve(refused)
            else:
                self._pending, self._removals, self._bytes = [], [], 0

    def _commit_alone(self, writes: Sequence[DocumentWrite], removals: Sequence[Key]) -> None:
        def work(context: RepositoryContext) -> int:
            # In the transaction: whoever has lost the range by now commits nothing of it any more.
            if self._check is not None:
                self._check(GuardedAccess(MongoAccess(context, self._entities)))
            return self._send(context, writes, removals)

        self._outcome.note(writes, self._context.atomic(work))

    def _open_last(self) -> LastPart:
        """Write the rest in a transaction that stays open."""
        last = LastPart(self._context)
        try:
            removed = self._send(last.context, self._pending, self._removals)
        except BaseException:
            last.roll_back()
            raise
        self._outcome.note(self._pending, removed)
        self._pending, self._removals, self._bytes = [], [], 0
        return last

    def _resolve(self, refused: RefusedError) -> None:
        """Commit the documents before a refused one and set that one aside; the others stay to be written.

        So each document is written twice at most. Without transactions those before it are written already.
        """
        writes, removals = self._pending, self._removals
        before, after = writes[: refused.position], writes[refused.position + 1 :]
        self._pending, self._removals, self._bytes = [], [], 0
        if self._context.store.capabilities.transactions:
            self._pending = before
            self._commit_part()
        else:
            self._outcome.note(before)
        self._removals = removals
        for write in after:
            self._gather(write)
        self._set_aside(writes[refused.position], refused)

    def _set_aside(self, write: DocumentWrite, refused: RefusedError) -> None:
        """Reject a refused record, unless its key came into the store meanwhile."""
        index = violated_index(refused.error)
        # Somebody inserted the key since it was looked for; now it can be compared like any other. Its index
        # may have another name, and the server names the first one that refuses, which that need not be.
        if index is not None and write.replaces is None:
            stored = self._stored([write.key]).get(write.key)
            if stored is not None:
                self._decide(write, stored)
                return
        if self._overwrite and index in self._codec.uniques:
            self._waiting.append(write)
        else:
            self._reject(write.record, refused.reason)

    def _settle(self) -> None:
        """Write documents whose unique values move between them; name what is in the way of the others."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        # With what is not written yet, for it may give up a value.
        writes = [*waiting, *self._pending]
        self._pending, self._bytes = [], 0
        access = GuardedAccess(MongoAccess(self._context, self._entities))
        found = obstacles(access, self._entity, [write.record for write in writes])
        for write in writes:
            if write.key in found:
                self._reject(write.record, reason_of_obstacle(self._entity, found[write.key]))
        self._move([write for write in writes if write.key not in found])

    def _move(self, writes: Sequence[DocumentWrite]) -> None:
        """Write documents together; a rival may take a value all the same."""
        while writes:
            try:
                self._outcome.note(writes, self._context.atomic(partial(self._exchange, writes=writes)))
            except RefusedError as refused:
                self._reject(writes[refused.position].record, refused.reason)
                writes = [write for at, write in enumerate(writes) if at != refused.position]
            else:
                return

    def _exchange(self, context: RepositoryContext, writes: Sequence[DocumentWrite]) -> int:
        """Remove the documents that are replaced and insert all, so that every value is free when wanted.

        Without transactions a crash in between leaves some out until the range is copied again.
        """
        if self._check is not None:
            self._check(GuardedAccess(MongoAccess(context, self._entities)))
        replaced = [write.replaces for write in writes if write.replaces is not None]
        with translating(context.store.where.of(self._entity)), context.store.limited():
            self._remove(context, replaced)
        return self._send(context, [replace(write, replaces=None, moves=False) for write in writes], ())

    def _send(
        self, context: RepositoryContext, writes: Sequence[DocumentWrite], removals: Sequence[Key]
    ) -> int:
        """Write documents and then remove others; return how many were removed."""
        store = context.store
        with translating(store.where.of(self._entity)), store.limited():
            try:
                self._send_writes(context, writes)
            except BulkWriteError as error:
                if error.has_error_label(TRANSIENT) or not error.details["writeErrors"]:
                    raise
                # Writes are ordered (the default), so everything before the first refused one was done.
                first = error.details["writeErrors"][0]
                raise RefusedError(first["index"], first) from error
        return remove_keys(context, self._entities, self._entity, removals) if removals else 0

    def _remove(self, context: RepositoryContext, filters: Sequence[RawBSONDocument]) -> int:
        """Remove documents by their filters as they are, for an _id may be of any type; return how many."""
        if not filters:
            return 0
        collection = context.collection(self._entity)
        return collection.delete_many(
            {"$or": filters}, collation=SIMPLE, session=context.session
        ).deleted_count

    def _send_writes(self, context: RepositoryContext, writes: Sequence[DocumentWrite]) -> None:
        collection: Any = context.collection(self._entity)
        if not writes:
            return
        # As most parts: into an empty target a plain insert is the fastest that the server takes.
        if all(write.replaces is None for write in writes):
            collection.insert_many([RawBSONDocument(write.raw) for write in writes], session=context.session)
            return
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


class NotCommittedError(Exception):
    """Rolls a transaction back; nobody outside sees it."""


class LastPart:
    """The transaction of the last part, which somebody else commits; without transactions just the store."""

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

"""Digests of the documents of a collection, read in whatever order the server has them.

As the scan this is a reading of its own: another cursor than that of the export, and native code that shares
nothing with what copies. Only whether the models would accept a document is asked of that.
"""

from __future__ import annotations

import ctypes
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pymongo import CursorType
from pymongo.errors import OperationFailure

from twinstore.bulk import Digestible, NoDigests
from twinstore.fast.native import library
from twinstore.fast.scanning import Judge, Scanner, document_form
from twinstore.forks import ending
from twinstore.scanned import content_without
from twinstore.stored import has_marks
from twinstore_mongo.derive import ID
from twinstore_mongo.digest_form import digest_form, why_not
from twinstore_mongo.key_order import BATCH_BYTES, SIMPLE, VIEW, fitting_batch
from twinstore_mongo.packing import native_documents

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from pymongo.collection import Collection
    from pymongo.command_cursor import RawBatchCommandCursor
    from pymongo.cursor import RawBatchCursor

    from twinstore.bulk import Key, RangeDigests
    from twinstore.catalog import Entity
    from twinstore_mongo.bulk_owners import Chosen
    from twinstore_mongo.bulk_scan import CollectionScan
    from twinstore_mongo.connection import Document, OpenDatabase

__all__ = ["MOST_THREADS", "DigestScan", "digestible"]

# What one cursor sends keeps hardly more of them busy.
MOST_THREADS: Final = 3
# Documents of one batch, where they are small.
AT_ONCE: Final = 5000
# What comes without being asked for comes as fast in small batches, and their memory need not be got from the
# system each time: for larger ones that takes a third as long as the digests.
UNASKED_BYTES: Final = 700_000
BALANCED: Final = "LoadBalanced"
# A cursor that sends without being asked keeps its connection; with fewer than these others would miss it.
MANY_CONNECTIONS: Final = 20
LOOSE: Final = ("sparse", "partialFilterExpression")
NO_LIBRARY: Final = "the native library is off"
ACCEPTS: Final = "ts_accepts_document"


def digestible(entity: Entity) -> Digestible | NoDigests:
    """Return how documents of an entity are judged, or why there are no digests of them."""
    reason = NO_LIBRARY if library() is None else why_not(entity)
    if reason is not None:
        return NoDigests(reason)
    return Digestible.ROWS if native_documents(entity) is None else Digestible.JUDGED


class DigestScan:
    """Reads the documents of one entity."""

    def __init__(self, store: OpenDatabase, collection: Collection[Document], scan: CollectionScan) -> None:
        """Take the collection, and what its documents are."""
        self._store, self._collection, self._scan = store, collection, scan

    def digests(
        self,
        batches: Iterator[bytes],
        bounds: Sequence[Key],
        *,
        secret: bytes,
        cutoff: datetime | None,
        of_source: bool,
        ignored: AbstractSet[str],
        accepts: Callable[[bytes], bool] | None,
        tell: Callable[[int], None] | None,
        threads: int = 1,
    ) -> RangeDigests | NoDigests:
        """Return the digests of documents, or why native code shows none of them."""
        found, entity = library(), self._scan.entity
        if found is None:
            return NoDigests(NO_LIBRARY)
        if (reason := why_not(entity, ignored)) is not None:
            return NoDigests(reason)
        form = document_form(found, digest_form(entity, of_source=of_source, ignored=ignored))
        judge = judge_of(found, entity, ignored)
        judged = None if accepts is None else partial(self._accepts, accepts, ignored)
        scanners = [
            Scanner(found, form, entity, bounds, secret=secret, cutoff=cutoff, accepts=judged, judge=judge)
            for _ in range(threads)
        ]
        unique = self._is_unique()
        with closing(numbers_of(scanners, batches)) as numbers:
            for number in numbers:
                if tell is not None:
                    tell(number)
        whole, *others = (scanner.result(unique=unique) for scanner in scanners)
        for part in others:
            whole.merge(part)
        return whole

    def _accepts(self, accepts: Callable[[bytes], bool], ignored: AbstractSet[str], raw: bytes) -> bool:
        """Whether the models accept a document, by what a scan shows of all of it but for what is ignored."""
        (row,) = self._scan.rows(raw)
        content = content_without(row.content, ignored) if ignored else row.content
        return not has_marks(content) and accepts(content)

    def batches(self, rows: Chosen) -> Generator[bytes]:
        """Yield whole documents, as many at a time as the server sends."""
        with self._store.limited():
            unasked = self._sends_unasked and not rows.joins
            most = UNASKED_BYTES if unasked else BATCH_BYTES
            batch_size = fitting_batch(self._store, self._collection, AT_ONCE, most)
        # The limit that the first command names is one of the whole reading.
        with self._store.with_index_timeout():
            cursor = self._cursor(rows, batch_size)
        with ending(cursor.close):
            with self._store.with_index_timeout():
                batch: Any = next(cursor, None)
            while batch is not None:
                yield batch
                del batch
                batch = self._store.next_batch(cursor)

    @property
    def _is_cluster(self) -> bool:
        """Whether what answers stands before several servers; it sends no batch without being asked."""
        client = self._store.client
        return client.is_mongos or client.topology_description.topology_type_name == BALANCED

    @property
    def _sends_unasked(self) -> bool:
        """Whether the server may send the next batch without being asked for it."""
        most = self._store.client.options.pool_options.max_pool_size
        return not self._is_cluster and (not most or most >= MANY_CONNECTIONS)

    def _cursor(self, rows: Chosen, batch_size: int) -> RawBatchCursor[Any] | RawBatchCommandCursor[Any]:
        if rows.joins:
            return self._collection.aggregate_raw_batches(
                rows.stages, batchSize=batch_size, collation=SIMPLE, allowDiskUse=True
            )
        return self._collection.find_raw_batches(
            rows.condition,
            batch_size=batch_size,
            collation=SIMPLE,
            cursor_type=CursorType.EXHAUST if self._sends_unasked else CursorType.NON_TAILABLE,
        )

    def _is_unique(self) -> bool:
        """Whether the server admits no two documents of one key."""
        with self._store.limited():
            return self._admits_no_two()

    def _admits_no_two(self) -> bool:
        # There each server has the unique indexes of its own documents only.
        if self._is_cluster:
            return False
        # Where it joins the key, each document of which that is true has been looked at.
        names = {*self._scan.key} | ({ID} if self._scan.form.joined else set[str]())
        try:
            indexes = list(self._collection.list_indexes())
        except OperationFailure as error:
            # A view has none, and says nothing of those below it.
            if error.code != VIEW:
                raise
            return False
        return any(
            (index.get("unique") or [*index["key"]] == [ID])
            and names.issuperset(index["key"])
            and not any(index.get(option) for option in LOOSE)
            for index in indexes
        )


def numbers_of(scanners: Sequence[Scanner], batches: Iterator[bytes]) -> Generator[int]:
    """Add batches to whichever scanner is idle, the first one in this thread; yield numbers of rows."""
    first, *others = scanners
    if not others:
        yield from map(first.add_documents, batches)
        return
    with ThreadPoolExecutor(len(others), thread_name_prefix="digests") as pool:
        working: dict[Scanner, Future[int]] = {}
        for batch in batches:
            idle = next((other for other in others if other not in working or working[other].done()), None)
            if idle is None:
                yield first.add_documents(batch)
            else:
                before = working.pop(idle, None)
                working[idle] = pool.submit(idle.add_documents, batch)
                if before is not None:
                    yield before.result()
            del batch
        for left in working.values():
            yield left.result()


def judge_of(found: ctypes.CDLL, entity: Entity, ignored: AbstractSet[str]) -> Judge | None:
    """Return what tells whether the models accept documents of an entity, ``None`` where nothing does."""
    documents = native_documents(entity, ignored)
    if documents is None:
        return None
    function = ctypes.cast(getattr(found, ACCEPTS), ctypes.c_void_p).value
    return None if function is None else Judge(function, documents.handle)

"""Digests of the documents of a collection, read in whatever order the server has them.

Like the scan, this reads separately: with another cursor than the export, and in native code that shares
nothing with the code that copies. It uses that code only to check whether the models would accept a document.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bson import InvalidBSON, decode, encode
from bson.errors import InvalidDocument
from pymongo import CursorType
from pymongo.errors import OperationFailure

from twinstore.bulk.changes import NO_CHANGES, ChangeRefusedError
from twinstore.bulk.rows import Digestible, NoDigests, content_without, has_marks
from twinstore.catalog.keys import KeyType
from twinstore.fast.digests import NativeValidator, Scanner, document_form, write_removal
from twinstore.fast.library import NO_LIBRARY, library
from twinstore.fast.program import Writer
from twinstore.models.shapes import Kind, is_whole, shapes_of
from twinstore.runtime.forks import cleanup_unless_forked
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.client.bson import LENGTH_BYTES, documents_of, framed
from twinstore_mongo.client.types import EXACT
from twinstore_mongo.mapping.key_order import BATCH_BYTES, SIMPLE, VIEW, fitting_batch
from twinstore_mongo.mapping.layout import ID, VERSION, stored_names

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from pymongo.collection import Collection
    from pymongo.command_cursor import RawBatchCommandCursor
    from pymongo.cursor import RawBatchCursor

    from twinstore.bulk.changes import DocumentChange, DocumentChanges
    from twinstore.bulk.rows import RangeDigests
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.models.shapes import ValueShape
    from twinstore_mongo.bulk.tenant_filter import TenantFilter
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Document

# What one cursor sends keeps hardly more of them busy.
MOST_THREADS: Final = 3
# Documents of one batch, where they are small.
DOCUMENTS_PER_BATCH: Final = 5000
# What comes without being asked for comes as fast in small batches, and their memory need not be got from the
# system each time: for larger ones that takes a third as long as the digests.
EXHAUST_BYTES: Final = 700_000
BALANCED: Final = "LoadBalanced"
# A cursor that sends without being asked keeps its connection; with fewer than these others would miss it.
MANY_CONNECTIONS: Final = 20
LOOSE: Final = ("sparse", "partialFilterExpression")
ACCEPTS: Final = "ts_accepts_document"
REPLACED: Final = "rules replace its keys"
LOOKED_UP: Final = "rules look up rows that it names"
# No document holds a name twice that digests take.
TWICE: Final = 2 * b"\x0a\x00"
Batch: TypeAlias = tuple[bytes, Sequence[tuple[int, ...]]]
"""Documents, and of each the numbers of the rules that changed it."""


def digestible(entity: Entity, changes: DocumentChanges = NO_CHANGES) -> Digestible | NoDigests:
    """Return how documents of an entity are judged, or why there are no digests of them."""
    if entity.name in changes.keys or entity.name in changes.ids:
        return NoDigests(REPLACED)
    change = changes.documents.get(entity.name)
    if change is not None and change.lookups:
        return NoDigests(LOOKED_UP)
    reason = NO_LIBRARY if library() is None else unsupported_reason(entity)
    if reason is not None:
        return NoDigests(reason)
    return Digestible.ROWS if native_documents(entity) is None else Digestible.PREVALIDATED


class DigestScan:
    """Reads the documents of one entity, as a change leaves them."""

    def __init__(
        self,
        store: OpenDatabase,
        collection: Collection[Document],
        scan: CollectionScan,
        change: DocumentChange | None = None,
    ) -> None:
        self._store, self._collection, self._scan = store, collection, scan
        self._change = change

    def digests(
        self,
        batches: Iterator[bytes],
        bounds: Sequence[Key],
        *,
        secret: bytes,
        folded: bool,
        cutoff: datetime | None,
        of_source: bool,
        ignored: AbstractSet[str],
        accepts: Callable[[bytes], bool] | None,
        on_progress: Callable[[int], None] | None,
        threads: int = 1,
    ) -> RangeDigests | NoDigests:
        """Return the digests of documents, or why native code shows none of them."""
        found, entity = library(), self._scan.entity
        if found is None:
            return NoDigests(NO_LIBRARY)
        if (reason := unsupported_reason(entity, ignored)) is not None:
            return NoDigests(reason)
        form = document_form(found, digest_form(entity, of_source=of_source, ignored=ignored))
        validator = acceptance_check(found, entity, ignored)
        accepts_row = None if accepts is None else partial(self._accepts, accepts, ignored)
        scanners = [
            Scanner(
                found,
                form,
                entity,
                bounds,
                secret=secret,
                folded=folded,
                cutoff=cutoff,
                accepts=accepts_row,
                validator=validator,
            )
            for _ in range(threads)
        ]
        unique = self._is_unique()
        with closing(numbers_of(scanners, map(self._changed, batches))) as numbers:
            for number in numbers:
                if on_progress is not None:
                    on_progress(number)
        whole, *others = (scanner.result(unique=unique) for scanner in scanners)
        for part in others:
            whole.merge(part)
        return whole

    def _accepts(self, accepts: Callable[[bytes], bool], ignored: AbstractSet[str], raw: bytes) -> bool:
        """Whether the models accept a document, by what a scan shows of all of it but for what is ignored."""
        (row,) = self._scan.rows(raw)
        content = content_without(row.content, ignored) if ignored else row.content
        return not has_marks(content) and accepts(content)

    def _changed(self, batch: bytes) -> Batch:
        """Return documents as the change leaves them."""
        if self._change is None:
            return batch, ()
        changed = [changed_document(self._scan, self._change, raw) for raw in documents_of(batch)]
        return b"".join(raw for raw, _ in changed), [rules for _, rules in changed]

    def batches(self, rows: TenantFilter, within: KeyRange) -> Generator[bytes]:
        """Yield the whole documents of a range, as many at a time as the server sends."""
        rows = replace(rows, condition={**self._scan.matching(within), **rows.condition})
        with self._store.limited():
            exhaust = self._can_exhaust and not rows.joins
            most = EXHAUST_BYTES if exhaust else BATCH_BYTES
            batch_size = fitting_batch(self._store, self._collection, DOCUMENTS_PER_BATCH, most)
        # The limit that the first command names is one of the whole reading.
        with self._store.with_index_timeout():
            cursor = self._cursor(rows, batch_size)
        with cleanup_unless_forked(cursor.close):
            with self._store.with_index_timeout():
                batch: Any = next(cursor, None)
            while batch is not None:
                yield batch
                del batch
                batch = self._store.next_batch(cursor)

    @property
    def _is_cluster(self) -> bool:
        """Whether a router of several servers answers; it does not send batches unasked."""
        client = self._store.client
        return client.is_mongos or client.topology_description.topology_type_name == BALANCED

    @property
    def _can_exhaust(self) -> bool:
        """Whether the server may send the next batch without being asked for it."""
        most = self._store.client.options.pool_options.max_pool_size
        return not self._is_cluster and (not most or most >= MANY_CONNECTIONS)

    def _cursor(
        self, rows: TenantFilter, batch_size: int
    ) -> RawBatchCursor[Any] | RawBatchCommandCursor[Any]:
        if rows.joins:
            return self._collection.aggregate_raw_batches(
                rows.stages, batchSize=batch_size, collation=SIMPLE, allowDiskUse=True
            )
        return self._collection.find_raw_batches(
            rows.condition,
            batch_size=batch_size,
            collation=SIMPLE,
            cursor_type=CursorType.EXHAUST if self._can_exhaust else CursorType.NON_TAILABLE,
        )

    def _is_unique(self) -> bool:
        """Whether the server admits no two documents of one key."""
        with self._store.limited():
            return self._has_unique_index()

    def _has_unique_index(self) -> bool:
        # In a cluster the unique indexes of each server cover only the documents on that server.
        if self._is_cluster:
            return False
        # If the id joins the key, each document for which that is true has been checked.
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


def changed_document(
    scan: CollectionScan, change: DocumentChange, raw: bytes
) -> tuple[bytes, tuple[int, ...]]:
    """Return a document after a change, and the rules that changed it.

    One that only a scan shows is returned so that native code declines it, under its key.
    """
    try:
        stored = decode(raw, EXACT)
        if encode(stored) == raw:
            changed = scan.changed(stored, change)
            return (encode(changed.document), tuple(changed.rules)) if changed.rules else (raw, ())
    except (InvalidBSON, InvalidDocument, ChangeRefusedError, OverflowError, UnicodeEncodeError):
        pass
    return framed(raw[LENGTH_BYTES:-1] + TWICE), ()


def numbers_of(scanners: Sequence[Scanner], batches: Iterator[Batch]) -> Generator[int]:
    """Add batches to whichever scanner is idle, the first one in this thread; yield numbers of rows."""
    first, *others = scanners
    if not others:
        yield from starmap(first.add_documents, batches)
        return
    with ThreadPoolExecutor(len(others), thread_name_prefix="digests") as pool:
        working: dict[Scanner, Future[int]] = {}
        for batch in batches:
            idle = next((other for other in others if other not in working or working[other].done()), None)
            if idle is None:
                yield first.add_documents(*batch)
            else:
                before = working.pop(idle, None)
                working[idle] = pool.submit(idle.add_documents, *batch)
                if before is not None:
                    yield before.result()
            del batch
        for left in working.values():
            yield left.result()


def acceptance_check(found: ctypes.CDLL, entity: Entity, ignored: AbstractSet[str]) -> NativeValidator | None:
    """Return a judge of whether the models accept documents of an entity, ``None`` if there is none."""
    documents = native_documents(entity, ignored)
    if documents is None:
        return None
    function = ctypes.cast(getattr(found, ACCEPTS), ctypes.c_void_p).value
    return None if function is None else NativeValidator(function, documents.handle)


# Which value is where in the documents of an entity, for native code that digests them.
#
# Names and places only, as :class:`~twinstore_mongo.bulk.scan.StoredForm` has them; the program of a copy has
# no part in it. What native code cannot show exactly has no form, and is compared row by row.


# Kinds of places, as native code numbers them; the first place of all is a plain one.
PLAIN, INSTANT, LONG, LIST, OBJECT, MAP, FREE = range(7)
TYPED: Final = {Kind.OBJECT_ID: 7, Kind.UUID: 8, Kind.DECIMAL: 9, Kind.BYTES: 10}
# What the top level contains.
FIELD, MARKER, COUNTER, SKIPPED, IGNORED = range(5)
# What `_id` is: a field, what joins the key, or generated.
SHOWN, OF_KEY, ANY = range(3)
MOST_PARTS: Final = 4
MOST_TOP_NAMES: Final = 256

Members = tuple[tuple[str, int], ...]


def unsupported_reason(entity: Entity, ignored: AbstractSet[str] = frozenset()) -> str | None:
    """Return why documents of an entity have no such form, ``None`` where they have."""
    form = CollectionScan.of(entity).form
    if form.derived:
        return "documents hold values that follow from the content"
    if form.derived_key is not None:
        return "its key follows from its content"
    if form.wire_id is None and not form.joined and not form.generated:
        return "its id is not a field of the content"
    # Unknown properties may have any name.
    if entity.shapes.keys() & {*entity.markers} or entity.has_free_names or entity.extra is not None:
        return "a field has the name of a marker, or one that native code does not know"
    is_hex = any(part.type is KeyType.HEX for part in entity.key_parts)
    if len(entity.key_parts) > MOST_PARTS or is_hex or entity.key_as_id:
        return "its key is of a kind that native code does not know"
    has_room = len(entity.shapes) + len(entity.storage) + len(ignored) < MOST_TOP_NAMES
    return None if has_room else "it has too many fields"


def digest_form(entity: Entity, *, of_source: bool = False, ignored: AbstractSet[str] = frozenset()) -> bytes:
    """Return the form as native code reads it; see ``core/native/verifier/document_form.c``."""
    scan, top_names = CollectionScan.of(entity), TopLevelNames(entity, of_source=of_source, ignored=ignored)
    writer = Writer()
    form = scan.form
    top_names.places.write(writer)
    writer.many(top_names.names, lambda name: top_names.write(writer, name))
    writer.many(
        _in_order(form.markers), lambda name: top_names.write_marker(writer, name, form.markers[name])
    )
    writer.many(scan.key, lambda name: top_names.write_part(writer, name, is_number=name in scan.numbers))
    writer.number(OF_KEY if form.joined else ANY if form.generated else SHOWN)
    top_names.write_number(writer, form.wire_id)
    top_names.write_number(writer, scan.tenant)
    writer.number(scan.may_lack_tenant)
    top_names.write_number(writer, form.expires)
    stored = stored_names(entity)
    write_removal(writer, entity.retention, lambda name: top_names.number(stored[name]))
    return writer.tobytes()


class TopLevelNames:
    """The names on the top level, as the content has them: ``_id`` has the name of its field."""

    def __init__(self, entity: Entity, *, of_source: bool, ignored: AbstractSet[str] = frozenset()) -> None:
        self.places = Places()
        stored, form = stored_names(entity), CollectionScan.of(entity).form
        self._wire_id = form.wire_id
        dated = {path[0] for path in form.instants if len(path) == 1}
        self._known: dict[str, tuple[int, int]] = {
            name: (FIELD, self.places.of_field(shape.value, is_long=stored[name] in form.longs))
            for name, shape in entity.shapes.items()
        }
        for name in form.markers.values():
            place = self.places.of(INSTANT) if name in dated else 0
            self._known[name] = (MARKER, self.places.of(LONG) if name in form.longs else place)
        if form.versioned:
            # No copy reads it, and the documents of another program may have none.
            self._known[VERSION] = (SKIPPED if of_source else COUNTER, 0)
        for name in ignored - {*form.internal, *stored.values()}:
            self._known[name] = (IGNORED, 0)
        self.names = _in_order(self._known)

    def number(self, stored: str) -> int:
        """Return the number of a stored name."""
        return self.names.index(self._wire_id if stored == ID and self._wire_id is not None else stored)

    def write(self, writer: Writer, name: str) -> None:
        """Write a name, what it is, and the place of its value."""
        writer.text(name)
        for number in self._known[name]:
            writer.number(number)

    def write_marker(self, writer: Writer, name: str, stored: str) -> None:
        """Write the name under which a marker is shown, and its place."""
        writer.text(name)
        writer.number(self.number(stored))

    def write_part(self, writer: Writer, stored: str, *, is_number: bool) -> None:
        """Write a part of the key."""
        writer.number(self.number(stored))
        writer.number(is_number)

    def write_number(self, writer: Writer, stored: str | None) -> None:
        """Write the number of a name and one, or zero for none."""
        writer.number(0 if stored is None else self.number(stored) + 1)


class Places:
    """The places of values, each once; if nothing below has a place, it is the plain place."""

    def __init__(self) -> None:
        """Begin with the plain place, and that of values in free JSON, as its own members do."""
        self._known: list[tuple[int, int, Members]] = [(PLAIN, 0, ()), (FREE, 1, ())]

    def of(self, kind: int, item: int = 0, members: Members = ()) -> int:
        """Return the number of a place."""
        place = (kind, item, members)
        if place not in self._known:
            self._known.append(place)
        return self._known.index(place)

    def of_field(self, value: ValueShape, *, is_long: bool) -> int:
        """Return the place of a field; ``is_long`` is true if its integers have 64 bits."""
        if not (is_long and is_whole(value)):
            return self._of(value, dated=True)
        return self.of(LIST, self.of(LONG)) if value.kind is Kind.LIST else self.of(LONG)

    def _of(self, value: ValueShape, *, dated: bool) -> int:
        """Return the place of a value; ``dated`` is true if the value is known to be an instant."""
        match value.kind:
            case Kind.INSTANT:
                return self.of(INSTANT) if dated else 0
            case Kind.OBJECT:
                return self._object(value, dated=dated)
            case Kind.LIST:
                item = self.of(FREE, 1) if value.item is None else self._of(value.item, dated=dated)
                return self._around(LIST, item)
            case Kind.MAP if value.item is not None:
                # The path of an instant leads through no map.
                return self._around(MAP, self._of(value.item, dated=False))
            case Kind.MAP if value.cls is dict:
                return self.of(MAP, self.of(FREE, 1))
            case kind:
                # No description has one of these in a map.
                return self.of(TYPED[kind]) if kind in TYPED else 0

    def _around(self, kind: int, item: int) -> int:
        return self.of(kind, item) if item else 0

    def _object(self, value: ValueShape, *, dated: bool) -> int:
        places = {shape.wire: self._of(shape.value, dated=dated) for shape in shapes_of(value.model)}
        members = tuple((name, places[name]) for name in _in_order(places) if places[name])
        return self.of(OBJECT, 0, members) if members else 0

    def write(self, writer: Writer) -> None:
        """Write all places."""
        writer.number(len(self._known))
        writer.number(sum(len(members) for _, _, members in self._known))
        for kind, item, members in self._known:
            writer.number(kind)
            writer.number(item)
            writer.number(len(members))
            for name, place in members:
                writer.text(name)
                writer.number(place)


def _in_order(names: Iterable[str]) -> list[str]:
    return sorted(names, key=str.encode)

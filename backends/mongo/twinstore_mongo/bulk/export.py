"""Reading ranges of rows as models: forward scans of the key index between two of its keys.

``min`` and ``max`` on a hinted index compare across types, so a key that is not a text is seen too; a filter
would compare texts with texts only. Without such an index an expression compares, and the server sorts.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from bson import InvalidBSON, ObjectId, decode, decode_all, encode
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import InvalidDocument
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps
from typing_extensions import override

from twinstore.bulk.changes import NAMING, ChangeRefusedError, DocumentChange, FoundRow, StoredValues
from twinstore.bulk.port import Record
from twinstore.bulk.rows import LONGEST_READABLE, Original, base64_pieces
from twinstore.catalog.keys import KeyType
from twinstore.errors import DocumentDecodeError
from twinstore.fast.records import PackedBatch, ReadDocuments, Stored
from twinstore.models.shapes import lossy_map, lossy_map_reason
from twinstore.runtime.forks import cleanup_unless_forked
from twinstore.runtime.formatting import SHORT_REPR_LENGTH
from twinstore_mongo.bulk.lookups import FindingValues
from twinstore_mongo.bulk.tenant_filter import owner_of_value
from twinstore_mongo.client.bson import (
    EPOCH,
    NAIVE_EPOCH,
    PART_BYTES,
    documents_of,
    elements,
    first_of,
    parts_of,
)
from twinstore_mongo.client.types import EXACT, FOREIGN_TYPES
from twinstore_mongo.mapping.free_json import ARRAY, NESTED, REPLACED, lossless_document
from twinstore_mongo.mapping.key_order import (
    BATCH_BYTES,
    SIMPLE,
    fitting_batch,
    has_key_index,
    next_parts,
    order_of,
)
from twinstore_mongo.mapping.layout import ID, internal_names, problem_of_text_id, readable_id
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pymongo.collection import Collection
    from pymongo.command_cursor import RawBatchCommandCursor
    from pymongo.cursor import RawBatchCursor

    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.catalog.tenancy import StoredOwner
    from twinstore.fast.records import NativeDocuments
    from twinstore_mongo.bulk.tenant_filter import TenantFilter
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.codec import Codec
    from twinstore_mongo.mapping.key_order import Order
    from twinstore_mongo.mapping.object_ids import ReplacedIds

if TYPE_CHECKING:
    # The client declares the one kind where it gives the other.
    RawBatches = RawBatchCursor[Document] | RawBatchCommandCursor[Document]

# Naive instants decode twice as fast; they are marked as UTC where the model has one.
NAIVE: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, type_registry=FOREIGN_TYPES
)
# Each byte that is not UTF-8 as a surrogate, for changes that replace it.
BROKEN_TEXT: Final = NAIVE.with_options(unicode_decode_error_handler="surrogateescape")
BROKEN: Final = "holds text that is not UTF-8, or another value that cannot be decoded"
ALTERED: Final = "holds what the client does not give back"
# Types that models would read as something else, by their number.
FOREIGN: Final = {**REPLACED, 0x0D: "code", 0x0F: "code with scope"}
# Of one query, whose text grows with them.
KEYS_AT_ONCE: Final = 1000


def bounds(codec: Codec[Any], within: KeyRange) -> Document:
    """Return the ``min`` and ``max`` of a range; an open end has none."""
    ends = {"min": within.lower, "max": within.upper}
    return {name: codec.place(key) for name, key in ends.items() if key is not None}


def between(codec: Codec[Any], within: KeyRange) -> Document:
    """Return the filter of a range; arrays are compared element by element, across types."""
    stored = [f"${name}" for name in codec.key]
    ends = (("$gte", within.lower), ("$lt", within.upper))
    clauses = [
        {operator: [stored, [{"$literal": part} for part in codec.place(key).values()]]}
        for operator, key in ends
        if key is not None
    ]
    return {"$expr": {"$and": clauses}} if clauses else {}


@dataclass(frozen=True, slots=True)
class ReadSize:
    """How much is read at a time.

    Attributes:
        documents: how many documents a batch has, at most.
        batch: how many bytes it has on average, at most.
        part: into how many bytes a batch is parted, before anything is made of it.
    """

    documents: int
    batch: int = BATCH_BYTES
    part: int = PART_BYTES


@dataclass(slots=True)
class Exporter:
    """Turns the documents of one entity into records.

    Attributes:
        codec: how a model is made of a document, after its change.
        ignored: unknown properties at the top that are skipped, whatever they hold.
        change: what is changed in each document first.
        place: how documents are found; by default as their model has its key.
        ids: the keys that replace the ObjectIds by which documents are found.
        values: what stored values mean to the change.
    """

    codec: Codec[Any]
    ignored: frozenset[str] = frozenset()
    change: DocumentChange | None = None
    place: Codec[Any] | None = None
    ids: ReplacedIds | None = None
    values: StoredValues = MONGO_VALUES
    located: Codec[Any] = field(init=False)
    instants: PathTree = field(init=False)
    _left_out: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Lay out where the instants are, and what no model reads."""
        names, entity = self.codec.names, self.codec.entity
        self.located = self.place or self.codec
        internal = {name for name in internal_names(entity) if name[:1] == "_"}
        self.ignored -= {*names.values(), *internal}
        is_read = entity.document_id is not None or entity.key_as_id
        self._left_out = self.ignored | internal - ({ID} if is_read else set())
        self.instants = PathTree.of((names[head], *rest) for head, *rest in self.codec.entity.instants)

    def parts(
        self,
        store: OpenDatabase,
        collection: Collection[Document],
        within: KeyRange,
        *,
        rows: TenantFilter,
        size: ReadSize,
    ) -> Generator[bytes]:
        """Yield the documents of a range in key order, as they are stored, some at a time."""
        order = order_of(self.located.key)
        with store.limited():
            indexed = not rows.joins and has_key_index(collection, order)
            batch_size = fitting_batch(store, collection, size.documents, size.batch)
        if indexed:
            cursor = self._along_index(collection, within, rows.condition, order, batch_size)
        else:
            # Rows that share a key come in the same order in each pass.
            order += [] if (ID, 1) in order else [(ID, 1)]
            with store.with_index_timeout():
                cursor = self._sorted(collection, within, rows, order, batch_size)
        with cleanup_unless_forked(cursor.close):
            yield from next_parts(store, cursor, size.part, indexed=indexed)
        if indexed and within.upper is None:
            yield from self._outside_index(store, collection, within, rows.condition, size)

    def _along_index(
        self,
        collection: Collection[Document],
        within: KeyRange,
        condition: Document,
        order: Order,
        batch_size: int,
    ) -> RawBatches:
        ends = bounds(self.located, within)
        if self.located.key != (ID,):
            condition = {"$and": [condition, {"$nor": lists_in(self.located)}]}
        # Batches of about a thousand documents decode more than twice as fast as the default of 16 MB; native
        # code prefers those of some thousand.
        return collection.find_raw_batches(
            condition, sort=order, hint=order, batch_size=batch_size, collation=SIMPLE, **ends
        )

    def _outside_index(
        self,
        store: OpenDatabase,
        collection: Collection[Document],
        within: KeyRange,
        condition: Document,
        size: ReadSize,
    ) -> Iterator[bytes]:
        """Yield the documents that walks along the index up to its end leave out."""
        others = outside_index(self.located, within)
        if not others:
            return
        with store.with_index_timeout():
            cursor = collection.find_raw_batches({"$and": [condition, {"$or": others}]}, collation=SIMPLE)
        with cleanup_unless_forked(cursor.close):
            yield from next_parts(store, cursor, size.part, indexed=False)

    def _sorted(
        self,
        collection: Collection[Document],
        within: KeyRange,
        rows: TenantFilter,
        order: Order,
        batch_size: int,
    ) -> RawBatches:
        pipeline = [{"$match": between(self.located, within)}, *rows.stages, {"$sort": dict(order)}]
        return collection.aggregate_raw_batches(
            pipeline, batchSize=batch_size, collation=SIMPLE, allowDiskUse=True
        )

    def of(
        self, store: OpenDatabase, collection: Collection[Document], keys: Sequence[Key]
    ) -> Iterator[Record]:
        """Yield single records."""
        for condition in self._conditions(keys):
            cursor = collection.find_raw_batches(condition, collation=SIMPLE)
            with cleanup_unless_forked(cursor.close):
                while (batch := store.next_batch(cursor)) is not None:
                    for records in self.decoded(parts_of(batch)):
                        yield from records

    def _conditions(self, keys: Sequence[Key]) -> Iterator[Document]:
        if self.ids is None:
            return conditions_of(self.located, keys)
        (name,), stored = self.located.key, self.ids.stored(keys)
        starts = range(0, len(stored), KEYS_AT_ONCE)
        return ({name: {"$in": stored[start : start + KEYS_AT_ONCE]}} for start in starts)

    def decoded(self, parts: Iterator[bytes]) -> Iterator[list[Record]]:
        """Return the records of parts of raw batches; a generator would remember some too long."""
        return map(self.records, parts)

    def records(self, batch: bytes) -> list[Record]:
        """Return the records of a raw batch; one broken document does not spoil the others."""
        if isinstance(self.values, FindingValues) and self.change is not None:
            self.values.prepare(self.change, batch, self._options)
        try:
            documents = decode_all(batch, NAIVE)
        except InvalidBSON:
            return [self.careful_record(raw) for raw in documents_of(batch)]
        # A document that its values do not give back holds a name twice, of which the client keeps the last,
        # or a type that the client replaces: to copy it would lose something silently.
        if b"".join(map(encode, documents)) != batch:
            del documents
            return [self.careful_record(raw) for raw in documents_of(batch)]
        # Each is forgotten as soon as its model is made: as objects documents are many times as large.
        documents.reverse()
        return [self.record(documents.pop(), raw) for raw in documents_of(batch)]

    def careful_record(self, raw: bytes) -> Record:
        """Return the record of one document that may be broken or hold what the client does not give back."""
        try:
            document, stored = decode(raw, NAIVE), decode(raw, EXACT)
        except InvalidBSON:
            return self.broken_record(raw)
        exact = document if encode(stored) == raw else lossless_document(raw)
        if exact is None or encode(self.own(document)) != encode(self.own(stored)):
            return self.by_first_values(raw, next(altered_parts(raw, FOREIGN, self._left_out), ALTERED))
        return self.record(exact, raw)

    def broken_record(self, raw: bytes) -> Record:
        """Return the record of a document with text that is not UTF-8, if a change takes its wrong bytes."""
        if self.change is None or not self.change.reads_broken_text:
            return self.by_first_values(raw, BROKEN)
        try:
            document = decode(raw, BROKEN_TEXT)
        except InvalidBSON:
            return self.by_first_values(raw, BROKEN)
        altered = next(altered_parts(raw, REPLACED, self._left_out), None)
        return (
            self.record(document, raw, is_broken=True)
            if altered is None
            else self.by_first_values(raw, altered)
        )

    def own(self, document: Document) -> Document:
        """Return what a model may read of a document; a copy skips everything else."""
        return {name: value for name, value in document.items() if name not in self._left_out}

    def by_first_values(self, raw: bytes, reason: str) -> Record:
        """Return the record of a document that the client cannot give, with the first values of its names.

        By those the server finds it.
        """
        codec = self.codec
        return Record(
            key=self.first_key(raw),
            owner=owner_of_value(codec.entity, None if codec.tenant is None else first_of(raw, codec.tenant)),
            model=None,
            error=reason,
            original=BsonOriginal(raw),
        )

    def first_key(self, raw: bytes) -> Key | None:
        """Return the key by the first values of its names, ``None`` where they are none of the entity."""
        key = self.located.first_values(raw)
        is_key = self.ids is None and self.located.entity.admits_key(key)
        return cast("Key", key) if is_key else None

    def record(self, document: Document, raw: bytes, *, is_broken: bool = False) -> Record:
        """Return the record of a document; ``is_broken`` if its wrong bytes are surrogates."""
        if self.change is None:
            return self._judged(document, raw)
        # Ranges are cut by ObjectIds, so a row with anything else there is in none or in a wrong one.
        name = self.located.key[0]
        if self.ids is not None and type(document.get(name)) is not ObjectId:
            return self.by_first_values(raw, f"its {name} is not an ObjectId")
        try:
            changed = self.change(document, self.values)
        except ChangeRefusedError as error:
            return self._refused(error, raw)
        if is_broken and has_surrogates(changed.document):
            return self.by_first_values(raw, BROKEN)
        record = self._judged(changed.document, raw)
        record.rules = changed.rules
        return record

    def looked_up(self, raw: bytes, by: str) -> FoundRow | None:
        """Return the row that a document becomes, for another one that names it by the value of a field.

        Returns ``None`` if there is none: the change refuses it, it has no key, or its value names no row.
        """
        try:
            document = decode(raw, self._options)
            value = MONGO_VALUES.read(document.get(by))
            is_placed = self.ids is None or type(document.get(self.located.key[0])) is ObjectId
            if self.change is not None:
                document = self.change(document, MONGO_VALUES).document
        except (InvalidBSON, ChangeRefusedError):
            return None
        key = self.key_of(document)
        if key is None or not is_placed or type(value) not in NAMING or has_surrogates(document):
            return None
        return FoundRow(value, self.owner_of(document), key)

    @property
    def _options(self) -> CodecOptions[dict[str, Any]]:
        return BROKEN_TEXT if self.change is not None and self.change.reads_broken_text else NAIVE

    def _refused(self, error: ChangeRefusedError, raw: bytes) -> Record:
        """Return the record of a document that a change refuses."""
        record = self.by_first_values(raw, str(error))
        if error.document is not None and not has_surrogates(error.document):
            record.key, record.owner = self.key_of(error.document), self.owner_of(error.document)
        return record

    def _judged(self, document: Document, raw: bytes) -> Record:
        """Return the record of a document after its change."""
        whole = len(document)
        if self.ignored:
            document = {name: value for name, value in document.items() if name not in self.ignored}
        record = Record(
            self.key_of(document),
            self.owner_of(document),
            None,
            text_timestamp=mark_utc(document, self.instants),
            ignored=len(document) < whole,
        )
        record.original = BsonOriginal(raw)
        if record.key is None:
            record.stored_key = readable_id(document)
            if self.codec.has_text_id:
                # Before the model, which would name another consequence of it.
                record.error = problem_of_text_id(self.codec.entity, document)
                return record
        self.codec.restore_maps(document)
        try:
            row = self.codec.decode(document, for_copy=True)
        except DocumentDecodeError as error:
            record.error = error.reason or error.message
            return record
        if record.key is None:
            record.error = "its key is not a string"
            return record
        if (path := lossy_map(document, row.model)) is not None:
            record.error = lossy_map_reason(path)
            return record
        record.model, record.storage = row.model, row.storage
        return record

    def owner_of(self, document: Mapping[str, Any]) -> StoredOwner:
        """Return the owner of a document, as far as it is known."""
        tenant = self.codec.tenant
        return owner_of_value(self.codec.entity, None if tenant is None else document.get(tenant))

    def key_of(self, document: Mapping[str, Any]) -> Key | None:
        """Return the key of a document; ``None`` when it is none of the entity."""
        if self.codec.has_text_id:
            key = document.get(ID)
            return (str(key),) if KeyType.TEXT.admits(key) else None
        return self.codec.key_of(document)


def has_surrogates(document: Document) -> bool:
    """Whether a document holds a text that no store takes."""
    try:
        encode(document)
    except UnicodeEncodeError:
        return True
    return False


def conditions_of(codec: Codec[Any], keys: Sequence[Key]) -> Iterator[Document]:
    """Yield filters that together find some keys by the key index."""
    *heads, last = codec.key
    for some in (keys[start : start + KEYS_AT_ONCE] for start in range(0, len(keys), KEYS_AT_ONCE)):
        if codec.entity.key_as_id:
            yield {ID: {"$in": list(map(codec.identity, some))}}
            continue
        groups: dict[Key, list[object]] = {}
        for key in map(codec.stored_key, some):
            groups.setdefault(key[:-1], []).append(key[-1])
        for head, tails in groups.items():
            yield {**dict(zip(heads, head, strict=True)), last: {"$in": tails}}


def lists_in(codec: Codec[Any]) -> list[Document]:
    """Return the conditions of which one holds where a part of the key is a list.

    The index has an entry for each member, so that walks along it would meet the document in several ranges.
    """
    return [{name: {"$type": "array"}} for name in codec.key]


def outside_index(codec: Codec[Any], within: KeyRange) -> list[Document]:
    """Return the conditions of which one holds for what the last walk along the index leaves out."""
    # The server admits no list as an _id.
    lists = lists_in(codec) if codec.key != (ID,) else []
    if within.lower is None:
        return lists
    # A walk that begins at some key ends before the greatest of all values.
    return [*lists, {"$and": [{name: {"$type": "maxKey"}} for name in codec.key]}]


def altered_parts(
    raw: bytes, kinds: Mapping[int, str], left_out: AbstractSet[str] = frozenset(), path: str = ""
) -> Iterator[str]:
    """Yield what the client gives as something else: the path and the name of its type, or what it is.

    Args:
        raw: a document.
        kinds: the names of the types that are meant.
        left_out: names that no model reads, in which only replaced types count.
        path: where the document is.
    """
    seen: set[bytes] = set()
    for kind, name, start, end in elements(raw):
        text = name[:SHORT_REPR_LENGTH].decode(errors="backslashreplace")
        place, meant = f"{path}.{text}" if path else text, REPLACED if text in left_out else kinds
        if name in seen:
            yield f"{place}: the name occurs twice"
        seen.add(name)
        if kind in meant:
            yield f"{place}: {meant[kind]} is a type of BSON that no copy keeps"
        elif kind in NESTED:
            inner = raw[start:end]
            if kind == ARRAY and any(
                item != str(number).encode() for number, (_, item, _, _) in enumerate(elements(inner))
            ):
                yield f"{place}: the items of the list are not numbered in order"
            yield from altered_parts(inner, meant, path=place)


def mark_utc(document: Document, tree: PathTree) -> bool:
    """Mark the naive instants of a document as UTC, in place; return whether one is stored as text."""
    found_text = False
    for name in tree.leaves:
        value = document.get(name)
        if type(value) is datetime:
            document[name] = EPOCH + (value - NAIVE_EPOCH)
        elif type(value) is str:
            found_text = True
        elif type(value) is list:
            found_text |= mark_list(value)
    for name, below in tree.branches:
        value = document.get(name)
        for part in value if type(value) is list else (value,):
            if type(part) is dict:
                found_text |= mark_utc(part, below)
            elif type(part) is list:
                # As a field of an object, which is what a tree leads to.
                found_text |= mark_utc({name: part}, PathTree((), ((name, below),)))
    return found_text


def mark_list(values: list[Any]) -> bool:
    """Mark the naive instants of a list, and of those in it, in the same way."""
    found_text = False
    for index, value in enumerate(values):
        if type(value) is datetime:
            values[index] = EPOCH + (value - NAIVE_EPOCH)
        elif type(value) is list:
            found_text |= mark_list(value)
        else:
            found_text |= type(value) is str
    return found_text


LENIENT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="backslashreplace"
)
# The readable form skips larger values, so that the names and the small values fit.
LARGEST_READABLE: Final = 4096


class BsonOriginal(Original):
    """A document as the server gave it."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    @override
    def pieces(self) -> Iterator[str]:
        """Yield ``{"bson": base64, "document": extended JSON}``."""
        yield '{"bson":"'
        yield from base64_pieces(self._raw)
        yield '","document":{'
        yield ",".join(members(self._raw))
        yield "}}"


def members(raw: bytes) -> Iterator[str]:
    """Yield the elements of a document as members of a JSON object while there is room for them."""
    room = LONGEST_READABLE
    for _, name, start, end in elements(raw):
        member = readable_member(raw, name, start, end)
        if len(member) > room:
            yield '"$omitted":true'
            return
        # The comma counts too.
        room -= len(member) + 1
        yield member


def readable_member(raw: bytes, name: bytes, start: int, end: int) -> str:
    """Return one element as a member of a JSON object; skip long values and those without such a form."""
    first = start - len(name) - 2
    if end - first <= LARGEST_READABLE:
        inner = raw[first:end]
        document = (len(inner) + 5).to_bytes(4, "little") + inner + b"\x00"
        try:
            return dumps(decode(document, LENIENT), json_options=CANONICAL_JSON_OPTIONS)[1:-1]
        # Even extended JSON does not know everything that a server stores.
        except (InvalidBSON, TypeError, ValueError, OverflowError, RecursionError):
            pass
    readable_name = json.dumps(name[:LARGEST_READABLE].decode(errors="backslashreplace"))
    return f'{readable_name}:{{"$omitted":{end - start}}}'


# Reading ranges of rows packed: native code takes what it understands, the exporter all else.


# As many bytes as one merge of a target takes. Few large batches cost the server less than many small ones.
PACKED_BATCH_BYTES: Final = 4_000_000
# Some batches are larger than the average of all documents says.
PACKED_PART_BYTES: Final = 4_500_000
PLACE_WORDS: Final = 3
PLACE_BYTES: Final = 4 * PLACE_WORDS
# Of the documents of a part: if more are declined, all are decoded together, which is faster for each.
MOST_DECLINED: Final = 0.5
NOTHING: Final = encode({})
RulesByRow: TypeAlias = Mapping[int, Sequence[int]]


def packed_size(batch_size: int) -> ReadSize:
    """Return how much is read at a time."""
    return ReadSize(batch_size, PACKED_BATCH_BYTES, PACKED_PART_BYTES)


@dataclass(frozen=True, slots=True)
class PackedExporter:
    """Turns the documents of one entity into packed rows, and those that are declined into records.

    A change makes of each document the one that native code reads in its place.
    """

    exporter: Exporter
    documents: NativeDocuments

    def batches(self, parts: Iterator[bytes]) -> Iterator[Sequence[Record]]:
        """Return the rows of parts of raw batches; a generator would remember some too long."""
        return chain.from_iterable(map(self._packed, parts))

    def _packed(self, part: bytes) -> Iterator[Sequence[Record]]:
        read, rules = self._read(part)
        if read is None or is_mostly_declined(read):
            return self.exporter.decoded(parts_of(part))
        if sum(size for _, size, _ in read.declined) <= PART_BYTES:
            # As an iterator, which forgets the batch before the next part is read.
            return iter([self._batch(read, rules, part)])
        # As objects, documents take several times their bytes.
        return map(self._small, parts_of(part))

    def _small(self, part: bytes) -> Sequence[Record]:
        """Return the rows of a part of which every document may become an object, or of a large document."""
        read, rules = self._read(part)
        if read is None or is_mostly_declined(read):
            return self.exporter.records(part)
        return self._batch(read, rules, part)

    def _read(self, part: bytes) -> tuple[ReadDocuments | None, RulesByRow]:
        """Return what becomes of documents, with their places as they are stored, and the rules of rows."""
        change = self.exporter.change
        if change is None:
            return self.documents.read(part), {}
        changed = [changed_document(raw, change) for raw in documents_of(part)]
        read = self.documents.read(b"".join(raw for raw, _ in changed))
        return (None, {}) if read is None else self._stored(read, part, changed)

    @staticmethod
    def _stored(
        read: ReadDocuments, part: bytes, changed: Sequence[tuple[bytes, Sequence[int]]]
    ) -> tuple[ReadDocuments, RulesByRow]:
        """Return places among the changed documents as those among the stored ones, and the rules of rows."""
        origins, rules = dict[int, tuple[int, int, Sequence[int]]](), dict[int, Sequence[int]]()
        at = begin = 0
        for original, (raw, numbers) in zip(documents_of(part), changed, strict=True):
            origins[at] = (begin, len(original), numbers)
            at, begin = at + len(raw), begin + len(original)
        places = array("I", read.places)
        for row in range(len(places) // PLACE_WORDS):
            place = PLACE_WORDS * row + 1
            places[place], places[place + 1], numbers = origins[places[place]]
            if numbers:
                rules[row] = numbers
        declined = tuple((*origins[at][:2], before) for at, _, before in read.declined)
        return ReadDocuments(read.rows, places.tobytes(), declined), rules

    def _batch(self, read: ReadDocuments, rules: RulesByRow, part: bytes) -> PackedBatch:
        exact = [
            (number + before, self._record(part[at : at + size]))
            for number, (at, size, before) in enumerate(read.declined)
        ]
        stored = Stored(part, read.places, self._record, rules)
        return PackedBatch(self.documents.program, read.rows, stored, exact)

    def _record(self, raw: bytes) -> Record:
        """Return the record of a document, the exact way."""
        return self.exporter.careful_record(raw)


def is_mostly_declined(read: ReadDocuments) -> bool:
    """Whether it is faster to decode all documents together."""
    declined = len(read.declined)
    return declined > MOST_DECLINED * (declined + len(read.places) // PLACE_BYTES)


def changed_document(raw: bytes, change: DocumentChange) -> tuple[bytes, Sequence[int]]:
    """Return a document after a change, and the rules that changed it.

    It is empty, which native code declines, where only the exact way says what becomes of it.
    """
    try:
        document = decode(raw, NAIVE)
        if encode(document) != raw:
            return NOTHING, ()
        changed = change(document, MONGO_VALUES)
        return (encode(changed.document), changed.rules) if changed.rules else (raw, ())
    except (InvalidBSON, InvalidDocument, ChangeRefusedError, OverflowError, UnicodeEncodeError):
        return NOTHING, ()


# Places in documents, as trees that are laid out once and walked for every document.


@dataclass(frozen=True, slots=True)
class PathTree:
    """Some paths: the fields that are meant here, and objects or lists of objects with more of them below."""

    leaves: tuple[str, ...]
    branches: tuple[tuple[str, PathTree], ...]

    @classmethod
    def of(cls, paths: Iterable[tuple[str, ...]]) -> PathTree:
        """Return the tree of some paths."""
        below: dict[str, list[tuple[str, ...]]] = {}
        leaves: list[str] = []
        for head, *rest in paths:
            if rest:
                below.setdefault(head, []).append(tuple(rest))
            else:
                leaves.append(head)
        return cls(tuple(leaves), tuple((name, cls.of(rest)) for name, rest in below.items()))

    def __bool__(self) -> bool:
        return bool(self.leaves or self.branches)

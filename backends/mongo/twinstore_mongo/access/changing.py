"""Reading some rows, letting a rule decide, and writing what it returns."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from bson.int64 import Int64
from pymongo import DESCENDING, ReturnDocument
from pymongo.errors import BulkWriteError, DuplicateKeyError

from twinstore.access.errors import duplicate, lost_race
from twinstore.access.protocol import UniqueKey
from twinstore.access.query import assigned_marker
from twinstore.catalog.row import Row
from twinstore.errors import ConcurrencyError, DuplicateError
from twinstore.models.canonical import CanonicalModel
from twinstore_mongo.access.execution import translating
from twinstore_mongo.access.queries import filter_of, owned_by, place_of
from twinstore_mongo.access.reading import check_parent, one, several
from twinstore_mongo.client.errors import DRIVER, ID_INDEX, first_write_error, violated_index
from twinstore_mongo.mapping.codec import codec_of, next_version
from twinstore_mongo.mapping.layout import ID, VERSION, field_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection

    from twinstore.access.protocol import Ref, Rows, Rule
    from twinstore.catalog.entity import Entity, Module
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore.errors import TwinstoreError
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.access.reading import KnownRows
    from twinstore_mongo.client.connection import Connection
    from twinstore_mongo.client.types import Document
    from twinstore_mongo.mapping.codec import Codec

M = TypeVar("M", bound=CanonicalModel)


class RuleEndedError(Exception):
    """Carries the error with which a rule ended its step past everything that repeats steps."""

    def __init__(self, error: ConcurrencyError) -> None:
        super().__init__(str(error))
        self.error = error


def insert_row(
    context: RepositoryContext, entity: Entity[M], scope: Tenants, row: Row[M], known_rows: KnownRows = ()
) -> None:
    """Insert a row below its parent.

    Raises:
        NotFoundError: the parent is absent or foreign.
        DuplicateError: the key or a unique value is taken.
    """
    check_parent(context, entity, scope, row, known_rows)
    insert(context, entity, row)


def apply(context: RepositoryContext, refs: Sequence[Ref], rule: Rule) -> Rows:
    """Take one step over some rows; see :meth:`twinstore.access.protocol.Access.change`.

    Raises:
        ConcurrencyError: another writer was faster.
    """
    found = documents_of(context, refs)
    before: Rows = tuple(
        ref.read(codec_of(ref.entity).decode, document) for ref, document in zip(refs, found, strict=True)
    )
    try:
        after = rule(before, lambda: server_time(context))
    except ConcurrencyError as error:
        # The answer of the rule, not a lost race: repeating the step would only ask it again.
        raise RuleEndedError(error) from error
    entities = [ref.entity for ref in refs]
    # A parent that this step reads or writes is known to exist, which saves the round trip that asks.
    known_rows: KnownRows = ()
    if any(entity.parent is not None for entity in entities):
        there = [*zip(entities, before, strict=True), *zip(entities, after, strict=True)]
        known_rows = tuple((entity, row) for entity, row in there if row is not None)
    # Parents first: without transactions readers must not see a row whose parent does not exist yet.
    for ref, document, old, new in sorted(zip(refs, found, before, after, strict=True), key=depth_of):
        if new is not None:
            write(context, ref, document, old, new, known_rows)
    return tuple(old if new is None else new for old, new in zip(before, after, strict=True))


def documents_of(context: RepositoryContext, refs: Sequence[Ref]) -> list[Document | None]:
    """Return the document of each ref; those of one entity come in one round trip."""
    if len(refs) == 1:
        return [one(context, refs[0].entity, refs[0].scope, refs[0].key)]
    alike: dict[tuple[Entity, Tenants, str], list[int]] = {}
    for place, ref in enumerate(refs):
        kind = ref.key.index.name if isinstance(ref.key, UniqueKey) else ""
        alike.setdefault((ref.entity, ref.scope, kind), []).append(place)
    found: list[Document | None] = [None] * len(refs)
    for (entity, scope, _), places in alike.items():
        documents = several(context, entity, scope, [refs[place].key for place in places])
        for place, document in zip(places, documents, strict=True):
            found[place] = document
    return found


def depth_of(item: tuple[Ref, *tuple[object, ...]]) -> int:
    """Return how many ancestors the row of a write has."""
    return item[0].entity.depth


def write(  # noqa: PLR0917  # what was found, what it means, and what is to be there
    context: RepositoryContext,
    ref: Ref[Any],
    document: Document | None,
    old: Row[Any] | None,
    new: Row[Any],
    known_rows: KnownRows,
) -> None:
    """Insert a row, or replace the one that was found.

    An equal one is written only where its version counts: elsewhere the server would neither store it nor
    notice it.
    """
    entity = ref.entity
    if document is None:
        insert_absent(context, ref, new, known_rows)
    elif old is None and codec_of(entity).moves(document, new):
        # One that could not be read and was found by a unique value; nothing can change its ``_id``.
        delete_found(context, entity, document)
        insert_absent(context, ref, new, known_rows)
    elif entity.versioned or new != old:
        replace_found(context, entity, ref.scope, document, new)


def insert_absent(context: RepositoryContext, ref: Ref[M], row: Row[M], known_rows: KnownRows) -> None:
    """Insert a row that was not there when it was looked for."""
    try:
        insert_row(context, ref.entity, ref.scope, row, known_rows)
    except DuplicateError as error:
        raise competing_insert_error(context, ref.entity, ref.scope, ref.key, error) from error.__cause__


def server_time(context: RepositoryContext) -> datetime:
    """Return the time of the server clock."""
    with translating(context.store.where.reading):
        return context.store.now()


# Single writes, where the name of the unique index that refuses one shows the reason.


def insert(context: RepositoryContext, entity: Entity[M], row: Row[M]) -> None:
    """Insert a row.

    Raises:
        DuplicateError: its key or a unique value is taken.
    """
    codec = codec_of(entity)
    document = codec.encode(row)
    key = entity.key_of(row.model, row.storage)
    with context.writing(entity, key):
        collection = context.collection(entity)
        try:
            collection.insert_one(document, session=context.session)
        except DuplicateKeyError as error:
            raise duplicate_of(codec, row, violated_index(error)) from error


def insert_several(context: RepositoryContext, entity: Entity[M], rows: Sequence[Row[M]]) -> None:
    """Insert rows in one round trip, in their order and up to the first that is refused.

    Raises:
        DuplicateError: a key or a unique value is taken; names that of the row.
    """
    if len(rows) == 1:  # its key is known to every error
        insert(context, entity, rows[0])
        return
    codec = codec_of(entity)
    with context.writing(entity):
        collection = context.collection(entity)
        try:
            collection.insert_many(map(codec.encode, rows), session=context.session)
        except BulkWriteError as error:
            refused = error.details["writeErrors"]
            cause = first_write_error(refused[0]) if refused else None
            if not isinstance(cause, DuplicateKeyError):
                raise
            raise duplicate_of(codec, rows[refused[0]["index"]], violated_index(cause)) from error


def replace_found(
    context: RepositoryContext, entity: Entity[M], scope: Tenants, found: Document, row: Row[M]
) -> None:
    """Replace a document that was read.

    Raises:
        ConcurrencyError: it is there no longer, or, of a versioned entity, as it was.
        DuplicateError: a unique value is taken.
    """
    codec = codec_of(entity)
    key = entity.key_of(row.model, row.storage)
    version = found.get(VERSION)
    document = {**codec.encode(row, next_version(version)), ID: found[ID]}
    condition = {ID: found[ID], **owned_by(codec, scope)}
    if entity.versioned:
        condition[VERSION] = version
    elif not context.in_transaction:
        # Without a version or a transaction, only the content shows whether another writer was faster.
        condition |= unchanged(codec, found, condition)
    with context.writing(entity, key):
        collection = context.collection(entity)
        try:
            change = wholly(document) if entity.unpathed else document
            swapped = write_one(collection, condition, change, session=context.session)
        except DuplicateKeyError as error:
            raise duplicate_of(codec, row, violated_index(error)) from error
    if not swapped:
        raise lost_race(entity, entity.key_text(key), DRIVER)


def unchanged(codec: Codec[Any], found: Document, known: Document) -> Document:
    """Return the filter of a document whose fields are as they were found, except for those in a filter."""
    # What is in _id never changes.
    names = [name for name in codec.names.values() if name not in known and field_of(name) != ID]
    unpathed = codec.entity.unpathed
    equal: Document = {name: {"$eq": found.get(name)} for name in names if name not in unpathed}
    others = [name for name in names if name in unpathed]
    count: list[Document] = []
    if codec.entity.extra is not None:
        others = [name for name in found if name not in equal and name not in known and name != ID]
        # No other property has been added.
        count.append({"$eq": [{"$size": {"$objectToArray": "$$ROOT"}}, len(found)]})
    if unpathed:
        fields = ((name, {"$getField": {"$literal": name}}) for name in others)
        same = [{"$eq": [{"$ifNull": [at, None]}, {"$literal": found.get(name)}]} for name, at in fields]
        equal["$expr"] = {"$and": [*same, *count]}
    return equal


def wholly(document: Document) -> list[Document]:
    """Return the update that puts a document in place of another one, whatever its fields are called."""
    # The server refuses a replacement with a name that begins with a dollar sign.
    return [{"$replaceWith": {"$literal": document}}]


def write_one(
    collection: Collection[Document],
    condition: Document,
    change: Document | Sequence[Document],
    *,
    upsert: bool = False,
    session: ClientSession | None,
) -> bool:
    """Replace the first document that satisfies a condition by another one, or update it by some stages.

    Returns:
        whether there was one.
    """
    if isinstance(change, dict):
        done = collection.replace_one(condition, change, upsert=upsert, session=session)
    else:
        done = collection.update_one(condition, change, upsert=upsert, session=session)
    return bool(done.matched_count)


def delete_found(context: RepositoryContext, entity: Entity, found: Document) -> None:
    """Remove a document that was read.

    Raises:
        ConcurrencyError: it is there no longer.
    """
    with context.writing(entity):
        collection = context.collection(entity)
        if not collection.delete_one({ID: found[ID]}, session=context.session).deleted_count:
            raise lost_race(entity, str(found[ID]), DRIVER)


def overwrite(context: RepositoryContext, entity: Entity[M], scope: Tenants, row: Row[M]) -> None:
    """Insert or replace a row in one round trip; an equal document changes nothing on the server.

    Raises:
        DuplicateError: its key is foreign, or a unique value is taken.
        ConcurrencyError: another first write came in between.
    """
    codec = codec_of(entity)
    key = entity.key_of(row.model, row.storage)
    condition = place_of(codec, scope, key)
    document = codec.encode(row)
    with context.writing(entity, key):
        collection = context.collection(entity)
        try:
            # A plain replacement would set the version back, and change the _id that another service gave.
            if entity.versioned or entity.document_id is None or entity.key_as_id or entity.unpathed:
                change: Document | list[Document] = replacement(document, versioned=entity.versioned)
            else:
                change = document
            write_one(collection, condition, change, upsert=True, session=context.session)
        except DuplicateKeyError as error:
            index = codec.uniques.get(violated_index(error) or "")
            refusal = duplicate_of(codec, row, violated_index(error))
            if index is None or is_own_value(context, row, entity, scope, index):
                raise competing_insert_error(context, entity, scope, key, refusal) from error
            raise refusal from error


def is_own_value(
    context: RepositoryContext, row: Row[M], entity: Entity[M], scope: Tenants, index: Index
) -> bool:
    """Whether the row that has a unique value of this one is the row of its key.

    Then another writer has just inserted it, and the server checked the index of the value before that of the
    key.
    """
    values = tuple(entity.value(row.model, row.storage, name) for name in index.names)
    parts = tuple(value for value in values if isinstance(value, (str, int)))
    if context.in_transaction or len(parts) < len(values):
        return False
    found = one(context, entity, scope, UniqueKey(index, parts))
    own = filter_of(codec_of(entity), entity.key_of(row.model, row.storage))
    return found is not None and own.items() <= found.items()


def replacement(document: Document, *, versioned: bool) -> list[Document]:
    """Return the update that puts a document in place of a stored one, keeps its ``_id`` and counts versions.

    An equal document stays as it is, so that nothing is written and its version does not grow.
    """
    fields = {name: value for name, value in document.items() if name not in {ID, VERSION}}
    parts: list[Document] = [{ID: {"$ifNull": [f"${ID}", {"$literal": document[ID]}]}}, {"$literal": fields}]
    if not versioned:
        return [{"$replaceWith": {"$mergeObjects": parts}}]
    parts.append({VERSION: {"$ifNull": [f"${VERSION}", Int64(0)]}})
    grown = {VERSION: {"$add": [f"$$new.{VERSION}", Int64(1)]}}
    selected = {"$cond": [{"$eq": ["$$new", "$$ROOT"]}, "$$ROOT", {"$mergeObjects": ["$$new", grown]}]}
    return [{"$replaceWith": {"$let": {"vars": {"new": {"$mergeObjects": parts}}, "in": selected}}}]


def competing_insert_error(
    context: RepositoryContext,
    entity: Entity[M],
    scope: Tenants,
    key: Key | UniqueKey,
    refusal: DuplicateError,
) -> TwinstoreError:
    """Distinguish a row that another writer inserted meanwhile from a foreign one.

    In a transaction the server itself reports the former as a conflict.
    """
    if context.in_transaction or one(context, entity, scope, key) is None:
        return refusal
    return lost_race(entity, refusal.key or "", DRIVER)


def duplicate_of(codec: Codec[M], row: Row[M], index: str | None) -> DuplicateError:
    """Return the error of a row that a unique index refuses."""
    entity, unique = codec.entity, codec.uniques.get(index or ID_INDEX)
    value = None if unique is None else entity.value(row.model, row.storage, unique.names[-1])
    return duplicate(entity, entity.key_of(row.model, row.storage), DRIVER, unique, value)


# The insertion numbers of rows: one document for each collection, in a separate collection.
#
# A number is taken outside of any transaction: two writers that number rows would lose against each other
# otherwise, and a number that is given back could come twice.


COUNTERS: Final = "_counters"
VALUE: Final = "value"


def next_number(context: RepositoryContext, entity: Entity) -> int:
    """Return the next insertion number of an entity; see :class:`twinstore.access.protocol.Access`."""
    with context.writing(entity):
        number = increment_counter(context, entity)
        if number == 1 and (stored := last_number(context, entity)):
            # The counter begins, and rows are there: they came by another way than this library.
            raise_counter(context, entity, stored)
            number = increment_counter(context, entity)
        return number


def raise_above(context: RepositoryContext, entity: Entity, number: int) -> None:
    """Let new rows be numbered above a number, before rows with it are written; 0 is below all."""
    if number:
        with context.writing(entity):
            raise_counter(context, entity, number)


def increment_counter(context: RepositoryContext, entity: Entity) -> int:
    """Count one row more."""
    found = counters(context).find_one_and_update(
        {ID: context.connection.collection_name(entity)},
        [{"$set": {VALUE: {"$add": [{"$ifNull": [f"${VALUE}", Int64(0)]}, Int64(1)]}}}],
        upsert=True,
        return_document=ReturnDocument.AFTER,
    )
    if found is None:
        raise LookupError("a counter is made where there was none, so there is always one")
    return int(found[VALUE])


def raise_counter(context: RepositoryContext, entity: Entity, number: int) -> None:
    """Raise the counter to a number, unless it is as high; it never goes back."""
    place = {ID: context.connection.collection_name(entity)}
    higher = {"$max": [f"${VALUE}", Int64(number)]}
    counters(context).update_one(place, [{"$set": {VALUE: higher}}], upsert=True)


def last_number(context: RepositoryContext, entity: Entity) -> int:
    """Return the highest number that a row has, 0 for none."""
    return highest_in(context.collection(entity), entity)


def highest_in(collection: Collection[Document], entity: Entity) -> int:
    """Return the highest number in a collection, 0 for none."""
    name = codec_of(entity).names[assigned_marker(entity)]
    found = collection.find_one({}, {name: 1}, sort=[(name, DESCENDING)])
    value = None if found is None else found.get(name)
    return value if isinstance(value, int) else 0


def numbering_differences(connection: Connection, catalog: Module) -> Iterator[str]:
    """Yield a sentence for each counter that does not go on above the rows that are numbered.

    A counter that is missing does: the first number taken from it begins above them.
    """
    for entity in catalog.entities:
        if entity.assigned is not None:
            name = connection.collection_name(entity)
            counter = connection.store.collection(COUNTERS).find_one({ID: name})
            if counter is not None:
                highest = highest_in(connection.store.collection(name), entity)
                yield from lagging(name, counter.get(VALUE), highest)


def lagging(name: str, value: object, highest: int) -> Iterator[str]:
    """Yield a sentence where a counter is no whole number, or a row has the number that comes next."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= highest:
        return
    stands = f"stands at {value}" if isinstance(value, int | float) else "holds no number"
    yield (
        f"The counter of {name} in {COUNTERS} {stands}, but documents are numbered up to {highest}, so new "
        f"ones are refused. To fix: db.{COUNTERS}.updateOne({{_id: {json.dumps(name)}}}, "
        f"{{$set: {{{VALUE}: NumberLong({highest})}}}})"
    )


def counters(context: RepositoryContext) -> Collection[Document]:
    """Return the collection of the counters."""
    return context.store.collection(COUNTERS)

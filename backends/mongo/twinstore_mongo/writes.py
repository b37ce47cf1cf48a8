"""Single writes whose refusal by a unique index is told apart by the name of the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from bson.int64 import Int64
from pymongo.errors import BulkWriteError, DuplicateKeyError

from twinstore.access import UniqueKey
from twinstore.canonical import CanonicalModel
from twinstore.failures import duplicate, lost_race
from twinstore_mongo.codec import codec_of, next_version
from twinstore_mongo.compile import filter_of, owned_by, place_of
from twinstore_mongo.derive import ID, VERSION
from twinstore_mongo.errors import DRIVER, ID_INDEX, first_write_error, violated_index
from twinstore_mongo.reading import one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection

    from twinstore.access import Row
    from twinstore.catalog import Entity, Index, Key
    from twinstore.errors import DuplicateError, TwinstoreError
    from twinstore.tenancy import Tenants
    from twinstore_mongo.codec import Codec
    from twinstore_mongo.connection import Document
    from twinstore_mongo.context import RepositoryContext

__all__ = ["insert", "insert_several", "overwrite", "rival", "swap", "take_away", "write_one"]

M = TypeVar("M", bound=CanonicalModel)


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


def swap(context: RepositoryContext, entity: Entity[M], scope: Tenants, found: Document, row: Row[M]) -> None:
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
        # Without a version or a transaction, only the content tells whether somebody else was faster.
        names = (name for name in codec.names.values() if name not in condition)
        condition |= {name: {"$eq": found.get(name)} for name in names}
    with context.writing(entity, key):
        collection = context.collection(entity)
        try:
            swapped = write_one(collection, condition, document, session=context.session)
        except DuplicateKeyError as error:
            raise duplicate_of(codec, row, violated_index(error)) from error
    if not swapped:
        raise lost_race(entity, entity.key_text(key), DRIVER)


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


def take_away(context: RepositoryContext, entity: Entity, found: Document) -> None:
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
            if entity.versioned or entity.document_id is None:
                change: Document | list[Document] = replacement(document, versioned=entity.versioned)
            else:
                change = document
            write_one(collection, condition, change, upsert=True, session=context.session)
        except DuplicateKeyError as error:
            index = codec.uniques.get(violated_index(error) or "")
            refusal = duplicate_of(codec, row, violated_index(error))
            if index is None or is_own_value(context, row, entity, scope, index):
                raise rival(context, entity, scope, key, refusal) from error
            raise refusal from error


def is_own_value(
    context: RepositoryContext, row: Row[M], entity: Entity[M], scope: Tenants, index: Index
) -> bool:
    """Whether the row that has a unique value of this one is the row of its key.

    Then a rival inserted it a moment ago, and the server met the index of the value before that of the key.
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
    chosen = {"$cond": [{"$eq": ["$$new", "$$ROOT"]}, "$$ROOT", {"$mergeObjects": ["$$new", grown]}]}
    return [{"$replaceWith": {"$let": {"vars": {"new": {"$mergeObjects": parts}}, "in": chosen}}}]


def rival(
    context: RepositoryContext,
    entity: Entity[M],
    scope: Tenants,
    key: Key | UniqueKey,
    refusal: DuplicateError,
) -> TwinstoreError:
    """Tell a row that somebody else inserted meanwhile from one that is foreign.

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

"""Leasing policy jobs: one in one round trip, a batch in three.

A batch is leased in three round trips: choose, update, read back. Processes that choose the same jobs are
distinguished by the version that an update gives to its jobs: it is drawn at random.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from secrets import randbits
from typing import TYPE_CHECKING, Final

from bson.int64 import Int64
from pymongo import ReturnDocument
from pymongo.errors import OperationFailure

from twinstore.access.protocol import Add
from twinstore.errors import DocumentDecodeError
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore_mongo.access.queries import compiled, merged
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.layout import ID, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.access.protocol import FieldUpdates
    from twinstore.access.query import Query
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore_mongo.access.access import MongoAccess
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.client.types import Document

log = logging.getLogger("twinstore.mongo")

DOCUMENT_VALIDATION_FAILURE: Final = 121
CODEC: Final = codec_of(POLICY_JOBS)


def new_version() -> int:
    """Return a version that no other batch has; there is room for all changes that may follow."""
    return (1 << 61) | randbits(61)


def claim(access: MongoAccess, query: Query, sets: FieldUpdates) -> tuple[PolicyRunJob, ...]:
    """Lease the first jobs of a list."""
    context = access.context
    lease = lease_first if query.limit == 1 else lease_several
    refused: set[object] = set()
    while True:
        condition = compiled(CODEC, query)
        if refused:
            condition = merged((condition, {ID: {"$nin": list(refused)}}))
        found = lease(context, query, condition, sets, refused)
        leased = tuple(decoded(found or ()))
        # If none could be read, the next ones may be readable; if others were faster, a retry may succeed.
        if leased or found is None:
            return leased


def lease_first(
    context: RepositoryContext, query: Query, condition: Document, sets: FieldUpdates, refused: set[object]
) -> list[Document] | None:
    """Lease the first job in one round trip; ``None`` where there is none."""
    change = {"$set": {**set_by(sets)}, "$inc": {**added_by(sets), VERSION: Int64(1)}}
    order = CODEC.readings.of(query).order
    with context.writing(POLICY_JOBS):
        try:
            document = context.collection(POLICY_JOBS).find_one_and_update(
                condition,
                change,
                sort=order,
                return_document=ReturnDocument.AFTER,
                session=context.session,
            )
        except OperationFailure as error:
            refused.add(broken(context, error))
            return []
    return None if document is None else [converted(document)]


def lease_several(
    context: RepositoryContext, query: Query, condition: Document, sets: FieldUpdates, refused: set[object]
) -> list[Document] | None:
    """Lease the first jobs; none of them if other processes were faster, ``None`` if nothing is due."""
    order = CODEC.readings.of(query).order
    with context.independent_steps() as steps, context.following() as causal, causal.writing(POLICY_JOBS):
        collection = context.collection(POLICY_JOBS)
        first = collection.find(condition, {ID: 1}, session=causal.session).sort(order).limit(query.limit)
        selected = [converted(row)[ID] for row in first]
        if not selected:
            return None
        version = Int64(new_version())
        change = {"$set": {**set_by(sets), VERSION: version}, "$inc": added_by(sets)}
        own = merged(({ID: {"$in": selected}}, condition))
        try:
            updated = collection.update_many(own, change, session=causal.session).modified_count
        except OperationFailure as error:
            # Those before it have been leased.
            refused.add(broken(causal, error))
            updated = 1
        if not updated:
            return []
        steps.done()
        mine = {ID: {"$in": selected}, VERSION: version}
        leased = {row[ID]: row for row in map(converted, collection.find(mine, session=causal.session))}
    return [leased[key] for key in selected if key in leased]


def set_by(sets: FieldUpdates) -> Document:
    """Return the values that a lease sets, by stored name."""
    return {CODEC.names[name]: value for name, value in sets.items() if not isinstance(value, Add)}


def added_by(sets: FieldUpdates) -> Document:
    """Return the numbers that a lease adds, by stored name."""
    return {CODEC.names[name]: value.number for name, value in sets.items() if isinstance(value, Add)}


def broken(context: RepositoryContext, error: OperationFailure) -> object:
    """Return the ``_id`` of a document that the validator does not let change, or raise the error.

    It stays where it is, in front of all others, so it must be named to be skipped.
    """
    key = ((error.details or {}).get("errInfo") or {}).get("failingDocumentId")
    if error.code != DOCUMENT_VALIDATION_FAILURE or key is None or context.in_transaction:
        raise error
    log_skipped(f"The validator of the collection refuses policy job {key!r}; repair or quarantine it.")
    return key


@lru_cache(maxsize=1000)
def log_skipped(problem: str) -> None:
    """Log a job that is passed over, once; the same one is met by every lease until it is repaired."""
    log.error("A policy job was passed over: %s", problem)


def decoded(documents: Iterable[Document]) -> Iterator[PolicyRunJob]:
    """Yield the jobs of some documents; one that cannot be read is logged and left as it is."""
    for document in documents:
        try:
            yield CODEC.decode(document).model
        except DocumentDecodeError as error:
            log_skipped(error.message)

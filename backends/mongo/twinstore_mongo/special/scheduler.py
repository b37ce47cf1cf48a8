"""The hot operations of the scheduler: leasing policy jobs, and replacing those of a lease holder.

A batch is leased in three round trips: choose, update, read back. Rivals that choose the same jobs share no
name: the version that an update gives to its jobs is drawn at random, so it tells whose they are.
"""

from __future__ import annotations

import logging
from secrets import randbits
from typing import TYPE_CHECKING, Any, Final

from bson.int64 import Int64
from pymongo import ReplaceOne

from twinstore.access import Add, Row
from twinstore.errors import DocumentDecodeError
from twinstore.failures import lost_race
from twinstore.retrying import repeat
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.repositories.policy_jobs import CLAIM, COMPLETE
from twinstore.scheduler.rules.policy_jobs import settle
from twinstore_mongo.codec import codec_of
from twinstore_mongo.compile import compiled, merged, owned_by
from twinstore_mongo.derive import ID, VERSION
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.marking import update
from twinstore_mongo.reading import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from twinstore.access import Sets
    from twinstore.query import Query
    from twinstore.scheduler.enums import PolicyRunJobStatus
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.tenancy import Tenants
    from twinstore_mongo.access import Special
    from twinstore_mongo.connection import Document
    from twinstore_mongo.context import RepositoryContext

__all__ = ["OPERATIONS"]

log = logging.getLogger("twinstore.mongo")

CODEC: Final = codec_of(POLICY_JOBS)
# Versions grow by one with each later change, so those of one batch lie this close together.
CHANGES_AFTER: Final = 2**20


def drawn_version() -> int:
    """Return a version that no other batch has; there is room for all changes that may follow."""
    return (1 << 61) | randbits(61)


def claim(context: RepositoryContext, query: Query, sets: Sets) -> tuple[PolicyRunJob, ...]:
    """Lease the first jobs of a list."""
    lease = lease_first if query.limit == 1 else lease_several
    while True:
        found = lease(context, query, sets)
        leased = tuple(decoded(found or ()))
        # Where none could be read, the next ones may; where rivals were faster, so may the next time.
        if leased or found is None:
            return leased


def lease_first(context: RepositoryContext, query: Query, sets: Sets) -> list[Document] | None:
    """Lease the first job in one round trip; ``None`` where there is none."""
    order = CODEC.readings.of(query).order
    document = update(context, CODEC, compiled(CODEC, query), sets, order)
    return None if document is None else [document]


def lease_several(context: RepositoryContext, query: Query, sets: Sets) -> list[Document] | None:
    """Lease the first jobs; none of them where rivals were faster, ``None`` where nothing is due."""
    chosen = [row[ID] for row in rows(context, POLICY_JOBS, query, query.limit, fields=(ID,))]
    if not chosen:
        return None
    version = Int64(drawn_version())
    values = {CODEC.names[name]: value for name, value in sets.items() if not isinstance(value, Add)}
    added = {CODEC.names[name]: value.number for name, value in sets.items() if isinstance(value, Add)}
    condition = merged(({ID: {"$in": chosen}}, compiled(CODEC, query)))
    with context.writing(POLICY_JOBS):
        collection = context.collection(POLICY_JOBS)
        changes = {"$set": {**values, VERSION: version}, "$inc": added}
        result = collection.update_many(condition, changes, session=context.session)
        if not result.modified_count:
            return []
        own = {ID: {"$in": chosen}, VERSION: version}
        leased = {row[ID]: row for row in collection.find(own, session=context.session)}
    return [leased[key] for key in chosen if key in leased]


def decoded(documents: Iterable[Document]) -> Iterator[PolicyRunJob]:
    """Yield the jobs of some documents; one that cannot be read is left to the end of its lease."""
    for document in documents:
        try:
            yield CODEC.decode(document).model
        except DocumentDecodeError as error:
            log.error("A policy job was leased and passed over: %s", error.message)  # noqa: TRY400  # says it all


def complete(  # noqa: PLR0917  # the arguments of the general way
    context: RepositoryContext,
    scope: Tenants,
    jobs: tuple[PolicyRunJob, ...],
    expected: PolicyRunJobStatus,
    lease_owner: str | None,
    now: datetime,
) -> tuple[bool, ...]:
    """Replace some jobs, each by itself; see ``PolicyJobRepository.complete_many``."""
    answers: dict[int, bool] = {}

    def once() -> None:
        """Settle the jobs that are open; those that rivals have changed meanwhile stay open."""
        places = [place for place in range(len(jobs)) if place not in answers]
        found = held(context, scope, {jobs[place].id for place in places})
        stored = {key: CODEC.decode(document).model for key, document in found.items()}
        settled = settle(stored, [jobs[place] for place in places], expected, lease_owner, now)
        lost = replace_all(context, scope, found, settled.changed)
        answered = zip(places, settled.answers, strict=False)
        answers.update((place, answer) for place, answer in answered if jobs[place].id not in lost)
        if lost:
            raise lost_race(POLICY_JOBS, min(lost), DRIVER)
        settled.outcome()

    if context.in_transaction:
        once()
    else:
        repeat(once)
    return tuple(answers[place] for place in range(len(jobs)))


def held(context: RepositoryContext, scope: Tenants, ids: set[str]) -> dict[str, Document]:
    """Return the documents of some jobs that a scope shows."""
    condition = merged(({ID: {"$in": sorted(ids)}}, owned_by(CODEC, scope)))
    with context.reading(POLICY_JOBS):
        found = context.collection(POLICY_JOBS).find(condition, session=context.session)
        return {document[ID]: document for document in found}


def replace_all(
    context: RepositoryContext,
    scope: Tenants,
    found: Mapping[str, Document],
    changed: Mapping[str, PolicyRunJob],
) -> set[str]:
    """Replace documents that are as they were found; return the ids of those that are not."""
    if not changed:
        context.check_writable()
        return set()
    version = drawn_version()
    owner = owned_by(CODEC, scope)
    writes: Sequence[ReplaceOne[Any]] = [
        ReplaceOne(
            merged(({ID: key, VERSION: found[key].get(VERSION)}, owner)),
            CODEC.encode(Row(job), Int64(version)),
        )
        for key, job in changed.items()
    ]
    with context.writing(POLICY_JOBS):
        collection = context.collection(POLICY_JOBS)
        result = collection.bulk_write(writes, ordered=False, session=context.session)
        if result.matched_count == len(writes):
            return set()
        # The server only counts. What is ours has the version of this batch, or one that followed it.
        own = {"$gte": Int64(version), "$lt": Int64(version + CHANGES_AFTER)}
        written = collection.find({ID: {"$in": [*changed]}, VERSION: own}, {ID: 1}, session=context.session)
        return set(changed) - {document[ID] for document in written}


OPERATIONS: Final[Mapping[str, Special]] = {CLAIM: claim, COMPLETE: complete}

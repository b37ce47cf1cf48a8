"""The hot operations of the scheduler: leasing policy jobs, and replacing those of a lease holder.

A batch is replaced in two round trips: read, write. Jobs that other processes change in between take more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bson.int64 import Int64
from pymongo import ReplaceOne

from twinstore.access.errors import lost_race
from twinstore.access.retry import retry
from twinstore.catalog.row import Row
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.repositories.policy_jobs import CLAIM, COMPLETE
from twinstore.scheduler.rules.policy_jobs import complete_batch
from twinstore_mongo.access.queries import merged, owned_by
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.layout import ID, VERSION
from twinstore_mongo.special.scheduler_leases import claim, decoded, new_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from twinstore.catalog.tenancy import Tenants
    from twinstore.scheduler.enums import PolicyRunJobStatus
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore_mongo.access.access import MongoAccess, Special
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.client.types import Document

CODEC: Final = codec_of(POLICY_JOBS)
# Versions grow by one with each later change, so those of one batch lie this close together.
CHANGES_AFTER: Final = 2**20


def complete(  # noqa: PLR0917  # the arguments of the general way
    access: MongoAccess,
    scope: Tenants,
    jobs: tuple[PolicyRunJob, ...],
    expected: PolicyRunJobStatus,
    lease_owner: str | None,
    now: datetime,
) -> tuple[bool, ...]:
    """Replace some jobs, each by itself; see ``PolicyJobRepository.complete_many``."""
    answers: dict[int, bool] = {}
    context = access.context

    def once() -> None:
        """Settle the open jobs; those that other processes have changed meanwhile stay open."""
        places = [place for place in range(len(jobs)) if place not in answers]
        found = visible_jobs(context, scope, {jobs[place].id for place in places})
        # One that cannot be read is as absent.
        stored = {job.id: job for job in decoded(found.values())}
        settled = complete_batch(stored, [jobs[place] for place in places], expected, lease_owner, now)
        lost = replace_all(context, scope, found, settled.changed)
        steps.done()
        answered = zip(places, settled.answers, strict=False)
        answers.update((place, answer) for place, answer in answered if jobs[place].id not in lost)
        if lost:
            raise lost_race(POLICY_JOBS, min(lost), DRIVER)
        settled.outcome()

    with context.independent_steps() as steps:
        if context.in_transaction:
            once()
        else:
            retry(once)
    return tuple(answers[place] for place in range(len(jobs)))


def visible_jobs(context: RepositoryContext, scope: Tenants, ids: set[str]) -> dict[str, Document]:
    """Return the documents of some jobs that a scope shows."""
    condition = merged(({ID: {"$in": sorted(ids)}}, owned_by(CODEC, scope)))
    with context.reading(POLICY_JOBS):
        found = context.collection(POLICY_JOBS).find(condition, session=context.session)
        return {document[ID]: document for document in map(converted, found)}


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
    version = new_version()
    owner = owned_by(CODEC, scope)
    writes: Sequence[ReplaceOne[Any]] = [
        ReplaceOne(
            merged(({ID: key, VERSION: found[key].get(VERSION)}, owner)),
            CODEC.encode(Row(job), Int64(version)),
        )
        for key, job in changed.items()
    ]
    with context.independent_steps() as steps, context.following() as causal, causal.writing(POLICY_JOBS):
        collection = context.collection(POLICY_JOBS)
        result = collection.bulk_write(writes, ordered=False, session=causal.session)
        steps.done()
        if result.matched_count == len(writes):
            return set()
        # The server only counts. What is ours has the version of this batch, or one that followed it.
        own = {"$gte": Int64(version), "$lt": Int64(version + CHANGES_AFTER)}
        written = collection.find({ID: {"$in": [*changed]}, VERSION: own}, {ID: 1}, session=causal.session)
        return set(changed) - {document[ID] for document in written}


OPERATIONS: Final[Mapping[str, Special]] = {CLAIM: claim, COMPLETE: complete}

"""The compare-and-set of graph jobs: one update instead of a read, the time of the server, and a write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bson.int64 import Int64

from twinstore.catalog.row import Row
from twinstore.scheduler.catalog import GRAPH_JOBS
from twinstore.scheduler.enums import GraphJobStatus
from twinstore.scheduler.repositories.graph_jobs import REPLACE
from twinstore_mongo.access.changing import write_one
from twinstore_mongo.access.queries import filter_of, merged, owned_by
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.layout import ID, VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog.tenancy import Tenant
    from twinstore.scheduler.graph_jobs import GraphJob
    from twinstore_mongo.access.access import MongoAccess, Special
    from twinstore_mongo.client.types import Document

CODEC: Final = codec_of(GRAPH_JOBS)
NAMES: Final = CODEC.names


def replace_job(access: MongoAccess, scope: Tenant, job: GraphJob, expected: GraphJobStatus) -> bool:
    """Move a job to its next status; false if the general path has to report why not."""
    if job.status is GraphJobStatus.RUNNING and job.started_at is None:
        return False
    context, key = access.context, (job.uuid,)
    document = CODEC.encode(Row(job, {"updatedAt": job.created_at}))
    condition = merged((filter_of(CODEC, key), owned_by(CODEC, scope), found_as(job, document, expected)))
    with context.writing(GRAPH_JOBS, key):
        collection, change = context.collection(GRAPH_JOBS), replaced_by(document)
        return write_one(collection, condition, change, session=context.session)


def found_as(job: GraphJob, document: Document, expected: GraphJobStatus) -> Document:
    """Return the condition of a stored job from which the rules allow this move."""
    return {
        NAMES["type"]: document[NAMES["type"]],
        NAMES["status"]: expected.value,
        NAMES["createdAt"]: job.created_at,
        # It may be set once; null is what others write for an absent value.
        NAMES["startedAt"]: {"$in": [None] if job.started_at is None else [None, job.started_at]},
    }


def replaced_by(document: Document) -> list[Document]:
    """Return the update that puts a document in place of a stored one, with the time of the server."""
    fields = {name: value for name, value in document.items() if name != ID}
    counted = {"$add": [{"$ifNull": [f"${VERSION}", Int64(0)]}, Int64(1)]}
    changed = {VERSION: counted, NAMES["updatedAt"]: "$$NOW"}
    return [{"$replaceWith": {"$mergeObjects": [{ID: f"${ID}"}, {"$literal": fields}, changed]}}]


OPERATIONS: Final[Mapping[str, Special]] = {REPLACE: replace_job}

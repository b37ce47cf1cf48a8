"""The lists of graph jobs and of their events as data, the same for every driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, build_query
from twinstore.access.scope import member_argument
from twinstore.catalog.conditions import Condition, Equals
from twinstore.scheduler.enums import GraphJobStatus, GraphJobType

if TYPE_CHECKING:
    from twinstore.catalog.tenancy import Tenants

NEWEST_GRAPH_JOBS: Final = (SortKey("createdAt", descending=True, time=True), SortKey("uuid"))
# Of one instant the last inserted comes first.
NEWEST_EVENTS: Final = (
    SortKey("ts", descending=True, time=True),
    SortKey("seq", descending=True, number=True),
)


def graph_jobs(
    scope: Tenants,
    job_type: GraphJobType | None,
    status: GraphJobStatus | None,
    limit: int,
    page_token: str | None,
) -> Query:
    """Return the query of the lists of ``GraphJobRepository``."""
    where: list[Condition] = []
    if job_type is not None:
        where.append(Equals("type", member_argument(job_type, GraphJobType, "job_type").number))
    if status is not None:
        where.append(Equals("status", member_argument(status, GraphJobStatus, "status").value))
    return build_query(
        "graph_jobs",
        scope=scope,
        where=where,
        order=NEWEST_GRAPH_JOBS,
        limit=limit,
        maximum=200,
        page_token=page_token,
    )


def graph_job(scope: Tenants, uuid: str, job_type: GraphJobType) -> Query:
    """Return the query of a job of one type."""
    where = (Equals("uuid", uuid), Equals("type", job_type.number))
    return build_query("graph_jobs", scope=scope, where=where, order=(SortKey("uuid"),), limit=1, maximum=1)


def graph_job_events(scope: Tenants, job_uuid: str, limit: int, page_token: str | None) -> Query:
    """Return the query of ``GraphJobRepository.list_events``."""
    return build_query(
        "graph_job_events",
        scope=scope,
        where=(Equals("jobUuid", job_uuid),),
        order=NEWEST_EVENTS,
        limit=limit,
        maximum=200,
        page_token=page_token,
    )

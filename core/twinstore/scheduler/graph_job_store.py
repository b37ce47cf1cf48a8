"""What hosts hold of graph jobs: each change of a job leaves an event, and lists answer as an API does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import TenantId
from twinstore.models.rules import FieldDerived
from twinstore.scheduler.enums import GraphJobStatus, GraphJobType
from twinstore.scheduler.graph_jobs import GraphJob, status_of, type_of

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphOverlayJob

__all__ = ["GraphJobResponse", "GraphJobStore"]


class GraphJobResponse(CanonicalModel):
    """What an API answers for a graph job of either type; ``payload`` is the whole job."""

    rules = (
        FieldDerived(
            "kind",
            source="payload",
            function=type_of,
            code="graph_job_kind",
            message="kind should be that of payload",
        ),
        FieldDerived(
            "status",
            source="payload",
            function=status_of,
            code="graph_job_status",
            message="status should be that of payload",
        ),
    )

    id: str
    tenant_id: TenantId
    kind: GraphJobType
    status: GraphJobStatus
    payload: GraphJob

    @classmethod
    def of(cls, job: GraphJob) -> GraphJobResponse:
        """Return the answer for a job."""
        return cls(id=job.id, tenant_id=job.tenant_id, kind=job.type, status=job.status, payload=job)


class GraphJobStore(Protocol):
    """What hosts hold of graph jobs: a repository in which each change of a job leaves an event.

    All methods raise what those of :class:`GraphJobRepository` raise.
    """

    def add(self, job: GraphBuildJob | GraphOverlayJob) -> GraphBuildJob | GraphOverlayJob:
        """Insert a job with an event that it was created; return it. Both or neither.

        Raises:
            DuplicateError: the digits of its id are taken, by a job of either type and of any tenant.
        """
        ...

    def update(self, job: GraphBuildJob | GraphOverlayJob, expected: GraphJobStatus) -> bool:
        """Replace a job as ``GraphJobRepository.try_replace`` does, with an event of it. Both or neither.

        Where it answers false, or an equal job is stored, there is no event.

        Raises:
            InvalidTransitionError: the state machine forbids the move from ``expected``, whatever is stored.
            ValidationError: as for ``try_replace``.
        """
        ...

    def get(self, tenant_id: str, job_id: str) -> GraphBuildJob | GraphOverlayJob | None:
        """Return a job of either type. Absent: ``None`` when unknown or foreign."""
        ...

    def list(
        self,
        tenant_id: str,
        *,
        job_type: GraphJobType | None = None,
        status: GraphJobStatus | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[GraphJobResponse]:
        """Return a page of jobs as an API answers them.

        Order and limit as those of :meth:`GraphJobRepository.list_jobs`.
        """
        ...

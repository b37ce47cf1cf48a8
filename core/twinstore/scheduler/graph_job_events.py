"""Events of graph jobs: what happened to a job, in the order in which it was written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from uuid import uuid4

from pydantic import Field, StringConstraints

from twinstore.canonical import CanonicalModel
from twinstore.fields import OptionalText, TenantId, TextMap, Timestamp, is_empty
from twinstore.modelrules import EqualOrAbsent, FieldDerived
from twinstore.scheduler.enums import GraphJobEventKind, GraphJobStatus, GraphJobType
from twinstore.scheduler.graph_jobs import GraphJob, status_of, type_of

if TYPE_CHECKING:
    from datetime import datetime


__all__ = ["GraphJobEvent", "GraphJobEventPayload"]

UUID_TEXT: Final = r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
EventId = Annotated[str, StringConstraints(strict=True, pattern=UUID_TEXT)]


class GraphJobEventPayload(CanonicalModel):
    """The job as it was then; status and type are repeated for readers that do not look into it."""

    rules = (
        FieldDerived(
            "job_type",
            source="job",
            function=type_of,
            code="graph_job_type",
            message="jobType should be that of job",
        ),
        FieldDerived(
            "status",
            source="job",
            function=status_of,
            code="graph_job_status",
            message="status should be that of job",
        ),
    )

    job_type: GraphJobType
    job: GraphJob
    status: GraphJobStatus
    occurred_at: Timestamp
    result_uri: OptionalText = None


class GraphJobEvent(CanonicalModel):
    """One event of a graph job.

    ``eventId`` is the text of a UUID in lower case; ``attributes`` is left out when it is empty.
    """

    rules = (
        EqualOrAbsent(
            "tenant",
            other="payload.job.tenant_id",
            code="graph_job_tenant",
            message="tenant should be that of the job",
        ),
    )

    event_id: EventId
    kind: GraphJobEventKind
    tenant: TenantId
    ts: Timestamp
    payload: GraphJobEventPayload
    attributes: TextMap = Field(default_factory=dict, exclude_if=is_empty)

    def at(self, now: datetime) -> GraphJobEvent:
        """Return the event at another instant."""
        return self.evolve(ts=now, payload=self.payload.evolve(occurred_at=now))

    @classmethod
    def of(cls, job: GraphJob, kind: GraphJobEventKind, now: datetime) -> GraphJobEvent:
        """Return a new event of a job at an instant."""
        payload = GraphJobEventPayload(job_type=job.type, job=job, status=job.status, occurred_at=now)
        return cls(event_id=str(uuid4()), kind=kind, tenant=job.tenant_id, ts=now, payload=payload)

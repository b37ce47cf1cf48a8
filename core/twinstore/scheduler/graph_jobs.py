"""Graph jobs: building a graph and laying overlays over it, and the contract of their repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Protocol
from uuid import uuid4

from pydantic import Field, StringConstraints

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
    Actor,
    Count,
    DigestText,
    Id,
    LowerKeyMap,
    OptionalText,
    SchemaVersion,
    StringSet,
    TenantId,
    TextMap,
    Timestamp,
    is_empty,
)
from twinstore.models.rules import EqualOrAbsent, FieldDerived, PresentExactlyIn, PresentIn
from twinstore.models.shapes import VariantModel
from twinstore.scheduler.enums import (
    TERMINAL_GRAPH_STATUSES,
    GraphBuildTrigger,
    GraphJobEventKind,
    GraphJobStatus,
    GraphJobType,
    GraphOverlayKind,
    GraphOverlayTrigger,
)

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = [
    "GraphBuildJob",
    "GraphJob",
    "GraphJobEvent",
    "GraphJobEventPayload",
    "GraphJobRepository",
    "GraphOverlayJob",
    "new_graph_build_job_id",
    "new_graph_overlay_job_id",
    "status_of",
    "type_of",
]


BUILD: Final = "gbj_"
OVERLAY: Final = "goj_"
BUILD_VERSION: Final = "scheduler.graph-build-job@1"
OVERLAY_VERSION: Final = "scheduler.graph-overlay-job@1"

BuildJobId = Annotated[str, StringConstraints(strict=True, pattern=r"^gbj_[0-9a-f]{32}$")]
OverlayJobId = Annotated[str, StringConstraints(strict=True, pattern=r"^goj_[0-9a-f]{32}$")]


def new_graph_build_job_id() -> str:
    """Return an id that no build job has."""
    return BUILD + uuid4().hex


def new_graph_overlay_job_id() -> str:
    """Return an id that no overlay job has."""
    return OVERLAY + uuid4().hex


RULES: Final = (
    PresentExactlyIn(
        "completed_at",
        by="status",
        members=tuple(sorted(TERMINAL_GRAPH_STATUSES)),
        code="graph_job_status",
        message="completedAt should be present exactly in the statuses completed, failed and canceled",
    ),
    PresentIn(
        "error",
        by="status",
        members=(GraphJobStatus.FAILED,),
        code="graph_job_status",
        message="error should be present in status failed",
    ),
)


class GraphJob(VariantModel, discriminator="id"):
    """A graph job of either type; read as the model that the beginning of its id asks for."""

    schema_version: str
    id: str
    tenant_id: TenantId

    if TYPE_CHECKING:
        # Of both models, each in the order of its wire form.
        status: GraphJobStatus
        attempts: Count
        correlation_id: OptionalText
        created_at: Timestamp
        started_at: Timestamp | None
        completed_at: Timestamp | None
        error: OptionalText
        metadata: LowerKeyMap

    @property
    def uuid(self) -> str:
        """The 32 hex digits of the id; no build and overlay job share them."""
        return self.id[len(BUILD) :]

    @property
    def type(self) -> GraphJobType:
        """The type, which follows from the id."""
        return GraphJobType.BUILD if self.id.startswith(BUILD) else GraphJobType.OVERLAY


class GraphBuildJob(GraphJob, discriminator_prefix=BUILD):
    """The building of the graph of one version of an SBOM.

    Its id is ``gbj_`` and 32 hex digits, which are its UUID in PostgreSQL.
    """

    rules = RULES

    schema_version: Annotated[str, SchemaVersion(BUILD_VERSION)] = BUILD_VERSION
    id: BuildJobId
    tenant_id: TenantId
    sbom_id: Id
    sbom_version_id: Id
    sbom_digest: DigestText
    graph_snapshot_id: Id | None = None
    status: GraphJobStatus = GraphJobStatus.QUEUED
    trigger: GraphBuildTrigger
    attempts: Count = 0
    cartographer_job_id: OptionalText = None
    correlation_id: OptionalText = None
    created_at: Timestamp
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    error: OptionalText = None
    metadata: LowerKeyMap = Field(default_factory=dict)


class GraphOverlayJob(GraphJob, discriminator_prefix=OVERLAY):
    """The laying of an overlay over a graph.

    Its id is ``goj_`` and 32 hex digits, which are its UUID in PostgreSQL.
    """

    rules = RULES

    schema_version: Annotated[str, SchemaVersion(OVERLAY_VERSION)] = OVERLAY_VERSION
    id: OverlayJobId
    tenant_id: TenantId
    graph_snapshot_id: Id
    build_job_id: Id | None = None
    overlay_kind: GraphOverlayKind
    overlay_key: Actor
    subjects: StringSet = ()
    status: GraphJobStatus = GraphJobStatus.QUEUED
    trigger: GraphOverlayTrigger
    attempts: Count = 0
    correlation_id: OptionalText = None
    created_at: Timestamp
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    error: OptionalText = None
    metadata: LowerKeyMap = Field(default_factory=dict)


def type_of(job: GraphJob) -> GraphJobType:
    """Return the type of a job."""
    return job.type


def status_of(job: GraphJob) -> GraphJobStatus:
    """Return the status of a job."""
    return job.status


class GraphJobRepository(Protocol):
    """Stores graph jobs of both types and the events of each.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a job or an event. A build job and an overlay job never have the same digits
    in their ids.
    """

    def insert(self, job: GraphBuildJob | GraphOverlayJob) -> None:
        """Insert a job. Repeated call: refused, also with an equal job. Atomic; writes no event.

        Raises:
            DuplicateError: the digits of its id are taken, by a job of either type and of any tenant.
        """
        ...

    def try_replace(self, job: GraphBuildJob, expected: GraphJobStatus) -> bool:
        """Replace a build job whose status is as expected; return whether it was replaced.

        Absent, foreign, of the other type or in another status: false, nothing is written. Of several callers
        with one expectation that moves the job on, one succeeds. Repeated call: false, once the job has moved
        on; in a terminal status true for an equal job. Atomic; writes no event.

        Raises:
            InvalidTransitionError: the state machine forbids the move from ``expected``, whatever is stored.
            ValidationError: ``createdAt`` differs, or ``startedAt`` changes after it was set or is missing on
                the way into ``running``. ``attempts`` is stored as given.
        """
        ...

    def try_replace_overlay(self, job: GraphOverlayJob, expected: GraphJobStatus) -> bool:
        """Replace an overlay job as :meth:`try_replace` does a build job.

        Raises:
            InvalidTransitionError: the state machine forbids the move from ``expected``, whatever is stored.
            ValidationError: as for a build job.
        """
        ...

    def get(self, tenant_id: str, job_id: str) -> GraphJob | None:
        """Return a job of either type. Absent: ``None`` when unknown or foreign."""
        ...

    def get_required(self, tenant_id: str, job_id: str) -> GraphJob:
        """Return a job of either type as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def get_build_job(self, tenant_id: str, job_id: str) -> GraphBuildJob | None:
        """Return a build job. Absent: ``None`` when unknown, foreign or no build job."""
        ...

    def get_build_job_required(self, tenant_id: str, job_id: str) -> GraphBuildJob:
        """Return a build job as :meth:`get_build_job` does.

        Raises:
            NotFoundError: where ``get_build_job`` answers ``None``.
        """
        ...

    def get_overlay_job(self, tenant_id: str, job_id: str) -> GraphOverlayJob | None:
        """Return an overlay job. Absent: ``None`` when unknown, foreign or no overlay job."""
        ...

    def get_overlay_job_required(self, tenant_id: str, job_id: str) -> GraphOverlayJob:
        """Return an overlay job as :meth:`get_overlay_job` does.

        Raises:
            NotFoundError: where ``get_overlay_job`` answers ``None``.
        """
        ...

    def list_build_jobs(
        self, tenant_id: str, status: GraphJobStatus | None, limit: int, *, page_token: str | None = None
    ) -> Page[GraphBuildJob]:
        """Return a page of build jobs; ``None`` as status: whatever they do.

        Order: newest first by created_at, then by the digits of the id. Limit at most 200. Empty: an empty
        page.
        """
        ...

    def list_overlay_jobs(
        self, tenant_id: str, status: GraphJobStatus | None, limit: int, *, page_token: str | None = None
    ) -> Page[GraphOverlayJob]:
        """Return a page of overlay jobs; ``None`` as status: whatever they do.

        Order: newest first by created_at, then by the digits of the id. Limit at most 200. Empty: an empty
        page.
        """
        ...

    def list_jobs(
        self,
        tenant_id: str,
        *,
        job_type: GraphJobType | None = None,
        status: GraphJobStatus | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[GraphJob]:
        """Return a page of jobs of one type or of both.

        Order: newest first by created_at, then by the digits of the id. Limit 50, at most 200. Empty: an
        empty page.
        """
        ...

    def count(
        self, tenant_id: str, *, job_type: GraphJobType | None = None, status: GraphJobStatus | None = None
    ) -> int:
        """Return how many jobs all pages of :meth:`list_jobs` have together. Empty: 0."""
        ...

    def append_event(self, event: GraphJobEvent) -> None:
        """Append an event to those of its job. Repeated call with an equal event: nothing happens. Atomic.

        Raises:
            NotFoundError: the job of the event is absent or foreign.
            ConflictError: the id of the event is taken by another content.
        """
        ...

    def get_event(self, tenant_id: str, event_id: str) -> GraphJobEvent | None:
        """Return an event. Absent: ``None`` when unknown or foreign."""
        ...

    def get_event_required(self, tenant_id: str, event_id: str) -> GraphJobEvent:
        """Return an event as :meth:`get_event` does.

        Raises:
            NotFoundError: where ``get_event`` answers ``None``.
        """
        ...

    def list_events(
        self, tenant_id: str, job_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[GraphJobEvent]:
        """Return a page of the events of a job.

        Order: newest first by ts, then the last inserted first. Limit 50, at most 200. Absent job: an empty
        page.
        """
        ...

    def count_by_status(
        self, tenant_id: str, *, job_type: GraphJobType | None = None
    ) -> dict[GraphJobStatus, int]:
        """Return the number of jobs by status, of one type or of both; a status without jobs is omitted."""
        ...

    def delete(self, tenant_id: str, job_id: str) -> bool:
        """Remove a job of either type with its events. Absent, foreign or repeated: false. Atomic."""
        ...


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

    ``eventId`` is the text of a UUID in lower case; ``attributes`` is omitted when it is empty.
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

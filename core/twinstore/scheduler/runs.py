"""Runs: one execution of a schedule or an ad-hoc request, and the contract of their repository."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Final, Protocol, Self

from pydantic import AfterValidator, AliasChoices, Field, model_validator
from pydantic_core import PydanticCustomError

from twinstore.canonical import CanonicalModel
from twinstore.fields import (
    Count,
    DigestText,
    Flag,
    Id,
    OptionalReference,
    OptionalText,
    SchemaVersion,
    StringSet,
    TenantId,
    Text,
    Timestamp,
)
from twinstore.scheduler.enums import SEVERITY_ORDER, TERMINAL_STATES, RunState, RunTrigger, SeverityRank

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from twinstore.paging import Page

__all__ = [
    "Attestation",
    "DeltaSummary",
    "Run",
    "RunQueryOptions",
    "RunReason",
    "RunRepository",
    "RunStats",
    "TopFinding",
]

RUN_VERSION: Final = "scheduler.run@1"
# Looked up once: on Python 3.11 each look-up of a member is a call, and every decoded run pays for it.
RUNNING: Final = RunState.RUNNING
ERROR: Final = RunState.ERROR


class RunStats(CanonicalModel):
    """Counters of a run; none of them ever decreases."""

    candidates: Count = 0
    deduped: Count = 0
    queued: Count = 0
    completed: Count = 0
    deltas: Count = 0
    new_criticals: Count = 0
    new_high: Count = 0
    new_medium: Count = 0
    new_low: Count = 0

    @model_validator(mode="after")
    def _parts_within_wholes(self) -> Self:
        if self.deduped > self.candidates:
            raise PydanticCustomError("stats_deduped", "deduped should not exceed candidates")
        if self.completed > self.queued:
            raise PydanticCustomError("stats_completed", "completed should not exceed queued")
        return self


class RunReason(CanonicalModel):
    """Why a run exists. The two export ids keep their historical spelling on the wire."""

    manual_reason: OptionalText = None
    conselier_export_id: OptionalText = Field(
        default=None,
        validation_alias=AliasChoices("conselierExportId", "concelierExportId"),
        serialization_alias="conselierExportId",
    )
    excitor_export_id: OptionalText = Field(
        default=None,
        validation_alias=AliasChoices("excitorExportId", "excititorExportId"),
        serialization_alias="excitorExportId",
    )
    cursor: OptionalText = None
    impact_window_from: Timestamp | None = None
    impact_window_to: Timestamp | None = None

    @model_validator(mode="after")
    def _window_in_order(self) -> Self:
        start, end = self.impact_window_from, self.impact_window_to
        if start is not None and end is not None and start > end:
            raise PydanticCustomError("impact_window", "impactWindowFrom should not be after impactWindowTo")
        return self


class TopFinding(CanonicalModel):
    """A finding worth naming."""

    purl: Text
    vulnerability_id: Text
    severity: SeverityRank
    link: OptionalText = None


class Attestation(CanonicalModel):
    """Where the report of a delta was attested."""

    uuid: Text
    verified: Flag | None = None


def findings_by_severity(findings: tuple[TopFinding, ...]) -> tuple[TopFinding, ...]:
    """Sort findings by severity (highest first), vulnerability id and package."""
    if len(findings) <= 1:
        return findings
    return tuple(
        sorted(findings, key=lambda item: (SEVERITY_ORDER[item.severity], item.vulnerability_id, item.purl))
    )


class DeltaSummary(CanonicalModel):
    """What changed for one image."""

    image_digest: DigestText
    new_findings: Count = 0
    new_criticals: Count = 0
    new_high: Count = 0
    new_medium: Count = 0
    new_low: Count = 0
    kev_hits: StringSet = ()
    top_findings: Annotated[tuple[TopFinding, ...], AfterValidator(findings_by_severity)] = ()
    report_url: OptionalText = None
    attestation: Attestation | None = None
    detected_at: Timestamp | None = None

    @model_validator(mode="after")
    def _severities_within_total(self) -> Self:
        if self.new_criticals + self.new_high + self.new_medium + self.new_low > self.new_findings:
            raise PydanticCustomError(
                "delta_total", "the counters by severity should sum to at most newFindings"
            )
        return self


def deltas_by_image(deltas: tuple[DeltaSummary, ...]) -> tuple[DeltaSummary, ...]:
    """Sort deltas by image and refuse an image that occurs twice."""
    if len(deltas) <= 1:
        return deltas
    if len({delta.image_digest for delta in deltas}) != len(deltas):
        raise PydanticCustomError("duplicate_delta", "deltas should name each imageDigest once")
    return tuple(sorted(deltas, key=attrgetter("image_digest")))


def is_empty(values: tuple[DeltaSummary, ...]) -> bool:
    """Whether the deltas are left out of the wire form."""
    return not values


class Run(CanonicalModel):
    """One execution, from planning to a terminal state."""

    schema_version: Annotated[str, SchemaVersion(RUN_VERSION)] = RUN_VERSION
    id: Id
    tenant_id: TenantId
    schedule_id: OptionalReference = None
    trigger: RunTrigger
    state: RunState
    stats: RunStats = RunStats()
    reason: RunReason | None = None
    created_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    error: OptionalText = None
    deltas: Annotated[tuple[DeltaSummary, ...], AfterValidator(deltas_by_image)] = Field(
        default=(), exclude_if=is_empty
    )
    retry_of: OptionalReference = None

    @model_validator(mode="after")
    def _state_and_instants_agree(self) -> Self:
        problem = state_problem(self) or order_problem(self)
        if problem:
            raise PydanticCustomError("run_state", "{problem}", {"problem": problem})
        return self


def state_problem(run: Run) -> str | None:
    """Return what is wrong between the state of a run and its optional fields."""
    state = run.state
    if (run.error is not None) != (state is ERROR):
        return "error should be present exactly in state error"
    if (state in TERMINAL_STATES) != (run.finished_at is not None):
        return "finishedAt should be present exactly in the states completed, error and cancelled"
    if run.started_at is None:
        return "startedAt should be present in state running" if state is RUNNING else None
    if state.number < RUNNING.number:
        return "startedAt should be absent in the states planning and queued"
    return None


def order_problem(run: Run) -> str | None:
    """Return what is wrong between the instants of a run."""
    started, finished = run.started_at, run.finished_at
    if started is not None and started < run.created_at:
        return "startedAt should not be before createdAt"
    if finished is not None and finished < (started or run.created_at):
        return "finishedAt should not be before startedAt or createdAt"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQueryOptions:
    """Filter of :meth:`RunRepository.list`; order (created_at, id), newest first unless ``ascending``.

    ``states=None`` means no filter and an empty collection matches nothing. Both bounds are strict.
    Limit 50, at most 200.
    """

    schedule_id: str | None = None
    states: Collection[RunState] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    ascending: bool = False
    limit: int = 50
    page_token: str | None = None


class RunRepository(Protocol):
    """Stores runs.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a run.
    """

    def get(self, tenant_id: str, run_id: str) -> Run | None:
        """Return one run. Absent: ``None`` when the id is unknown or belongs to another tenant."""
        ...

    def get_required(self, tenant_id: str, run_id: str) -> Run:
        """Return one run as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, tenant_id: str, options: RunQueryOptions | None = None) -> Page[Run]:
        """Return a page of runs.

        Order: created_at in the chosen direction, then id ascending. Empty: an empty page.
        Rows inserted or removed between two pages neither repeat nor hide other rows.
        """
        ...

    def create(self, run: Run) -> Run:
        """Insert a new run; return it. Repeated call: ``DuplicateError``.

        Raises:
            ValidationError: the state is neither ``planning`` nor ``queued``.
            DuplicateError: the id exists, in this or another tenant.
        """
        ...

    def update(self, run: Run, *, expected_state: RunState | None = None) -> bool:
        """Replace the stored run if the move is allowed; the check and the write are one atomic step.

        Absent or foreign: false. Repeated call with an identical run: true, without a write.

        Raises:
            InvalidTransitionError: the state machine forbids the move, or a terminal run would change.
            ConflictError: the stored state is not ``expected_state``.
            ValidationError: an immutable field changes, or a counter of ``stats`` falls.
        """
        ...

    def get_pending_runs(
        self, tenant_id: str, *, limit: int = 200, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs in ``planning`` or ``queued``.

        Order: oldest first by (created_at, id). Limit 200, at most 1000. Empty: an empty page.
        """
        ...

    def get_runs_by_schedule(
        self, tenant_id: str, schedule_id: str, limit: int, *, page_token: str | None = None
    ) -> Page[Run]:
        """Return a page of the runs of a schedule.

        Order: newest first, ties by id ascending. At most 200. Empty: an empty page.
        """
        ...

    def list_by_state(self, state: RunState, *, limit: int = 50, page_token: str | None = None) -> Page[Run]:
        """Return a page of the runs of all tenants in one state; system scope.

        Order: oldest first by (created_at, id). Limit 50, at most 200. Empty: an empty page.
        """
        ...

    def retry(
        self, tenant_id: str, run_id: str, requested_by: str, now: datetime, *, new_run_id: str | None = None
    ) -> Run:
        """Create a new run in ``planning`` from a terminal one; the origin stays as it is.

        The new run has trigger ``manual``, ``retryOf`` set and zero counters.
        Repeated call: another new run, unless ``new_run_id`` is given.

        Raises:
            NotFoundError: the origin is unknown or foreign.
            InvalidTransitionError: the origin is not terminal.
            DuplicateError: ``new_run_id`` exists.
        """
        ...

    def purge_finished(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        """Remove the runs with ``finishedAt <= before``, oldest first; return how many.

        ``tenant_id=None`` means all tenants, in system scope. Not atomic: removes in batches.
        Repeated call: 0.
        """
        ...

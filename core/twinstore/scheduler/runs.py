"""Runs: one execution of a schedule or an ad-hoc request, and the contract of their repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from pydantic import AliasChoices, Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import Ordered, Ranked, Unique
from twinstore.models.fields import (
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
    is_empty,
)
from twinstore.models.rules import AbsentIn, FieldAtMost, NotBefore, PresentExactlyIn, PresentIn, SumAtMost
from twinstore.scheduler.enums import SEVERITY_ORDER, RunState, RunTrigger, SeverityRank

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from twinstore.access.paging import Page

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


class RunStats(CanonicalModel):
    """Counters of a run; none of them ever decreases."""

    rules = (
        FieldAtMost(
            "deduped",
            limit="candidates",
            code="stats_deduped",
            message="deduped should not exceed candidates",
        ),
        FieldAtMost(
            "completed",
            limit="queued",
            code="stats_completed",
            message="completed should not exceed queued",
        ),
    )

    candidates: Count = 0
    deduped: Count = 0
    queued: Count = 0
    completed: Count = 0
    deltas: Count = 0
    new_criticals: Count = 0
    new_high: Count = 0
    new_medium: Count = 0
    new_low: Count = 0


class RunReason(CanonicalModel):
    """Why a run exists. The two export ids keep their historical spelling on the wire."""

    rules = (
        NotBefore(
            "impact_window_to",
            earlier=("impact_window_from",),
            code="impact_window",
            message="impactWindowFrom should not be after impactWindowTo",
        ),
    )

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


class DeltaSummary(CanonicalModel):
    """What changed for one image."""

    rules = (
        SumAtMost(
            ("new_criticals", "new_high", "new_medium", "new_low"),
            limit="new_findings",
            code="delta_total",
            message="the counters by severity should sum to at most newFindings",
        ),
    )

    image_digest: DigestText
    new_findings: Count = 0
    new_criticals: Count = 0
    new_high: Count = 0
    new_medium: Count = 0
    new_low: Count = 0
    kev_hits: StringSet = ()
    top_findings: Annotated[
        tuple[TopFinding, ...],
        Ordered(by=(Ranked(field="severity", members=tuple(SEVERITY_ORDER)), "vulnerability_id", "purl")),
    ] = ()
    report_url: OptionalText = None
    attestation: Attestation | None = None
    detected_at: Timestamp | None = None


class Run(CanonicalModel):
    """One execution, from planning to a terminal state.

    Counters stay inside the run. ``deltas`` is omitted when it is empty. ``scheduleId`` and ``retryOf`` are
    not foreign keys: history outlives everything. A run without ``finishedAt`` never expires.
    """

    rules = (
        PresentExactlyIn(
            "error",
            by="state",
            members=(RunState.ERROR,),
            code="run_state",
            message="error should be present exactly in state error",
        ),
        PresentExactlyIn(
            "finished_at",
            by="state",
            members=(RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED),
            code="run_state",
            message="finishedAt should be present exactly in the states completed, error and cancelled",
        ),
        PresentIn(
            "started_at",
            by="state",
            members=(RunState.RUNNING,),
            code="run_state",
            message="startedAt should be present in state running",
        ),
        AbsentIn(
            "started_at",
            by="state",
            members=(RunState.PLANNING, RunState.QUEUED),
            code="run_state",
            message="startedAt should be absent in the states planning and queued",
        ),
        NotBefore(
            "started_at",
            earlier=("created_at",),
            code="run_state",
            message="startedAt should not be before createdAt",
        ),
        NotBefore(
            "finished_at",
            earlier=("started_at", "created_at"),
            code="run_state",
            message="finishedAt should not be before startedAt or createdAt",
        ),
    )

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
    deltas: Annotated[
        tuple[DeltaSummary, ...],
        Ordered(
            by=("image_digest",),
            unique=Unique(
                field="image_digest",
                code="duplicate_delta",
                message="deltas should name each imageDigest once",
            ),
        ),
    ] = Field(default=(), exclude_if=is_empty)
    retry_of: OptionalReference = None


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

    def count(self, tenant_id: str, options: RunQueryOptions | None = None) -> int:
        """Return how many runs all pages of :meth:`list` have together. Empty: 0."""
        ...

    def create(self, run: Run) -> Run:
        """Insert a new run; return it. Repeated call: ``DuplicateError``.

        Raises:
            ValidationError: the state is neither ``planning`` nor ``queued``, or ``schedule_id`` contains a
                control character.
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

    def start(self, tenant_id: str, run_id: str, now: datetime) -> Run:
        """Move a queued run to ``running``; return it. Atomic with the summary of its schedule.

        Repeated call, also at another instant: nothing changes.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: it is neither queued nor running.
            ValidationError: ``now`` is before its ``created_at``.
        """
        ...

    def complete(self, tenant_id: str, run_id: str, now: datetime, *, stats: RunStats | None = None) -> Run:
        """Move a running run, or a planned one without work, to ``completed``; return it.

        ``stats=None`` keeps the counters. Atomic with the summary of its schedule.
        Repeated call with equal arguments: nothing changes.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: the state machine forbids the move.
            ValidationError: ``now`` is before its start or ``created_at``, or a counter falls.
        """
        ...

    def fail(self, tenant_id: str, run_id: str, now: datetime, error: str) -> Run:
        """End a run in state ``error``; return it. Atomic with the summary of its schedule.

        Repeated call with equal arguments: nothing changes.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: it ended before, otherwise.
            ValidationError: ``error`` is blank, or ``now`` is before its start or ``created_at``.
        """
        ...

    def cancel(self, tenant_id: str, run_id: str, now: datetime) -> Run:
        """Cancel a run that has not ended; return it. Atomic with the summary of its schedule.

        Repeated call with equal arguments: nothing changes.

        Raises:
            NotFoundError: the run is unknown or foreign.
            InvalidTransitionError: it ended before, otherwise.
            ValidationError: ``now`` is before its start or ``created_at``.
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

    def delete(self, tenant_id: str, run_id: str) -> bool:
        """Remove one run with its log, in whatever state. Absent, foreign or repeated: false. Atomic.

        The summary of its schedule keeps it until :meth:`RunSummaryService.rebuild`, even if a run with the
        same id is created again.
        """
        ...

    def purge_finished(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        """Remove the runs with ``finishedAt <= before``, oldest first; return how many.

        ``tenant_id=None`` means all tenants, in system scope. Not atomic: removes in batches.
        Repeated call: 0.
        """
        ...

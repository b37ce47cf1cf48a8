"""The stored models written the plainest way, as the measure for the fast ones.

No short cut and no early exit: what these accept, refuse, normalise and say is what the product promises.
"""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import AfterValidator, AliasChoices, Field, model_validator
from pydantic_core import PydanticCustomError

from tests.reference_fields import (
    Actor,
    Count,
    DigestSet,
    DigestText,
    Flag,
    Id,
    LabelKey,
    LowerKeyMap,
    OptionalReference,
    OptionalText,
    SimpleIdentifier,
    StringSet,
    TenantId,
    Text,
    TextMap,
    Timestamp,
    current,
)
from twinstore.canonical import CanonicalModel
from twinstore.scheduler.enums import RunState, RunTrigger, SelectorScope, SeverityRank

SEVERITIES: Final = ("critical", "high", "medium", "low", "info", "none", "unknown")
STARTED: Final = (RunState.RUNNING, RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED)
FINISHED: Final = STARTED[1:]
FILTERS: Final = {
    "by-namespace": "namespaces",
    "by-repo": "repositories",
    "by-digest": "digests",
    "by-labels": "labels",
}


class RunStats(CanonicalModel):
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
    def _check(self) -> Self:
        if self.deduped > self.candidates:
            raise PydanticCustomError("stats_deduped", "deduped should not exceed candidates")
        if self.completed > self.queued:
            raise PydanticCustomError("stats_completed", "completed should not exceed queued")
        return self


class RunReason(CanonicalModel):
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
    def _check(self) -> Self:
        start, end = self.impact_window_from, self.impact_window_to
        if start is not None and end is not None and start > end:
            raise PydanticCustomError("impact_window", "impactWindowFrom should not be after impactWindowTo")
        return self


class TopFinding(CanonicalModel):
    purl: Text
    vulnerability_id: Text
    severity: SeverityRank
    link: OptionalText = None


class Attestation(CanonicalModel):
    uuid: Text
    verified: Flag | None = None


def ranked(findings: tuple[TopFinding, ...]) -> tuple[TopFinding, ...]:
    def rank(item: TopFinding) -> tuple[int, str, str]:
        return (SEVERITIES.index(item.severity.value), item.vulnerability_id, item.purl)

    return tuple(sorted(findings, key=rank))


class DeltaSummary(CanonicalModel):
    image_digest: DigestText
    new_findings: Count = 0
    new_criticals: Count = 0
    new_high: Count = 0
    new_medium: Count = 0
    new_low: Count = 0
    kev_hits: StringSet = ()
    top_findings: Annotated[tuple[TopFinding, ...], AfterValidator(ranked)] = ()
    report_url: OptionalText = None
    attestation: Attestation | None = None
    detected_at: Timestamp | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.new_criticals + self.new_high + self.new_medium + self.new_low > self.new_findings:
            raise PydanticCustomError(
                "delta_total", "the counters by severity should sum to at most newFindings"
            )
        return self


def sorted_deltas(deltas: tuple[DeltaSummary, ...]) -> tuple[DeltaSummary, ...]:
    if len({delta.image_digest for delta in deltas}) != len(deltas):
        raise PydanticCustomError("duplicate_delta", "deltas should name each imageDigest once")
    return tuple(sorted(deltas, key=lambda delta: delta.image_digest))


class Run(CanonicalModel):
    schema_version: Annotated[str, current("scheduler.run@1")] = "scheduler.run@1"
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
    deltas: Annotated[tuple[DeltaSummary, ...], AfterValidator(sorted_deltas)] = Field(
        default=(), exclude_if=lambda values: not values
    )
    retry_of: OptionalReference = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        problems = [problem for problem in (*self._of_state(), *self._of_order()) if problem]
        if problems:
            raise PydanticCustomError("run_state", "{problem}", {"problem": problems[0]})
        return self

    def _of_state(self) -> list[str]:
        running, started = self.state is RunState.RUNNING, self.started_at is not None
        rules = {
            "error should be present exactly in state error": (self.error is not None)
            == (self.state is RunState.ERROR),
            "finishedAt should be present exactly in the states completed, error and cancelled": (
                self.finished_at is not None
            )
            == (self.state in FINISHED),
            "startedAt should be present in state running": started or not running,
            "startedAt should be absent in the states planning and queued": not started
            or self.state in STARTED,
        }
        return [problem for problem, kept in rules.items() if not kept]

    def _of_order(self) -> list[str]:
        problems: list[str] = []
        if self.started_at is not None and self.started_at < self.created_at:
            problems.append("startedAt should not be before createdAt")
        if self.finished_at is not None and self.finished_at < (self.started_at or self.created_at):
            problems.append("finishedAt should not be before startedAt or createdAt")
        return problems


class AuditActor(CanonicalModel):
    actor_id: Actor
    display_name: Actor
    kind: SimpleIdentifier


class AuditRecord(CanonicalModel):
    id: Id
    tenant_id: TenantId
    category: SimpleIdentifier
    action: SimpleIdentifier
    occurred_at: Timestamp
    actor: AuditActor
    entity_id: OptionalReference = None
    schedule_id: OptionalReference = None
    run_id: OptionalReference = None
    correlation_id: OptionalReference = None
    metadata: LowerKeyMap = Field(default_factory=dict)
    message: OptionalText = None


class LabelFilter(CanonicalModel):
    key: LabelKey
    values: StringSet = ()


def sorted_labels(labels: tuple[LabelFilter, ...]) -> tuple[LabelFilter, ...]:
    if len({label.key for label in labels}) != len(labels):
        raise PydanticCustomError(
            "duplicate_label", "Label keys should be unique; merge the values of equal keys"
        )
    return tuple(sorted(labels, key=lambda label: label.key))


class Selector(CanonicalModel):
    scope: SelectorScope
    tenant_id: TenantId | None = None
    namespaces: StringSet = ()
    repositories: StringSet = ()
    digests: DigestSet = ()
    include_tags: StringSet = ()
    labels: Annotated[tuple[LabelFilter, ...], AfterValidator(sorted_labels)] = ()
    resolves_tags: Flag = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        field = FILTERS.get(self.scope.value)
        if field and not getattr(self, field):
            raise PydanticCustomError(
                "selector_scope",
                "Scope '{scope}' needs at least one entry in {field}",
                {"scope": self.scope.value, "field": field},
            )
        return self


class ImpactImage(CanonicalModel):
    image_digest: DigestText
    registry: Text
    repository: Text
    namespaces: StringSet = ()
    tags: StringSet = ()
    used_by_entrypoint: Flag = False
    labels: TextMap = Field(default_factory=dict)


def sorted_images(images: tuple[ImpactImage, ...]) -> tuple[ImpactImage, ...]:
    if len({image.image_digest for image in images}) != len(images):
        raise PydanticCustomError("duplicate_image", "images should name each imageDigest once")
    return tuple(sorted(images, key=lambda image: image.image_digest))


class ImpactSet(CanonicalModel):
    schema_version: Annotated[str, current("scheduler.impact-set@1")] = "scheduler.impact-set@1"
    selector: Selector
    images: Annotated[tuple[ImpactImage, ...], AfterValidator(sorted_images)] = ()
    usage_only: Flag = True
    generated_at: Timestamp
    total: Count = Field(default_factory=lambda data: len(data["images"]))
    snapshot_id: Id | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.total < len(self.images):
            raise PydanticCustomError("impact_total", "total should be at least the number of images")
        return self


class RunSnapshot(CanonicalModel):
    run_id: Id
    trigger: RunTrigger
    state: RunState
    created_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    stats: RunStats = RunStats()
    error: OptionalText = None


class RunSummaryCounters(CanonicalModel):
    total: Count = 0
    planning: Count = 0
    queued: Count = 0
    running: Count = 0
    completed: Count = 0
    error: Count = 0
    cancelled: Count = 0
    total_deltas: Count = 0
    total_new_criticals: Count = 0
    total_new_high: Count = 0
    total_new_medium: Count = 0
    total_new_low: Count = 0


def newest_first(window: tuple[RunSnapshot, ...]) -> tuple[RunSnapshot, ...]:
    if len(window) > 20:
        raise PydanticCustomError("window_size", "recent should hold at most 20 runs")
    if len({entry.run_id for entry in window}) != len(window):
        raise PydanticCustomError("window_run", "recent should name each run once")
    return tuple(sorted(window, key=lambda entry: (entry.created_at, entry.run_id), reverse=True))


class RunSummary(CanonicalModel):
    tenant_id: TenantId
    schedule_id: Id
    updated_at: Timestamp
    last_run: RunSnapshot | None = None
    recent: Annotated[tuple[RunSnapshot, ...], AfterValidator(newest_first)] = ()
    counters: RunSummaryCounters = RunSummaryCounters()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.last_run != (self.recent[0] if self.recent else None):
            raise PydanticCustomError("last_run", "lastRun should be the newest entry of recent")
        counted: dict[str, int] = {"total": len(self.recent)}
        for state in RunState:
            counted[state.value] = sum(entry.state is state for entry in self.recent)
        for name in ("deltas", "new_criticals", "new_high", "new_medium", "new_low"):
            counted[f"total_{name}"] = sum(getattr(entry.stats, name) for entry in self.recent)
        if dict(self.counters) != RunSummaryCounters.model_validate(counted).__dict__:
            raise PydanticCustomError("summary_counters", "counters should be those of recent")
        return self

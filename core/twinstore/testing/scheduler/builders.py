"""Builders of valid models with deterministic content; every argument that is left out has a fixed value."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from twinstore.scheduler.audit import AuditActor, AuditEvent, AuditRecord
from twinstore.scheduler.enums import RunState, RunTrigger, ScheduleMode, SelectorScope, SeverityRank
from twinstore.scheduler.impact_snapshots import ImpactImage, ImpactSet
from twinstore.scheduler.run_summaries import RunSnapshot, RunSummary
from twinstore.scheduler.runs import Attestation, DeltaSummary, Run, RunReason, RunStats, TopFinding
from twinstore.scheduler.schedules import Schedule, ScheduleLimits, ScheduleNotify, ScheduleOnlyIf
from twinstore.scheduler.selectors import LabelFilter, Selector
from twinstore.scheduler.triggers import Trigger
from twinstore.testing.instants import START, at
from twinstore.testing.scalars import digest_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "make_audit_event",
    "make_audit_record",
    "make_image",
    "make_impact_set",
    "make_run",
    "make_run_summary",
    "make_schedule",
    "make_selector",
    "make_trigger",
    "moved",
    "rich_audit_record",
    "rich_impact_set",
    "rich_run",
    "rich_run_summary",
    "rich_schedule",
]

STARTED_AFTER: Final = timedelta(seconds=10)
FINISHED_AFTER: Final = timedelta(seconds=60)
ACTOR: Final = AuditActor(actor_id="u-1", display_name="Ada", kind="user")


def make_selector(**changes: object) -> Selector:
    """Return a selector of all images."""
    return Selector.model_validate({"scope": SelectorScope.ALL_IMAGES, **changes})


def make_schedule(tenant_id: str, schedule_id: str, **changes: object) -> Schedule:
    """Return an enabled schedule that fires every hour; its name is its id unless given."""
    defaults = {
        "id": schedule_id,
        "tenant_id": tenant_id,
        "name": schedule_id[:200],
        "when_cron": "0 * * * *",
        "selection": make_selector(),
        "created_at": START,
        "created_by": "ada",
    }
    return Schedule.model_validate({**defaults, **changes})


def make_trigger(tenant_id: str, schedule_id: str, **changes: object) -> Trigger:
    """Return an enabled trigger that is due one hour after the start."""
    defaults = {
        "tenant_id": tenant_id,
        "schedule_id": schedule_id,
        "when_cron": "0 * * * *",
        "next_fire_at": at(3600),
        "created_at": START,
        "updated_at": START,
    }
    return Trigger.model_validate({**defaults, **changes})


def make_run(
    tenant_id: str,
    run_id: str,
    *,
    state: RunState = RunState.PLANNING,
    created_at: datetime = START,
    **changes: object,
) -> Run:
    """Return a run with the instants and the error text that its state asks for."""
    started = state in {RunState.RUNNING, RunState.COMPLETED}
    defaults = {
        "id": run_id,
        "tenant_id": tenant_id,
        "trigger": RunTrigger.MANUAL,
        "state": state,
        "created_at": created_at,
        "started_at": created_at + STARTED_AFTER if started else None,
        "finished_at": created_at + FINISHED_AFTER if state.terminal else None,
        "error": "boom" if state is RunState.ERROR else None,
    }
    return Run.model_validate({**defaults, **changes})


def moved(run: Run, state: RunState, **changes: object) -> Run:
    """Return the run in another state, with the instants and the error text that it asks for."""
    values = {
        "state": state,
        "started_at": _started(run, state),
        "finished_at": (run.finished_at or run.created_at + FINISHED_AFTER) if state.terminal else None,
        "error": (run.error or "boom") if state is RunState.ERROR else None,
    }
    return run.evolve(**{**values, **changes})


def _started(run: Run, state: RunState) -> datetime | None:
    if state is RunState.RUNNING:
        return run.started_at or run.created_at + STARTED_AFTER
    return run.started_at if state.terminal else None


def make_image(number: int, **changes: object) -> ImpactImage:
    """Return an image whose digest follows from the number."""
    defaults = {"image_digest": digest_text(number), "registry": "registry.example", "repository": "team/app"}
    return ImpactImage.model_validate({**defaults, **changes})


def make_impact_set(**changes: object) -> ImpactSet:
    """Return a snapshot of one image, without an own id."""
    defaults = {"selector": make_selector(), "images": (make_image(1),), "generated_at": START}
    return ImpactSet.model_validate({**defaults, **changes})


def make_audit_record(tenant_id: str, audit_id: str, **changes: object) -> AuditRecord:
    """Return a record of a created schedule."""
    defaults = {
        "id": audit_id,
        "tenant_id": tenant_id,
        "category": "schedule",
        "action": "schedule.created",
        "occurred_at": START,
        "actor": ACTOR,
    }
    return AuditRecord.model_validate({**defaults, **changes})


def make_audit_event(tenant_id: str, **changes: object) -> AuditEvent:
    """Return an event without id and instant."""
    defaults = {"tenant_id": tenant_id, "category": "run", "action": "run.created", "actor": ACTOR}
    return AuditEvent.model_validate({**defaults, **changes})


def make_run_summary(
    tenant_id: str, schedule_id: str, runs: Iterable[Run] = (), *, updated_at: datetime = START
) -> RunSummary:
    """Return the summary of some runs."""
    return RunSummary.of(tenant_id, schedule_id, tuple(RunSnapshot.of(run) for run in runs), updated_at)


def rich_schedule(tenant_id: str, schedule_id: str, **changes: object) -> Schedule:
    """Return a schedule with a value in every field."""
    selector = make_selector(
        scope=SelectorScope.BY_LABELS,
        tenant_id=tenant_id,
        namespaces=("payments", "edge"),
        repositories=("team/app", "team/api"),
        digests=(digest_text(2), digest_text(1)),
        include_tags=("v*", "latest"),
        labels=(LabelFilter(key="tier", values=("gold", "silver")), LabelFilter(key="app")),
        resolves_tags=True,
    )
    values = {
        "timezone": "Europe/Vienna",
        "mode": ScheduleMode.CONTENT_REFRESH,
        "selection": selector,
        "only_if": ScheduleOnlyIf(last_report_older_than_days=7, policy_revision="rev-1"),
        "notify": ScheduleNotify(min_severity=SeverityRank.HIGH, include_quiet_findings=True),
        "limits": ScheduleLimits(max_jobs=1000, rate_per_second=25, parallelism=4, burst=50),
        "subscribers": ("ops@example", "sec@example"),
        "created_at": at(0.001),
        "updated_at": at(5.25),
        "updated_by": "grace",
    }
    return make_schedule(tenant_id, schedule_id, **{**values, **changes})


def rich_delta(number: int = 1) -> DeltaSummary:
    """Return a delta with a value in every field."""
    finding = TopFinding(
        purl="pkg:npm/left-pad@1", vulnerability_id="CVE-1", severity=SeverityRank.HIGH, link="https://x"
    )
    return DeltaSummary(
        image_digest=digest_text(number),
        new_findings=10,
        new_criticals=1,
        new_high=2,
        new_medium=3,
        new_low=4,
        kev_hits=("CVE-2", "CVE-1"),
        top_findings=(finding, finding.evolve(severity=SeverityRank.CRITICAL)),
        report_url="https://reports.example/1",
        attestation=Attestation(uuid="u-u-i-d", verified=True),
        detected_at=at(30.5),
    )


def rich_run(tenant_id: str, run_id: str, **changes: object) -> Run:
    """Return a failed run with a value in every field; ``state`` and its instants may be changed."""
    reason = RunReason(
        manual_reason="asked by Ada",
        conselier_export_id="exp-1",
        excitor_export_id="exp-2",
        cursor="c-9",
        impact_window_from=at(-60),
        impact_window_to=at(-0.5),
    )
    stats = RunStats(
        candidates=9,
        deduped=8,
        queued=7,
        completed=6,
        deltas=5,
        new_criticals=4,
        new_high=3,
        new_medium=2,
        new_low=1,
    )
    values = {
        "state": RunState.ERROR,
        "schedule_id": f"schedule of {run_id}"[:256],
        "trigger": RunTrigger.EXCITITOR,
        "stats": stats,
        "reason": reason,
        "started_at": at(0.007),
        "finished_at": at(61.5),
        "error": "it broke \N{COLLISION SYMBOL}",
        "deltas": (rich_delta(2), rich_delta(1)),
        "retry_of": "run-0",
    }
    merged = {**values, **changes}
    return make_run(tenant_id, run_id, **merged)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the model checks the values


def rich_impact_set(tenant_id: str, **changes: object) -> ImpactSet:
    """Return a snapshot of three images with a value in every field but the id."""
    images = [
        make_image(
            number,
            namespaces=("b", "a"),
            tags=("2", "1"),
            used_by_entrypoint=True,
            labels={"z": "1", "A": "\N{GRINNING FACE}", "": ""},
        )
        for number in (3, 1, 2)
    ]
    selector = make_selector(tenant_id=tenant_id, namespaces=("payments",), include_tags=("v1.*",))
    values = {
        "selector": selector,
        "images": images,
        "usage_only": False,
        "total": 17,
        "generated_at": at(0.123),
    }
    return make_impact_set(**{**values, **changes})


def rich_audit_record(tenant_id: str, audit_id: str, **changes: object) -> AuditRecord:
    """Return a record with a value in every field."""
    values = {
        "occurred_at": at(0.999),
        "entity_id": "e-1",
        "schedule_id": "s-1",
        "run_id": "r-1",
        "correlation_id": "c-1",
        "metadata": {"Zone": "eu", "attempt": "2", "\N{LATIN CAPITAL LETTER E WITH ACUTE}": "\N{SNOWMAN}"},
        "message": "line one\nline two\t\N{BUG}",
    }
    return make_audit_record(tenant_id, audit_id, **{**values, **changes})


def rich_run_summary(tenant_id: str, schedule_id: str) -> RunSummary:
    """Return a summary with a full window in every state."""
    states = list(RunState)
    runs = [
        make_run(
            tenant_id,
            f"run-{number:02}",
            schedule_id=schedule_id,
            state=states[number % len(states)],
            created_at=at(number // 2),
            stats=RunStats(deltas=number, new_criticals=1, new_high=2, new_medium=3, new_low=4),
        )
        for number in range(20)
    ]
    return make_run_summary(tenant_id, schedule_id, runs, updated_at=at(100.001))

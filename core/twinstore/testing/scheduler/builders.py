"""Builders of valid models with deterministic content; every omitted argument has a fixed value.

Those of policy jobs also say how a job gets into any status.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from twinstore.scheduler.audit import AuditActor, AuditEvent, AuditRecord
from twinstore.scheduler.enums import (
    PolicyRunJobStatus,
    PolicyRunMode,
    PolicyRunPriority,
    RunState,
    RunTrigger,
    ScheduleMode,
    SelectorScope,
    SeverityRank,
)
from twinstore.scheduler.impact_snapshots import ImpactImage, ImpactSet
from twinstore.scheduler.policy_jobs import PolicyRunInputs, PolicyRunJob, PolicyRunRequest, PolicyRunStats
from twinstore.scheduler.run_summaries import RunSnapshot, RunSummary
from twinstore.scheduler.runs import Attestation, DeltaSummary, Run, RunReason, RunStats, TopFinding
from twinstore.scheduler.schedules import Schedule, ScheduleLimits, ScheduleNotify, ScheduleOnlyIf
from twinstore.scheduler.selectors import LabelFilter, Selector
from twinstore.scheduler.triggers import Trigger
from twinstore.testing.instants import START, at
from twinstore.testing.scalars import digest_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.scheduler.storage import SchedulerSession

__all__ = [
    "UNSET_IN_NEW_JOBS",
    "WORKER",
    "as_dispatched",
    "as_ended",
    "as_submitted",
    "make_audit_event",
    "make_audit_record",
    "make_image",
    "make_impact_set",
    "make_policy_job",
    "make_policy_request",
    "make_run",
    "make_run_summary",
    "make_schedule",
    "make_selector",
    "make_trigger",
    "moved",
    "rich_audit_record",
    "rich_impact_set",
    "rich_policy_job",
    "rich_run",
    "rich_run_summary",
    "rich_schedule",
    "store_policy_job",
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


PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
WORKER: Final = "worker-1"
# Fields that a new job does not have in addition to the requested ones.
UNSET_IN_NEW_JOBS: Final = (
    "status",
    "attempt_count",
    "last_attempt_at",
    "last_error",
    "submitted_at",
    "completed_at",
    "lease_owner",
    "lease_expires_at",
    "cancelled_at",
    "stats",
)


def make_policy_request(tenant_id: str, run_id: str | None = "run-1", **changes: object) -> PolicyRunRequest:
    """Return a request for a full run."""
    values = {"tenant_id": tenant_id, "policy_id": "policy-1", "mode": PolicyRunMode.FULL, "run_id": run_id}
    return PolicyRunRequest.model_validate({**values, **changes})


def make_policy_job(tenant_id: str, job_id: str, **changes: object) -> PolicyRunJob:
    """Return a pending job of a run of the same name that is available at once."""
    values = {
        "id": job_id,
        "tenant_id": tenant_id,
        "policy_id": "policy-1",
        "mode": PolicyRunMode.FULL,
        "run_id": job_id,
        "inputs": PolicyRunInputs(),
        "created_at": START,
        "updated_at": START,
        "available_at": START,
    }
    return PolicyRunJob.model_validate({**values, **changes})


def as_dispatched(job: PolicyRunJob, now: datetime = START, *, seconds: float = 60) -> PolicyRunJob:
    """Return a pending job as a worker leases it."""
    return job.evolve(
        status=DISPATCHING,
        attempt_count=job.attempt_count + 1,
        last_attempt_at=now,
        updated_at=now,
        lease_owner=WORKER,
        lease_expires_at=now + (at(seconds) - at()),
    )


def as_submitted(job: PolicyRunJob, now: datetime = START) -> PolicyRunJob:
    """Return a dispatched job as its worker submits it."""
    return job.evolve(
        status=SUBMITTED, submitted_at=now, updated_at=now, lease_owner=None, lease_expires_at=None
    )


def as_ended(job: PolicyRunJob, status: PolicyRunJobStatus, now: datetime = START) -> PolicyRunJob:
    """Return a job as it ends."""
    changes: dict[str, object] = {"lease_owner": None, "lease_expires_at": None}
    changes |= {"status": status, "updated_at": now}
    changes |= {"cancelled_at": now} if status is CANCELLED else {"completed_at": now}
    if status is FAILED:
        changes["last_error"] = job.last_error or "boom"
    return job.evolve(**changes)


def rich_policy_job(tenant_id: str, job_id: str) -> PolicyRunJob:
    """Return a failed job with a value in every field that such a one may have."""
    inputs = PolicyRunInputs(
        sbom_set=("sbom:b", "sbom:a", "sbom:b"),
        advisory_cursor="a-1",
        vex_cursor="v-1",
        environment={"Zone": "eu", "exposure": {"B": [1, 0.25, None], "a.b": {"$c": -1e-7}}, "\N{BUG}": ""},
        capture_explain=True,
    )
    stats = PolicyRunStats(
        components=2**63 - 1,
        rules_fired=2,
        findings_written=3,
        vex_overrides=4,
        quieted=5,
        suppressed=6,
        duration_seconds=1.5,
    )
    texts = {
        "policy_version": 2**31 - 1,
        "mode": PolicyRunMode.SIMULATE,
        "priority": PolicyRunPriority.EMERGENCY,
        "requested_by": "ada",
        "correlation_id": "c-1",
        "metadata": {"Team": "core", "\N{LATIN SMALL LETTER E WITH ACUTE}": "\N{SNOWMAN}"},
        "inputs": inputs,
        "queued_at": at(-0.5),
        "available_at": at(0.001),
    }
    request: dict[str, object] = {
        "stats": stats,
        "last_error": "it broke",
        "cancellation_requested": True,
        "cancellation_requested_at": at(2),
        "cancellation_reason": "too late \N{COLLISION SYMBOL}",
    }
    job = as_submitted(as_dispatched(make_policy_job(tenant_id, job_id, **texts), at(0.25)), at(1.5))
    return as_ended(job.evolve(**request), FAILED, at(3.125))


def store_policy_job(session: SchedulerSession, tenant: str, job: PolicyRunJob) -> PolicyRunJob:
    """Create a job and move it through its attempts and statuses to the wanted one."""
    del tenant
    jobs, at_once = session.policy_jobs, job.last_attempt_at or START
    current = jobs.create(
        job.evolve(**{name: PolicyRunJob.model_fields[name].default for name in UNSET_IN_NEW_JOBS})
    )
    steps: list[PolicyRunJob] = []
    for _ in range(job.attempt_count):
        steps.append(as_dispatched(steps[-1] if steps else current, at_once))
        steps.append(steps[-1].evolve(status=PENDING, lease_owner=None, lease_expires_at=None))
    steps = steps[:-1]  # the last attempt ends as the job says
    if job.submitted_at is not None and job.status is not SUBMITTED:
        steps.append(as_submitted(steps[-1], job.submitted_at))
    for step in (*steps, job):
        if step != current:
            assert jobs.try_replace(step, current.status)
        current = step
    return job

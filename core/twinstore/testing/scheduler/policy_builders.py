"""Builders of policy jobs and requests, and how a job gets into any status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler.enums import PolicyRunJobStatus, PolicyRunMode, PolicyRunPriority
from twinstore.scheduler.policy_jobs import PolicyRunInputs, PolicyRunJob, PolicyRunRequest, PolicyRunStats
from twinstore.testing.instants import START, at

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.scheduler.storage import SchedulerSession

__all__ = [
    "UNSET_IN_NEW_JOBS",
    "WORKER",
    "as_dispatched",
    "as_ended",
    "as_submitted",
    "make_policy_job",
    "make_policy_request",
    "rich_policy_job",
    "store_policy_job",
]

PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
WORKER: Final = "worker-1"
# What a new job does not have beside what was asked for.
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
    """Create a job and take it through its attempts and statuses to where it is to stand."""
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

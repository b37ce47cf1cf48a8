"""What a write of a policy job must satisfy against the stored job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore.access.errors import invalid_transition
from twinstore.errors import LeaseLostError, TwinstoreError, ValidationError
from twinstore.scheduler.enums import PolicyRunJobStatus
from twinstore.scheduler.policy_jobs import PolicyRunJob
from twinstore.scheduler.states import (
    CANCELLED,
    DISPATCHING,
    FAILED,
    PENDING,
    SUBMITTED,
    policy_job_move_allowed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime


ENTITY: Final = "policy_jobs"
# What was asked for: a repeated request is compared with it.
IMMUTABLE: Final = (
    "policy_id",
    "policy_version",
    "mode",
    "priority",
    "run_id",
    "requested_by",
    "correlation_id",
    "metadata",
    "inputs",
    "queued_at",
    "created_at",
)
LEASE_FIELDS: Final = ("lease_owner", "lease_expires_at", "last_attempt_at")
REQUEST_FIELDS: Final = ("cancellation_requested", "cancellation_requested_at", "cancellation_reason")


def check_create(job: PolicyRunJob) -> None:
    """Refuse a new job that is not pending, or that has attempts."""
    if job.status is not PENDING or job.attempt_count:
        raise ValidationError(
            f"Policy job {job.id!r} is {job.status} with {job.attempt_count} attempts; a new job is pending "
            "and has none.",
            entity=ENTITY,
            key=job.id,
        )


def check_move(job: PolicyRunJob, origin: PolicyRunJobStatus) -> None:
    """Refuse a move that the state machine forbids; whether a terminal job stays the same is seen later."""
    if job.status is not origin and not policy_job_move_allowed(origin, job.status):
        raise invalid_transition(
            ENTITY, "policy job", job.id, (origin, job.status), "this move is not allowed"
        )


def replaced(
    stored: PolicyRunJob | None,
    job: PolicyRunJob,
    expected: PolicyRunJobStatus,
    lease_owner: str | None,
    now: datetime | None,
) -> PolicyRunJob | None:
    """Return what a compare-and-set stores, ``None`` where it does not apply.

    Raises:
        LeaseLostError: the lease is another one's, of another attempt, or expired.
    """
    if stored is None or stored.status is not expected:
        return None
    if lease_owner is not None:
        check_lease(stored, job, lease_owner, now)
    leases = stored.status is PENDING and job.status is DISPATCHING
    if job.attempt_count != stored.attempt_count + leases:
        return None  # leased again since the caller has read it
    return revised(stored, job, now, owned=lease_owner is not None)


def check_lease(stored: PolicyRunJob, job: PolicyRunJob, lease_owner: str, now: datetime | None) -> None:
    """Refuse a worker that no longer holds the lease."""
    own = stored.lease_owner == lease_owner and stored.attempt_count == job.attempt_count
    if own and now is not None and stored.lease_expires_at is not None and stored.lease_expires_at > now:
        return
    raise LeaseLostError(
        f"The lease of policy job {job.id!r} is no longer held by {lease_owner!r} for attempt "
        f"{job.attempt_count}; discard the result and lease another job.",
        entity=ENTITY,
        key=job.id,
    )


def revised(
    stored: PolicyRunJob, job: PolicyRunJob, now: datetime | None = None, *, owned: bool = False
) -> PolicyRunJob:
    """Return what is stored for a job that replaces the stored one; the stored one where they are equal.

    Raises:
        InvalidTransitionError: the state machine forbids the move.
        ValidationError: what never changes would, or an instant of a status without that status.
    """
    after = with_request(stored, job, now)
    if not owned and stored.status is after.status is DISPATCHING:
        after = after.evolve(**{name: getattr(stored, name) for name in LEASE_FIELDS})
    if after == stored:
        return stored
    if not policy_job_move_allowed(stored.status, after.status):
        why = "this move is not allowed" if after.status is not stored.status else "it never changes again"
        raise invalid_transition(ENTITY, "policy job", job.id, (stored.status, after.status), why)
    changed = sorted(frozen_changes(stored, after))
    if changed:
        raise ValidationError(
            f"Policy job {job.id!r}: {', '.join(changed)} cannot change from {stored.status} to "
            f"{after.status}.",
            entity=ENTITY,
            key=job.id,
        )
    return after if now is None else after.evolve(updated_at=now)


def with_request(stored: PolicyRunJob, job: PolicyRunJob, now: datetime | None) -> PolicyRunJob:
    """Return a job with the request for its cancellation that came since it was read.

    It does not become pending then, because no worker would read the request before it is leased again.
    """
    # A failed job does not need it: only a retry follows, which starts over.
    if not stored.cancellation_requested or stored.status is FAILED:
        return job
    kept = {name: getattr(stored, name) for name in REQUEST_FIELDS}
    if job.status is not PENDING or stored.status is PENDING:
        return job.evolve(**kept)
    return job.evolve(**kept, status=CANCELLED, cancelled_at=now or job.updated_at)


def frozen_changes(stored: PolicyRunJob, job: PolicyRunJob) -> Iterator[str]:
    """Yield the names of the fields that a move changes and must not."""
    fixed = [*IMMUTABLE]
    stays = stored.status is job.status
    if stored.status is not PENDING or job.status is not DISPATCHING:
        fixed += ["attempt_count", "last_attempt_at"]
    elif job.attempt_count != stored.attempt_count + 1:
        yield "attempt_count"
    if stays or job.status is not SUBMITTED:
        fixed.append("submitted_at")
    if stays:
        fixed += ["completed_at", "cancelled_at", "lease_owner"]
    yield from (name for name in fixed if getattr(stored, name) != getattr(job, name))


def released(stored: PolicyRunJob, now: datetime) -> PolicyRunJob | None:
    """Return a job whose lease has expired as it is then, ``None`` where it has not."""
    expires = stored.lease_expires_at
    if stored.status is not DISPATCHING or expires is None or expires > now:
        return None
    error = f"The lease of {stored.lease_owner} expired."
    changes: dict[str, object] = {"lease_owner": None, "lease_expires_at": None}
    changes |= {"last_error": error, "updated_at": now}
    if stored.cancellation_requested:
        changes |= {"status": CANCELLED, "cancelled_at": now}
    else:
        changes |= {"status": PENDING, "available_at": now}
    return stored.evolve(**changes)


@dataclass(frozen=True, slots=True)
class CompletedBatch:
    """What became of a batch.

    Attributes:
        answers: one for each job, in the order given; shorter where an error ended the batch.
        changed: the jobs to be stored, by id.
        error: what ended the batch; the jobs before are stored all the same.
    """

    answers: tuple[bool, ...]
    changed: Mapping[str, PolicyRunJob]
    error: TwinstoreError | None = None

    def outcome(self) -> tuple[bool, ...]:
        """Return the answers, or raise what ended the batch."""
        if self.error is not None:
            raise self.error
        return self.answers


def complete_batch(
    stored: Mapping[str, PolicyRunJob],
    jobs: Sequence[PolicyRunJob],
    expected: PolicyRunJobStatus,
    lease_owner: str | None,
    now: datetime,
) -> CompletedBatch:
    """Return what replacing some jobs one after the other makes of those that are stored.

    ``stored`` are all that the caller sees, by id; a job that names another tenant than the stored one is
    absent.
    """
    answers: list[bool] = []
    changed: dict[str, PolicyRunJob] = {}
    for job in jobs:
        found = changed.get(job.id) or stored.get(job.id)
        if found is not None and found.tenant_id != job.tenant_id:
            found = None
        try:
            after = replaced(found, job, expected, lease_owner, now)
        except LeaseLostError:
            after = None
        except TwinstoreError as error:
            return CompletedBatch(tuple(answers), changed, error)
        if after is not None and after != found:
            changed[job.id] = after
        answers.append(after is not None)
    return CompletedBatch(tuple(answers), changed)


def lease_order(job: PolicyRunJob) -> tuple[object, ...]:
    """Return the place of a job in the order of leases."""
    return (-job.priority.number, job.available_at, job.created_at, job.id)

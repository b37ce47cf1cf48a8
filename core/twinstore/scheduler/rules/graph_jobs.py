"""What a write of a graph job must satisfy against the stored job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.access.errors import invalid_transition
from twinstore.errors import ConflictError, ValidationError
from twinstore.scheduler.enums import GraphJobEventKind, GraphJobStatus
from twinstore.scheduler.states import graph_job_move_allowed

if TYPE_CHECKING:
    from twinstore.errors import InvalidTransitionError
    from twinstore.scheduler.graph_jobs import GraphJob, GraphJobEvent


def check_expectation(job: GraphJob, expected: GraphJobStatus) -> None:
    """Refuse a move that is forbidden whatever is stored.

    Repeating the end of a job is not a move; only the stored job shows whether it is the same.

    Raises:
        InvalidTransitionError: it is.
    """
    if expected is not job.status and not graph_job_move_allowed(expected, job.status):
        raise forbidden(job, expected, "this move is not allowed")


def replaced(stored: GraphJob | None, job: GraphJob, expected: GraphJobStatus) -> bool | None:
    """Return whether a job takes the place of the stored one: true, false, or ``None`` for an equal job.

    Raises:
        InvalidTransitionError: the stored job has ended otherwise.
        ValidationError: something changes that never does.
    """
    # The id too: an overlay job with the digits of a build job is another job.
    if stored is None or (stored.id, stored.status) != (job.id, expected):
        return False
    if stored == job:
        return None
    if stored.status.terminal:
        raise forbidden(job, expected, "a job that has ended never changes")
    _check_unchanged(stored, job)
    _check_start(stored, job)
    return True


def check_event(stored: GraphJobEvent, event: GraphJobEvent) -> None:
    """Refuse another event under the id of a stored one.

    Raises:
        ConflictError: its content is another one.
    """
    if stored != event:
        raise ConflictError(
            f"The graph job event {event.event_id!r} exists with different content; events never change.",
            entity="graph_job_events",
            key=event.event_id,
        )


def event_kind(job: GraphJob) -> GraphJobEventKind:
    """Return what the event of a replacement reports."""
    return GraphJobEventKind.COMPLETED if job.status.terminal else GraphJobEventKind.UPDATED


def forbidden(job: GraphJob, expected: GraphJobStatus, why: str) -> InvalidTransitionError:
    """Return the error of a forbidden move."""
    return invalid_transition("graph_jobs", "graph job", job.id, (expected, job.status), why)


def _check_unchanged(stored: GraphJob, job: GraphJob) -> None:
    # The start is not known when a job is inserted, so it may be set once.
    names = ["created_at", "started_at"] if stored.started_at is not None else ["created_at"]
    changed = [name for name in names if getattr(stored, name) != getattr(job, name)]
    if changed:
        raise ValidationError(
            f"Graph job {job.id!r}: {', '.join(changed)} cannot change after it was set.",
            entity="graph_jobs",
            key=job.id,
        )


def _check_start(stored: GraphJob, job: GraphJob) -> None:
    starts = job.status is GraphJobStatus.RUNNING and stored.status is not GraphJobStatus.RUNNING
    if starts and job.started_at is None:
        raise ValidationError(
            f"Graph job {job.id!r}: startedAt should be set on the way into running.",
            entity="graph_jobs",
            key=job.id,
        )

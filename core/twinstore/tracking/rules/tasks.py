"""What a write of a task must satisfy against the stored task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.errors import invalid_transition
from twinstore.tracking.catalog import TASKS
from twinstore.tracking.enums import TaskStatus
from twinstore.tracking.rules.records import check_expected, check_unchanged, with_stored_fields
from twinstore.tracking.states import TASK_MOVES, is_terminal
from twinstore.tracking.tasks import TaskProgress, TrackingTask

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


IMMUTABLE: Final = ("session_id", "project_id")
INSTANTS: Final = ("started_at", "completed_at")
# The instant of a move, which an update may name.
SET_BY: Final[Mapping[TaskStatus, str]] = {
    TaskStatus.IN_PROGRESS: "started_at",
    TaskStatus.COMPLETED: "completed_at",
    TaskStatus.FAILED: "completed_at",
}


def updated(
    stored: TrackingTask, record: TrackingTask, expected: TaskStatus | None, now: datetime
) -> TrackingTask:
    """Return what an update stores; the stored task where nothing changes."""
    # Before the comparison: who expects another status has not seen what is stored.
    check_expected(TASKS, stored.task_id, stored.status, expected)
    record = with_stored_fields(stored, record)
    # Before the rules: a repeated call is allowed also where no move leaves the status.
    if record == stored:
        return stored
    after = moved(stored, record.status, now)
    settable = None if record.status is stored.status else SET_BY.get(record.status)
    named = {name: getattr(record, name) for name in INSTANTS}
    # What the move does anyway is no change of the caller's.
    own = {name: value for name, value in named.items() if value != getattr(after, name)}
    given = own.pop(settable, None) if settable is not None else None
    check_unchanged(
        TASKS,
        stored,
        after.evolve(**own, **{name: getattr(record, name) for name in IMMUTABLE}),
        (*IMMUTABLE, *own),
        "instants change with the status",
    )
    instants = {name: getattr(after, name) for name in INSTANTS}
    if settable is not None and given is not None:
        instants[settable] = given
    is_retried = stored.status is TaskStatus.FAILED and record.status is TaskStatus.PENDING
    message = None if is_retried else record.error_message
    return record.evolve(**instants, error_message=message)


def started(stored: TrackingTask, now: datetime) -> TrackingTask:
    """Return a task that is in progress; the stored one if that is already so."""
    return moved(stored, TaskStatus.IN_PROGRESS, now)


def ended(
    stored: TrackingTask, status: TaskStatus, now: datetime, error_message: str | None = None
) -> TrackingTask:
    """Return a task that is completed, or failed; the stored one where it ended equally."""
    message = stored.error_message if error_message is None else error_message
    record = stored.evolve(status=status, completed_at=now, error_message=message)
    if record != stored:
        check_move(stored, status)
        if stored.status is status:
            raise forbidden(stored, status, "it ended before, at another instant or otherwise")
    return record


def retried(stored: TrackingTask, now: datetime) -> TrackingTask:
    """Return a failed task that is to be done again; a pending one as it is."""
    if stored.status not in {TaskStatus.FAILED, TaskStatus.PENDING}:
        raise forbidden(stored, TaskStatus.PENDING, "only a failed task is retried")
    return moved(stored, TaskStatus.PENDING, now)


def moved(stored: TrackingTask, status: TaskStatus, now: datetime) -> TrackingTask:
    """Return a task in another status, with the instants of the move; the stored one where it stays."""
    check_move(stored, status)
    if status is stored.status:
        return stored
    changes: dict[str, object] = {"status": status}
    if status is TaskStatus.IN_PROGRESS:
        # A blocked task goes on; a pending one begins, also for the second time.
        goes_on = stored.status is TaskStatus.BLOCKED and stored.started_at is not None
        changes["started_at"] = stored.started_at if goes_on else now
    elif status.ended:
        changes["completed_at"] = now
    elif stored.status is TaskStatus.FAILED:
        changes |= {"completed_at": None, "error_message": None}
    return stored.evolve(**changes)


def check_move(stored: TrackingTask, status: TaskStatus) -> None:
    """Refuse a move that the state machine forbids; staying is allowed where some move leaves the status."""
    stays = status is stored.status and not is_terminal(status)
    if not stays and status not in TASK_MOVES[stored.status]:
        raise forbidden(stored, status, "this move is not allowed")


def forbidden(stored: TrackingTask, status: TaskStatus, why: str) -> Exception:
    """Return the error of a forbidden move."""
    return invalid_transition(TASKS.name, TASKS.singular, stored.task_id, (stored.status, status), why)


def progress_of(counted: Mapping[str, int]) -> TaskProgress:
    """Return how far tasks are, from their number by the text of their status."""
    by_status = {status: counted[status] for status in TaskStatus if status in counted}
    total = sum(by_status.values())
    completed = by_status.get(TaskStatus.COMPLETED, 0)
    return TaskProgress(
        total=total,
        completed=completed,
        failed=by_status.get(TaskStatus.FAILED, 0),
        percentage=round(100 * completed / total) if total else 0,
        by_status=by_status,
    )

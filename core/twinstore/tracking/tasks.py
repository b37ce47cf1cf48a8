"""Tasks: what a session does one after the other, and the contract of their repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from twinstore.models.fields import Actor, Id, OptionalReference, OptionalText, Timestamp
from twinstore.tracking.enums import TaskStatus
from twinstore.tracking.records import TrackingRecord, new_id, started_now

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = ["TaskProgress", "TaskQueryOptions", "TrackingTask", "TrackingTaskRepository"]


class TrackingTask(TrackingRecord):
    """One piece of work of a session, which it only refers to: the session may be gone.

    ``created_at`` and ``updated_at`` are set by the repository.
    """

    task_id: Id
    session_id: Id
    project_id: Id
    github_issue_id: OptionalReference = None
    task_name: Actor
    status: TaskStatus
    started_at: Timestamp | None = None
    completed_at: Timestamp | None = None
    error_message: OptionalText = None
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def new(
        cls,
        *,
        session_id: str,
        project_id: str,
        task_name: str,
        now: datetime | None = None,
        task_id: str | None = None,
        github_issue_id: str | None = None,
    ) -> Self:
        """Return a pending task, with a random UUID unless it is given an id."""
        instant = started_now(now)
        return cls(
            task_id=task_id or new_id(),
            session_id=session_id,
            project_id=project_id,
            github_issue_id=github_issue_id,
            task_name=task_name,
            status=TaskStatus.PENDING,
            created_at=instant,
            updated_at=instant,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskQueryOptions:
    """Filters of ``TrackingTaskRepository.list``. ``None``: no filter; no statuses: nothing matches."""

    statuses: Collection[TaskStatus] | None = None
    session_id: str | None = None
    project_id: str | None = None
    limit: int = 20
    page_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """The progress of the tasks of a session or project.

    Attributes:
        total: all of them.
        completed: those that are completed.
        failed: those that have failed.
        percentage: the completed ones in percent, as a whole number; 0 if there is no task.
        by_status: how many have each status; statuses without tasks are omitted.
    """

    total: int
    completed: int
    failed: int
    percentage: int
    by_status: Mapping[TaskStatus, int]


class TrackingTaskRepository(Protocol):
    """Tasks; they have no tenant.

    ``created_at`` and ``updated_at`` are set by the clock of the storage, whatever a record says there. All
    methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` in a session of one tenant,
    ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored document
    that does not form a task.
    """

    def create(self, record: TrackingTask) -> TrackingTask:
        """Insert a task; return what is stored. Its session is not looked for.

        Raises:
            DuplicateError: the id exists.
        """
        ...

    def get(self, task_id: str) -> TrackingTask | None:
        """Return one task. Absent: ``None``."""
        ...

    def get_required(self, task_id: str) -> TrackingTask:
        """Return one task as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, options: TaskQueryOptions | None = None) -> Page[TrackingTask]:
        """Return a page of tasks. Order: (created_at, task_id). Limit 20, at most 100."""
        ...

    def count(self, options: TaskQueryOptions | None = None) -> int:
        """Return how many tasks all pages of :meth:`list` have together. Empty: 0."""
        ...

    def update(self, record: TrackingTask, *, expected_status: TaskStatus | None = None) -> bool:
        """Replace a task. Absent: false. Equal: true, nothing is written. Atomic.

        A move sets and clears the instants of its status, where the record does not name one that it sets.

        Raises:
            ConflictError: the stored status is not the expected one.
            InvalidTransitionError: the state machine forbids the move.
            ValidationError: what only a move changes is not as it is stored; names the fields.
        """
        ...

    def start(self, task_id: str, now: datetime) -> TrackingTask:
        """Move a pending or blocked task to in progress. Repeated call: nothing changes. Atomic.

        Raises:
            NotFoundError: it does not exist.
            InvalidTransitionError: it is completed or failed.
        """
        ...

    def complete(self, task_id: str, now: datetime) -> TrackingTask:
        """End a task in progress. Repeated with the same instant: the same. Atomic.

        Raises:
            NotFoundError: it does not exist.
            InvalidTransitionError: it is not in progress.
        """
        ...

    def fail(self, task_id: str, now: datetime, *, error_message: str) -> TrackingTask:
        """End a task in progress with what went wrong. Repeated with the same arguments: the same. Atomic.

        Raises:
            NotFoundError: it does not exist.
            InvalidTransitionError: it is not in progress.
        """
        ...

    def retry(self, task_id: str) -> TrackingTask:
        """Make a failed task pending again, without end and error. Pending: nothing changes. Atomic.

        Raises:
            NotFoundError: it does not exist.
            InvalidTransitionError: it is neither failed nor pending.
        """
        ...

    def progress(self, *, session_id: str | None = None, project_id: str | None = None) -> TaskProgress:
        """Return how far the tasks of a session or of a project are; exactly one of them is given."""
        ...

    def delete(self, task_id: str) -> bool:
        """Remove one task. Absent or repeated: false."""
        ...

    def purge_expired(self, now: datetime, *, batch_size: int = 500) -> int:
        """Remove the tasks that ended ``Tracking:Storage:RetentionDays`` ago or earlier.

        Returns how many. Oldest first, by (completed_at, task_id). Switched off: 0. Not atomic.
        """
        ...

"""Sessions: agents at work on a project on a machine, and the contract of their repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from pydantic import Field

from twinstore.models.fields import Count32, FreeObject, Id, OptionalReference, Timestamp, is_empty
from twinstore.tracking.enums import SessionStatus
from twinstore.tracking.records import TrackingRecord, new_id, started_now

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta

    from twinstore.access.paging import Page
    from twinstore.models.json_text import JsonObject

__all__ = ["SessionHealth", "SessionQueryOptions", "TrackingSession", "TrackingSessionRepository"]


class TrackingSession(TrackingRecord):
    """One agent at work. Its status and instants may be any that a store holds; repositories move them.

    ``created_at`` and ``updated_at`` are set by the repository. ``recovery_attempts`` is omitted while it is
    0. A session occupies its ``docker_slot`` while its machine lists it.
    """

    session_id: Id
    project_id: Id
    machine_id: Id
    docker_slot: Count32 | None = None
    status: SessionStatus
    last_heartbeat: Timestamp
    current_task_id: OptionalReference = None
    started_at: Timestamp
    completed_at: Timestamp | None = None
    metadata: FreeObject = Field(default_factory=dict)
    created_at: Timestamp
    updated_at: Timestamp
    recovery_attempts: Count32 = Field(default=0, exclude_if=is_empty)

    @classmethod
    def new(
        cls,
        *,
        project_id: str,
        machine_id: str,
        now: datetime | None = None,
        session_id: str | None = None,
        docker_slot: int | None = None,
        current_task_id: str | None = None,
        metadata: JsonObject | None = None,
    ) -> Self:
        """Return an active session that begins now, with a random UUID unless it is given an id."""
        instant = started_now(now)
        return cls(
            session_id=session_id or new_id(),
            project_id=project_id,
            machine_id=machine_id,
            docker_slot=docker_slot,
            status=SessionStatus.ACTIVE,
            last_heartbeat=instant,
            current_task_id=current_task_id,
            started_at=instant,
            metadata=metadata or {},
            created_at=instant,
            updated_at=instant,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQueryOptions:
    """Filters of ``TrackingSessionRepository.list``. ``None``: no filter; no statuses: nothing matches."""

    statuses: Collection[SessionStatus] | None = None
    project_id: str | None = None
    machine_id: str | None = None
    limit: int = 20
    page_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHealth:
    """The liveness of a session.

    Attributes:
        session_id: which one.
        status: its status.
        score: 100 right after a heartbeat, falling to 0 at the threshold; 0 when it has failed.
        age_seconds: how long ago the last heartbeat was.
        stale: it is active and has been silent for longer than the threshold, or was found so before.
    """

    session_id: str
    status: SessionStatus
    score: int
    age_seconds: float
    stale: bool


class TrackingSessionRepository(Protocol):
    """Sessions; they have no tenant.

    ``created_at`` and ``updated_at`` are set by the clock of the storage, whatever a record says there. A
    threshold that is not given is ``Tracking:StaleAfterSeconds``. All methods raise ``ValidationError`` for
    bad arguments, ``TenantScopeError`` in a session of one tenant, ``UnavailableError`` when the store cannot
    be reached and ``DocumentDecodeError`` for a stored document that does not form a session.
    """

    def create(self, record: TrackingSession) -> TrackingSession:
        """Insert a session; return what is stored.

        Raises:
            DuplicateError: the id exists.
        """
        ...

    def get(self, session_id: str) -> TrackingSession | None:
        """Return one session. Absent: ``None``."""
        ...

    def get_required(self, session_id: str) -> TrackingSession:
        """Return one session as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, options: SessionQueryOptions | None = None) -> Page[TrackingSession]:
        """Return a page of sessions. Order: latest start first, then by id. Limit 20, at most 100."""
        ...

    def count(self, options: SessionQueryOptions | None = None) -> int:
        """Return how many sessions all pages of :meth:`list` have together. Empty: 0."""
        ...

    def update(self, record: TrackingSession, *, expected_status: SessionStatus | None = None) -> bool:
        """Replace a session; a heartbeat never goes back. Absent: false. Equal: true, nothing is written.

        Into ``completed`` or ``failed`` it sets ``completed_at`` where the record has none, and takes the
        session off its machine in the same step. Atomic.

        Raises:
            ConflictError: the stored status is not the expected one.
            InvalidTransitionError: the state machine forbids the move.
            ValidationError: what only other methods change is not as it is stored; names the fields.
        """
        ...

    def heartbeat(
        self, session_id: str, now: datetime, *, current_task_id: str | None = None
    ) -> TrackingSession:
        """Note that a session lives, never backwards, and its task if given; a stalled one becomes active.

        Repeated call: nothing changes. Atomic.

        Raises:
            NotFoundError: it does not exist.
            InvalidTransitionError: it is completed or failed.
        """
        ...

    def find_stale(
        self, now: datetime, *, threshold: timedelta | None = None, limit: int = 100
    ) -> Page[TrackingSession]:
        """Return the active sessions that have been silent for longer than the threshold.

        Order: (last_heartbeat, session_id). Limit 100, at most 1000; there is no next page, because what was
        marked is found no more. The page names sessions that cannot be read, and passes over them.
        """
        ...

    def mark_stalled(self, now: datetime, *, threshold: timedelta | None = None) -> tuple[str, ...]:
        """Set the status of the sessions that :meth:`find_stale` finds; return the ids of those changed.

        Order: (last_heartbeat, session_id). Repeated call: ``()``. Not atomic: changes them in batches.
        """
        ...

    def complete(self, session_id: str, now: datetime) -> TrackingSession:
        """End a session; its machine lists it no more. Repeated with the same instant: the same. Atomic.

        Raises:
            NotFoundError: it does not exist.
            InvalidTransitionError: it is failed, or completed at another instant.
        """
        ...

    def fail(
        self, session_id: str, now: datetime, *, reason: str, details: JsonObject | None = None
    ) -> TrackingSession:
        """End a session with ``metadata.failure``; its machine lists it no more. Atomic.

        ``failure`` has the reason and, where given, the details. Repeated with the same arguments: the same.

        Raises:
            NotFoundError: it does not exist.
            InvalidTransitionError: it is completed, or failed otherwise.
        """
        ...

    def recover(
        self,
        session_id: str,
        machine_id: str,
        now: datetime,
        *,
        docker_slot: int | None = None,
        current_task_id: str | None = None,
    ) -> TrackingSession:
        """Make a failed or stalled session active on a machine, and count the attempt.

        Clears ``completed_at``, moves the session to the list of the machine, and takes the slot or, without
        one, none. A task that is not given stays. Atomic with both machines.

        Raises:
            NotFoundError: the session or the machine does not exist.
            ConflictError: the slot is occupied or not offered.
            InvalidTransitionError: it is neither failed nor stalled.
        """
        ...

    def health(self, session_id: str, now: datetime, *, threshold: timedelta | None = None) -> SessionHealth:
        """Return how lively a session is.

        Raises:
            NotFoundError: it does not exist.
        """
        ...

    def count_by_status(self, project_id: str) -> dict[SessionStatus, int]:
        """Return how many sessions of a project have each status; statuses without sessions are omitted."""
        ...

    def delete(self, session_id: str, *, with_tasks: bool = False) -> bool:
        """Remove a session, from the list of its machine too, and on request its tasks. Atomic.

        Absent or repeated: false, and no task is removed.
        """
        ...

    def purge_expired(self, now: datetime, *, batch_size: int = 500) -> int:
        """Remove the sessions that ended ``Tracking:Storage:RetentionDays`` ago or earlier.

        Returns how many. Oldest first, by (completed_at, session_id). Switched off: 0. Not atomic.
        """
        ...

"""Sessions for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.tracking.sessions import TrackingSessionRepository

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from twinstore.access.paging import Page
    from twinstore.models.json_text import JsonObject
    from twinstore.tracking.enums import SessionStatus
    from twinstore.tracking.sessions import SessionHealth, SessionQueryOptions, TrackingSession


__all__ = ["AsyncTrackingSessionRepository"]


class AsyncTrackingSessionRepository(Awaited[TrackingSessionRepository]):
    """Awaits a :class:`TrackingSessionRepository`, whose contracts hold."""

    async def create(self, record: TrackingSession) -> TrackingSession:
        """Insert a session; return what is stored."""
        return await self._threads.run(self._sync.create, record)

    async def get(self, session_id: str) -> TrackingSession | None:
        """Return one session. Absent: ``None``."""
        return await self._threads.run(self._sync.get, session_id)

    async def get_required(self, session_id: str) -> TrackingSession:
        """Return one session as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, session_id)

    async def list(self, options: SessionQueryOptions | None = None) -> Page[TrackingSession]:
        """Return a page of sessions. Order: latest start first, then by id. Limit 20, at most 100."""
        return await self._threads.run(self._sync.list, options)

    async def count(self, options: SessionQueryOptions | None = None) -> int:
        """Return how many sessions all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, options)

    async def update(self, record: TrackingSession, *, expected_status: SessionStatus | None = None) -> bool:
        """Replace a session; a heartbeat never goes back. Absent: false. Equal: true, nothing is written."""
        return await self._threads.run(self._sync.update, record, expected_status=expected_status)

    async def heartbeat(
        self, session_id: str, now: datetime, *, current_task_id: str | None = None
    ) -> TrackingSession:
        """Note that a session lives, never backwards, and its task if given; a stalled one becomes active."""
        return await self._threads.run(self._sync.heartbeat, session_id, now, current_task_id=current_task_id)

    async def find_stale(
        self, now: datetime, *, threshold: timedelta | None = None, limit: int = 100
    ) -> Page[TrackingSession]:
        """Return the active sessions that have been silent for longer than the threshold."""
        return await self._threads.run(self._sync.find_stale, now, threshold=threshold, limit=limit)

    async def mark_stalled(self, now: datetime, *, threshold: timedelta | None = None) -> tuple[str, ...]:
        """Set the status of the sessions that :meth:`find_stale` finds; return the ids of those changed."""
        return await self._threads.run(self._sync.mark_stalled, now, threshold=threshold)

    async def complete(self, session_id: str, now: datetime) -> TrackingSession:
        """End a session; its machine lists it no more. Repeated with the same instant: the same. Atomic."""
        return await self._threads.run(self._sync.complete, session_id, now)

    async def fail(
        self, session_id: str, now: datetime, *, reason: str, details: JsonObject | None = None
    ) -> TrackingSession:
        """End a session with ``metadata.failure``; its machine lists it no more. Atomic."""
        return await self._threads.run(self._sync.fail, session_id, now, reason=reason, details=details)

    async def recover(
        self,
        session_id: str,
        machine_id: str,
        now: datetime,
        *,
        docker_slot: int | None = None,
        current_task_id: str | None = None,
    ) -> TrackingSession:
        """Make a failed or stalled session active on a machine, and count the attempt."""
        return await self._threads.run(
            self._sync.recover,
            session_id,
            machine_id,
            now,
            docker_slot=docker_slot,
            current_task_id=current_task_id,
        )

    async def health(
        self, session_id: str, now: datetime, *, threshold: timedelta | None = None
    ) -> SessionHealth:
        """Return how lively a session is."""
        return await self._threads.run(self._sync.health, session_id, now, threshold=threshold)

    async def count_by_status(self, project_id: str) -> dict[SessionStatus, int]:
        """Return how many sessions of a project have each status; statuses without sessions are omitted."""
        return await self._threads.run(self._sync.count_by_status, project_id)

    async def delete(self, session_id: str, *, with_tasks: bool = False) -> bool:
        """Remove a session, from the list of its machine too, and on request its tasks. Atomic."""
        return await self._threads.run(self._sync.delete, session_id, with_tasks=with_tasks)

    async def purge_expired(self, now: datetime, *, batch_size: int = 500) -> int:
        """Remove the sessions that ended ``Tracking:Storage:RetentionDays`` ago or earlier."""
        return await self._threads.run(self._sync.purge_expired, now, batch_size=batch_size)

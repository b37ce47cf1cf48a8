"""Tracking for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.storage import AsyncModuleStorage
from twinstore.tracking.aio.machines import AsyncTrackingMachineRepository
from twinstore.tracking.aio.sessions import AsyncTrackingSessionRepository
from twinstore.tracking.aio.tasks import AsyncTrackingTaskRepository
from twinstore.tracking.storage import TrackingUnit

if TYPE_CHECKING:
    from twinstore.aio.calls import CallThreads, SharedThreads
    from twinstore.tracking.storage import TrackingStorage


__all__ = [
    "AsyncTrackingMachineRepository",
    "AsyncTrackingSessionRepository",
    "AsyncTrackingStorage",
    "AsyncTrackingTaskRepository",
    "AsyncTrackingUnit",
]


class AsyncTrackingUnit:
    """The repositories and services, bound or unbound as the session behind them."""

    def __init__(self, session: TrackingUnit, threads: CallThreads) -> None:
        """Take the synchronous session and the threads to call it in."""
        self.tracking_sessions = AsyncTrackingSessionRepository(session.tracking_sessions, threads)
        self.tasks = AsyncTrackingTaskRepository(session.tasks, threads)
        self.machines = AsyncTrackingMachineRepository(session.machines, threads)


class AsyncTrackingStorage(AsyncModuleStorage[TrackingUnit, AsyncTrackingUnit], AsyncTrackingUnit):
    """Repositories, services, sessions and units of work."""

    def __init__(self, storage: TrackingStorage, threads: SharedThreads) -> None:
        """Take the synchronous storage and the threads to call it in."""
        super().__init__(storage, threads, AsyncTrackingUnit)
        AsyncTrackingUnit.__init__(self, storage.unbound, threads)

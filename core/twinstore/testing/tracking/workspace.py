"""The workspace of a contract test of tracking."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from twinstore.clock import FixedClock
from twinstore.testing.tracking.builders import make_machine, make_session, make_task, put_record
from twinstore.testing.workspace import Workspace
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS
from twinstore.tracking.options import TrackingOptions
from twinstore.tracking.storage import TrackingStorage

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.tracking.machines import TrackingMachine
    from twinstore.tracking.sessions import TrackingSession, TrackingSessionRepository
    from twinstore.tracking.tasks import TrackingTask, TrackingTaskRepository

__all__ = ["TrackingWorkspace"]


class TrackingWorkspace(Workspace[TrackingStorage]):
    """What a contract test of tracking works with; its rows have ids of their own."""

    __slots__ = ()

    def opened_at(self, now: datetime) -> TrackingStorage:
        """Open another storage on the same data, whose clock stands still; the caller closes it."""
        storage = self.deployment.open(clock=FixedClock(now))
        assert isinstance(storage, TrackingStorage)
        return storage

    def session(self, name: str = "s", /, **changes: object) -> TrackingSession:
        """Store a session as it is."""
        record = make_session(self.tenant, self.id(name), **changes)
        return put_record(self.storage.unbound, "tracking_sessions", SESSIONS, record)

    def task(self, name: str = "t", /, **changes: object) -> TrackingTask:
        """Store a task as it is."""
        record = make_task(self.tenant, self.id(name), **changes)
        return put_record(self.storage.unbound, "tasks", TASKS, record)

    def machine(self, name: str = "m", /, **changes: object) -> TrackingMachine:
        """Store a machine as it is."""
        record = make_machine(self.tenant, self.id(name), **changes)
        return put_record(self.storage.unbound, "machines", MACHINES, record)

    def kept_for(self, days: int) -> tuple[TrackingSessionRepository, TrackingTaskRepository]:
        """Return the repositories of sessions and tasks that keep what has ended for so many days."""
        # The same store, as a host opens it that has tuned the module so.
        storage = copy(self.storage)
        storage._options = TrackingOptions(retention_days=days)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # no host changes it
        storage._clock = FixedClock(make_session("", "x").created_at)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the same
        unit = storage.session_over(storage._backend.repositories)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the same
        return unit.tracking_sessions, unit.tasks

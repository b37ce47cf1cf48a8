"""Valid models of tracking for any test, and the workspace that builds them.

Rows of one tenant of the kit are those of one project.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final, TypeVar, cast

from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT
from twinstore.clock import FixedClock
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.instants import at
from twinstore.testing.workspace import Workspace
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS
from twinstore.tracking.enums import MachineStatus, SessionStatus, TaskStatus
from twinstore.tracking.machines import TrackingMachine
from twinstore.tracking.options import TrackingOptions
from twinstore.tracking.sessions import TrackingSession
from twinstore.tracking.storage import TrackingStorage
from twinstore.tracking.tasks import TrackingTask

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.catalog.entity import Entity
    from twinstore.models.json_text import JsonObject
    from twinstore.tracking.repositories.base import TrackingRepository
    from twinstore.tracking.sessions import TrackingSessionRepository
    from twinstore.tracking.tasks import TrackingTaskRepository

__all__ = [
    "TrackingWorkspace",
    "make_machine",
    "make_session",
    "make_task",
    "project_of",
    "put_record",
    "rich_machine",
    "rich_session",
    "rich_task",
]

M = TypeVar("M", bound=CanonicalModel)
METADATA: Final[JsonObject] = {
    "agent": {"version": "1.2.3", "flags": [True, None, 0, -1.5, "\N{SNOWMAN}"]},
    "": {"$where": "a.b", "empty": {}, "list": []},
    "ünïcode \N{OPEN BOOK}": '\t\n"',
}


def project_of(tenant: str) -> str:
    """Return the project whose sessions and tasks are those of a tenant of the kit."""
    return f"project@{tenant}"


def make_session(tenant: str, name: str, /, **changes: object) -> TrackingSession:
    """Return an active session that has no slot."""
    session = TrackingSession(
        session_id=name,
        project_id=project_of(tenant),
        machine_id=f"machine@{tenant}",
        status=SessionStatus.ACTIVE,
        last_heartbeat=at(),
        started_at=at(),
        created_at=at(),
        updated_at=at(),
    )
    return session.evolve(**changes)


def rich_session(tenant: str, name: str) -> TrackingSession:
    """Return a session with a value in every field."""
    return make_session(
        tenant,
        name,
        docker_slot=2,
        status=SessionStatus.FAILED,
        last_heartbeat=at(5.001),
        current_task_id="task \N{OPEN BOOK}",
        completed_at=at(6.002),
        metadata=METADATA,
        updated_at=at(6.003),
        recovery_attempts=3,
    )


def make_task(tenant: str, name: str, /, **changes: object) -> TrackingTask:
    """Return a pending task."""
    task = TrackingTask(
        task_id=name,
        session_id=f"session@{tenant}",
        project_id=project_of(tenant),
        task_name="Write it down",
        status=TaskStatus.PENDING,
        created_at=at(),
        updated_at=at(),
    )
    return task.evolve(**changes)


def rich_task(tenant: str, name: str) -> TrackingTask:
    """Return a task with a value in every field."""
    return make_task(
        tenant,
        name,
        github_issue_id="octo/cat#42",
        task_name="Über die Prüfung \N{OPEN BOOK}",
        status=TaskStatus.FAILED,
        started_at=at(1.001),
        completed_at=at(2.002),
        error_message="it broke:\nagain",
        updated_at=at(2.003),
    )


def make_machine(tenant: str, name: str, /, **changes: object) -> TrackingMachine:
    """Return a machine that is online and offers no slot."""
    del tenant
    machine = TrackingMachine(
        machine_id=name,
        hostname="node-1",
        status=MachineStatus.ONLINE,
        last_heartbeat=at(),
        created_at=at(),
        updated_at=at(),
    )
    return machine.evolve(**changes)


def rich_machine(tenant: str, name: str) -> TrackingMachine:
    """Return a machine with a value in every field."""
    return make_machine(
        tenant,
        name,
        hostname="knoten-ß.example",
        docker_slots=(3, 1, 2**31 - 1),
        active_sessions=(f"b@{tenant}", f"a@{tenant}"),
        status=MachineStatus.MAINTENANCE,
        last_heartbeat=at(7.001),
        metadata=METADATA,
        updated_at=at(7.002),
    )


def put_record(session: object, attribute: str, entity: Entity[M], record: M) -> M:
    """Insert a record as it is: the repository would set its instants, and list no session by itself."""
    # Not asked for its class: a run that notes calls puts something in front of it.
    repository = cast("TrackingRepository", getattr(session, attribute))
    return repository._access.insert(entity, NO_TENANT, Row(record)).model  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # past its rules


class TrackingWorkspace(Workspace[TrackingStorage]):
    """What a contract test of tracking works with; its rows have unique ids."""

    __slots__ = ()

    def opened_at(self, now: datetime) -> TrackingStorage:
        """Open another storage on the same data, whose clock is stopped; the caller closes it."""
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
        """Return the repositories of sessions and tasks that keep ended ones for that many days."""
        # The same store, as a host opens it that has tuned the module so.
        storage = copy(self.storage)
        storage._options = TrackingOptions(retention_days=days)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # no host changes it
        storage._clock = FixedClock(make_session("", "x").created_at)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the same
        unit = storage.session_over(storage._backend.repositories)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the same
        return unit.tracking_sessions, unit.tasks

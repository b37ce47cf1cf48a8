"""Sessions, tasks and machines of the demo, written through the repositories of tracking."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from twinstore.tracking import TrackingMachine, TrackingSession, TrackingTask

if TYPE_CHECKING:
    from twinstore.tracking.storage import TrackingStorage

__all__ = ["read_work", "write_work"]

MACHINES: Final = 5
SESSIONS: Final = 100
SLOTS: Final = 4
# So recent that nothing is due for removal while it is copied.
STARTED_AGO: Final = timedelta(days=3)


def write_work(storage: TrackingStorage) -> None:
    """Let sessions work on tasks, on machines with slots."""
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - STARTED_AGO
    for number in range(MACHINES):
        storage.machines.create(
            TrackingMachine.new(
                machine_id=f"machine-{number}", hostname=f"host-{number}", docker_slots=range(SLOTS), now=now
            )
        )
    for number in range(SESSIONS):
        _work(storage, number, now + timedelta(minutes=number))


def read_work(storage: TrackingStorage) -> tuple[object, ...]:
    """Return what the service shows of it: the latest sessions, the tasks, the free slots."""
    return (storage.tracking_sessions.list(), storage.tasks.list(), storage.machines.list_available())


def _work(storage: TrackingStorage, number: int, now: datetime) -> None:
    machine = f"machine-{number % MACHINES}"
    session = TrackingSession.new(
        session_id=f"session-{number:04}",
        project_id=f"project-{number % 7}",
        machine_id=machine,
        metadata={"branch": f"topic/{number}", "agent": {"name": "größer"}},
        now=now,
    )
    task = TrackingTask.new(
        task_id=f"task-{number:04}",
        session_id=session.session_id,
        project_id=session.project_id,
        task_name=f"Investigate finding {number}",
        now=now,
    )
    storage.tracking_sessions.create(session)
    storage.tasks.create(task)
    storage.machines.assign_session(machine, session.session_id, docker_slot=number // MACHINES % SLOTS)
    storage.tasks.start(task.task_id, now)
    if number < SESSIONS - MACHINES:
        storage.tasks.complete(task.task_id, now + timedelta(minutes=3))
        storage.tracking_sessions.complete(session.session_id, now + timedelta(minutes=3))

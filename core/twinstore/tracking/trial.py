"""What ``twinstore smoke`` does with tracking: a machine, sessions and a task, in a unit that is rolled back.

No row of tracking has a tenant, so the trial is separated from running services only because they do not see
its rows: a machine that others see could be given sessions. So a store without transactions is tried by its
lists alone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConflictError
from twinstore.plugins.checks import Trial, TrialStep, expect, never_committed
from twinstore.tracking.enums import SessionStatus, TaskStatus
from twinstore.tracking.machines import TrackingMachine
from twinstore.tracking.sessions import SessionQueryOptions, TrackingSession
from twinstore.tracking.tasks import TrackingTask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.tracking.storage import TrackingStorage, TrackingUnit

SMOKE_NAME: Final = "twinstore-smoke"
# Within what every store holds.
FAR_FUTURE: Final = datetime(9000, 1, 1, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
SLOT: Final = 1


class TrackingTrial:
    """What is tried in one unit; each part builds on those before."""

    def __init__(self, unit: TrackingUnit, name: str) -> None:
        """Take the unit, and the name of an unused tenant: no id begins with it."""
        self._unit = unit
        self._machine = f"{name}/machine"
        self._sessions = (f"{name}/1", f"{name}/2")
        self._project = f"{name}/project"

    def problems(self) -> Iterator[str]:
        """Yield what went otherwise than it must."""
        yield from self._slot()
        yield from self._task()
        yield from self._end()

    def _slot(self) -> Iterator[str]:
        unit, (first, second) = self._unit, self._sessions
        machine = TrackingMachine.new(
            machine_id=self._machine, hostname=SMOKE_NAME, docker_slots=(SLOT,), now=FAR_FUTURE
        )
        unit.machines.create(machine)
        for key in self._sessions:
            unit.tracking_sessions.create(
                TrackingSession.new(
                    project_id=self._project, machine_id=self._machine, session_id=key, now=FAR_FUTURE
                )
            )
        listed = unit.machines.assign_session(self._machine, first, docker_slot=SLOT).active_sessions
        yield from expect("the sessions of the machine", found=listed, wanted=(first,))
        slot = unit.tracking_sessions.get_required(first).docker_slot
        yield from expect("the slot of the session", found=slot, wanted=SLOT)
        try:
            unit.machines.assign_session(self._machine, second, docker_slot=SLOT)
        except ConflictError:
            pass
        else:
            yield "a slot that one session occupies was given to another one"

    def _task(self) -> Iterator[str]:
        tasks, (session, _) = self._unit.tasks, self._sessions
        task = tasks.create(
            TrackingTask.new(
                session_id=session, project_id=self._project, task_name=SMOKE_NAME, now=FAR_FUTURE
            )
        )
        tasks.start(task.task_id, FAR_FUTURE)
        done = tasks.complete(task.task_id, FAR_FUTURE + MINUTE)
        yield from expect("the status of the task", found=done.status, wanted=TaskStatus.COMPLETED)
        progress = tasks.progress(session_id=session).percentage
        yield from expect("the progress of the session", found=progress, wanted=100)

    def _end(self) -> Iterator[str]:
        sessions, (first, second) = self._unit.tracking_sessions, self._sessions
        seen = sessions.heartbeat(first, FAR_FUTURE + MINUTE).last_heartbeat
        yield from expect("the last heartbeat", found=seen, wanted=FAR_FUTURE + MINUTE)
        ended = sessions.complete(first, FAR_FUTURE + MINUTE)
        yield from expect("the status of the session", found=ended.status, wanted=SessionStatus.COMPLETED)
        listed = self._unit.machines.get_required(self._machine).active_sessions
        yield from expect("the sessions of the machine at the end", found=listed, wanted=())
        shown = sessions.list(SessionQueryOptions(project_id=self._project))
        found = [session.session_id for session in shown]
        yield from expect("the sessions of the project", found=found, wanted=[first, second])


def rolled_back(storage: TrackingStorage, name: str) -> Iterable[str]:
    """Try everything in a unit that is not committed."""
    with never_committed(storage.transaction()) as unit:
        found = [*TrackingTrial(unit, name).problems()]
    left = storage.machines.get(f"{name}/machine")
    return [*found, *expect("the machine after rolling back", found=left, wanted=None)]


def steps(storage: TrackingStorage, name: str) -> Iterator[TrialStep]:
    """Return the steps."""
    if storage.capabilities.transactions:
        yield TrialStep(
            "session in a slot, with a task, to its end, rolled back", lambda: rolled_back(storage, name)
        )


TRACKING_TRIAL: Final = Trial(steps=steps)

"""The drivers answer alike: the same random calls on three stores, alone and in units, result by result."""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests.stores import DRIVERS
from tests.tracking.stores import fresh_tracking
from twinstore.clock import ManualClock
from twinstore.errors import TwinstoreError
from twinstore.testing.instants import START, at
from twinstore.tracking import (
    MachineStatus,
    SessionQueryOptions,
    SessionStatus,
    TaskQueryOptions,
    TaskStatus,
    TrackingMachine,
    TrackingSession,
    TrackingTask,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.jsontext import JsonObject
    from twinstore.tracking.storage import TrackingStorage, TrackingUnit

STEPS: Final = 250
METADATA: Final[JsonObject] = {"at": {"$date": "2025-10-26T14:05:00+00:00"}, "list": [1.5, None, {"é": ""}]}


@dataclass(frozen=True)
class Draw:
    """What one step is about; few names, so that steps meet each other."""

    random: random.Random

    def calls(self) -> list[Callable[[TrackingUnit], object]]:
        """Return one call of each kind."""
        draw = self.random
        now, slot, limit = at(draw.randrange(2000)), draw.choice([1, 2, None, 7]), draw.randrange(1, 4)
        session, machine, task = (f"{kind}{draw.randrange(4)}" for kind in "smt")
        ended = draw.choice(list(SessionStatus))
        statuses = [ended, SessionStatus.ACTIVE]
        new = TrackingSession.new(
            project_id="p", machine_id=machine, session_id=session, now=now, metadata=METADATA
        )
        offering = TrackingMachine.new(machine_id=machine, hostname="h", docker_slots=(2, 1), now=now)
        work = TrackingTask.new(session_id=session, project_id="p", task_name="x", task_id=task, now=now)
        return [
            lambda it: it.tracking_sessions.create(new),
            lambda it: it.machines.create(offering),
            lambda it: it.tasks.create(work),
            lambda it: it.machines.assign_session(machine, session, docker_slot=slot),
            lambda it: it.machines.release_session(machine, session),
            lambda it: it.tracking_sessions.complete(session, now),
            lambda it: it.tracking_sessions.fail(session, now, reason="r", details=METADATA),
            lambda it: it.tracking_sessions.recover(session, machine, now, docker_slot=slot),
            lambda it: it.tracking_sessions.heartbeat(session, now, current_task_id=task),
            lambda it: it.tracking_sessions.mark_stalled(now),
            lambda it: it.tracking_sessions.find_stale(now, limit=limit),
            lambda it: it.tracking_sessions.health(session, now),
            lambda it: it.tracking_sessions.count_by_status("p"),
            lambda it: updated_session(it, session, ended),
            lambda it: updated_task(it, task, draw_task(now.second)),
            lambda it: updated_machine(it, machine, slot),
            lambda it: it.tracking_sessions.list(SessionQueryOptions(statuses=statuses, limit=limit)),
            lambda it: it.tasks.list(TaskQueryOptions(session_id=session, limit=limit)),
            lambda it: it.machines.list(statuses=[MachineStatus.ONLINE], limit=limit),
            lambda it: it.machines.list_available(limit=limit),
            lambda it: it.tasks.start(task, now),
            lambda it: it.tasks.complete(task, now),
            lambda it: it.tasks.fail(task, now, error_message="e"),
            lambda it: it.tasks.retry(task),
            lambda it: it.tasks.progress(project_id="p"),
            lambda it: it.machines.heartbeat(machine, now),
            lambda it: it.tracking_sessions.delete(session, with_tasks=True) if limit == 1 else None,
            lambda it: it.machines.delete(machine) if limit == 1 else None,
        ]


def draw_task(number: int) -> TaskStatus:
    """Return a status of a task."""
    return list(TaskStatus)[number % len(TaskStatus)]


def updated_session(unit: TrackingUnit, key: str, status: SessionStatus) -> object:
    """Move a session by an update."""
    found = unit.tracking_sessions.get(key)
    return found and unit.tracking_sessions.update(found.evolve(status=status))


def updated_task(unit: TrackingUnit, key: str, status: TaskStatus) -> object:
    """Move a task by an update."""
    found = unit.tasks.get(key)
    return found and unit.tasks.update(found.evolve(status=status))


def updated_machine(unit: TrackingUnit, key: str, slot: int | None) -> object:
    """Let a machine offer one slot, or two."""
    found = unit.machines.get(key)
    return found and unit.machines.update(found.evolve(docker_slots=(1, 2) if slot is None else (slot,)))


def answer(storage: TrackingStorage, call: Callable[[TrackingUnit], object], *, in_unit: bool) -> object:
    """Return what a call answers, or how it is refused."""
    try:
        return storage.transact(call) if in_unit else call(storage.unbound)
    except TwinstoreError as error:
        return type(error).__name__, error.message, error.entity, error.key


@pytest.mark.parametrize("seed", [1, 2])
def test_the_same_calls_have_the_same_answers_on_every_driver(
    seed: int, request: pytest.FixtureRequest
) -> None:
    draw, clock = random.Random(seed), ManualClock(START)
    with ExitStack() as stack:
        storages = [
            stack.enter_context(fresh_tracking(driver, request, clock, {"retention_days": 0}))
            for driver in DRIVERS
        ]
        for step in range(STEPS):
            clock.advance(timedelta(milliseconds=draw.randrange(5000)))
            calls = Draw(draw).calls()
            number, in_unit = draw.randrange(len(calls)), draw.random() < 0.3
            first, *others = [answer(storage, calls[number], in_unit=in_unit) for storage in storages]
            for driver, other in zip(DRIVERS[1:], others, strict=True):
                assert other == first, f"step {step}, call {number}, {driver}"

"""The samples of tracking are stored and come back byte for byte on every driver."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.stores import DRIVERS
from tests.tracking.stores import tracking_on, tracking_settings
from twinstore.canonical import CanonicalJsonSerializer
from twinstore.clock import FixedClock
from twinstore.testing.tracking.builders import put_record
from twinstore.tracking import TrackingMachine, TrackingSession, TrackingTask
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel

FOLDER: Final = Path(__file__).parents[2] / "samples/tracking"
SESSION: Final = CanonicalJsonSerializer.deserialize(TrackingSession, (FOLDER / "session.json").read_bytes())
TASK: Final = CanonicalJsonSerializer.deserialize(TrackingTask, (FOLDER / "task.json").read_bytes())
MACHINE: Final = CanonicalJsonSerializer.deserialize(TrackingMachine, (FOLDER / "machine.json").read_bytes())


def text_of(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def pretty(model: CanonicalModel) -> bytes:
    return CanonicalJsonSerializer.serialize_pretty(model)


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_sample_comes_back_byte_for_byte(driver: str, request: pytest.FixtureRequest) -> None:
    with tracking_settings(driver, request) as settings:
        with tracking_on(settings) as storage:
            put_record(storage.unbound, "tracking_sessions", SESSIONS, SESSION)
            put_record(storage.unbound, "tasks", TASKS, TASK)
            put_record(storage.unbound, "machines", MACHINES, MACHINE)
        with tracking_on(settings) as storage:
            assert pretty(storage.tracking_sessions.get_required(SESSION.session_id)) == text_of(
                "session.json"
            )
            assert pretty(storage.tasks.get_required(TASK.task_id)) == text_of("task.json")
            assert pretty(storage.machines.get_required(MACHINE.machine_id)) == text_of("machine.json")


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_sample_that_a_host_creates_differs_by_the_instants_of_the_store_alone(
    driver: str, request: pytest.FixtureRequest
) -> None:
    now = SESSION.created_at + timedelta(days=1)
    with tracking_settings(driver, request) as settings, tracking_on(settings, FixedClock(now)) as storage:
        created = storage.tracking_sessions.create(SESSION)
        assert created == SESSION.evolve(created_at=now, updated_at=now)
        assert storage.tracking_sessions.get(SESSION.session_id) == created

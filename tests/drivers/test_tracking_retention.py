"""What MongoDB removes by itself is what a purge removes on PostgreSQL: the same rows, and no other."""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest
from pymongo import MongoClient

import twinstore_embedded
from tests.support.modules import fresh_tracking, settings_of, tracking_on
from twinstore.testing.tracking.builders import make_machine, make_session, make_task, put_record
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS
from twinstore.tracking.enums import SessionStatus, TaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.tracking.storage import TrackingStorage
    from twinstore_embedded import MongoServer

DAYS: Final = timedelta(days=30)
HOUR: Final = timedelta(hours=1)
PATIENCE: Final = 60.0


@pytest.fixture(scope="module")
def busy() -> Iterator[MongoServer]:
    """Run a server whose TTL monitor comes every second, as soon as it is let."""
    with tempfile.TemporaryDirectory(prefix="twinstore-ttl-") as directory:
        parameters = {"ttlMonitorSleepSecs": 1, "ttlMonitorEnabled": "false"}
        server = twinstore_embedded.start_mongo(directory, parameters=parameters, owned=True)
        yield server
        server.stop()


def fill(storage: TrackingStorage, now: datetime) -> None:
    """Store sessions and tasks of every status, due, young and without an end, and an old machine."""
    ages = {"due": now - DAYS - HOUR, "young": now - DAYS + HOUR, "never": None}
    unbound = storage.unbound
    for name, completed_at in ages.items():
        for session_status in SessionStatus:
            session = make_session(
                "", f"{session_status}/{name}", status=session_status, completed_at=completed_at
            )
            put_record(unbound, "tracking_sessions", SESSIONS, session)
        for task_status in TaskStatus:
            task = make_task("", f"{task_status}/{name}", status=task_status, completed_at=completed_at)
            put_record(unbound, "tasks", TASKS, task)
    put_record(unbound, "machines", MACHINES, make_machine("", "old"))


def left(storage: TrackingStorage) -> set[str]:
    """Return what is still there."""
    found = {f"machines {item.machine_id}" for item in storage.machines.list()}
    for name in ("due", "young", "never"):
        found |= {
            f"sessions {status}/{name}"
            for status in SessionStatus
            if storage.tracking_sessions.get(f"{status}/{name}") is not None
        }
        found |= {
            f"tasks {status}/{name}"
            for status in TaskStatus
            if storage.tasks.get(f"{status}/{name}") is not None
        }
    return found


def test_the_server_removes_what_a_purge_removes(busy: MongoServer, request: pytest.FixtureRequest) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    with (
        fresh_tracking("postgres", request) as tables,
        tracking_on(settings_of(busy.url, "ttl")) as documents,
        MongoClient[dict[str, object]](busy.url, appname="twinstore") as client,
    ):
        for storage in (tables, documents):
            fill(storage, now)
        everything = left(documents)
        assert left(tables) == everything
        assert tables.tracking_sessions.purge_expired(now) == 2
        assert tables.tasks.purge_expired(now) == 2
        gone = {
            f"{kind} {status}/due" for kind in ("sessions", "tasks") for status in ("completed", "failed")
        }
        assert everything - left(tables) == gone
        client.admin.command("setParameter", 1, ttlMonitorEnabled=True)
        until = time.monotonic() + PATIENCE
        while left(documents) & gone and time.monotonic() < until:
            client.admin.command("ping")
        assert left(documents) == left(tables)
        # The same purge finds nothing more, so applications may call it on either.
        assert documents.tracking_sessions.purge_expired(now) == 0
        assert documents.tasks.purge_expired(now) == 0

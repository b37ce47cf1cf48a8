"""Claims on MongoDB that write and then read what they wrote: another primary may answer the second."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient
from typing_extensions import override

import twinstore
from tests.support.databases import StartedListener, without_retention
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_policy_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.monitoring import CommandStartedEvent

    from tests.support.databases import MongoDatabase
    from twinstore.scheduler.storage import SchedulerStorage

TENANT: Final = "acme"
LEASE: Final = timedelta(hours=1)


class Commands(StartedListener):
    """Notes by name what is sent: the session, and after which write a read must come."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, object, bool]] = []

    @override
    def started(self, event: CommandStartedEvent) -> None:
        follows = "afterClusterTime" in event.command.get("readConcern", {})
        self.sent.append((event.command_name, event.command.get("lsid"), follows))


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def storage(mongo_database: MongoDatabase, commands: Commands) -> Iterator[SchedulerStorage]:
    with MongoClient[dict[str, Any]](mongo_database.url, event_listeners=[commands]) as client:
        mongo = {"Client": client, "Database": mongo_database.name}
        with twinstore.add_scheduler_mongo_storage(
            without_retention({"Persistence": {"Mongo": mongo}})
        ) as opened:
            opened.initializer.ensure_migrations()
            for name in "abc":
                opened.policy_jobs.create(make_policy_job(TENANT, name))
            yield opened


def test_what_was_leased_is_read_after_it_was_written(storage: SchedulerStorage, commands: Commands) -> None:
    commands.sent.clear()
    assert len(storage.policy_jobs.lease_many("worker", START, limit=2, lease=LEASE)) == 2
    first, write, read = commands.sent
    assert (first[0], write[0], read[0]) == ("find", "update", "find")
    assert read[1] == write[1]
    assert read[2]

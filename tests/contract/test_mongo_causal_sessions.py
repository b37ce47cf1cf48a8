"""What a session sends to MongoDB: causal consistency is on unless the caller switches it off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener
from typing_extensions import override

import twinstore
from tests.stores import kept
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent

    from tests.databases import MongoDatabase
    from twinstore import SchedulerMongoSessionFactory, SchedulerSession

TENANT: Final = "tenant-of-a-causal-session"


class Finds(CommandListener):
    """Notes the read concern of each `find`."""

    def __init__(self) -> None:
        self.concerns: list[dict[str, Any]] = []

    @override
    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "find":
            self.concerns.append(dict(event.command.get("readConcern", {})))

    @override
    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    @override
    def failed(self, event: CommandFailedEvent) -> None:
        pass


@pytest.mark.parametrize(
    ("opened", "causal"),
    [
        (lambda sessions: sessions.open(TENANT), True),
        (lambda sessions: sessions.open(TENANT, causal_consistency=False), False),
    ],
    ids=["default", "off"],
)
def test_a_read_after_a_write_in_a_session_waits_for_it_unless_that_is_switched_off(
    opened: Callable[[SchedulerMongoSessionFactory], AbstractContextManager[SchedulerSession]],
    *,
    causal: bool,
    module_mongo_database: MongoDatabase,
) -> None:
    finds = Finds()
    with MongoClient[dict[str, Any]](module_mongo_database.url, event_listeners=[finds]) as client:
        mongo = {"Client": client, "Database": module_mongo_database.name}
        storage = twinstore.add_scheduler_mongo_storage(kept({"Persistence": {"Mongo": mongo}}))
        with storage, opened(storage.sessions) as session:
            run = session.runs.create(make_run(TENANT, f"run {causal}"))
            finds.concerns.clear()
            assert session.runs.get(TENANT, run.id) == run
    assert finds.concerns
    assert all(("afterClusterTime" in concern) is causal for concern in finds.concerns)

"""A commit whose answer never came: nobody knows whether it was applied, and the error says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient
from pymongo.monitoring import CommandListener
from typing_extensions import override

import twinstore
from tests.contract.deployments.wire import Line, line_to
from tests.stores import kept
from twinstore.errors import Outcome, UnavailableError
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent

    from tests.databases import MongoDatabase, MongoServer
    from twinstore.scheduler.storage import SchedulerStorage

TENANT = "tenant-of-nobody"
# The client does not look where the primary is, past the line, and gives up soon.
OPTIONS = "directConnection=true&serverSelectionTimeoutMS=300&timeoutMS=3000"


class CutsAtCommit(CommandListener):
    """Cuts a line when a commit is under way."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.sessions: list[Mapping[str, Any]] = []

    @override
    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "commitTransaction":
            self.sessions.append({"id": event.command["lsid"]["id"]})
            self._line.cut()

    @override
    def succeeded(self, event: CommandSucceededEvent) -> None:
        pass

    @override
    def failed(self, event: CommandFailedEvent) -> None:
        pass


def test_a_commit_that_was_sent_to_a_server_that_is_gone_has_an_unknown_outcome(
    mongo_server: MongoServer, empty_mongo_database: MongoDatabase
) -> None:
    server = mongo_server.client.address
    assert server is not None
    with line_to((server[0], server[1] or 27017)) as line:
        url = f"mongodb://127.0.0.1:{line.port}/?{OPTIONS}"
        listener = CutsAtCommit(line)
        with MongoClient[dict[str, Any]](url, event_listeners=[listener]) as client:
            mongo = {"Client": client, "Database": empty_mongo_database.name}
            settings = kept({"Persistence": {"Mongo": mongo}})
            with twinstore.add_scheduler_mongo_storage(settings) as storage:
                storage.initializer.ensure_migrations()
                with pytest.raises(UnavailableError) as caught:
                    create(storage)
    # The server would keep the transaction, and its locks, for a minute.
    mongo_server.client.admin.command("killSessions", listener.sessions)
    assert caught.value.outcome is Outcome.UNKNOWN


def create(storage: SchedulerStorage) -> None:
    with storage.transaction(TENANT) as unit:
        unit.runs.create(make_run(TENANT, "r-1"))

"""A commit or a write whose answer never came: it may have been applied, and the error says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError
from typing_extensions import override

import twinstore
from tests.support.databases import StartedListener
from tests.support.outages import eventually
from tests.support.proxies import BreakableProxy, proxy_to
from twinstore.errors import Outcome, UnavailableError
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pymongo.monitoring import CommandStartedEvent

    from tests.support.databases import MongoDatabase, MongoServer
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

TENANT = "tenant-of-nobody"
# The client does not look where the primary is, past the line, and gives up soon.
OPTIONS = "directConnection=true&serverSelectionTimeoutMS=300&timeoutMS=3000"


class Cuts(StartedListener):
    """Cuts a line when a command of this name is under way."""

    def __init__(self, line: BreakableProxy, command: str) -> None:
        self._line = line
        self._command = command
        self.sessions: list[Mapping[str, Any]] = []

    @override
    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == self._command:
            self.sessions.append({"id": event.command["lsid"]["id"]})
            self._line.cut()


def answers(client: MongoClient[dict[str, Any]]) -> bool:
    """Whether the server answers, as it does from then on until the line is cut."""
    try:
        return bool(client.admin.command("ping")["ok"])
    except PyMongoError:
        return False


def in_a_unit(storage: SchedulerStorage) -> None:
    with storage.transaction(TENANT) as unit:
        create(unit)


def create(session: SchedulerSession) -> None:
    session.runs.create(make_run(TENANT, str(uuid4())))


@pytest.mark.parametrize(
    ("command", "call"),
    [("commitTransaction", in_a_unit), ("insert", create)],
    ids=["commit", "insert"],
)
def test_what_was_sent_to_a_server_that_is_gone_has_an_unknown_outcome(
    mongo_server: MongoServer,
    module_mongo_database: MongoDatabase,
    command: str,
    call: Callable[[SchedulerStorage], None],
) -> None:
    server = mongo_server.client.address
    assert server is not None
    with proxy_to((server[0], server[1] or 27017)) as line:
        url = f"mongodb://127.0.0.1:{line.port}/?{OPTIONS}"
        listener = Cuts(line, command)
        with MongoClient[dict[str, Any]](url, event_listeners=[listener]) as client:
            # On a busy machine to connect may take longer than the client may look for a server.
            assert eventually(lambda: answers(client))
            mongo = {"Client": client, "Database": module_mongo_database.name}
            with (
                twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}}) as storage,
                pytest.raises(UnavailableError) as caught,
            ):
                call(storage)
    # The server would keep a transaction, and its locks, for a minute.
    mongo_server.client.admin.command("killSessions", listener.sessions)
    assert caught.value.outcome is Outcome.UNKNOWN

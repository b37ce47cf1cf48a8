"""A migrated database of MongoDB goes to the next test as the first one got it, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
from pymongo.database import Database

import twinstore
from tests.databases import MongoDatabase, MongoServer
from tests.migrated_databases import LEDGER, MOST_TO_REMOVE, MigratedDatabases
from tests.server_supervisor import run_id
from tests.stores import kept
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Documents = Database[dict[str, Any]]
# While the other worker has a transaction open, no database is kept.
ROUNDS: Final = 20
HARM: Final[dict[str, Callable[[Documents], object]]] = {
    "an index less": lambda found: found["runs"].drop_index("ix_tenantId_createdAt__id"),
    "an index more": lambda found: found["runs"].create_index("own"),
    "no validator": lambda found: found.command("collMod", "runs", validator={}),
    "a step less": lambda found: found[LEDGER].delete_one({"_id": "scheduler:013_create_locks"}),
    "many rows": lambda found: found["own"].insert_many([{} for _ in range(MOST_TO_REMOVE + 1)]),
    "an index that met an array": lambda found: forced(found, {"tenantId": ["acme", "globex"]}),
}


def forced(found: Documents, *documents: dict[str, Any]) -> None:
    found["run_summaries"].insert_many(documents, bypass_document_validation=True)


@pytest.fixture(scope="module")
def pool(mongo_server: MongoServer, run_directory: Path) -> Iterator[MigratedDatabases]:
    prefix = f"twinstore_{run_id(run_directory)}_{uuid4().hex[:8]}"
    names: list[str] = []

    def database() -> MongoDatabase:
        names.append(f"{prefix}_{len(names)}")
        return MongoDatabase(mongo_server.url, names[-1])

    yield MigratedDatabases(mongo_server.client, database)
    for name in names:
        mongo_server.client.drop_database(name)


def given_back(pool: MigratedDatabases, change: Callable[[MongoDatabase], object]) -> MongoDatabase:
    """Return a database that was changed and nevertheless kept."""
    for _ in range(ROUNDS):
        database = pool.take()
        change(database)
        if pool.give_back(database):
            return database
    pytest.fail("no database was kept")


def test_a_database_is_given_again_without_row_and_without_a_collection_of_the_test(
    pool: MigratedDatabases, mongo_server: MongoServer
) -> None:
    def use(database: MongoDatabase) -> None:
        with twinstore.open_storage(kept(database.config)) as storage:
            storage.scheduler.runs.create(make_run("acme", "r-1"))
        mongo_server.client[database.name]["own"].insert_one({"_id": 1})

    kept_one = given_back(pool, use)
    assert pool.take() == kept_one
    found = mongo_server.client[kept_one.name]
    assert [name for name in found.list_collection_names() if found[name].find_one()] == [LEDGER]
    assert "own" not in found.list_collection_names()
    with twinstore.open_storage(kept(kept_one.config)) as storage:
        report = storage.scheduler.initializer.ensure_migrations()
    assert (report.applied, report.changes, report.unknown) == ((), (), ())


@pytest.mark.parametrize("harm", HARM)
def test_a_database_with_another_schema_or_many_rows_is_not_given_again(
    pool: MigratedDatabases, mongo_server: MongoServer, harm: str
) -> None:
    database = pool.take()
    client: Any = mongo_server.client
    HARM[harm](client[database.name])
    assert not pool.give_back(database)


def test_a_database_is_not_given_again_while_a_transaction_is_open(
    pool: MigratedDatabases, mongo_server: MongoServer
) -> None:
    database = pool.take()
    with mongo_server.client.start_session() as session, session.start_transaction():
        mongo_server.client[database.name]["runs"].find_one(session=session)
        assert not pool.give_back(database)

"""What a test gets is as fresh as its fixture promises, and takes the path that it asks for.

A migrated database of MongoDB goes to the next test as the first one got it, or not at all.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pytest
from pymongo.database import Database

import twinstore
from tests.support.databases import (
    APP_ROLE,
    LEDGER,
    MOST_TO_REMOVE,
    OWNER_ROLE,
    MigratedDatabases,
    MongoDatabase,
    MongoServer,
    PostgresDatabase,
    PostgresServer,
    without_retention,
)
from tests.support.server_supervisor import run_id
from twinstore.fast.library import fast_path
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OFF: Final = "off (TWINSTORE_FAST_PATH=off)"
USUAL: Final = str(fast_path())
SEEN: list[str] = []


@pytest.mark.usefixtures("both_paths")
def test_this_one_runs_on_both_paths() -> None:
    asked = [sys.executable, "-c", "from twinstore.fast.library import fast_path; print(fast_path())"]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(fast_path())
    SEEN.append(done.stdout.strip())


def test_both_paths_were_seen() -> None:
    wanted = [USUAL, OFF] if USUAL == "native" else [OFF]
    assert wanted == SEEN
    assert str(fast_path()) == USUAL


def test_the_first_lines_of_a_run_say_which_one_is_usual(pytestconfig: pytest.Config) -> None:
    assert f"fast path: {USUAL}" in pytestconfig.hook.pytest_report_header(config=pytestconfig, start_path="")


def test_a_mongo_database_is_gone_after_its_test(mongo_server: MongoServer) -> None:
    with mongo_server.database() as database:
        mongo_server.client[database.name]["items"].insert_one({"_id": 1})
        assert database.name in mongo_server.client.list_database_names()
    assert database.name not in mongo_server.client.list_database_names()


def test_a_postgres_database_is_gone_after_its_test_even_with_a_connection_open(
    postgres_server: PostgresServer,
) -> None:
    with postgres_server.empty_database() as database:
        forgotten = psycopg.connect(database.app_url)
    with forgotten, pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(database.app_url)


def test_the_owner_owns_the_database_and_the_application_does_not(
    empty_postgres_database: PostgresDatabase,
) -> None:
    with psycopg.connect(empty_postgres_database.owner_url) as owner:
        owner.execute("CREATE SCHEMA rooms")
        assert owner.execute("SELECT current_user").fetchone() == (OWNER_ROLE,)
    with (
        psycopg.connect(empty_postgres_database.app_url) as application,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        application.execute("CREATE SCHEMA more")


def test_neither_role_can_pass_row_level_security(postgres_server: PostgresServer) -> None:
    with postgres_server.empty_database():
        query = "SELECT bool_or(rolsuper OR rolbypassrls) FROM pg_roles WHERE rolname = ANY(%s)"
        assert postgres_server.admin.execute(query, [[OWNER_ROLE, APP_ROLE]]).fetchone() == (False,)


def test_two_clones_share_the_schema_and_nothing_that_came_later(
    postgres_server: PostgresServer, postgres_database: PostgresDatabase
) -> None:
    with psycopg.connect(postgres_database.superuser_url) as connection:
        connection.execute("CREATE TABLE public.mark ()")
    with postgres_server.migrated_database() as other:
        assert tables(postgres_database) - tables(other) == {"public.mark"}
        assert "scheduler.schedules" in tables(other)


def tables(database: PostgresDatabase) -> set[str]:
    with psycopg.connect(database.superuser_url) as connection:
        found = connection.execute("SELECT schemaname || '.' || tablename FROM pg_tables")
        return {name for (name,) in found}


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


def lossless_document(pool: MigratedDatabases, change: Callable[[MongoDatabase], object]) -> MongoDatabase:
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
        with twinstore.open_storage(without_retention(database.config)) as storage:
            storage.scheduler.runs.create(make_run("acme", "r-1"))
        mongo_server.client[database.name]["own"].insert_one({"_id": 1})

    kept_one = lossless_document(pool, use)
    assert pool.take() == kept_one
    found = mongo_server.client[kept_one.name]
    assert [name for name in found.list_collection_names() if found[name].find_one()] == [LEDGER]
    assert "own" not in found.list_collection_names()
    with twinstore.open_storage(without_retention(kept_one.config)) as storage:
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

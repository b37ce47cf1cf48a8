"""An older PostgreSQL than that of the wheel: what its catalog shows, refuses and does otherwise."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from docs.parts.entities import MODULES
from tests.support.copies import DOCUMENTS_PER_TENANT, Pair, fill, open_store
from tests.support.databases import for_every_module
from twinstore import open_storage
from twinstore.config import load_settings
from twinstore.errors import ConfigurationError, MigrationError
from twinstore.migrations.migration import MigrationState
from twinstore_backfill.outcome import Exit
from twinstore_memory.store import drop_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase, PostgresServer
    from tests.support.servers import Settings

pytestmark = pytest.mark.older_postgres


@pytest.fixture(scope="module")
def database(older_postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """Make a database with every module and the ledger of copies."""
    with older_postgres_server.complete_database() as found:
        yield found


@pytest.fixture
def settings(database: PostgresDatabase) -> Settings:
    return for_every_module(database.config, "Postgres")


@pytest.fixture
def owner(database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database.owner_url, autocommit=True) as connection:
        yield connection


def test_it_is_an_older_one_than_that_of_the_wheel(
    older_postgres_server: PostgresServer, postgres_server: PostgresServer
) -> None:
    older, other = (
        server.admin.info.server_version // 10_000 for server in (older_postgres_server, postgres_server)
    )
    assert 14 <= older < other


def test_every_schema_is_as_the_migrations_made_it_on_the_newer_one(settings: Settings) -> None:
    with open_storage(settings) as storage:
        modules = [storage.module(module.name) for module in MODULES]
        for initializer in (*(it.initializer for it in modules), storage.scheduler.bulk.ledger_initializer):
            assert initializer.verify() == ()
            assert {item.state for item in initializer.status()} == {MigrationState.APPLIED}
        for module in modules:
            module.check_ready()


@pytest.mark.parametrize("url", ["superuser_url", "owner_url"])
def test_an_unsafe_role_is_refused(database: PostgresDatabase, url: str) -> None:
    settings = {"Persistence": {"Postgres": {"ConnectionString": getattr(database, url)}}}
    with (
        open_storage(
            {**settings, "Persistence": {**settings["Persistence"], "Scheduler": "Postgres"}}
        ) as found,
        pytest.raises(ConfigurationError, match="AllowUnsafeRole"),
    ):
        found.scheduler.runs.get("tenant", "r")


@pytest.mark.parametrize(
    ("change", "undo", "named"),
    [
        (
            "ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY",
            "ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY",
            "ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY, FORCE",
        ),
        (
            "GRANT TRUNCATE ON scheduler.audit TO twinstore_test_app",
            "REVOKE TRUNCATE ON scheduler.audit FROM twinstore_test_app",
            "REVOKE TRUNCATE ON scheduler.audit FROM twinstore_test_app",
        ),
        (
            "CREATE POLICY theirs ON scheduler.runs USING (true)",
            "DROP POLICY theirs ON scheduler.runs",
            "DROP POLICY theirs ON scheduler.runs",
        ),
    ],
)
def test_protection_that_was_taken_away_is_noticed(
    settings: Settings, owner: psycopg.Connection[Any], change: str, undo: str, named: str
) -> None:
    with open_storage(settings) as storage:
        storage.scheduler.check_ready()
        owner.execute(change.encode())
        try:
            with pytest.raises(MigrationError) as caught:
                storage.scheduler.check_ready()
        finally:
            owner.execute(undo.encode())
        assert named in caught.value.message
        storage.scheduler.check_ready()


def test_what_was_copied_there_and_back_is_proved_equal(
    older_postgres_server: PostgresServer, tmp_path: Path
) -> None:
    names = [uuid4().hex, uuid4().hex]
    memories: list[Settings] = [{"Persistence": {"Memory": {"Store": name}}} for name in names]
    with older_postgres_server.migrated_database() as there:
        sides: list[tuple[str, Settings]] = [
            ("memory", memories[0]),
            ("postgres", there.config),
            ("memory", memories[1]),
        ]
        for number, (source, target) in enumerate(pairwise(sides)):
            with (
                open_store("scheduler", source[0], load_settings(source[1], environ={})) as first,
                open_store("scheduler", target[0], load_settings(target[1], environ={})) as second,
            ):
                if number == 0:
                    fill(first.storage)
                pair = Pair(first, second, tmp_path / str(number))
                result = pair.copy(jobs=2)
                assert (result.exit, result.complete) == (Exit.OK, True)
                report = pair.verify()
                assert (report.verdict, report.documents_equal) == ("PASS", 2 * DOCUMENTS_PER_TENANT)
    for name in names:
        drop_store(name)

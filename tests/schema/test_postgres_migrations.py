from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import twinstore
import twinstore_postgres
from tests.support.databases import LEDGER_FILES
from tests.support.databases import POSTGRES_FILES as FILES
from twinstore.errors import ConfigurationError, MigrationError
from twinstore.migrations.migration import MigrationState
from twinstore.scheduler.module import MODULE
from twinstore.testing.copying import ledger_of
from twinstore_postgres.schema import migrator
from twinstore_postgres.schema.files import Migration
from twinstore_postgres.schema.initializer import PostgresInitializer
from twinstore_postgres.schema.migrator import lock_number, shipped_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.migrations.migration import MigrationReport
    from twinstore.scheduler.storage import SchedulerStorage


def migrate(config: Settings) -> MigrationReport:
    with twinstore.add_scheduler_postgres_storage(config) as storage:
        return storage.initializer.ensure_migrations()


@pytest.fixture
def initializer(empty_postgres_database: PostgresDatabase) -> Iterator[PostgresInitializer]:
    with twinstore.add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
        made = storage.initializer
        assert isinstance(made, PostgresInitializer)
        yield made


@pytest.fixture
def owner(empty_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as connection:
        yield connection


def test_the_initialiser_has_the_name_that_hosts_import(initializer: PostgresInitializer) -> None:
    assert isinstance(initializer, twinstore_postgres.SchedulerPostgresInitializer)
    assert type(initializer).__name__ == "SchedulerPostgresInitializer"
    with pytest.raises(AttributeError, match="NobodysPostgresInitializer"):
        _ = twinstore_postgres.NobodysPostgresInitializer


def ledger(connection: psycopg.Connection[Any]) -> list[tuple[Any, ...]]:
    statement = "SELECT * FROM scheduler.schema_migrations ORDER BY migration_name"
    return connection.execute(statement).fetchall()


def test_the_first_run_applies_every_file_and_records_it(
    initializer: PostgresInitializer, owner: psycopg.Connection[Any]
) -> None:
    report = initializer.ensure_migrations()
    assert (report.applied, report.already_applied) == (FILES, ())
    rows = ledger(owner)
    assert tuple(row[0] for row in rows) == FILES
    assert {row[1] for row in rows} == {"schema"}
    assert [row[2] for row in rows] == [item.checksum for item in shipped_migrations(MODULE)]


def test_a_run_without_work_needs_no_rights_of_an_owner(postgres_database: PostgresDatabase) -> None:
    config: Settings = {"Persistence": {"Postgres": {"ConnectionString": postgres_database.app_url}}}
    assert migrate(config).applied == ()


def test_every_file_can_run_twice(initializer: PostgresInitializer, owner: psycopg.Connection[Any]) -> None:
    initializer.ensure_migrations()
    role = "twinstore_test_app"
    for migration in shipped_migrations(MODULE):
        owner.execute(migration.rendered(role).encode())
    assert initializer.verify() == ()


def test_the_planning_name_of_the_first_migration_counts_as_applied(
    initializer: PostgresInitializer, owner: psycopg.Connection[Any]
) -> None:
    initializer.ensure_migrations()
    owner.execute(
        "UPDATE scheduler.schema_migrations"
        " SET migration_name = 'V001_CreateSchedulerSchema', checksum = 'theirs' WHERE migration_name = %s",
        [FILES[0]],
    )
    assert initializer.ensure_migrations().applied == ()
    assert initializer.status()[0].state is MigrationState.APPLIED


def test_a_failing_file_leaves_nothing_of_itself(
    initializer: PostgresInitializer, owner: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Migration("011_broken.sql", "CREATE TABLE scheduler.half (id int); SELECT 1 / 0;")
    shipped = (*shipped_migrations(MODULE), broken)
    monkeypatch.setattr(migrator, "shipped_migrations", lambda _module: shipped)
    with pytest.raises(MigrationError, match=r"011_broken\.sql failed and was rolled back"):
        initializer.ensure_migrations()
    assert owner.execute("SELECT to_regclass('scheduler.half')").fetchone() == (None,)
    assert tuple(row[0] for row in ledger(owner)) == FILES


def test_release_files_run_on_request_only(
    initializer: PostgresInitializer, owner: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Migration("100_late.sql", "CREATE TABLE IF NOT EXISTS scheduler.late (id int);")
    shipped = (*shipped_migrations(MODULE), late)
    monkeypatch.setattr(migrator, "shipped_migrations", lambda _module: shipped)
    assert "100_late.sql" not in initializer.ensure_migrations().applied
    assert owner.execute("SELECT to_regclass('scheduler.late')").fetchone() == (None,)
    assert initializer.ensure_migrations(release=True).applied == ("100_late.sql",)


def test_a_missing_application_role_is_named_with_the_statement_that_creates_it(
    empty_postgres_database: PostgresDatabase,
) -> None:
    settings = {"ConnectionString": empty_postgres_database.owner_url, "ApplicationRole": 'no "such" role'}
    with pytest.raises(MigrationError, match='CREATE ROLE "no ""such"" role" LOGIN'):
        migrate({"Persistence": {"Postgres": settings}})


def test_pending_migrations_are_reported(empty_postgres_database: PostgresDatabase) -> None:
    with twinstore.add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
        with pytest.raises(MigrationError, match="migrate run --module scheduler --backend Postgres"):
            storage.check_ready()
        with pytest.raises(MigrationError, match="twinstore migrate run"):
            storage.runs.get("tenant", "run")
        assert {status.state for status in storage.initializer.status()} == {MigrationState.PENDING}
        storage.initializer.ensure_migrations()
        storage.check_ready()


def test_a_schema_made_by_an_administrator_is_enough(empty_postgres_database: PostgresDatabase) -> None:
    owner_role = conninfo_to_dict(empty_postgres_database.owner_url)["user"]
    with psycopg.connect(empty_postgres_database.superuser_url, autocommit=True) as admin:
        database = sql.Identifier(empty_postgres_database.name)
        admin.execute(sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(database))
        admin.execute(
            sql.SQL("CREATE SCHEMA scheduler AUTHORIZATION {}").format(sql.Identifier(str(owner_role)))
        )
    assert migrate(empty_postgres_database.config).applied == FILES


def test_the_exported_script_makes_the_wanted_schema(
    initializer: PostgresInitializer, owner: psycopg.Connection[Any]
) -> None:
    script = initializer.export().encode()
    owner.execute(script)
    owner.execute(script)
    assert initializer.verify() == ()
    assert initializer.ensure_migrations().applied == ()


class TestLedger:
    """The schema of the ledger of copies, which only a target has."""

    @pytest.fixture
    @staticmethod
    def storage(empty_postgres_database: PostgresDatabase) -> Iterator[SchedulerStorage]:
        with twinstore.add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
            yield storage

    @pytest.fixture
    @staticmethod
    def initializer(storage: SchedulerStorage) -> PostgresInitializer:
        made = storage.bulk.ledger_initializer
        assert isinstance(made, PostgresInitializer)
        return made

    def test_it_has_a_history_of_its_own(
        self, storage: SchedulerStorage, initializer: PostgresInitializer, owner: psycopg.Connection[Any]
    ) -> None:
        storage.initializer.ensure_migrations()
        before = ledger(owner)
        assert {item.state for item in initializer.status()} == {MigrationState.PENDING}
        assert initializer.ensure_migrations().applied == LEDGER_FILES
        assert initializer.ensure_migrations().applied == ()
        assert {item.state for item in initializer.status()} == {MigrationState.APPLIED}
        assert ledger(owner) == before
        assert (storage.initializer.verify(), initializer.verify()) == ((), ())
        storage.check_ready()

    def test_its_exported_script_makes_the_wanted_schema(
        self, initializer: PostgresInitializer, owner: psycopg.Connection[Any]
    ) -> None:
        script = initializer.export().encode()
        owner.execute(script)
        owner.execute(script)
        assert initializer.verify() == ()
        assert initializer.ensure_migrations().applied == ()

    def test_the_error_for_a_role_that_may_not_use_it_says_so(
        self, storage: SchedulerStorage, initializer: PostgresInitializer, owner: psycopg.Connection[Any]
    ) -> None:
        storage.initializer.ensure_migrations()
        with pytest.raises(MigrationError, match="twinstore migrate run"):
            list(ledger_of(storage).jobs())
        initializer.ensure_migrations()
        assert list(ledger_of(storage).jobs()) == []
        owner.execute("REVOKE ALL ON twinstore.jobs FROM twinstore_test_app")
        with pytest.raises(ConfigurationError, match="check ApplicationRole"):
            list(ledger_of(storage).jobs())


def test_line_ends_do_not_change_a_checksum(tmp_path: Path) -> None:
    for migration in shipped_migrations(MODULE):
        (tmp_path / migration.name).write_bytes(migration.text.replace("\n", "\r\n").encode())
    found = shipped_migrations.__wrapped__(SimpleNamespace(migrations=lambda _store: tmp_path))
    assert [item.checksum for item in found] == [item.checksum for item in shipped_migrations(MODULE)]


def test_the_lock_number_is_the_documented_one() -> None:
    assert lock_number("scheduler") == -3122614535760135641


def test_the_role_is_put_in_as_an_identifier() -> None:
    rendered = Migration("001_x.sql", 'GRANT SELECT ON t TO :"application_role";').rendered(
        'a"; DROP TABLE t; --'
    )
    assert rendered == 'GRANT SELECT ON t TO "a""; DROP TABLE t; --";'


def test_the_migrations_of_a_module_bring_the_ledger_of_copies_along(
    empty_postgres_database: PostgresDatabase, owner: psycopg.Connection[Any]
) -> None:
    with twinstore.add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
        module, ledger = storage.initializer, storage.bulk.ledger_initializer
        # Only a copy makes one.
        assert module.ensure_migrations().changes == ()
        assert all(item.state is MigrationState.PENDING for item in ledger.status())
        ledger.ensure_migrations()
        first, *later = LEDGER_FILES
        owner.execute("DELETE FROM twinstore.schema_migrations WHERE migration_name <> %s", [first])
        owner.execute("ALTER TABLE twinstore.quarantine DISABLE ROW LEVEL SECURITY")
        report = module.ensure_migrations()
        assert (report.applied, report.changes) == (
            (),
            tuple(f"schema twinstore: applied {name}" for name in later),
        )
        assert ledger.verify() == ()
        assert module.ensure_migrations().changes == ()
        # One that a newer version has made is left alone, and keeps no module from its migrations.
        newer = (
            "UPDATE twinstore.schema_migrations SET migration_name = '099_new.sql' WHERE migration_name = %s"
        )
        owner.execute(newer, later[-1:])
        assert module.ensure_migrations().changes == ()

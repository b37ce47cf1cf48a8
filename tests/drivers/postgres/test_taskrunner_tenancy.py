"""The policies of PostgreSQL filter rows for SQL that has no condition itself."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg import sql

import twinstore
from tests.support.modules import on_postgres
from twinstore.errors import MigrationError
from twinstore.testing.taskrunner.builders import make_approval, make_artifact, make_draft, make_pack_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresDatabase

OWNERS: Final = ("acme", "globex", None)
TABLES: Final = ("pack_runs", "pack_run_logs", "pack_artifacts", "pack_run_approvals")
INSERTS: Final = (
    """
    INSERT INTO taskrunner.pack_artifacts (run_id, name, type, status, captured_at)
    VALUES (%s, 'x', 'file', 'pending', now())
    """,
    """
    INSERT INTO taskrunner.pack_run_logs (run_id, sequence, timestamp, level, event_type, message, metadata)
    VALUES (%s, 9, now(), 'info', 'x', 'x', '{}')
    """,
)
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(params=["application", "owner"])
def connection(
    empty_postgres_database: PostgresDatabase, request: pytest.FixtureRequest
) -> Iterator[Connection]:
    """Return a connection to a database with the rows of two tenants and of none."""
    with twinstore.add_taskrunner_storage(on_postgres(empty_postgres_database)) as storage:
        storage.initializer.ensure_migrations()
        for owner in OWNERS:
            run = storage.pack_runs.create(make_pack_run(owner, f"run of {owner}"))
            storage.pack_run_logs.append_next(run.run_id, make_draft(), tenant_id=owner)
            storage.pack_artifacts.upload(make_artifact(run.run_id, "report"), tenant_id=owner)
            storage.pack_run_approvals.save(run.run_id, [make_approval(owner, run.run_id)], tenant_id=owner)
    database = empty_postgres_database
    url = database.app_url if request.param == "application" else database.owner_url
    with closing(psycopg.connect(url)) as found:
        yield found


def seen(connection: Connection, setting: str | None, table: str) -> set[str]:
    """Return the runs whose rows a table shows under a setting."""
    with connection.transaction(force_rollback=True):
        if setting is not None:
            connection.execute("SELECT set_config('app.tenant_id', %s, true)", [setting])
        query = sql.SQL("SELECT run_id FROM {}").format(sql.Identifier("taskrunner", table))
        return {name for (name,) in connection.execute(query)}


def test_a_setting_sees_the_runs_of_its_tenant_and_what_belongs_to_them(connection: Connection) -> None:
    for table in TABLES:
        assert seen(connection, "acme", table) == {"run of acme"}
        assert seen(connection, "nobody", table) == set()
        assert seen(connection, "system", table) == {f"run of {owner}" for owner in OWNERS}


@pytest.mark.parametrize("setting", [None, ""])
def test_without_a_setting_the_runs_without_tenant_are_seen_and_no_others(
    connection: Connection, setting: str | None
) -> None:
    for table in TABLES:
        assert seen(connection, setting, table) == {"run of None"}


@pytest.mark.parametrize(
    ("setting", "run"), [("acme", "run of globex"), ("acme", "run of None"), (None, "run of acme")]
)
def test_nothing_is_written_below_a_run_that_is_not_seen(
    connection: Connection, setting: str | None, run: str
) -> None:
    for statement in INSERTS:
        with connection.transaction(force_rollback=True):
            connection.execute("SELECT set_config('app.tenant_id', %s, true)", [setting or ""])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement.encode(), [run])
    for change in (
        "UPDATE taskrunner.pack_runs SET plan_hash = 'x' WHERE run_id = %s",
        "DELETE FROM taskrunner.pack_artifacts WHERE run_id = %s",
    ):
        with connection.transaction(force_rollback=True):
            connection.execute("SELECT set_config('app.tenant_id', %s, true)", [setting or ""])
            assert connection.execute(change.encode(), [run]).rowcount == 0


@pytest.mark.parametrize("tenant", ["globex", None])
def test_an_approval_cannot_be_given_to_another_owner_than_its_run(
    connection: Connection, tenant: str | None
) -> None:
    change = "UPDATE taskrunner.pack_run_approvals SET tenant_id = %s WHERE run_id = 'run of acme'"
    with connection.transaction(force_rollback=True):
        connection.execute("SELECT set_config('app.tenant_id', 'acme', true)")
        assert connection.execute(change.encode(), ["acme"]).rowcount == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(change.encode(), [tenant])


def test_the_migration_that_binds_approvals_names_those_it_would_lock(
    empty_postgres_database: PostgresDatabase,
) -> None:
    database = empty_postgres_database
    with (
        twinstore.add_taskrunner_storage(on_postgres(database)) as storage,
        psycopg.connect(database.owner_url, autocommit=True) as owner,
    ):
        storage.initializer.ensure_migrations()
        storage.pack_runs.create(make_pack_run("acme", "r"))
        storage.pack_run_approvals.save("r", [make_approval("acme", "r", "a")], tenant_id="acme")
        owner.execute("SET app.tenant_id = 'system'")
        owner.execute("DELETE FROM taskrunner.schema_migrations WHERE migration_name LIKE '003%'")
        owner.execute("UPDATE taskrunner.pack_run_approvals SET tenant_id = 'globex'")
        said = ""
        for apply in (
            storage.initializer.ensure_migrations,
            lambda: owner.execute(storage.initializer.export().encode()),
        ):
            with pytest.raises((MigrationError, psycopg.errors.RaiseException)) as refused:
                apply()
            said = str(refused.value)
            assert "another tenant than their run" in said
            assert ": r/a." in said
            owner.rollback()
        owner.execute("RESET app.tenant_id")
        owner.execute(said.partition("the owner runs: ")[2].splitlines()[0].encode())
        assert storage.initializer.ensure_migrations().applied == ("003_approvals_of_their_tenant.sql",)
        assert storage.pack_run_approvals.get_required("r", "a", tenant_id="acme").tenant_id == "acme"
        assert storage.initializer.verify() == ()


def test_a_connection_of_the_data_source_sees_its_tenant(empty_postgres_database: PostgresDatabase) -> None:
    import twinstore_postgres  # noqa: PLC0415  # the name is derived when it is asked for

    config = on_postgres(empty_postgres_database)
    with twinstore.add_taskrunner_storage(config) as storage:
        storage.initializer.ensure_migrations()
        storage.pack_runs.create(make_pack_run("acme", "r"))
    with twinstore_postgres.TaskRunnerDataSource(config) as source:
        for tenant, number in (("acme", 1), ("globex", 0), ("system", 1)):
            with source.open_connection(tenant) as found:
                row = found.execute("SELECT count(*) FROM taskrunner.pack_runs").fetchone()
                assert row == (number,)

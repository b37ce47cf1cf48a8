"""Row-level security, asked with hand-written SQL: what holds when the library makes a mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool
from pydantic.alias_generators import to_snake

import twinstore
from twinstore.errors import ConfigurationError, DuplicateError
from twinstore.scheduler.catalog import RUNS, SCHEDULER
from twinstore.testing.scheduler.builders import make_audit_record, make_run, make_schedule
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage

Connection = psycopg.Connection[Any]

OWNED = [entity for entity in SCHEDULER.entities if entity.tenant_field is not None]
TABLES = [entity.name for entity in OWNED]
# The policies of all tables are made alike, and test_protection.py notices a changed one.
SOME = [*TABLES[:2], *(pytest.param(name, marks=pytest.mark.long) for name in TABLES[2:])]
KEYS = {entity.name: to_snake(entity.key[-1]) for entity in OWNED}
CHANGEABLE = [entity.name for entity in OWNED if not entity.append_only]


def table(name: str) -> sql.Identifier:
    return sql.Identifier("scheduler", name)


@pytest.fixture
def storage(module_postgres_database: PostgresDatabase) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_postgres_storage(module_postgres_database.config) as opened:
        yield opened


@pytest.fixture
def filled(storage: SchedulerStorage, tenant: str) -> str:
    """Store one row of each entity for a tenant; return the tenant."""
    fill(storage, tenant)
    return tenant


def fill(storage: SchedulerStorage, tenant: str) -> None:
    SCHEDULER_EXAMPLES.store_each(storage.unbound, tenant, f"x@{tenant}")


@pytest.fixture
def app(module_postgres_database: PostgresDatabase) -> Iterator[Connection]:
    with psycopg.connect(module_postgres_database.app_url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def owner(module_postgres_database: PostgresDatabase) -> Iterator[Connection]:
    with psycopg.connect(module_postgres_database.owner_url) as connection:
        yield connection
        connection.rollback()


def become(connection: Connection, tenant: str) -> None:
    connection.execute("SELECT set_config('app.tenant_id', %s, true)", [tenant])


def count(connection: Connection, name: str) -> int:
    row = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(table(name))).fetchone()
    assert row is not None
    return int(row[0])


def stored_row(connection: Connection, name: str) -> dict[str, Any]:
    """Return a row that the present setting shows."""
    row = connection.execute(sql.SQL("SELECT to_jsonb(t) FROM {} t LIMIT 1").format(table(name))).fetchone()
    assert row is not None
    return dict(row[0])


def insert(connection: Connection, name: str, row: dict[str, Any]) -> None:
    """Insert a row under a new key."""
    statement = sql.SQL("INSERT INTO {0} SELECT * FROM jsonb_populate_record(NULL::{0}, %s)").format(
        table(name)
    )
    old = row.get(KEYS[name])
    other = old + 1 if isinstance(old, int) else f"new-{uuid4().hex}"
    connection.execute(statement, [Jsonb({**row, KEYS[name]: other, "name": "new"})])


@pytest.mark.parametrize("name", TABLES)
def test_without_a_setting_and_under_an_empty_one_nothing_is_seen(
    app: Connection, filled: str, name: str
) -> None:
    assert count(app, name) == 0
    become(app, "")
    assert count(app, name) == 0
    become(app, filled)
    assert count(app, name) == 1


@pytest.mark.parametrize("name", TABLES)
def test_a_row_of_another_tenant_cannot_be_inserted_nor_one_without_a_setting(
    module_postgres_database: PostgresDatabase, app: Connection, filled: str, name: str
) -> None:
    become(app, filled)
    row = stored_row(app, name)
    with psycopg.connect(module_postgres_database.app_url) as fresh:
        for connection, setting, inserted in (
            (fresh, None, row),
            (app, "", row),
            (app, "somebody-else", row),
            # An empty setting is not a tenant of that name.
            (app, "", {**row, "tenant_id": ""}),
        ):
            if setting is not None:
                become(connection, setting)
            with (
                pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"),
                connection.transaction(),
            ):
                insert(connection, name, inserted)


@pytest.mark.parametrize("name", CHANGEABLE)
def test_rows_of_another_tenant_are_neither_changed_nor_removed_nor_own_ones_given_away(
    app: Connection, filled: str, name: str
) -> None:
    become(app, "somebody-else")
    update = sql.SQL("UPDATE {} SET tenant_id = 'somebody-else' WHERE tenant_id = %s").format(table(name))
    assert app.execute(update, [filled]).rowcount == 0
    delete = sql.SQL("DELETE FROM {} WHERE tenant_id = %s").format(table(name))
    assert app.execute(delete, [filled]).rowcount == 0
    become(app, filled)
    assert count(app, name) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
        app.execute(update, [filled])


@pytest.mark.parametrize("name", SOME)
def test_a_copy_sees_the_own_rows_only_and_cannot_pass_the_check(
    app: Connection, storage: SchedulerStorage, filled: str, name: str
) -> None:
    fill(storage, f"other-{filled}")
    become(app, filled)
    with app.cursor().copy(sql.SQL("COPY {} TO STDOUT").format(table(name))) as copy:
        assert len(list(copy)) == 1
    with (
        pytest.raises(psycopg.errors.FeatureNotSupported, match="row-level security"),
        app.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(table(name))) as copy,
    ):
        copy.write(b"")


@pytest.mark.parametrize(
    "statement", ["UPDATE scheduler.audit SET action = 'x'", "DELETE FROM scheduler.audit"]
)
def test_the_application_cannot_change_audit_records(app: Connection, filled: str, statement: str) -> None:
    become(app, filled)
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"):
        app.execute(statement.encode())


@pytest.mark.parametrize("name", SOME)
def test_the_owner_is_bound_too(owner: Connection, filled: str, name: str) -> None:
    assert count(owner, name) == 0
    become(owner, filled)
    assert count(owner, name) == 1


def test_a_foreign_id_is_a_duplicate_and_its_owner_stays_unknown(
    storage: SchedulerStorage, filled: str
) -> None:
    thief = f"thief-{filled}"
    with pytest.raises(DuplicateError) as schedule:
        storage.schedules.upsert(make_schedule(thief, f"x@{filled}"))
    with pytest.raises(DuplicateError) as run:
        storage.runs.create(make_run(thief, f"x@{filled}"))
    with pytest.raises(DuplicateError) as record:
        storage.audit.append(make_audit_record(thief, f"x@{filled}"))
    for caught in (schedule, run, record):
        assert filled not in caught.value.message.replace(f"@{filled}", "")
        assert "row-level" not in caught.value.message


@pytest.fixture
def pool(module_postgres_database: PostgresDatabase) -> Iterator[ConnectionPool[Connection]]:
    """Return a pool of the application with one connection, which is therefore always the same."""
    opened: ConnectionPool[Connection] = ConnectionPool(
        module_postgres_database.app_url, min_size=1, max_size=1, open=True
    )
    with opened:
        yield opened


@pytest.fixture
def over_pool(pool: ConnectionPool[Connection]) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_postgres_storage({"Persistence": {"Postgres": {"Pool": pool}}}) as storage:
        yield storage


def setting_of(pool: ConnectionPool[Connection]) -> str | None:
    with pool.connection() as connection:
        row = connection.execute("SELECT nullif(current_setting('app.tenant_id', true), '')").fetchone()
        assert row is not None
        value: str | None = row[0]
        return value


def test_pooled_connections_carry_no_tenant_afterwards(
    pool: ConnectionPool[Connection], over_pool: SchedulerStorage, tenant: str
) -> None:
    over_pool.runs.create(make_run(tenant, f"r@{tenant}"))
    assert setting_of(pool) is None
    with over_pool.sessions.open(tenant) as session:
        session.runs.get(tenant, "r")
    assert setting_of(pool) is None
    with over_pool.transaction(tenant) as unit:
        unit.runs.get(tenant, "r")
    assert setting_of(pool) is None
    with pytest.raises(DuplicateError):
        over_pool.runs.create(make_run(tenant, f"r@{tenant}"))
    assert setting_of(pool) is None
    assert list(over_pool.bulk.counts(RUNS, tenant_id=tenant).values()) == [1]
    assert setting_of(pool) is None


def test_a_joined_transaction_gets_its_own_setting_back(
    app: Connection, storage: SchedulerStorage, tenant: str
) -> None:
    become(app, "the-callers")
    joined = storage.bind(app, tenant)
    joined.schedules.upsert(make_schedule(tenant, f"s@{tenant}"))
    joined.runs.create(make_run(tenant, f"r@{tenant}"))
    assert joined.runs.get(tenant, f"r@{tenant}") is not None
    assert app.execute("SELECT current_setting('app.tenant_id')").fetchone() == ("the-callers",)
    app.rollback()
    assert storage.runs.get(tenant, f"r@{tenant}") is None
    assert not app.closed


def test_a_joined_call_in_autocommit_mode_leaves_no_setting(
    module_postgres_database: PostgresDatabase, storage: SchedulerStorage, tenant: str
) -> None:
    with psycopg.connect(module_postgres_database.app_url, autocommit=True) as connection:
        joined = storage.bind(connection, tenant)
        joined.schedules.upsert(make_schedule(tenant, f"s@{tenant}"))
        joined.runs.create(make_run(tenant, f"r@{tenant}"))
        shown = connection.execute("SELECT nullif(current_setting('app.tenant_id', true), '')").fetchone()
    assert shown == (None,)
    assert storage.runs.get(tenant, f"r@{tenant}") is not None


@pytest.mark.parametrize("url", ["superuser_url", "owner_url"])
def test_an_unsafe_role_is_refused(module_postgres_database: PostgresDatabase, tenant: str, url: str) -> None:
    settings = {"ConnectionString": getattr(module_postgres_database, url)}
    with (
        twinstore.add_scheduler_postgres_storage({"Persistence": {"Postgres": settings}}) as storage,
        pytest.raises(ConfigurationError, match="AllowUnsafeRole"),
    ):
        storage.runs.get(tenant, "r")


@pytest.mark.parametrize("url", ["superuser_url", "owner_url"])
def test_an_unsafe_role_cannot_be_joined(
    module_postgres_database: PostgresDatabase, storage: SchedulerStorage, tenant: str, url: str
) -> None:
    with psycopg.connect(getattr(module_postgres_database, url)) as connection:
        joined = storage.bind(connection, tenant)
        with pytest.raises(ConfigurationError, match="AllowUnsafeRole"):
            joined.runs.get(tenant, "r")


def test_an_unsafe_role_is_accepted_on_request(
    module_postgres_database: PostgresDatabase, tenant: str
) -> None:
    settings = {"ConnectionString": module_postgres_database.superuser_url, "AllowUnsafeRole": True}
    with twinstore.add_scheduler_postgres_storage({"Persistence": {"Postgres": settings}}) as storage:
        assert storage.runs.get(tenant, "r") is None

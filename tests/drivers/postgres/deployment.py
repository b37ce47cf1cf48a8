"""Deployments of the PostgreSQL driver, with a probe that is a superuser, whom no policy binds."""

from __future__ import annotations

import re
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, LiteralString, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from pydantic import SecretStr
from pydantic.alias_generators import to_snake
from typing_extensions import override

from tests.support.databases import APP_ROLE
from tests.support.proxies import proxy_to
from twinstore.catalog.entity import Layout
from twinstore.clock import SystemClock
from twinstore.models.shapes import Kind
from twinstore.plugins.backend import OpenRequest
from twinstore.plugins.options import ModuleOptions
from twinstore.plugins.resources import SharedResources
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.storage.open import open_module
from twinstore.testing import ProbeDefaults, StoredRow, breaking_change
from twinstore_postgres.backend import PostgresBackend
from twinstore_postgres.schema.files import Migration
from twinstore_postgres.schema.migrator import CREATE_LEDGER
from twinstore_postgres.schema.proposal import proposed_migration
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.support.databases import PostgresDatabase, PostgresServer
    from tests.support.pgbouncer import Pooler
    from tests.support.proxies import Address, BreakableProxy, CountingProxy
    from tests.support.servers import Settings
    from twinstore.catalog.entity import Entity, Module
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage
    from twinstore.testing import BackendFactory, Deployment

R = TypeVar("R")
TAMPERED: Final = "tampered"
SOCKET: Final = ".s.PGSQL"
FIND_MIGRATION: Final = "SELECT checksum FROM {} WHERE migration_name = %s"
RECORD_MIGRATION: Final = """
    INSERT INTO {} SELECT %s, category, %s, applied_at, applied_by, duration_ms FROM {} LIMIT 1
"""
CHANGE_MIGRATION: Final = "UPDATE {} SET checksum = reverse(checksum) WHERE migration_name = %s"
WAITING: Final = (
    b"SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)
FORGET_MIGRATION: Final = "DELETE FROM {} WHERE migration_name = %s"


class PostgresProbe(ProbeDefaults):
    """Reads and breaks rows past the repositories and the policies."""

    def __init__(self, database: PostgresDatabase, module: str) -> None:
        self._ledger = sql.Identifier(module, "schema_migrations")
        self._app_url = database.app_url
        self._connection = psycopg.Connection[dict[str, Any]].connect(
            database.superuser_url, autocommit=True, row_factory=dict_row
        )
        self._connection.execute("SET TimeZone = 'UTC'")

    def waiting(self) -> bool:
        """Whether a session of the database waits for a lock."""
        # Past the cursor, where statements are recorded: a rule asks in the middle of a call of the driver.
        return self._connection.pgconn.exec_(WAITING).ntuples > 0

    def count(self, entity: Entity, tenant_id: str) -> int:
        owned = belonging(entity)
        query = sql.SQL("SELECT count(*) AS number FROM {} WHERE {}").format(relation(entity), owned)
        row = self._connection.execute(query, {"tenant": tenant_id}).fetchone()
        assert row is not None
        return int(row["number"])

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        query = sql.SQL("SELECT * FROM {} WHERE {}").format(relation(entity), condition(entity))
        row = self._connection.execute(query, key).fetchone()
        if row is None:
            return None
        # By the description; it does not know the names of the columns that the library adds.
        fields = {column_of(entity, name): name for name in entity.known}
        values = {fields.get(name, name): value for name, value in row.items() if value is not None}
        markers = {name: values[name] for name in entity.markers if name in values}
        if entity.layout is Layout.PAYLOAD:
            return StoredRow(row["payload"], markers)
        own = entity.shapes.keys() - markers.keys()
        return StoredRow(
            {name: wire_value(entity, name, value) for name, value in values.items() if name in own},
            markers,
        )

    def stamp(self, entity: Entity, key: Key) -> object | None:
        query = sql.SQL("SELECT xmin::text, ctid::text FROM {} WHERE {}")
        row = self._connection.execute(query.format(relation(entity), condition(entity)), key).fetchone()
        return None if row is None else (row["xmin"], row["ctid"])

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        spot = breaking_change(entity, content)
        column = sql.Identifier("payload" if spot.field is None else to_snake(spot.field))
        value = spot.value if isinstance(spot.value, str) else Jsonb(spot.value)
        change = sql.SQL("{} || %s" if spot.merged else "%s").format(column)
        self._update(entity, key, sql.SQL("{} = {}").format(column, change), value)

    def alter(self, entity: Entity, key: Key, values: Mapping[str, object]) -> None:
        columns = [sql.SQL("{} = %s").format(sql.Identifier(column_of(entity, name))) for name in values]
        stored = [column_value(entity, name, value) for name, value in values.items()]
        # In one statement: the columns may depend on each other.
        self._update(entity, key, sql.SQL(", ").join(columns), *stored)

    @override
    def garble(self, entity: Entity, key: Key) -> bool:
        if entity.key_in_payload is not None:
            # The key must stay, or the row would not be found.
            parts = [shape.wire for shape in entity.shapes.values() if shape.value.kind is Kind.OBJECT]
            for part in parts:
                change = sql.SQL("payload = jsonb_set(payload, ARRAY[{0}], jsonb_build_array(payload->{0}))")
                self._update(entity, key, change.format(part))
            return bool(parts)
        if entity.layout is Layout.PAYLOAD:
            columns = ["payload"]
        else:
            shapes = entity.shapes.values()
            columns = [to_snake(shape.wire) for shape in shapes if shape.value.kind is Kind.OBJECT]
        for column in map(sql.Identifier, columns):
            self._update(entity, key, sql.SQL("{} = jsonb_build_array({})").format(column, column))
        return bool(columns)

    @override
    def objects(self) -> frozenset[str]:
        query = b"""
            SELECT n.nspname || '.' || c.relname AS name
              FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
        """
        return frozenset(row["name"] for row in self._connection.execute(query))

    @override
    def tamper_migration(self, name: str) -> None:
        recorded = self._execute(FIND_MIGRATION, name).fetchone()
        if recorded is None:
            self._execute(RECORD_MIGRATION, name, TAMPERED)
        else:
            self._execute(FORGET_MIGRATION if recorded["checksum"] == TAMPERED else CHANGE_MIGRATION, name)

    def _execute(self, statement: LiteralString, *values: str) -> psycopg.Cursor[dict[str, Any]]:
        """Run a statement on the ledger of the migrations."""
        places = [self._ledger] * statement.count("{}")
        return self._connection.execute(sql.SQL(statement).format(*places), values)

    @override
    def shown_to(self, tenant_id: str, entity: Entity) -> int | None:
        with psycopg.connect(self._app_url) as app:
            app.execute("SELECT set_config('app.tenant_id', %s, true)", [tenant_id])
            row = app.execute(sql.SQL("SELECT count(*) FROM {}").format(relation(entity))).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._connection.close()

    def _update(self, entity: Entity, key: Key, change: sql.Composable, *values: object) -> None:
        query = sql.SQL("UPDATE {} SET {} WHERE {}").format(relation(entity), change, condition(entity))
        self._connection.execute(query, [*values, *key])


def relation(entity: Entity) -> sql.Identifier:
    """Return the table of an entity."""
    return sql.Identifier(entity.module, entity.name)


def column_of(entity: Entity, name: str) -> str:
    """Return the column that holds a field."""
    return entity.columns.get(name) or re.sub(r"[^a-z0-9_]", "_", to_snake(name))


def condition(entity: Entity) -> sql.Composed:
    """Return the condition of one key."""
    if entity.key_in_payload is not None:
        return sql.SQL("payload->>{} = %s").format(entity.key_in_payload)
    parts = [sql.SQL("{} = %s").format(sql.Identifier(column_of(entity, name))) for name in entity.key]
    return sql.SQL(" AND ").join(parts)


def belonging(entity: Entity) -> sql.Composable:
    """Return the condition of the rows of a tenant."""
    if entity.tenant_field is not None:
        return sql.SQL("{} = %(tenant)s").format(sql.Identifier(column_of(entity, entity.tenant_field)))
    if entity.parent is None:
        return sql.SQL("true")
    return sql.SQL("{} IN (SELECT {} FROM {} WHERE {})").format(
        sql.Identifier(column_of(entity, entity.parent.field)),
        sql.Identifier(column_of(entity.parent.entity, entity.parent.entity.key[-1])),
        relation(entity.parent.entity),
        belonging(entity.parent.entity),
    )


def wire_value(entity: Entity, name: str, value: object) -> object:
    """Return a stored value as the wire form has it."""
    shape = entity.shapes[name].value
    return shape.members[value] if shape.kind is Kind.NUMBERED and isinstance(value, int) else value


def column_value(entity: Entity, name: str, value: object) -> object:
    """Return a value of the wire form as its column holds it."""
    shape = None if name in entity.markers else entity.shapes[name].value
    if shape is not None and shape.kind is Kind.NUMBERED:
        return [str(member) for member in shape.members].index(str(value))
    return Jsonb(value) if isinstance(value, (dict, list)) else value


def make_tables(database: PostgresDatabase, module: Module) -> None:
    """Make the tables that the descriptions of a module propose, as the owner, unless they are there."""
    schema = sql.Identifier(module.name)
    proposal = proposed_migration(module, ()) or ""
    with psycopg.connect(database.owner_url) as owner:
        if owner.execute("SELECT to_regnamespace(%s)", [module.name]).fetchone() != (None,):
            return
        owner.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        owner.execute(sql.SQL(CREATE_LEDGER).format(schema=schema))
        owner.execute(Migration("001_proposed.sql", proposal).rendered(APP_ROLE).encode())


@contextmanager
def module_on(
    database: PostgresDatabase,
    module: ModuleSpec[R],
    *,
    special: bool = True,
    clock: Clock | None = None,
    settings: PostgresSettings | None = None,
    read_only: bool = False,
) -> Iterator[PostgresBackend[R]]:
    """Open a module on tables that exist."""
    with SharedResources() as resources:
        request = OpenRequest(
            module=module,
            settings=settings or PostgresSettings(connection_string=SecretStr(database.app_url)),
            options=ModuleOptions(),
            resources=resources,
            clock=clock or SystemClock(),
            special=special,
            read_only=read_only,
        )
        with closing(PostgresBackend(module, request)) as backend:
            yield backend


class PostgresDeployment:
    """A database on the server of the run."""

    remote = True

    def __init__(self, module: ModuleSpec[object], database: PostgresDatabase) -> None:
        self._module = module
        self._database = database
        self._settings: PostgresSettings | None = None
        self._described: set[str] = set()
        self.probe = PostgresProbe(database, module.name)

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        del expiring  # the server removes nothing
        return open_module(self._module.name, "Postgres", self.settings(), clock=clock)

    def settings(self) -> Settings:
        return self._database.config

    def waiting(self) -> bool:
        return self.probe.waiting()

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        if module.name not in self._described:
            make_tables(self._database, module.catalog)
            self._described.add(module.name)
        with module_on(self._database, module, clock=clock, settings=self._settings) as backend:
            yield backend

    @contextmanager
    def break_connection(self) -> Iterator[ModuleStorage[object, object]]:
        with proxy_to(address_of(self._database.app_url)) as line:
            url = through(line, self._database.app_url)
            settings = {"Persistence": {"Postgres": {"ConnectionString": url}}}
            with open_module(self._module.name, "Postgres", settings) as storage:
                storage.check_ready()
                line.cut()
                yield storage

    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        with psycopg.connect(self._database.app_url) as connection:
            yield connection


def address_of(url: str) -> Address:
    """Return where the server of a URL listens."""
    parts = conninfo_to_dict(url)
    host, port = str(parts["host"]), int(parts.get("port") or 5432)
    return f"{host}/{SOCKET}.{port}" if host.startswith("/") else (host, port)


def through(line: BreakableProxy | CountingProxy, url: str) -> str:
    """Return the connection string of a database through a line."""
    return make_conninfo(url, host="127.0.0.1", port=line.port, sslmode="disable")


def postgres_deployments(
    server: PostgresServer,
    kind: Callable[[ModuleSpec[object], PostgresDatabase], PostgresDeployment] = PostgresDeployment,
) -> BackendFactory:
    """Return the factory of deployments of a kind on a server."""

    @contextmanager
    def deployments(module: ModuleSpec[object], *, migrated: bool = True) -> Iterator[Deployment]:
        cloned = migrated and module.name == SCHEDULER.name
        with ExitStack() as stack:
            make = server.migrated_database if cloned else server.empty_database
            deployment = kind(module, stack.enter_context(make()))
            stack.enter_context(closing(deployment.probe))
            if migrated and not cloned:
                with deployment.open() as storage:
                    storage.initializer.ensure_migrations()
            yield deployment

    return deployments


class PooledDeployment(PostgresDeployment):
    """A database whose requests go through a pooler."""

    def __init__(self, pooler: Pooler, module: ModuleSpec[object], database: PostgresDatabase) -> None:
        super().__init__(module, database)
        self._pooler = pooler
        self._settings = PostgresSettings(
            connection_string=SecretStr(pooler.url(database.app_url)),
            direct_connection_string=SecretStr(database.app_url),
            transaction_pooler=True,
        )

    @override
    def settings(self) -> Settings:
        return self._pooler.config(self._database)

    @override
    @contextmanager
    def break_connection(self) -> Iterator[ModuleStorage[object, object]]:
        direct, pooled = self._database.app_url, self._pooler.url(self._database.app_url)
        with proxy_to(address_of(pooled)) as requests, proxy_to(address_of(direct)) as beside:
            settings = self._pooler.config(
                self._database,
                ConnectionString=through(requests, pooled),
                DirectConnectionString=through(beside, direct),
            )
            with open_module(self._module.name, "Postgres", settings) as storage:
                storage.check_ready()
                requests.cut()
                beside.cut()
                yield storage

    @override
    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        with psycopg.connect(self._pooler.url(self._database.app_url)) as connection:
            yield connection


def pooled_deployments(server: PostgresServer, pooler: Pooler) -> BackendFactory:
    """Return the factory of deployments behind a pooler."""
    return postgres_deployments(server, partial(PooledDeployment, pooler))

"""Deployments of the PostgreSQL driver, with a probe that is a superuser, whom no policy binds."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from pydantic import SecretStr
from pydantic.alias_generators import to_camel, to_snake

import twinstore
from tests.databases import APP_ROLE
from twinstore.backend import OpenRequest, SharedResources
from twinstore.clock import SystemClock
from twinstore.options import ModuleOptions
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState, RunTrigger, ScheduleMode
from twinstore.testing import StoredRow
from twinstore_postgres.backend import PostgresBackend
from twinstore_postgres.migrator import CREATE_LEDGER, Migration
from twinstore_postgres.proposal import proposed_migration
from twinstore_postgres.settings import PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.databases import PostgresDatabase, PostgresServer
    from twinstore.backend import ModuleBackend
    from twinstore.catalog import Entity, Key, Module
    from twinstore.clock import Clock
    from twinstore.modules import ModuleSpec
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing import BackendFactory, Deployment

R = TypeVar("R")
INTERNAL: Final = frozenset({"rowVersion"})
NUMBERED: Final[dict[tuple[str, str], Callable[[int], str]]] = {
    (SCHEDULES.name, "mode"): ScheduleMode.from_number,
    (RUNS.name, "trigger"): RunTrigger.from_number,
    (RUNS.name, "state"): RunState.from_number,
}
# A column of each table that the server lets a superuser fill with what is no model.
WEAK: Final = {
    SCHEDULES: "when_cron",
    TRIGGERS: "when_cron",
    RUNS: "stats",
    IMPACT_SNAPSHOTS: "payload",
    AUDIT: "actor",
    RUN_SUMMARIES: "counters",
}


class PostgresProbe:
    """Reads and breaks rows past the repositories and the policies."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.Connection[dict[str, Any]].connect(
            url, autocommit=True, row_factory=dict_row
        )
        self._connection.execute("SET TimeZone = 'UTC'")

    def count(self, entity: Entity, tenant_id: str) -> int:
        query = sql.SQL("SELECT count(*) AS number FROM {} WHERE tenant_id = %s").format(relation(entity))
        row = self._connection.execute(query, [tenant_id]).fetchone()
        assert row is not None
        return int(row["number"])

    def read(self, entity: Entity, key: Key) -> StoredRow | None:
        query = sql.SQL("SELECT * FROM {} WHERE {}").format(relation(entity), condition(entity))
        row = self._connection.execute(query, key).fetchone()
        if row is None:
            return None
        values = {to_camel(name): value for name, value in row.items() if value is not None}
        markers = {name: values[name] for name in entity.markers if name in values}
        if entity is IMPACT_SNAPSHOTS:
            return StoredRow(row["payload"], markers)
        hidden = INTERNAL | markers.keys()
        wire = {name: value for name, value in values.items() if name not in hidden}
        return StoredRow({name: wire_value(entity, name, value) for name, value in wire.items()}, markers)

    def stamp(self, entity: Entity, key: Key) -> object | None:
        query = sql.SQL("SELECT xmin::text, ctid::text FROM {} WHERE {}")
        row = self._connection.execute(query.format(relation(entity), condition(entity)), key).fetchone()
        return None if row is None else (row["xmin"], row["ctid"])

    def poison(self, entity: Entity, key: Key, content: str) -> None:
        column = sql.Identifier(WEAK[entity])
        weak = sql.SQL(
            "%s" if WEAK[entity] == "when_cron" else "{} || jsonb_build_object('foreign', %s::text)"
        )
        query = sql.SQL("UPDATE {} SET {} = {} WHERE {}")
        text = query.format(relation(entity), column, weak.format(column), condition(entity))
        self._connection.execute(text, [content, *key])

    def close(self) -> None:
        self._connection.close()


def relation(entity: Entity) -> sql.Identifier:
    """Return the table of an entity."""
    return sql.Identifier(entity.module, entity.name)


def condition(entity: Entity) -> sql.Composed:
    """Return the condition of one key."""
    parts = [sql.SQL("{} = %s").format(sql.Identifier(to_snake(name))) for name in entity.key]
    return sql.SQL(" AND ").join(parts)


def wire_value(entity: Entity, name: str, value: object) -> object:
    """Return the value as the wire form has it."""
    numbered = NUMBERED.get((entity.name, name))
    return numbered(value) if numbered and isinstance(value, int) else value


class PostgresDeployment:
    """A database on the server of the run."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._described: set[str] = set()
        self.probe = PostgresProbe(database.superuser_url)

    def open(self, *, clock: Clock | None = None) -> SchedulerStorage:
        return twinstore.add_scheduler_postgres_storage(self._database.config, clock=clock)

    @contextmanager
    def open_module(self, module: ModuleSpec[R]) -> Iterator[ModuleBackend[R]]:
        self._describe(module.catalog)
        settings = PostgresSettings(connection_string=SecretStr(self._database.app_url))
        with SharedResources() as resources:
            request = OpenRequest(
                module=module,
                settings=settings,
                options=ModuleOptions(),
                resources=resources,
                clock=SystemClock(),
            )
            with closing(PostgresBackend(module, request)) as backend:
                yield backend

    def _describe(self, module: Module) -> None:
        """Make the tables that the descriptions propose, as the owner, once."""
        if module.name in self._described:
            return
        schema = sql.Identifier(module.name)
        proposal = proposed_migration(module, ()) or ""
        with psycopg.connect(self._database.owner_url) as owner:
            owner.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
            owner.execute(sql.SQL(CREATE_LEDGER).format(schema=schema))
            owner.execute(Migration("001_proposed.sql", proposal).rendered(APP_ROLE).encode())
        self._described.add(module.name)

    @contextmanager
    def handle(self, tenant_id: str) -> Iterator[object]:
        del tenant_id
        with psycopg.connect(self._database.app_url) as connection:
            yield connection


def postgres_deployments(server: PostgresServer) -> BackendFactory:
    """Return the factory of deployments on a server."""

    @contextmanager
    def deployments(*, migrated: bool = True) -> Iterator[Deployment]:
        with ExitStack() as stack:
            make = server.migrated_database if migrated else server.empty_database
            deployment = PostgresDeployment(stack.enter_context(make()))
            stack.enter_context(closing(deployment.probe))
            yield deployment

    return deployments

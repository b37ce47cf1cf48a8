"""Single statements of psycopg that do what the repositories do, the tenant set in the same round trip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, LiteralString

import orjson
from psycopg import sql
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from benchmarks.postgres_limits import COLUMNS
from benchmarks.singles import TENANT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from psycopg import Connection, Cursor

__all__ = ["BarePostgres"]

SET: Final = "SELECT set_config('app.tenant_id', %s, true)"
GET: Final = f"SELECT {COLUMNS}, row_version FROM scheduler.runs WHERE tenant_id = %s AND id = %s"  # noqa: S608  # constants
UPDATE: Final = """
UPDATE scheduler.runs SET stats = %s, reason = %s, deltas = %s, state = %s, started_at = %s, finished_at = %s,
       error = %s, row_version = row_version + 1
WHERE tenant_id = %s AND id = %s AND row_version = %s
"""


class BarePostgres:
    """Bare psycopg on a pool; set_config and the statement share one implicit transaction."""

    def __init__(self, pool: ConnectionPool[Connection[tuple[Any, ...]]]) -> None:
        """Take an open pool of connections in autocommit mode, as the application role."""
        self._pool = pool

    def _execute(
        self, statement: LiteralString | sql.Composed, values: Sequence[object]
    ) -> Cursor[tuple[Any, ...]]:
        """Send both statements together; the end of the pipeline is the end of their transaction.

        Fetching before that end would cost a second round trip.
        """
        with self._pool.connection() as connection:
            cursor = connection.cursor()
            with connection.pipeline():
                connection.execute(SET, [TENANT])
                cursor.execute(statement, values)
        return cursor

    def _read(self, statement: LiteralString | sql.Composed, values: Sequence[object]) -> tuple[Any, ...]:
        row = self._execute(statement, values).fetchone()
        if row is None:
            raise RuntimeError("the row to measure is not stored")
        return row

    def get_run(self, run_id: str) -> object:
        """Read one run by tenant and id."""
        return self._read(GET, [TENANT, run_id])

    def learn_snapshot(self, snapshot_id: str) -> Callable[[], object]:
        """Return a call that stores what the snapshot is at present."""
        return self._learn("impact_snapshots", {"snapshot_id": snapshot_id})

    def learn_summary(self, schedule_id: str) -> Callable[[], object]:
        """Return a call that stores what the summary is at present."""
        return self._learn("run_summaries", {"tenant_id": TENANT, "schedule_id": schedule_id})

    def _learn(self, table: str, key: dict[str, str]) -> Callable[[], object]:
        """Return a call that upserts the row with this key as it is now."""
        match = sql.SQL(" AND ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in key)
        select = sql.SQL("SELECT * FROM {} WHERE {}").format(sql.Identifier("scheduler", table), match)
        with self._pool.connection() as connection, connection.transaction():
            connection.execute(SET, [TENANT])
            cursor = connection.execute(select, list(key.values()))
            names = [column.name for column in cursor.description or ()]
            row = cursor.fetchone() or ()
        statement = _upsert(table, names, list(key))
        return lambda: self._execute(statement, [_parameter(value) for value in row])

    def learn_run(self, run_id: str) -> tuple[Callable[[str], object], Callable[[str], object]]:
        """Return calls that insert such a run under an id, and that replace it if it did not change."""
        names = [name.strip() for name in COLUMNS.split(",")]
        row = self._read(GET, [TENANT, run_id])[: len(names)]
        statement = _insert("runs", names)

        def insert(new_id: str) -> object:
            return self._execute(statement, [new_id, *(_parameter(value) for value in row[1:])])

        def replace(old_id: str) -> object:
            stored = dict(zip((*names, "row_version"), self._read(GET, [TENANT, old_id]), strict=True))
            changed = ("stats", "reason", "deltas", "state", "started_at", "finished_at", "error")
            values = [_parameter(stored[name]) for name in changed]
            return self._execute(UPDATE, [*values, TENANT, old_id, stored["row_version"]])

        return insert, replace


def _insert(table: str, names: Sequence[str]) -> sql.Composed:
    return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        sql.Identifier("scheduler", table),
        sql.SQL(", ").join(map(sql.Identifier, names)),
        sql.SQL(", ").join(sql.Placeholder() * len(names)),
    )


def _upsert(table: str, names: Sequence[str], key: Sequence[str]) -> sql.Composed:
    changes = [
        sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in names if name not in key
    ]
    conflict = sql.SQL(" ON CONFLICT ({}) DO UPDATE SET {}").format(
        sql.SQL(", ").join(map(sql.Identifier, key)), sql.SQL(", ").join(changes)
    )
    return _insert(table, names) + conflict


def _parameter(value: object) -> object:
    return Jsonb(value, dumps=orjson.dumps) if isinstance(value, dict | list) else value

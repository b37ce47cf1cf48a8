"""The hot operations of the scheduler: what is due, in one statement instead of two round trips a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.query import AtMost
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.scheduler.repositories.schedules import DUE
from twinstore_postgres.codec import Unprepared
from twinstore_postgres.derive import listed, table_of
from twinstore_postgres.errors import Subject
from twinstore_postgres.owners import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.query import Query
    from twinstore.scheduler.schedules import Schedule
    from twinstore_postgres.access import PostgresAccess, Special

__all__ = ["OPERATIONS", "SELECT_DUE"]

TABLE: Final = table_of(SCHEDULES)
# The schedules of the due triggers, in their order; both are written together, so the join loses none.
SELECT_DUE: Final = Unprepared(
    sql.SQL("""
SELECT {columns}
  FROM scheduler.triggers t
  JOIN scheduler.schedules s ON s.id = t.schedule_id AND s.tenant_id = t.tenant_id
 WHERE t.enabled AND t.next_fire_at IS NOT NULL AND t.next_fire_at <= %s
   AND s.enabled AND s.deleted_at IS NULL
 ORDER BY t.next_fire_at, t.tenant_id, t.id
 LIMIT %s
""")
    .format(columns=listed(TABLE.columns, sql.Identifier("s")))
    .as_bytes()
)


def due_schedules(access: PostgresAccess, query: Query) -> tuple[Schedule, ...]:
    """Return the schedules of the triggers that are due, as many as the query asks for."""
    (now,) = (condition.value for condition in query.where if isinstance(condition, AtMost))
    step = (SELECT_DUE, (now, query.limit))
    found = access.execution.read(setting(query.scope), Subject(SCHEDULES), step)
    return tuple(TABLE.decode(values) for values in found.rows)


OPERATIONS: Final[Mapping[str, Special]] = {DUE: due_schedules}

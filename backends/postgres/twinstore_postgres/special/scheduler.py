"""The hot operations of the scheduler: what is due, in one statement instead of two round trips a page."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.access.paging import Page, decoded
from twinstore.catalog.row import Row
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.repositories.schedules import DUE
from twinstore_postgres.access.queries import Compiled, compile_query
from twinstore_postgres.connection.errors import Subject
from twinstore_postgres.mapping.codec import Unprepared
from twinstore_postgres.mapping.table import listed, table_of
from twinstore_postgres.mapping.tenancy import setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.access.query import Query
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.triggers import Trigger
    from twinstore_postgres.access.access import PostgresAccess, Special
    from twinstore_postgres.mapping.codec import Values

    Pairs = tuple[Page[Row[Trigger]], Page[Row[Schedule]]]

OF_TRIGGER: Final = table_of(TRIGGERS)
OF_SCHEDULE: Final = table_of(SCHEDULES)
WIDTH: Final = len(OF_TRIGGER.columns)
SCHEDULE_KEY: Final = WIDTH + [column.field for column in OF_SCHEDULE.columns].index("id")
# Without a filter on the schedules: the caller checks each pair, and names those that cannot be read.
PAIRS: Final = sql.SQL("""
SELECT {both}
  FROM ({page}) t
  LEFT JOIN scheduler.schedules s ON s.id = t.schedule_id
 ORDER BY t.next_fire_at, t.tenant_id, t.id
""")


@lru_cache(maxsize=16)
def with_schedules(page: bytes) -> Unprepared:
    """Return the statement of a page of triggers, each with its schedule."""
    triggers = listed(OF_TRIGGER.columns, sql.Identifier("t"))
    schedules = listed(OF_SCHEDULE.columns, sql.Identifier("s"))
    both = sql.SQL(", ").join((triggers, schedules))
    # The inner statement was compiled from parts of this library; its values are parameters.
    return Unprepared(PAIRS.format(both=both, page=Compiled(page)).as_bytes())


def due_pairs(access: PostgresAccess, query: Query) -> Pairs:
    """Return a page of due triggers, and the schedules that they name."""
    statement, values = compile_query(query, OF_TRIGGER)
    step = (with_schedules(statement), values)
    found = access.execution.read(setting(query.scope), Subject(TRIGGERS), step)
    readable: dict[object, Values] = {}

    def trigger_of(row: Values) -> Row[Trigger]:
        trigger = OF_TRIGGER.row(row[:WIDTH])
        if row[SCHEDULE_KEY] is not None:
            # Once for each: a copy may have left several triggers that name one schedule.
            readable[row[SCHEDULE_KEY]] = row[WIDTH:]
        return trigger

    by = OF_TRIGGER.field_getter([key.field for key in query.order])
    page = query.page(found.rows, trigger_of, by, lambda row: OF_TRIGGER.tenant_in(row[:WIDTH]))
    rows = [readable[key] for key in sorted(readable, key=str)]
    schedules, broken = decoded(rows, OF_SCHEDULE.row, OF_SCHEDULE.tenant_in)
    return page, Page(tuple(schedules), None, tuple(name for name, _ in broken))


OPERATIONS: Final[Mapping[str, Special]] = {DUE: due_pairs}

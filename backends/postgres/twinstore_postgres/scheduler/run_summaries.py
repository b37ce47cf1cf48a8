"""Run summaries on PostgreSQL; a row lock serialises the projections of one schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUN_SUMMARIES
from twinstore.scheduler.rules.missing import lost_race, required
from twinstore.scheduler.rules.run_summaries import check_expectation
from twinstore.scheduler.run_summaries import RunSummary
from twinstore.scope import id_argument, instant_argument, model_argument
from twinstore.written import checked
from twinstore_postgres.errors import Subject
from twinstore_postgres.listing import page_of
from twinstore_postgres.scheduler.tables import SUMMARIES_TABLE
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore_postgres.work import Steps, Work

__all__ = ["PostgresRunSummaryRepository"]

# A row that is absent and then in the way at every try is deleted and written again by somebody else.
TRIES: Final = 10

SELECT: Final = SUMMARIES_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE tenant_id = %s AND schedule_id = %s"
)
SELECT_FOR_UPDATE: Final = SUMMARIES_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE tenant_id = %s AND schedule_id = %s FOR UPDATE"
)
INSERT_NEW: Final = SUMMARIES_TABLE.statement(
    "INSERT INTO {table} ({columns}) VALUES ({values}) ON CONFLICT (tenant_id, schedule_id) DO NOTHING"
)
UPDATE: Final = SUMMARIES_TABLE.statement(
    "UPDATE {table} SET ({columns}, row_version) = ROW({values}, row_version + 1) "
    "WHERE tenant_id = %s AND schedule_id = %s"
)
# The tenant is part of the key, so the conflicting row is never a foreign one.
UPSERT: Final = SUMMARIES_TABLE.statement(
    "INSERT INTO {table} AS stored ({columns}) VALUES ({values}) "
    "ON CONFLICT (tenant_id, schedule_id) DO UPDATE SET "
    "updated_at = excluded.updated_at, last_run = excluded.last_run, recent = excluded.recent, "
    "counters = excluded.counters, row_version = stored.row_version + 1"
)


class PostgresRunSummaryRepository:
    """Implements :class:`~twinstore.scheduler.run_summaries.RunSummaryRepository`."""

    def __init__(self, work: Work) -> None:
        """Take the access to the server."""
        self._work = work

    def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return one summary; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        row = self._work.one(tenant, subject_of(tenant, key), SELECT, (tenant, key))
        return None if row is None else SUMMARIES_TABLE.decode(row)

    def get_required(self, tenant_id: str, schedule_id: str) -> RunSummary:
        """Return one summary or raise; see the Protocol."""
        found = self.get(tenant_id, schedule_id)
        return required(found, RUN_SUMMARIES, f"{tenant_id.strip()}:{schedule_id.strip()}", DRIVER)

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """Return a page of summaries; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        return page_of(self._work, tenant, queries.run_summaries(tenant, limit, page_token), SUMMARIES_TABLE)

    def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
        """Insert or replace a summary; see the Protocol."""
        self._work.check()
        summary = model_argument(summary, RunSummary, "summary")
        tenant = self._work.admit(summary.tenant_id)
        if expected_updated_at is None:
            subject = subject_of(tenant, summary.schedule_id)
            self._work.write(tenant, subject, (UPSERT, SUMMARIES_TABLE.encode(summary, {})))
            return summary
        expected = instant_argument(expected_updated_at, "expected_updated_at")

        def replace(stored: RunSummary | None) -> RunSummary:
            check_expectation(stored, summary, expected)
            return summary

        self.modify(tenant, summary.schedule_id, replace)
        return summary

    def modify(
        self, tenant_id: str, schedule_id: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        """Read, change and write one summary as one serialised step; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        rule = checked(change, RUN_SUMMARIES, tenant, (tenant, key), RunSummary)

        def once() -> RunSummary | None:
            with self._work.unit(tenant, subject_of(tenant, key)) as steps:
                return modify_summary(steps, tenant, key, rule)

        return self._work.repeat(once)


def subject_of(tenant: str, key: str) -> Subject:
    """Return what a statement is about."""
    return Subject(RUN_SUMMARIES, f"{tenant}:{key}")


def modify_summary(
    steps: Steps, tenant: str, key: str, change: Callable[[RunSummary | None], RunSummary | None]
) -> RunSummary | None:
    """Lock, change and write one summary.

    An absent row cannot be locked: two first projections may both see none, and the second insert then
    finds the row of the first, which by now is committed and can be locked.
    """
    for _ in range(TRIES):
        (found,) = steps.run((SELECT_FOR_UPDATE, (tenant, key)))
        stored = None if found.first is None else SUMMARIES_TABLE.decode(found.first)
        changed = change(stored)
        if changed is None:
            return stored
        row = SUMMARIES_TABLE.encode(changed, {})
        step = (INSERT_NEW, row) if stored is None else (UPDATE, (*row, tenant, key))
        (written,) = steps.run(step)
        if written.count:
            return changed
    raise lost_race(RUN_SUMMARIES, f"{tenant}:{key}", DRIVER)

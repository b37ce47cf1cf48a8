"""Run summaries in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUN_SUMMARIES
from twinstore.scheduler.rules.missing import required
from twinstore.scheduler.rules.run_summaries import check_expectation
from twinstore.scheduler.run_summaries import RunSummary
from twinstore.scope import id_argument, instant_argument
from twinstore.written import checked
from twinstore_memory.repository import MemoryRepository, own_for_write
from twinstore_memory.rows import decode, encode, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore_memory.store import Unit

__all__ = ["MemoryRunSummaryRepository"]


class MemoryRunSummaryRepository(MemoryRepository):
    """Implements :class:`~twinstore.scheduler.run_summaries.RunSummaryRepository`."""

    def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule; see the Protocol."""
        tenant = self._admit(tenant_id)
        row = self._get(RUN_SUMMARIES, tenant, tenant, id_argument(schedule_id, "schedule_id"))
        return None if row is None else decode(row, RunSummary)

    def get_required(self, tenant_id: str, schedule_id: str) -> RunSummary:
        """Return the summary of a schedule; see the Protocol."""
        found = self.get(tenant_id, schedule_id)
        return required(found, RUN_SUMMARIES, f"{tenant_id.strip()}:{schedule_id.strip()}", DRIVER)

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """Return a page of summaries; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(RUN_SUMMARIES, queries.run_summaries(tenant, limit, page_token), RunSummary)

    def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
        """Insert or replace a summary; see the Protocol."""
        summary = self._model(summary, RunSummary, "summary")
        tenant = self._admit(summary.tenant_id)
        if expected_updated_at is not None:
            expected_updated_at = instant_argument(expected_updated_at, "expected_updated_at")
        with self._link.writing() as unit:
            stored = read_for_write(unit, tenant, summary.schedule_id)
            check_expectation(stored, summary, expected_updated_at)
            write(unit, encode(RUN_SUMMARIES, summary))
        return summary

    def modify(
        self, tenant_id: str, schedule_id: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        """Read, change and write one summary as one step; see the Protocol."""
        tenant = self._admit(tenant_id)
        key = id_argument(schedule_id, "schedule_id")
        rule = checked(change, RUN_SUMMARIES, tenant, (tenant, key), RunSummary)
        with self._link.writing() as unit:
            stored = read_for_write(unit, tenant, key)
            changed = rule(stored)
            if changed is None:
                return stored
            write(unit, encode(RUN_SUMMARIES, changed))
        return changed


def read_for_write(unit: Unit, tenant: str, schedule_id: str) -> RunSummary | None:
    """Return a summary that no other unit can change until this one ends."""
    row = own_for_write(unit, RUN_SUMMARIES, tenant, tenant, schedule_id)
    return None if row is None else decode(row, RunSummary)

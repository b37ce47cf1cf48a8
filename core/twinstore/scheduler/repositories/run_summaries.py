"""Run summaries: one per schedule; projections of one summary are serialised."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from typing_extensions import override

from twinstore.access.paging import Page
from twinstore.access.repository import Repository
from twinstore.access.results import checked
from twinstore.access.scope import id_argument, instant_argument
from twinstore.catalog.row import Row
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUN_SUMMARIES
from twinstore.scheduler.rules.run_summaries import check_expectation
from twinstore.scheduler.run_summaries import RunSummary, RunSummaryRepository


class RunSummaries(Repository, RunSummaryRepository):
    """Implements :class:`~twinstore.scheduler.run_summaries.RunSummaryRepository`."""

    @override
    def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        tenant, schedule = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        return self._get(RUN_SUMMARIES, tenant, (tenant.id, schedule))

    @override
    def get_required(self, tenant_id: str, schedule_id: str) -> RunSummary:
        found = self.get(tenant_id, schedule_id)
        return self._required(found, RUN_SUMMARIES, f"{tenant_id.strip()}:{schedule_id.strip()}")

    @override
    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        return self._page(RUN_SUMMARIES, queries.run_summaries(self._admit(tenant_id), limit, page_token))

    @override
    def count(self, tenant_id: str) -> int:
        return self._count(RUN_SUMMARIES, queries.run_summaries(self._admit(tenant_id), 1, None))

    @override
    def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
        summary = self._model(summary, RunSummary, "summary")
        tenant = self._admit(summary.tenant_id)
        if expected_updated_at is None:
            # Without an expectation nothing of the stored summary matters, so one round trip is enough.
            return self._access.put(RUN_SUMMARIES, tenant, Row(summary)).model
        expected = instant_argument(expected_updated_at, "expected_updated_at")

        def replace(stored: RunSummary | None) -> RunSummary:
            check_expectation(stored, summary, expected)
            return summary

        self.modify(tenant.id, summary.schedule_id, replace)
        return summary

    @override
    def modify(
        self, tenant_id: str, schedule_id: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        tenant, schedule = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        key = (tenant.id, schedule)
        own = checked(change, RUN_SUMMARIES, tenant.id, key, RunSummary)
        return self._revise(RUN_SUMMARIES, tenant, key, own)

    @override
    def delete(self, tenant_id: str, schedule_id: str) -> bool:
        tenant, schedule = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        return self._remove(RUN_SUMMARIES, tenant, (tenant.id, schedule))

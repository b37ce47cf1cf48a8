"""Services over the repositories of the scheduler; the same code runs on every driver."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from typing_extensions import override

from twinstore.access.retry import retry
from twinstore.access.scope import id_argument, instant_argument, model_argument
from twinstore.errors import ConcurrencyError
from twinstore.scheduler.audit import AuditEvent, AuditRecord, SchedulerAuditService
from twinstore.scheduler.rules.run_summaries import projected, summarised
from twinstore.scheduler.run_summaries import WINDOW, RunSnapshot, RunSummary, RunSummaryService
from twinstore.scheduler.runs import Run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.clock import Clock
    from twinstore.scheduler.audit import AuditRepository
    from twinstore.scheduler.run_summaries import RunSummaryRepository
    from twinstore.scheduler.runs import RunRepository


class AuditService(SchedulerAuditService):
    """Implements :class:`~twinstore.scheduler.audit.SchedulerAuditService`."""

    def __init__(
        self, audit: AuditRepository, clock: Clock, defaults: Mapping[str, str] | None = None
    ) -> None:
        self._audit = audit
        self._clock = clock
        self._defaults = dict(defaults or {})

    @override
    def write(self, event: AuditEvent) -> AuditRecord:
        event = model_argument(event, AuditEvent, "event")
        record = AuditRecord.model_validate(
            {
                **event.__dict__,
                "id": event.id or f"audit_{uuid4().hex}",
                "occurred_at": event.occurred_at or self._clock.now(),
                # Keys in lower case before they are merged, or a default would be stored next to the value of
                # the event.
                "metadata": {**self._normalised_defaults(), **event.metadata},
            }
        )
        return self._audit.append(record)

    def _normalised_defaults(self) -> dict[str, str]:
        return {key.strip().lower(): value for key, value in self._defaults.items()}


class SummaryService(RunSummaryService):
    """Implements :class:`~twinstore.scheduler.run_summaries.RunSummaryService`."""

    def __init__(
        self, summaries: RunSummaryRepository, runs: RunRepository, clock: Clock, *, in_unit: bool = False
    ) -> None:
        self._summaries = summaries
        self._runs = runs
        self._clock = clock
        # A unit that lost can only be repeated as a whole, by the caller that opened it.
        self._attempts = 1 if in_unit else None

    @override
    def project(self, run: Run, *, now: datetime | None = None) -> RunSummary | None:
        run = model_argument(run, Run, "run")
        if run.schedule_id is None:
            return None
        instant = self._instant(now)
        schedule_id = id_argument(run.schedule_id, "run.schedule_id")
        return self._summaries.modify(
            run.tenant_id, schedule_id, lambda stored: projected(stored, run, schedule_id, instant)
        )

    @override
    def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        return self._summaries.get(tenant_id, schedule_id)

    @override
    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        return self._summaries.list(tenant_id, limit=limit, page_token=page_token)

    @override
    def rebuild(self, tenant_id: str, schedule_id: str, *, now: datetime | None = None) -> RunSummary | None:
        instant = self._instant(now)
        return retry(lambda: self._recompute(tenant_id, schedule_id, instant), attempts=self._attempts)

    def _recompute(self, tenant_id: str, schedule_id: str, instant: datetime) -> RunSummary | None:
        """Replace the summary by one of the stored runs, unless an update is projected meanwhile.

        The runs are read before the summary is locked: reading them inside ``modify`` would hold one
        connection while waiting for a second one.
        """
        before = self._summaries.get(tenant_id, schedule_id)
        runs = self._runs.get_runs_by_schedule(tenant_id, schedule_id, WINDOW)
        if before is None and not runs:
            return None
        updated_at = instant if before is None else max(instant, before.updated_at)
        window = tuple(RunSnapshot.of(run) for run in runs)
        summary = summarised(tenant_id.strip(), schedule_id.strip(), window, updated_at)
        # Compared with what was read before the runs were: a projection in between must not be lost.
        stored = self._summaries.modify(
            tenant_id, schedule_id, lambda stored: summary if stored == before else None
        )
        if stored != summary:
            raise ConcurrencyError(
                f"The summary of schedule {schedule_id!r} was changed while it was rebuilt; try again.",
                entity="run_summaries",
            )
        return summary

    def _instant(self, now: datetime | None) -> datetime:
        return self._clock.now() if now is None else instant_argument(now, "now")

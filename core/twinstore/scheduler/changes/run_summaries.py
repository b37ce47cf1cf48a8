"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Count, Id, OptionalText, TenantId, Timestamp
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.run_summaries import RunSnapshot, RunSummaryCounters
from twinstore.scheduler.runs import RunStats

__all__ = ["RunSnapshotChanges", "RunSummaryChanges", "RunSummaryCountersChanges"]


class RunSnapshotChanges(TypedDict, total=False):
    """What ``RunSnapshot.evolve`` may change."""

    run_id: Id
    trigger: RunTrigger
    state: RunState
    created_at: Timestamp
    started_at: Timestamp | None
    finished_at: Timestamp | None
    stats: RunStats
    error: OptionalText


class RunSummaryChanges(TypedDict, total=False):
    """What ``RunSummary.evolve`` may change."""

    tenant_id: TenantId
    schedule_id: Id
    updated_at: Timestamp
    last_run: RunSnapshot | None
    recent: tuple[RunSnapshot, ...]
    counters: RunSummaryCounters


class RunSummaryCountersChanges(TypedDict, total=False):
    """What ``RunSummaryCounters.evolve`` may change."""

    total: Count
    planning: Count
    queued: Count
    running: Count
    completed: Count
    error: Count
    cancelled: Count
    total_deltas: Count
    total_new_criticals: Count
    total_new_high: Count
    total_new_medium: Count
    total_new_low: Count

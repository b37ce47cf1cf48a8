"""How an update of a run changes the summary of its schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

from twinstore.errors import ConflictError, ValidationError
from twinstore.models.canonical import describe_failure
from twinstore.models.json_text import format_timestamp
from twinstore.scheduler.run_summaries import RunSnapshot, RunSummary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.scheduler.runs import Run


def projected(summary: RunSummary | None, run: Run, schedule_id: str, now: datetime) -> RunSummary:
    """Return the summary after one update of a run, whatever the order in which updates arrive."""
    window = {} if summary is None else {entry.run_id: entry.cut for entry in summary.recent}
    entry = RunSnapshot.of(run)
    if supersedes(entry, window.get(entry.run_id)):
        window[entry.run_id] = entry
    # Never backwards: clocks of hosts differ, and the instant is what an expectation is compared with.
    updated_at = now if summary is None else max(now, summary.updated_at)
    return summarised(run.tenant_id, schedule_id, tuple(window.values()), updated_at)


def summarised(
    tenant_id: str, schedule_id: str, window: Sequence[RunSnapshot], updated_at: datetime
) -> RunSummary:
    """Return the summary of a window; runs whose counters exceed 64 bits in sum are refused."""
    try:
        return RunSummary.of(tenant_id, schedule_id, window, updated_at)
    except pydantic.ValidationError as error:
        raise ValidationError(
            f"The runs of schedule {schedule_id!r} cannot be summarised: "
            f"{describe_failure(RunSummary, error)}.",
            entity="run_summaries",
            key=f"{tenant_id}:{schedule_id}",
        ) from error


def supersedes(entry: RunSnapshot, stored: RunSnapshot | None) -> bool:
    """Whether an update replaces the entry of its run: never backwards, never out of a terminal state."""
    if stored is None:
        return True
    return entry.state.rank >= stored.state.rank and not stored.state.terminal


def check_expectation(stored: RunSummary | None, summary: RunSummary, expected: datetime | None) -> None:
    """Raise ``ConflictError`` when the stored ``updatedAt`` is not the expected one."""
    if expected is None or (stored is not None and stored.updated_at == expected):
        return
    found = "none is stored" if stored is None else f"the stored one is {format_timestamp(stored.updated_at)}"
    raise ConflictError(
        f"Summary of schedule {summary.schedule_id!r} was expected with updatedAt "
        f"{format_timestamp(expected)}, but {found}; read it again and repeat the change.",
        entity="run_summaries",
        key=f"{summary.tenant_id}:{summary.schedule_id}",
    )

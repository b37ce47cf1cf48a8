"""Run summaries: the latest runs of a schedule with rolling counters, and their contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Protocol, Self

from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import Limit, Ordered, Unique
from twinstore.models.fields import Count, Id, OptionalText, TenantId, Timestamp
from twinstore.models.rules import FieldDerived, FirstOf
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.runs import Run, RunStats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = [
    "ERROR_LENGTH",
    "WINDOW",
    "RunSnapshot",
    "RunSummary",
    "RunSummaryCounters",
    "RunSummaryRepository",
    "RunSummaryService",
]

WINDOW: Final = 20
# A summary holds the errors of so many runs, the newest one twice; whole, a few of them would be larger than
# any row may be, and no run of the schedule could be projected any more.
ERROR_LENGTH: Final = 4096
TRUNCATED: Final = " … [cut: {} characters in all; the run has the whole text]"


class RunSnapshot(CanonicalModel):
    """A run as the summary remembers it; of a long ``error`` the beginning, which says that it was cut."""

    run_id: Id
    trigger: RunTrigger
    state: RunState
    created_at: Timestamp
    started_at: Timestamp | None = None
    finished_at: Timestamp | None = None
    stats: RunStats = RunStats()
    error: OptionalText = None

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return the snapshot of a run; an ``error`` of more than 4,096 characters is cut."""
        return cls(
            run_id=run.id,
            trigger=run.trigger,
            state=run.state,
            created_at=run.created_at,
            started_at=run.started_at,
            finished_at=run.finished_at,
            stats=run.stats,
            error=shortened(run.error),
        )

    @property
    def position(self) -> tuple[datetime, str]:
        """The place of the run in time; greater is newer."""
        return (self.created_at, self.run_id)

    @property
    def cut(self) -> Self:
        """The snapshot as it would be made today: versions before the cut have stored errors whole."""
        if self.error is None or len(self.error) <= 2 * ERROR_LENGTH:
            return self
        return self.evolve(error=shortened(self.error))


def shortened(error: str | None) -> str | None:
    """Return an error text as a summary holds it: at most ``ERROR_LENGTH`` characters and a word about it."""
    if error is None or len(error) <= ERROR_LENGTH:
        return error
    return error[:ERROR_LENGTH].rstrip() + TRUNCATED.format(len(error))


class RunSummaryCounters(CanonicalModel):
    """Counters over the window; ``total`` is its length and the sum of the six states."""

    total: Count = 0
    planning: Count = 0
    queued: Count = 0
    running: Count = 0
    completed: Count = 0
    error: Count = 0
    cancelled: Count = 0
    total_deltas: Count = 0
    total_new_criticals: Count = 0
    total_new_high: Count = 0
    total_new_medium: Count = 0
    total_new_low: Count = 0

    @classmethod
    def of(cls, window: Sequence[RunSnapshot]) -> Self:
        """Return the counters of a window."""
        states = [snapshot.state for snapshot in window]
        stats = [snapshot.stats for snapshot in window]
        return cls(
            total=len(window),
            **{state.value: states.count(state) for state in RunState},
            total_deltas=sum(item.deltas for item in stats),
            total_new_criticals=sum(item.new_criticals for item in stats),
            total_new_high=sum(item.new_high for item in stats),
            total_new_medium=sum(item.new_medium for item in stats),
            total_new_low=sum(item.new_low for item in stats),
        )


class RunSummary(CanonicalModel):
    """The latest run of a schedule and counters over its last 20 updated runs."""

    rules = (
        FirstOf(
            "last_run",
            items="recent",
            code="last_run",
            message="lastRun should be the newest entry of recent",
        ),
        FieldDerived(
            "counters",
            source="recent",
            function=RunSummaryCounters.of,
            code="summary_counters",
            message="counters should be those of recent",
        ),
    )

    tenant_id: TenantId
    schedule_id: Id
    updated_at: Timestamp
    last_run: RunSnapshot | None = None
    recent: Annotated[
        tuple[RunSnapshot, ...],
        Ordered(
            by=("created_at", "run_id"),
            descending=True,
            limit=Limit(count=WINDOW, code="window_size", message="recent should hold at most 20 runs"),
            unique=Unique(field="run_id", code="window_run", message="recent should name each run once"),
        ),
    ] = ()
    counters: RunSummaryCounters = RunSummaryCounters()

    @classmethod
    def of(cls, tenant_id: str, schedule_id: str, window: Sequence[RunSnapshot], now: datetime) -> Self:
        """Return the summary of a window; only its 20 newest entries are kept."""
        recent = sorted(window, key=lambda snapshot: snapshot.position, reverse=True)[:WINDOW]
        return cls(
            tenant_id=tenant_id,
            schedule_id=schedule_id,
            updated_at=now,
            last_run=recent[0] if recent else None,
            recent=tuple(recent),
            counters=RunSummaryCounters.of(recent),
        )


class RunSummaryRepository(Protocol):
    """Stores one summary per tenant and schedule.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a summary.
    """

    def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule. Absent: ``None`` when unknown or foreign."""
        ...

    def get_required(self, tenant_id: str, schedule_id: str) -> RunSummary:
        """Return the summary of a schedule as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """Return a page of summaries.

        Order: schedule_id by code point. Limit 50, at most 200. Empty: an empty page.
        """
        ...

    def count(self, tenant_id: str) -> int:
        """Return how many summaries all pages of :meth:`list` have together. Empty: 0."""
        ...

    def upsert(self, summary: RunSummary, *, expected_updated_at: datetime | None = None) -> RunSummary:
        """Insert or replace a summary; return what is stored. Repeated call: same result. Atomic.

        Raises:
            ConflictError: ``expected_updated_at`` is given and the stored value differs or is absent.
        """
        ...

    def modify(
        self, tenant_id: str, schedule_id: str, change: Callable[[RunSummary | None], RunSummary | None]
    ) -> RunSummary | None:
        """Read, change and write one summary as one serialised step; return what is stored afterwards.

        ``change`` receives the stored summary or ``None`` and returns the new one, or ``None`` for "leave
        it"; it may be called again after a lost race and must not have side effects.

        Raises:
            ValidationError: what ``change`` returned is not a summary, or is that of another tenant or
                schedule; nothing was written.
            ConcurrencyError: other writers won every repetition.
        """
        ...

    def delete(self, tenant_id: str, schedule_id: str) -> bool:
        """Remove one summary. Absent, foreign or repeated: false. The next move of a run writes a new one."""
        ...


class RunSummaryService(Protocol):
    """Projects run updates into summaries."""

    def project(self, run: Run, *, now: datetime | None = None) -> RunSummary | None:
        """Project one update of a run; return the summary, ``None`` for a run without schedule.

        Updates may arrive in any order and more than once: a lower state rank than the stored one and a
        second, different terminal state are ignored; of equal ranks the later arrival wins.
        """
        ...

    def get(self, tenant_id: str, schedule_id: str) -> RunSummary | None:
        """Return the summary of a schedule. Absent: ``None``."""
        ...

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[RunSummary]:
        """Return a page of summaries in the order of :meth:`RunSummaryRepository.list`."""
        ...

    def rebuild(self, tenant_id: str, schedule_id: str, *, now: datetime | None = None) -> RunSummary | None:
        """Recompute the window from the stored runs; ``None`` when there is neither a run nor a summary."""
        ...

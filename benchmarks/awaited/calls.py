"""The three calls that are measured, and the rows that they are about."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Final, Protocol

from benchmarks.singles import TENANT, run, summary
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS
from twinstore.scheduler.queries import runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler import RunSummary
    from twinstore.scheduler.storage import SchedulerStorage

__all__ = [
    "CALLS",
    "PAGE",
    "RUNS",
    "RUN_SUMMARIES",
    "SCOPE",
    "AwaitedCalls",
    "Calls",
    "Numbers",
    "fill",
    "row_of",
    "run_id",
]

KEYS: Final = 100
SCOPE: Final = Tenant(TENANT)
PAGE: Final = runs(Tenant(TENANT), None)
CALLS: Final = ("get", "upsert", "list")
SUMMARIES: Final = tuple(summary(f"schedule-{key}", version) for version in (0, 1) for key in range(KEYS))


class AwaitedCalls(Protocol):
    """One way to make them; each takes the number of the call."""

    async def get(self, number: int) -> object:
        """Read a run by its key."""
        ...

    async def upsert(self, number: int) -> object:
        """Replace a run summary by another version."""
        ...

    async def list(self, number: int) -> object:
        """Read a page of 50 runs."""
        ...


class Numbers:
    """Numbers of calls, so that two in turn are about different rows."""

    def __init__(self) -> None:
        self.next: Callable[[], int] = cycle(range(2 * KEYS)).__next__


class Calls:
    """The calls of a storage, synchronous or for asyncio, in the words of both."""

    def __init__(self, scheduler: SchedulerStorage) -> None:
        """Take a storage, or one for asyncio, whose calls are then awaited."""
        self._runs, self._summaries = scheduler.runs, scheduler.run_summaries

    def get(self, number: int) -> object:
        """Read a run by its key."""
        return self._runs.get(TENANT, run_id(number))

    def upsert(self, number: int) -> object:
        """Replace a run summary by another version."""
        return self._summaries.upsert(summary_of(number))

    def list(self, number: int) -> object:
        """Read a page of 50 runs."""
        del number
        return self._runs.list(TENANT)


def run_id(number: int) -> str:
    """Return the key of a run."""
    return f"run-{number % KEYS}"


def summary_of(number: int) -> RunSummary:
    """Return a summary."""
    return SUMMARIES[number % len(SUMMARIES)]


def row_of(number: int) -> Row[RunSummary]:
    """Return the row of a summary."""
    return Row(summary_of(number))


def fill(scheduler: SchedulerStorage) -> None:
    """Store what is read."""
    for number in range(KEYS):
        scheduler.runs.create(run(run_id(number)))
        scheduler.run_summaries.upsert(summary_of(number))

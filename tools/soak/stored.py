"""The rows in the store after a soak, and what a process must not keep: threads and open files."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.support.claiming import TENANTS
from tools.soak.plan import LOCKS, SERVED
from tools.soak.work import counter_of, foreign_rows
from twinstore.catalog.keys import KeyRange
from twinstore.scheduler import PolicyJobQueryOptions, RunQueryOptions
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUNS
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.scheduler.runs import Run
from twinstore.testing.workspace import all_pages

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from tools.soak.plan import Plan
    from twinstore.scheduler.storage import SchedulerStorage

PAGE = 200


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of a policy job."""

    status: str
    attempts: int


@dataclass(frozen=True, slots=True)
class TriggerState:
    """The counters of a trigger, and the runs of its schedule.

    Attributes:
        first: the instant that was due first.
        next: the instant that is due next.
        fires, misfires: how many instants fired, and how many passed without.
        runs: the ids of the stored runs.
    """

    first: datetime
    next: datetime
    fires: int
    misfires: int
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphState:
    """The state of a graph job, and the status in each of its events, the first one first."""

    status: str
    attempts: int
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything by id; lines of logs as sequence and message; the fence of each lock.

    Of services: how often each part of a write is stored, the counters, and rows that are not what they say.
    """

    jobs: dict[str, JobState] = field(default_factory=dict[str, JobState])
    triggers: dict[str, TriggerState] = field(default_factory=dict[str, TriggerState])
    graph_jobs: dict[str, GraphState] = field(default_factory=dict[str, GraphState])
    logs: dict[str, tuple[tuple[int, str], ...]] = field(
        default_factory=dict[str, "tuple[tuple[int, str], ...]"]
    )
    fences: dict[str, int] = field(default_factory=dict[str, int])
    parts: dict[str, int] = field(default_factory=dict[str, int])
    counters: dict[str, int] = field(default_factory=dict[str, int])
    foreign_rows: list[str] = field(default_factory=list[str])


def stored_in(storage: SchedulerStorage, plan: Plan, first: dict[str, datetime]) -> Stored:
    """Read everything.

    Args:
        storage: the store, which no other process uses any more.
        plan: what was done.
        first: the instant that was due first, by schedule.
    """
    found = Stored()
    for tenant in TENANTS:
        _read_jobs(storage, tenant, found)
        _read_graph_jobs(storage, tenant, found)
    for tenant, schedule in plan.schedule_names():
        found.triggers[schedule] = _trigger(storage, tenant, schedule, first[schedule], found)
    for key in LOCKS:
        lock = storage.locks.inspect(key)
        if lock is not None:
            found.fences[key] = lock.fence
    for tenant in SERVED:
        _read_served(storage, tenant, found)
    return found


def _read_served(storage: SchedulerStorage, tenant: str, found: Stored) -> None:
    """Read what services wrote for a tenant; by the way of a copy, because there is much of it."""
    with storage.bulk.view() as view:
        for entity in (RUNS, EXECUTION_LOGS):
            for batch in view.records(entity, KeyRange(), tenant_id=tenant):
                for record in batch:
                    _note_served(tenant, record.model, found)


def _note_served(tenant: str, row: object, found: Stored) -> None:
    assert isinstance(row, Run | ExecutionLogEntry)
    found.foreign_rows.extend(foreign_rows(tenant, [row]))
    if isinstance(row, Run) and row.id == counter_of(tenant):
        found.counters[row.id] = row.stats.candidates
        return
    part = f"run {row.id}" if isinstance(row, Run) else f"line {row.run_id} {row.message}"
    found.parts[part] = found.parts.get(part, 0) + 1


def _read_jobs(storage: SchedulerStorage, tenant: str, found: Stored) -> None:
    jobs = all_pages(
        lambda token: storage.policy_jobs.list(tenant, PolicyJobQueryOptions(limit=PAGE, page_token=token))
    )
    found.jobs.update({job.id: JobState(job.status.value, job.attempt_count) for job in jobs})


def _read_graph_jobs(storage: SchedulerStorage, tenant: str, found: Stored) -> None:
    jobs = storage.graph_jobs
    for job in all_pages(lambda token: jobs.list_build_jobs(tenant, None, PAGE, page_token=token)):
        events = jobs.list_events(tenant, job.id, limit=PAGE).items
        statuses = tuple(event.payload.status.value for event in reversed(events))
        found.graph_jobs[job.id] = GraphState(job.status.value, job.attempts, statuses)


def _trigger(
    storage: SchedulerStorage, tenant: str, schedule: str, first: datetime, found: Stored
) -> TriggerState:
    runs = all_pages(
        lambda token: storage.runs.list(
            tenant, RunQueryOptions(schedule_id=schedule, limit=PAGE, page_token=token)
        )
    )
    for run in runs:
        lines = storage.execution_logs.list(tenant, run.id, limit=5000)
        found.logs[run.id] = tuple((line.sequence or 0, line.message) for line in lines)
    trigger = storage.triggers.get_required(tenant, schedule)
    assert trigger.next_fire_at is not None
    return TriggerState(
        first=first,
        next=trigger.next_fire_at,
        fires=trigger.fire_count,
        misfires=trigger.misfire_count,
        runs=tuple(run.id for run in runs),
    )


# Threads of a closed pool end by themselves, on a busy machine after a while.
GRACE_SECONDS: Final = 30.0
POLL_SECONDS: Final = 0.05
FILES: Final = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class ProcessResources:
    """The threads by name, and the open files by number."""

    threads: frozenset[str]
    files: Mapping[int, str]

    @classmethod
    def now(cls) -> Self:
        """Return those of this process."""
        files: dict[int, str] = {}
        for name in os.listdir(FILES):  # noqa: PTH208  # the one that lists is gone when it is inspected
            with suppress(FileNotFoundError):
                files[int(name)] = os.readlink(FILES / name)  # noqa: PTH115  # a text, and often no path
        return cls(frozenset(f"{thread.name} ({thread.ident})" for thread in threading.enumerate()), files)

    def added_since(self, before: ProcessResources) -> list[str]:
        """Return what was not there before."""
        threads = [f"the thread {name}" for name in sorted(self.threads - before.threads)]
        files = [
            f"the file {number} ({what})"
            for number, what in sorted(self.files.items())
            if before.files.get(number) != what
        ]
        return threads + files

    def leaked(self) -> list[str]:
        """Return what there is now and was not then, and does not go by itself."""
        deadline = time.monotonic() + GRACE_SECONDS
        # An error and its frames hold each other, and with them the connection that was not made.
        gc.collect()
        while (found := ProcessResources.now().added_since(self)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return found

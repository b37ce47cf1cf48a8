"""Calls of every kind, each on a separate thread, and where the store shows what became of them."""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore import NotFoundError, aio
from twinstore.catalog.keys import KeyRange
from twinstore.scheduler import ExecutionLogEntry, GraphJobStatus, RunState
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import (
    make_impact_set,
    make_policy_job,
    make_run,
    make_schedule,
    moved,
)
from twinstore.testing.scheduler.graph_jobs import digits_of, graph_moved, make_graph_build_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.resilience.test_forks import Ledger
    from tests.support.servers import Settings
    from twinstore.aio import AsyncSchedulerStorage
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

TENANT: Final = "acme"
LOG: Final = "run-of-the-log"
LOCK: Final = "exclusive"
LEASE: Final = timedelta(seconds=2)
PATIENCE: Final = timedelta(milliseconds=100)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
LATER: Final = START + DAY
# From one call to the next of the same thread: enough calls meet an outage, and the processor rests.
PAUSE_SECONDS: Final = 0.05
JOIN_SECONDS: Final = 60.0
SEEN_SECONDS: Final = 5.0
Model = TypeVar("Model")


def made_by(token: str) -> str:
    """Return the token of the call that made what this one goes on with."""
    return token.partition("/")[2]


def graph_job_id(token: str) -> str:
    """Return the id of the graph job that a call added."""
    return f"gbj_{digits_of(token)}"


def parts_of(token: str) -> tuple[str, str]:
    """Return the ids of the runs that a unit creates."""
    return f"{token}/a", f"{token}/b"


def log_lines(token: str, run: str = LOG) -> list[ExecutionLogEntry]:
    """Return what is appended at once; to a log that several write to, or to that of one run."""
    return [
        ExecutionLogEntry(tenant_id=TENANT, run_id=run, logged_at=START, message=part)
        for part in parts_of(token)
    ]


def there(read: Callable[[], Model]) -> Model:
    """Read what another thread wrote; a new primary of MongoDB may answer without it for a moment."""
    end = time.monotonic() + SEEN_SECONDS
    while time.monotonic() < end:
        with suppress(NotFoundError):
            return read()
        time.sleep(PAUSE_SECONDS)
    return read()


def write_parts(unit: SchedulerSession, token: str) -> None:
    """Write in three steps what is stored as a whole or not at all."""
    first, second = parts_of(token)
    unit.runs.create(make_run(TENANT, first))
    unit.execution_logs.append(log_lines(token, first))
    unit.runs.create(make_run(TENANT, second))


async def write_parts_awaited(storage: AsyncSchedulerStorage, token: str) -> None:
    """Do the same in a unit of asyncio."""
    first, second = parts_of(token)
    async with storage.transaction(TENANT) as unit:
        await unit.runs.create(make_run(TENANT, first))
        await unit.execution_logs.append(log_lines(token, first))
        await unit.runs.create(make_run(TENANT, second))


@dataclass(slots=True)
class Callers:
    """Threads that call one storage until they are stopped.

    Attributes:
        storage: on the server that comes and goes.
        settings: of the same store, for the storage of asyncio.
        ledger: what the calls were answered.
    """

    storage: SchedulerStorage
    settings: Settings
    ledger: Ledger
    _stop: Event = field(default_factory=Event)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    # What one caller has made and another one goes on with.
    _schedules: SimpleQueue[str] = field(default_factory=SimpleQueue[str])
    _graph_jobs: SimpleQueue[str] = field(default_factory=SimpleQueue[str])
    _runs: SimpleQueue[str] = field(default_factory=SimpleQueue[str])
    leased: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    # Of the lock: until when no other may hold it, and the fence of the last holder.
    _section: Lock = field(default_factory=Lock)
    _safe_until: float = 0.0
    _fence: int = 0

    @property
    def actions(self) -> Mapping[str, Callable[[str], object]]:
        """The calls by kind; each takes its token."""
        return {
            "read": self._read,
            "insert": self._insert,
            "change": self._change,
            "upsert": self._upsert,
            "fire": self._fire,
            "job": lambda token: self.storage.policy_jobs.create(make_policy_job(TENANT, token)),
            "lease": self._lease,
            "append": lambda token: self.storage.execution_logs.append(log_lines(token)),
            "add": self._add,
            "move": self._move,
            "unit": self._unit,
            "transact": self._transact,
            "session": self._session,
            "stream": self._stream,
            "purge": self._purge,
            "lock": self._lock,
            "other lock": self._lock,
            "migrate": lambda _: self.storage.initializer.ensure_migrations(),
            "verify": lambda _: self.storage.initializer.verify(),
            "ready": lambda _: self.storage.check_ready(),
        }

    @property
    def kinds(self) -> set[str]:
        """All kinds, those of asyncio included."""
        return {*self.actions, "aio insert", "aio unit"}

    def prepare(self) -> None:
        """Store what calls rely on, before anything happens to the server."""
        self.storage.initializer.ensure_migrations()
        self.storage.runs.create(make_run(TENANT, LOG))

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Call on all threads for the length of the block."""
        threads = [
            Thread(target=self._repeat, args=(kind, action), name=kind)
            for kind, action in self.actions.items()
        ]
        threads.append(Thread(target=lambda: asyncio.run(self._repeat_awaited()), name="asyncio"))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(JOIN_SECONDS)
        assert [thread.name for thread in threads if thread.is_alive()] == []

    def over(self, happens: Callable[[], object]) -> None:
        """Let a unit be open while something happens: whatever the other calls meet, its commit meets it."""
        token = f"unit-{next(self._numbers)}"
        with self.ledger.noted("unit", token), self.storage.transaction(TENANT) as unit:
            write_parts(unit, token)
            happens()

    # How calls repeat

    def _repeat(self, kind: str, action: Callable[[str], object]) -> None:
        while not self._stop.wait(PAUSE_SECONDS):
            token = self._token(kind)
            if token is not None:
                with self.ledger.noted(kind, token):
                    action(token)

    def _token(self, kind: str) -> str | None:
        """Return a unique token; ``None`` if there is nothing to continue with."""
        name = f"{kind}-{next(self._numbers)}"
        made = {"fire": self._schedules, "move": self._graph_jobs, "change": self._runs}
        queue = made.get(kind)
        if queue is None:
            return name
        with suppress(Empty):
            return f"{name}/{queue.get_nowait()}"
        return None

    async def _repeat_awaited(self) -> None:
        async with aio.open_storage(self.settings) as opened:
            storage = opened.scheduler
            while not self._stop.is_set():
                token = f"aio-{next(self._numbers)}"
                with self.ledger.noted("aio insert", token):
                    await storage.runs.create(make_run(TENANT, token))
                token = f"aio-unit-{next(self._numbers)}"
                with self.ledger.noted("aio unit", token):
                    await write_parts_awaited(storage, token)
                await asyncio.sleep(PAUSE_SECONDS)

    # The calls

    def _read(self, token: str) -> None:
        del token
        assert self.storage.runs.get_required(TENANT, LOG).id == LOG
        assert self.storage.runs.list(TENANT).items
        self.storage.schedules.get_due_schedules(START, limit=5)
        self.storage.policy_jobs.count_by_status(TENANT)

    def _insert(self, token: str) -> None:
        self.storage.runs.create(make_run(TENANT, token))
        self._runs.put(token)

    def _change(self, token: str) -> None:
        run = there(lambda: self.storage.runs.get_required(TENANT, made_by(token)))
        assert self.storage.runs.update(moved(run, RunState.QUEUED), expected_state=RunState.PLANNING)

    def _upsert(self, token: str) -> None:
        self.storage.schedules.upsert(make_schedule(TENANT, token, when_cron="0 * * * *", created_at=START))
        self._schedules.put(token)

    def _fire(self, token: str) -> None:
        self.storage.triggers.fire(TENANT, made_by(token), LATER)

    def _lease(self, token: str) -> None:
        jobs = self.storage.policy_jobs.lease_many(token, START, limit=2, lease=HOUR)
        self.leased[token] = tuple(job.id for job in jobs)

    def _add(self, token: str) -> None:
        self.storage.graph_job_store.add(make_graph_build_job(TENANT, token, status="pending"))
        self._graph_jobs.put(token)

    def _move(self, token: str) -> None:
        name = graph_job_id(made_by(token))
        job = there(lambda: self.storage.graph_jobs.get_build_job_required(TENANT, name))
        assert self.storage.graph_job_store.update(graph_moved(job, GraphJobStatus.RUNNING), job.status)

    def _unit(self, token: str) -> None:
        with self.storage.transaction(TENANT) as unit:
            write_parts(unit, token)

    def _transact(self, token: str) -> None:
        self.storage.transact(lambda unit: write_parts(unit, token), tenant_id=TENANT)

    def _session(self, token: str) -> None:
        """Write and read one's own write, which a secondary or a new primary must not lack."""
        with self.storage.sessions.open(TENANT) as session:
            with self.ledger.noted("session write", token):
                session.runs.create(make_run(TENANT, token))
            if self.ledger.confirmed(token):
                assert session.runs.get(TENANT, token) is not None

    def _stream(self, token: str) -> None:
        """Read all runs through a cursor of the server, in small batches."""
        del token
        with self.storage.bulk.view() as view:
            assert sum(len(batch) for batch in view.records(RUNS, KeyRange(), batch_size=20)) >= 1

    def _purge(self, token: str) -> None:
        old = make_impact_set(snapshot_id=token, generated_at=START - 2 * DAY)
        self.storage.impact_snapshots.upsert(TENANT, old)
        self.storage.impact_snapshots.purge_generated(START - DAY)

    def _lock(self, token: str) -> None:
        """Hold a lock: no other holds it while its lease is safe, and each holder has a higher fence."""
        asked = time.monotonic()
        handle = self.storage.locks.acquire(LOCK, PATIENCE, lease=LEASE, holder_id=token)
        self._enter(handle.fence, asked)
        renewing = time.monotonic()
        handle.renew()
        self._stay(handle.fence, renewing)
        self._leave(handle.fence)
        handle.release()

    def _enter(self, fence: int, asked: float) -> None:
        safe_until = asked + LEASE.total_seconds()
        with self._section:
            # The answer may have come so late that the lease is over and another holder has the lock.
            if time.monotonic() < safe_until:
                assert time.monotonic() > self._safe_until, "two holders at once"
                assert fence > self._fence, "a fence was given before"
                self._fence, self._safe_until = fence, safe_until

    def _stay(self, fence: int, asked: float) -> None:
        with self._section:
            # As above.
            if fence == self._fence:
                self._safe_until = asked + LEASE.total_seconds()

    def _leave(self, fence: int) -> None:
        with self._section:
            if fence == self._fence:
                self._safe_until = 0.0

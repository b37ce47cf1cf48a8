"""The work done with this library; the same code on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import shuffle
from time import perf_counter
from typing import TYPE_CHECKING, Final

from typing_extensions import override

import twinstore
from benchmarks.peers.contender import Contender, Endpoints, Kind, Step, Work
from benchmarks.peers.stock import request
from twinstore.scheduler import PolicyRunJobStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler import PolicyRunJob, ScheduleClaim

__all__ = ["on_mongo", "on_postgres"]

KEY: Final = "bench"
TIMEOUT: Final = timedelta(minutes=5)
LEASE: Final = timedelta(minutes=1)
# A worker fires what it claims within the lease, and others find the rest.
PAGE: Final = 25
DISPATCHING, SUBMITTED, COMPLETED = (
    PolicyRunJobStatus.DISPATCHING,
    PolicyRunJobStatus.SUBMITTED,
    PolicyRunJobStatus.COMPLETED,
)


def on_postgres(endpoints: Endpoints, worker: str) -> Library:
    """Open this library on PostgreSQL."""
    return Library(endpoints, worker, "Postgres")


def on_mongo(endpoints: Endpoints, worker: str) -> Library:
    """Open this library on MongoDB."""
    return Library(endpoints, worker, "Mongo")


class Library(Contender):
    """A worker that is written against the repositories."""

    def __init__(self, endpoints: Endpoints, worker: str, driver: str) -> None:
        self._opened = twinstore.open_storage(endpoints.settings[driver])
        self._storage = self._opened.scheduler
        self._worker = worker
        self._due: list[ScheduleClaim] = []

    @override
    def close(self) -> None:
        self._opened.close()

    @override
    def step(self, work: Work) -> Step:
        self.waited = None
        self._due = []
        steps: dict[Kind, Callable[[int], int]] = {
            Kind.CLAIM: lambda size: len(self._claimed(size)),
            Kind.PROCESS: self._process,
            Kind.LIFE: self._life,
            Kind.FIRE: lambda _: self._fire(list.reverse),
            Kind.FIRE_SPREAD: lambda _: self._fire(shuffle),
            Kind.LOCK: self._lock,
        }
        chosen, size = steps[work.kind], work.size
        return lambda: chosen(size)

    def _claimed(self, size: int) -> tuple[PolicyRunJob, ...]:
        jobs, now = self._storage.policy_jobs, datetime.now(UTC)
        if size > 1:
            return jobs.lease_many(self._worker, now, limit=size)
        job = jobs.lease_next(self._worker, now)
        return () if job is None else (job,)

    def _process(self, size: int) -> int:
        """Lease, submit and complete: every state between is written."""
        held = self._claimed(size)
        now = datetime.now(UTC)
        free: dict[str, object] = {"lease_owner": None, "lease_expires_at": None, "updated_at": now}
        free |= {"status": SUBMITTED, "submitted_at": now}
        submitted = [job.evolve(**free) for job in held]
        done = [job.evolve(status=COMPLETED, completed_at=now) for job in submitted]
        jobs = self._storage.policy_jobs
        if size > 1:
            jobs.complete_many(submitted, DISPATCHING, lease_owner=self._worker, now=now)
            return sum(jobs.complete_many(done, SUBMITTED, lease_owner=None, now=now))
        for job in submitted:
            jobs.try_replace(job, DISPATCHING, lease_owner=self._worker, now=now)
        return sum(jobs.try_replace(job, SUBMITTED, now=now) for job in done)

    def _life(self, size: int) -> int:
        self._storage.policy_run_service.enqueue(request(0))
        return self._process(size)

    def _fire(self, arrange: Callable[[list[ScheduleClaim]], None]) -> int:
        """Fire the next of a page of due schedules, which no other worker has."""
        now = datetime.now(UTC)
        if not self._due:
            self._due = list(self._storage.schedules.claim_due(self._worker, now, limit=PAGE))
            arrange(self._due)
        if not self._due:
            return 0
        claim = self._due.pop()
        schedule = claim.schedule
        return int(self._storage.triggers.fire(schedule.tenant_id, schedule.id, now, claim=claim) is not None)

    def _lock(self, size: int) -> int:
        began = perf_counter()
        handle = self._storage.locks.acquire(KEY, TIMEOUT, lease=LEASE)
        self.waited = perf_counter() - began
        handle.release()
        return size

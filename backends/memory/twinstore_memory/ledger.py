"""The ledger of copies into this store: jobs, their leases and their ranges."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from twinstore.bulk import Claim, Job, JobState, Lease, RangeProgress, RangeState
from twinstore.errors import LeaseLostError, NotFoundError
from twinstore.jsontext import format_timestamp
from twinstore_memory.store import DRIVER, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from twinstore.bulk import KeyRange, RangeTally
    from twinstore_memory.store import Store, Unit

__all__ = ["MemoryLedger", "finish_range", "held"]


@dataclass(frozen=True, slots=True)
class Ranges:
    """The ranges of the current generation of a job."""

    planned: tuple[RangeProgress, ...] = ()


JOBS: Final[Table[Job]] = Table("ledger.jobs")
LEASES: Final[Table[Lease]] = Table("ledger.leases")
RANGES: Final[Table[Ranges]] = Table("ledger.ranges")


class MemoryLedger:
    """Implements :class:`~twinstore.bulk.Ledger`; the clock of the store judges leases."""

    def __init__(self, store: Store) -> None:
        """Take the store."""
        self._store = store

    def find(self, job_id: str) -> Job | None:
        """Return a job."""
        return self._store.begin().get(JOBS, (job_id,))

    def jobs(self) -> Iterator[Job]:
        """Return all jobs, the latest start first."""
        jobs = self._store.begin().values(JOBS)
        return iter(sorted(jobs, key=lambda job: (job.started_at, job.id), reverse=True))

    def lease(self, job_id: str) -> Lease | None:
        """Return the lease that somebody holds on a job now."""
        found = self._store.begin().get(LEASES, (job_id,))
        return found if found is not None and found.expires_at > self._store.clock.now() else None

    def start(self, job_id: str, settings: Mapping[str, str], as_of: datetime) -> Job:
        """Create a job, or begin the next generation of a complete one."""
        with self._writing() as unit:
            unit.claim(JOBS, (job_id,))
            job = unit.get(JOBS, (job_id,))
            if job is not None and job.state is JobState.RUNNING:
                return job
            generation = 1 if job is None else job.generation + 1
            started = Job(
                id=job_id,
                settings=dict(settings),
                state=JobState.RUNNING,
                generation=generation,
                as_of=as_of,
                started_at=self._store.clock.now(),
            )
            unit.put(JOBS, (job_id,), started)
            unit.claim(RANGES, (job_id,))
            unit.put(RANGES, (job_id,), Ranges())
        return started

    def acquire(self, job_id: str, holder: str, lease: timedelta, *, dead: str | None = None) -> Lease:
        """Take the lease of a job and grow its fence."""
        with self._writing() as unit:
            required_job(unit, job_id)
            unit.claim(LEASES, (job_id,))
            now, found = self._store.clock.now(), unit.get(LEASES, (job_id,))
            if found is not None and found.expires_at > now and found.holder not in {holder, dead}:
                raise taken(found)
            taken_over = Lease(job_id, holder, 1 if found is None else found.fence + 1, now + lease)
            unit.put(LEASES, (job_id,), taken_over)
        return taken_over

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease."""
        with self._held(lease) as unit:
            renewed = replace(lease, expires_at=self._store.clock.now() + duration)
            unit.put(LEASES, (lease.job_id,), renewed)
        return renewed

    def release(self, lease: Lease) -> None:
        """Give a lease back; the fence stays, so that it keeps growing."""
        with self._writing() as unit:
            unit.claim(LEASES, (lease.job_id,))
            found = unit.get(LEASES, (lease.job_id,))
            if found is not None and found.fence == lease.fence:
                unit.put(LEASES, (lease.job_id,), replace(found, expires_at=self._store.clock.now()))

    def plan(self, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        """Store the ranges of an entity unless they are stored already."""
        with self._held(lease) as unit:
            planned = planned_ranges(unit, lease.job_id)
            if any(item.entity == entity for item in planned):
                return
            first = len(planned)
            added = (
                RangeProgress(number=number, entity=entity, within=within, state=RangeState.PENDING)
                for number, within in enumerate(ranges, first)
            )
            unit.put(RANGES, (lease.job_id,), Ranges((*planned, *added)))

    def ranges(self, job_id: str, entity: str | None = None) -> Iterator[RangeProgress]:
        """Return the ranges of the current generation in order of number."""
        found = self._store.begin().get(RANGES, (job_id,)) or Ranges()
        return (item for item in found.planned if entity is None or item.entity == entity)

    def claim(self, lease: Lease, number: int) -> Claim:
        """Mark a range as copying, also one that is live."""
        with self._held(lease) as unit:
            found = replace_range(unit, lease.job_id, number, state=RangeState.COPYING)
        return Claim(lease, number, found.entity, found.within)

    def complete(self, lease: Lease) -> None:
        """Mark the job as complete."""
        with self._held(lease) as unit:
            unit.claim(JOBS, (lease.job_id,))
            job = required_job(unit, lease.job_id)
            unit.put(JOBS, (lease.job_id,), replace(job, state=JobState.COMPLETE))

    @contextmanager
    def _held(self, lease: Lease) -> Iterator[Unit]:
        with self._writing() as unit:
            held(unit, lease)
            yield unit

    @contextmanager
    def _writing(self) -> Iterator[Unit]:
        unit = self._store.begin()
        try:
            yield unit
            unit.commit()
        finally:
            unit.rollback()


def held(unit: Unit, lease: Lease) -> None:
    """Make sure that a lease is held, until the unit ends.

    Raises:
        LeaseLostError: it expired or another holder has it.
    """
    unit.claim(LEASES, (lease.job_id,))
    found = unit.get(LEASES, (lease.job_id,))
    if found is None or (found.holder, found.fence) != (lease.holder, lease.fence):
        raise lost(lease, "another holder has taken it" if found else "it does not exist")
    if found.expires_at <= unit.store.clock.now():
        raise lost(lease, f"it expired at {format_timestamp(found.expires_at)}")


def finish_range(unit: Unit, claim: Claim, tally: RangeTally) -> None:
    """Mark a range as live; the lease must be held."""
    replace_range(
        unit,
        claim.lease.job_id,
        claim.number,
        state=RangeState.LIVE,
        tally=tally,
        finished_at=unit.store.clock.now(),
    )


def required_job(unit: Unit, job_id: str) -> Job:
    """Return a job, or raise ``NotFoundError``."""
    job = unit.get(JOBS, (job_id,))
    if job is None:
        raise NotFoundError(f"There is no job {job_id!r}; start it first.", key=job_id, driver=DRIVER)
    return job


def planned_ranges(unit: Unit, job_id: str) -> tuple[RangeProgress, ...]:
    """Return the ranges of a job, which no other unit can change until this one ends."""
    unit.claim(RANGES, (job_id,))
    return (unit.get(RANGES, (job_id,)) or Ranges()).planned


def replace_range(
    unit: Unit,
    job_id: str,
    number: int,
    *,
    state: RangeState,
    tally: RangeTally | None = None,
    finished_at: datetime | None = None,
) -> RangeProgress:
    """Store the new state of a range and return it."""
    planned = planned_ranges(unit, job_id)
    if not 0 <= number < len(planned):
        raise NotFoundError(
            f"Job {job_id!r} has no range {number}; plan it first.", key=job_id, driver=DRIVER
        )
    changed = replace(planned[number], state=state, tally=tally, finished_at=finished_at)
    unit.put(RANGES, (job_id,), Ranges((*planned[:number], changed, *planned[number + 1 :])))
    return changed


def taken(lease: Lease) -> LeaseLostError:
    """Return the error of a lease that another holder has."""
    return LeaseLostError(
        f"{lease.holder} works on job {lease.job_id!r} and holds its lease until "
        f"{format_timestamp(lease.expires_at)}; wait for it or stop it.",
        key=lease.holder,
        driver=DRIVER,
    )


def lost(lease: Lease, why: str) -> LeaseLostError:
    """Return the error of a lease that is not held any more."""
    return LeaseLostError(
        f"The lease of job {lease.job_id!r} (holder {lease.holder}, fence {lease.fence}) is lost: {why}. "
        "Start again to resume.",
        key=lease.holder,
        driver=DRIVER,
    )

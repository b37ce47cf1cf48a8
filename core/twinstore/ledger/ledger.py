"""The ledger of copies, written once over :class:`~twinstore.access.Access`.

Who may do what:

- The **lease** of a job belongs to one coordinator; it plans, reopens, completes and stops.
- A **worker** takes ranges. What makes that safe is the fence of each range alone: a commit is refused unless
  the range is still copying for this worker under this fence. Time only decides whose range is free.
- The row of the range is the only row of the ledger that the commit of a range locks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from twinstore.access import Add, Ref, Row
from twinstore.bulk import KeyRange
from twinstore.canonical import CanonicalModel
from twinstore.errors import LeaseLostError, NotFoundError
from twinstore.jsontext import format_timestamp
from twinstore.leases import LeaseState, acquired, held, owned, released, renewed
from twinstore.ledger.catalog import CONFLICTS, JOBS, QUARANTINE, RANGES, WORKERS
from twinstore.ledger.models import (
    ConflictLine,
    CopyJob,
    CopyRange,
    CopyWorker,
    JobState,
    QuarantineLine,
    RangeState,
)
from twinstore.ledger.records import Claim, Lease, RangeProgress, RangeTally, key_json, within_of
from twinstore.paging import SortKey
from twinstore.query import Equals, Query, key_order
from twinstore.retrying import pauses, repeat
from twinstore.scope import instant_argument
from twinstore.tenancy import ALL_TENANTS

if TYPE_CHECKING:
    from twinstore.access import Access, Moment, Rows, Sets
    from twinstore.catalog import Entity, Key
    from twinstore.query import Condition

__all__ = ["MAX_ATTEMPTS", "Ledger"]

M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")

# Rivals that start or plan one job at the same moment; each of them waits for the others at most once.
ATTEMPTS: Final = 10
PAGE: Final = 1000
# A line of the quarantine may hold 1 MB, and a page is in memory as a whole.
PAGE_OF_LINES: Final = 20
# A range that was given back so often is not tried again by itself.
MAX_ATTEMPTS: Final = 5
BY_NUMBER: Final = (SortKey("number", number=True),)


class Ledger:
    """The durable record of jobs and ranges, kept in the target."""

    def __init__(self, access: Access, *, atomic: bool = True) -> None:
        """Take the rows of the target; see :meth:`twinstore.bulk.BulkPort.access`.

        Args:
            access: the rows of the ledger and of everything else in its store.
            atomic: whether the store has transactions; without them only one worker may use the ledger.
        """
        self._access = access
        self._atomic = atomic

    @property
    def driver(self) -> str:
        """The name of the driver, for messages."""
        return self._access.binding.driver

    # ------------------------------------------------------------------------------------------ jobs

    def find(self, job_id: str) -> CopyJob | None:
        """Return a job. Absent: ``None``."""
        (row,) = self._access.find(JOBS, ALL_TENANTS, ((job_id,),))
        return None if row is None else row.model

    def jobs(self) -> Iterator[CopyJob]:
        """Return all jobs, the latest start first."""
        order = (SortKey("startedAt", descending=True, time=True), SortKey("id"))
        return (row.model for row in self._all(JOBS, (), order))

    def start(self, job_id: str, settings: Mapping[str, str], as_of: datetime) -> CopyJob:
        """Create a job, or begin the next generation of a complete one: its ranges and lines are forgotten.

        A running job is returned as it is.
        """
        instant = instant_argument(as_of, "as_of")

        def begun(stored: CopyJob | None, now: Moment) -> CopyJob | None:
            if stored is None:
                return CopyJob(id=job_id, settings=dict(settings), as_of=instant, started_at=now())
            if stored.state is JobState.RUNNING:
                return None
            fresh = CopyJob(
                id=job_id,
                settings=dict(settings),
                generation=stored.generation + 1,
                as_of=instant,
                started_at=now(),
            )
            return fresh.leased(stored.lease)

        def begin(unit: Access) -> CopyJob:
            before = self._job_in(unit, job_id)
            job = self._must(change_model(unit, JOBS, (job_id,), begun), job_id)
            if before is not None and before.generation != job.generation:
                for entity in (RANGES, QUARANTINE, CONFLICTS):
                    self._forget(unit, entity, (Equals("jobId", job_id),))
            return job

        return self._in_unit(begin)

    def complete(self, lease: Lease) -> None:
        """Mark the job as complete.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        self._leased(lease, lambda job: job.evolve(state=JobState.COMPLETE))

    def stop(self, lease: Lease, reason: str) -> None:
        """Ask every worker of the job to take no more ranges."""
        self._leased(lease, lambda job: job.evolve(stop=True, stop_reason=reason))

    def resume(self, lease: Lease) -> None:
        """Let workers take ranges again."""
        self._leased(lease, lambda job: job.evolve(stop=False, stop_reason=None) if job.stop else job)

    # ---------------------------------------------------------------------------------------- leases

    def lease(self, job_id: str) -> Lease | None:
        """Return the lease that somebody holds on a job now. Nobody, or expired: ``None``."""
        found: list[Lease] = []

        def look(stored: CopyJob | None, now: Moment) -> None:
            found.clear()
            if stored is not None and held(stored.lease, now()):
                found.append(lease_of(stored))

        change_model(self._access, JOBS, (job_id,), look)
        return found[0] if found else None

    def acquire(self, job_id: str, holder: str, lease: timedelta, *, dead: str | None = None) -> Lease:
        """Take the lease of a job and grow its fence.

        ``dead`` names a holder that is known to be gone; its lease is taken before it expires.

        Raises:
            LeaseLostError: another holder has it; the message names holder and expiry, ``key`` the holder.
        """

        def take(stored: CopyJob | None, now: Moment) -> CopyJob:
            if stored is None:
                raise self._unknown(job_id)
            taken = acquired(stored.lease, holder, now(), lease, dead=() if dead is None else (dead,))
            if taken is None:
                raise self._held(stored)
            return stored.leased(taken)

        return lease_of(self._must(change_model(self._access, JOBS, (job_id,), take), job_id))

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease.

        Raises:
            LeaseLostError: it expired or another holder has it.
        """

        def extend(stored: CopyJob | None, now: Moment) -> CopyJob:
            state = LeaseState() if stored is None else stored.lease
            longer = renewed(state, lease.holder, lease.fence, now(), duration)
            if stored is None or longer is None:
                raise self._lost(lease)
            return stored.leased(longer)

        return lease_of(self._must(change_model(self._access, JOBS, (lease.job_id,), extend), lease.job_id))

    def release(self, lease: Lease) -> None:
        """Give a lease back; does nothing when it is lost already."""

        def give_back(stored: CopyJob | None, now: Moment) -> CopyJob | None:
            del now
            free = None if stored is None else released(stored.lease, lease.holder, lease.fence)
            return None if stored is None or free is None else stored.leased(free)

        change_model(self._access, JOBS, (lease.job_id,), give_back)

    # ---------------------------------------------------------------------------------------- ranges

    def plan(self, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        """Store the ranges of an entity, all or none; does nothing when they are stored already.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        self._in_unit(lambda unit: self._plan(unit, lease, entity, ranges))

    def _plan(self, unit: Access, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        planned: list[CopyRange] = []

        def grow(job: CopyJob) -> CopyJob:
            planned[:] = planned_ranges(job, entity, ranges)
            return job.evolve(planned=job.planned + len(planned))

        if self._first(unit, RANGES, of_entity(lease.job_id, entity)) is None:
            self._leased(lease, grow, unit)
            for item in planned:
                unit.insert(RANGES, ALL_TENANTS, Row(item))

    def ranges(
        self, job_id: str, entity: str | None = None, *, state: RangeState | None = None
    ) -> Iterator[RangeProgress]:
        """Return the ranges of the current generation in order of number."""
        where: list[Condition] = [Equals("jobId", job_id)]
        where += [] if entity is None else [Equals("entity", entity)]
        where += [] if state is None else [Equals("state", state.value)]
        return (RangeProgress.of(row.model) for row in self._all(RANGES, where, BY_NUMBER))

    def counts(self, job_id: str, entity: str | None = None) -> dict[str, int]:
        """Return the number of ranges by state, of one entity or of all. Not planned: empty."""
        where = (Equals("jobId", job_id),) if entity is None else of_entity(job_id, entity)
        return self._access.count(RANGES, self._query(RANGES, where, BY_NUMBER, 1), "state")

    def reopen(self, lease: Lease, numbers: Sequence[int]) -> None:
        """Open finished or failed ranges again, and forget what was noted about them.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        for number in numbers:
            self._in_unit(partial(self._reopen, lease, number))

    def _reopen(self, lease: Lease, number: int, unit: Access) -> None:
        self._leased(lease, lambda job: job, unit)
        change_model(unit, RANGES, (lease.job_id, number), reopened)
        self._forget_lines(unit, lease.job_id, number)

    # --------------------------------------------------------------------------------------- workers

    def beat(self, job_id: str, worker: str, lease: timedelta) -> None:
        """Say that a worker lives, for the length of the lease from now on."""

        def alive(stored: CopyWorker | None, now: Moment) -> CopyWorker:
            del stored
            return CopyWorker(job_id=job_id, worker=worker, expires_at=now() + lease)

        change_model(self._access, WORKERS, (job_id, worker), alive)

    def leave(self, job_id: str, worker: str) -> None:
        """Say that a worker is gone, so that its ranges are free at once."""
        where = (Equals("jobId", job_id), Equals("worker", worker))
        self._access.remove(WORKERS, self._query(WORKERS, where, key_order(WORKERS), 1))

    def take(self, job_id: str, worker: str, entity: str, lease: timedelta) -> Claim | None:
        """Claim the next range of an entity: the oldest that is pending, else one of a worker that is dead.

        A claim is a sign of life. Nothing to do, or the job is to stop: ``None``.

        Raises:
            NotFoundError: there is no such job.
        """
        self.beat(job_id, worker, lease)
        job = self.find(job_id)
        if job is None:
            raise self._unknown(job_id)
        if job.stop:
            return None
        return self._take_pending(job_id, worker, entity) or self._take_over(job_id, worker, entity)

    def claim(self, job_id: str, worker: str, number: int) -> Claim:
        """Claim one range that is pending.

        Raises:
            NotFoundError: there is no such range.
            LeaseLostError: it is not pending.
        """

        def taken(stored: CopyRange | None, now: Moment) -> CopyRange:
            del now
            if stored is None:
                raise NotFoundError(
                    f"The job {job_id!r} has no range {number}; plan it first.", driver=self.driver
                )
            if stored.state is not RangeState.PENDING:
                raise self._overtaken(stored, worker)
            return claimed_by(stored, worker)

        found = change_model(self._access, RANGES, (job_id, number), taken)
        return claim_of(self._must(found, job_id))

    def hold(self, access: Access, claim: Claim) -> None:
        """Make sure, inside a transaction, that a range is still the claimant's own.

        Raises:
            LeaseLostError: it was taken over.
        """
        change_model(access, RANGES, (claim.job_id, claim.number), lambda row, _: self._own(row, claim))

    def finish(self, access: Access, claim: Claim, tally: RangeTally) -> None:
        """Mark a claimed range as live with its tally, inside the transaction of its rows.

        Raises:
            LeaseLostError: it was taken over; the transaction must be rolled back.
        """

        def live(stored: CopyRange | None, now: Moment) -> CopyRange:
            own = self._own(stored, claim)
            return own.evolve(state=RangeState.LIVE, tally=tally.lines(), finished_at=now())

        change_model(access, RANGES, (claim.job_id, claim.number), live)

    def give_back(self, claim: Claim) -> RangeState:
        """Open a range that could not be copied; after too many attempts it has failed. Return its state."""

        def freed(stored: CopyRange | None, now: Moment) -> CopyRange | None:
            del now
            if stored is None or not is_owned(stored, claim):
                return None
            spent = stored.attempts >= MAX_ATTEMPTS
            return stored.evolve(state=RangeState.FAILED if spent else RangeState.PENDING, worker=None)

        found = change_model(self._access, RANGES, (claim.job_id, claim.number), freed)
        return self._must(found, claim.job_id).state

    # ----------------------------------------------------------------------------------------- lines

    def note(
        self, access: Access, claim: Claim, bad: Iterable[QuarantineLine], conflicts: Iterable[ConflictLine]
    ) -> None:
        """Store the lines of a range in place of those of an earlier attempt, inside its transaction.

        One line at a time is taken of either, so that they need not all be in memory.
        """
        self._forget_lines(access, claim.job_id, claim.number)
        for line in bad:
            access.insert(QUARANTINE, ALL_TENANTS, Row(line))
        for conflict in conflicts:
            access.insert(CONFLICTS, ALL_TENANTS, Row(conflict))

    def quarantined(self, job_id: str) -> Iterator[QuarantineLine]:
        """Return the quarantined documents of a job by range and line, each in one or more parts."""
        where = (Equals("jobId", job_id),)
        rows = self._all(QUARANTINE, where, key_order(QUARANTINE), PAGE_OF_LINES)
        return (row.model for row in rows)

    def conflicts(self, job_id: str) -> Iterator[ConflictLine]:
        """Return the conflicts of a job in the order of ranges and lines."""
        where = (Equals("jobId", job_id),)
        return (row.model for row in self._all(CONFLICTS, where, key_order(CONFLICTS)))

    # ---------------------------------------------------------------------------------------- inside

    def _in_unit(self, action: Callable[[Access], T]) -> T:
        """Do something in one transaction, where the store has them; repeat it after a lost race."""

        def once() -> T:
            with self._access.unit(ALL_TENANTS, atomic=self._atomic) as unit:
                return action(unit)

        return repeat(once, attempts=ATTEMPTS)

    def _take_pending(self, job_id: str, worker: str, entity: str) -> Claim | None:
        where = (*of_entity(job_id, entity), Equals("state", RangeState.PENDING.value))
        query = self._query(RANGES, where, BY_NUMBER, 1)
        sets: Sets = {
            "state": RangeState.COPYING.value,
            "worker": worker,
            "fence": Add(1),
            "attempts": Add(1),
        }
        # A rival may have marked the row that was the first one; then there may be others.
        for pause in pauses(ATTEMPTS):
            marked = self._access.mark(RANGES, query, sets)
            if marked:
                return claim_of(marked[0].model)
            if self._first(self._access, RANGES, where) is None:
                return None
            time.sleep(pause)
        return None

    def _take_over(self, job_id: str, worker: str, entity: str) -> Claim | None:
        """Take the range of a worker that gives no sign of life; its later commit fails on the fence."""
        for item in self.ranges(job_id, entity, state=RangeState.COPYING):
            if item.worker is not None and item.worker != worker and self._is_dead(job_id, item.worker):
                claim = self._steal(job_id, worker, item)
                if claim is not None:
                    return claim
        return None

    def _is_dead(self, job_id: str, worker: str) -> bool:
        dead = True

        def look(stored: CopyWorker | None, now: Moment) -> None:
            nonlocal dead
            dead = stored is None or stored.expires_at <= now()

        change_model(self._access, WORKERS, (job_id, worker), look)
        return dead

    def _steal(self, job_id: str, worker: str, seen: RangeProgress) -> Claim | None:
        def stolen(stored: CopyRange | None, now: Moment) -> CopyRange | None:
            del now
            same = stored is not None and (stored.state, stored.fence) == (RangeState.COPYING, seen.fence)
            return claimed_by(stored, worker) if stored is not None and same else None

        found = change_model(self._access, RANGES, (job_id, seen.number), stolen)
        return claim_of(found) if found is not None and found.worker == worker else None

    def _leased(
        self, lease: Lease, change: Callable[[CopyJob], CopyJob], access: Access | None = None
    ) -> None:
        """Change a job under its lease; the row is written in any case, so that a rival conflicts."""

        def checked(stored: CopyJob | None, now: Moment) -> CopyJob:
            if stored is None or not owned(stored.lease, lease.holder, lease.fence):
                raise self._lost(lease)
            if not held(stored.lease, now()):
                raise self._lost(lease)
            return change(stored)

        change_model(access or self._access, JOBS, (lease.job_id,), checked)

    def _own(self, stored: CopyRange | None, claim: Claim) -> CopyRange:
        if stored is None or not is_owned(stored, claim):
            raise self._overtaken(stored, claim.worker)
        return stored

    def _job_in(self, access: Access, job_id: str) -> CopyJob | None:
        (row,) = access.find(JOBS, ALL_TENANTS, ((job_id,),))
        return None if row is None else row.model

    def _query(
        self, entity: Entity, where: Sequence[Condition], order: tuple[SortKey, ...], limit: int
    ) -> Query:
        return Query(entity=entity.name, scope=ALL_TENANTS, where=tuple(where), order=order, limit=limit)

    def _first(self, access: Access, entity: Entity[M], where: Sequence[Condition]) -> Row[M] | None:
        page = access.page(entity, self._query(entity, where, key_order(entity), 1))
        return page[0] if page else None

    def _all(
        self, entity: Entity[M], where: Sequence[Condition], order: tuple[SortKey, ...], limit: int = PAGE
    ) -> Iterator[Row[M]]:
        query = self._query(entity, where, order, limit)
        while True:
            page = self._access.page(entity, query)
            yield from page
            if page.next_page_token is None:
                return
            last = page[-1]
            after = [entity.value(last.model, last.storage, key.field) for key in order]
            query = replace(query, after=cast("tuple[str | int | datetime | None, ...]", tuple(after)))

    def _forget(self, access: Access, entity: Entity, where: Sequence[Condition]) -> None:
        query = self._query(entity, where, key_order(entity), PAGE)
        while access.remove(entity, query):
            pass

    def _forget_lines(self, access: Access, job_id: str, number: int) -> None:
        where = (Equals("jobId", job_id), Equals("number", number))
        for entity in (QUARANTINE, CONFLICTS):
            self._forget(access, entity, where)

    def _must(self, found: M | None, job_id: str) -> M:
        if found is None:
            raise self._unknown(job_id)
        return found

    def _unknown(self, job_id: str) -> NotFoundError:
        return NotFoundError(f"There is no job {job_id!r}; start it first.", driver=self.driver, key=job_id)

    def _held(self, job: CopyJob) -> LeaseLostError:
        until = "" if job.expires_at is None else f" until {format_timestamp(job.expires_at)}"
        return LeaseLostError(
            f"Job {job.id!r} is leased to {job.holder!r}{until}; wait for it, or stop that worker.",
            key=job.holder,
            driver=self.driver,
        )

    def _lost(self, lease: Lease) -> LeaseLostError:
        return LeaseLostError(
            f"The lease of {lease.holder!r} on job {lease.job_id!r} (fence {lease.fence}) expired or was "
            "taken; nothing was written. Run the copy again.",
            key=lease.holder,
            driver=self.driver,
        )

    def _overtaken(self, stored: CopyRange | None, worker: str) -> LeaseLostError:
        now = (
            "was forgotten" if stored is None else f"is {stored.state.value} for {stored.worker or 'nobody'}"
        )
        number = "" if stored is None else f" {stored.number} of job {stored.job_id!r}"
        return LeaseLostError(
            f"The range{number} {now}, not copying for {worker!r} any more; nothing of it was written here.",
            key=worker,
            driver=self.driver,
        )


def change_model(
    access: Access, entity: Entity[M], key: Key, rule: Callable[[M | None, Moment], M | None]
) -> M | None:
    """Change one row without markers; return it as it is stored then."""

    def changed(rows: Rows, now: Moment) -> Rows:
        row = cast("Row[M] | None", rows[0])
        model = rule(None if row is None else row.model, now)
        return (None if model is None else Row(model),)

    (stored,) = access.change((Ref(entity, ALL_TENANTS, key),), changed)
    return None if stored is None else cast("Row[M]", stored).model


def of_entity(job_id: str, entity: str) -> tuple[Equals, Equals]:
    """Return the conditions of the ranges of one entity."""
    return Equals("jobId", job_id), Equals("entity", entity)


def planned_ranges(job: CopyJob, entity: str, ranges: Sequence[KeyRange]) -> list[CopyRange]:
    """Return the rows of new ranges, numbered after those that the job has."""
    return [
        CopyRange(
            job_id=job.id,
            number=number,
            entity=entity,
            lower=key_json(within.lower),
            upper=key_json(within.upper),
        )
        for number, within in enumerate(ranges, job.planned + 1)
    ]


def lease_of(job: CopyJob) -> Lease:
    """Return the lease of a job that has one."""
    if job.holder is None or job.expires_at is None:
        raise LookupError(job.id)  # met by programmers only
    return Lease(job.id, job.holder, job.fence, job.expires_at)


def claimed_by(stored: CopyRange, worker: str) -> CopyRange:
    """Return a range in the hands of a worker."""
    return stored.evolve(
        state=RangeState.COPYING,
        worker=worker,
        fence=stored.fence + 1,
        attempts=stored.attempts + 1,
        tally=(),
        finished_at=None,
    )


def claim_of(stored: CopyRange) -> Claim:
    """Return the claim on a range that is being copied."""
    worker = stored.worker or ""
    return Claim(stored.job_id, stored.number, worker, stored.fence, stored.entity, within_of(stored))


def is_owned(stored: CopyRange, claim: Claim) -> bool:
    """Whether a range is still copying for a claim."""
    mine = (RangeState.COPYING, claim.worker, claim.fence)
    return (stored.state, stored.worker, stored.fence) == mine


def reopened(stored: CopyRange | None, now: Moment) -> CopyRange | None:
    """Return a finished or failed range as pending; one that is open stays as it is."""
    del now
    if stored is None or stored.state not in {RangeState.LIVE, RangeState.FAILED}:
        return None
    return stored.evolve(state=RangeState.PENDING, worker=None, attempts=0, tally=(), finished_at=None)

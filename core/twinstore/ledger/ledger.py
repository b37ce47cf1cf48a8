"""The ledger of copies, written once over :class:`~twinstore.access.protocol.Access`.

Who may do what:

- The **lease** of a job belongs to one coordinator; it plans, reopens, completes and stops.
- A **worker** takes ranges, and the worker that holds the fence of a range commits it.
- The **lines** about single documents are stored and forgotten with their range.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from twinstore.access.paging import SortKey
from twinstore.access.protocol import UNSET, Add
from twinstore.access.query import key_order
from twinstore.access.retry import backoff_delays
from twinstore.catalog.conditions import Equals, OneOf
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import LeaseLostError, NotFoundError
from twinstore.ledger.catalog import CONFLICTS, QUARANTINE, RANGES, WORKERS
from twinstore.ledger.jobs import JobLedger
from twinstore.ledger.models import (
    Claim,
    ConflictLine,
    CopyJob,
    CopyRange,
    CopyWorker,
    JobState,
    Lease,
    QuarantineLine,
    RangeProgress,
    RangeState,
    RangeTally,
    key_json,
    within_of,
)
from twinstore.ledger.rows import change_model

if TYPE_CHECKING:
    from twinstore.access.protocol import Access, FieldUpdates, ServerClock
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.keys import Key

# Ranges of the ledger: planned by a coordinator, taken, finished and given back by workers.
#
# What makes it safe is the fence of each range alone: a commit is refused unless the range is still copying
# for this worker under this fence. Time only decides whose range is free. The row of the range is the only
# row of the ledger that the commit of a range locks.


# A range that was given back so often is not tried again by itself.
# Not one or two: each claim counts, also that of a worker which was killed and whose range was taken over.
MAX_ATTEMPTS: Final = 5
# A range that was found so often with a dead worker is not taken over again: it may be what kills them.
MAX_DEATHS: Final = 5
BY_NUMBER: Final = (SortKey("number", number=True),)


class RangeLedger(JobLedger):
    """Ranges and the workers that copy them."""

    def __init__(self, access: Access, *, atomic: bool = True) -> None:
        super().__init__(access, atomic=atomic)
        # When a worker last said here that it lives, by the monotonic clock.
        self._last_heartbeats: dict[tuple[str, str], float] = {}

    def plan(self, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        """Store the ranges of an entity, all or none; does nothing when they are stored already.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        self._in_unit(lambda unit: self._plan(unit, lease, entity, ranges))

    def _plan(self, unit: Access, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        planned: list[CopyRange] = []

        def grow(job: CopyJob) -> CopyJob:
            # Numbered inside the rule, from the count that it has locked: two entities never share a number.
            planned[:] = planned_ranges(job, entity, ranges)
            return job.evolve(planned=job.planned + len(planned))

        # Looked for before the lease is: a job that is resumed has planned long ago and writes nothing here.
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
        # A unit for each: there may be thousands, and servers bound the time of a transaction.
        for number in numbers:
            self._in_unit(partial(self._reopen, lease, number))

    def open_in(self, access: Access, lease: Lease, numbers: Sequence[int]) -> None:
        """Open finished or failed ranges again inside a transaction, which also writes rows of theirs.

        Raises:
            LeaseLostError: the lease expired or was taken; the transaction must be rolled back.
        """
        for number in numbers:
            self._reopen(lease, number, access)

    def _reopen(self, lease: Lease, number: int, unit: Access) -> None:
        # A job with an open range is not complete. Written in any case: another holder of the lease then
        # conflicts with this unit.
        self._leased(lease, lambda job: job.evolve(state=JobState.RUNNING), unit)
        change_model(unit, RANGES, (lease.job_id, number), reopened)
        self._forget_lines(unit, lease.job_id, number)

    # --------------------------------------------------------------------------------------- workers

    def heartbeat(self, job_id: str, worker: str, lease: timedelta) -> None:
        """Say that a worker lives, for the length of the lease from now on."""
        # Before the statement, so that the time it takes counts as silence, never as life.
        sign = time.monotonic()

        def alive(stored: CopyWorker | None, now: ServerClock) -> CopyWorker:
            del stored
            return CopyWorker(job_id=job_id, worker=worker, expires_at=now() + lease)

        change_model(self._access, WORKERS, (job_id, worker), alive)
        self._last_heartbeats[job_id, worker] = sign

    def leave(self, job_id: str, worker: str) -> None:
        """Say that a worker is gone, so that its ranges are free at once."""
        where = (Equals("jobId", job_id), Equals("worker", worker))
        self._last_heartbeats.pop((job_id, worker), None)
        self._access.remove(WORKERS, self._query(WORKERS, where, key_order(WORKERS), 1))

    def sign_off(self, job_id: str, worker: str) -> None:
        """End the work of a worker that stops in order: its ranges are pending again, and no death counts."""
        for item in self.ranges(job_id, state=RangeState.COPYING):
            if item.worker == worker:
                claim = Claim(job_id, item.number, worker, item.fence, item.entity, item.within)
                self._free(claim, failing=False)
        self.leave(job_id, worker)

    def take(self, job_id: str, worker: str, entity: str, lease: timedelta) -> Claim | None:
        """Claim the next range of an entity: the oldest that is pending, else one of a worker that is dead.

        A claim is a sign of life, unless there was one a moment ago. Nothing to do, or the job is to stop:
        ``None``.

        Raises:
            NotFoundError: there is no such job.
        """
        self._heartbeat_if_due(job_id, worker, lease)
        job = self.find(job_id)
        if job is None:
            raise self._unknown(job_id)
        # Asked for each range, so that a stop from any process is obeyed within one range.
        if job.stop:
            return None
        # Pending ones first: a worker that only seems dead gets the longest time to come back.
        return self._take_pending(job_id, worker, entity) or self._take_over(job_id, worker, entity)

    def claim(self, job_id: str, worker: str, number: int) -> Claim:
        """Claim one range that is pending.

        Raises:
            NotFoundError: there is no such range.
            LeaseLostError: it is not pending.
        """

        def taken(stored: CopyRange | None, now: ServerClock) -> CopyRange:
            del now
            if stored is None:
                raise NotFoundError(
                    f"The job {job_id!r} has no range {number}; plan it first.", driver=self.driver
                )
            if stored.state is not RangeState.PENDING:
                raise self._overtaken(stored, worker)
            return claimed_by(stored, worker)

        found = change_model(self._access, RANGES, (job_id, number), taken)
        return claim_of(self._required(found, job_id))

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

        def live(stored: CopyRange | None, now: ServerClock) -> CopyRange:
            # In the transaction of the rows: a worker that was held for dead commits none of them.
            own = self._own(stored, claim)
            return own.evolve(state=RangeState.LIVE, tally=tally.lines(), finished_at=now())

        change_model(access, RANGES, (claim.job_id, claim.number), live)

    def give_back(self, claim: Claim) -> RangeState:
        """Open a range that could not be copied; after too many attempts it has failed. Return its state."""
        return self._free(claim, failing=True)

    def _free(self, claim: Claim, *, failing: bool) -> RangeState:
        def freed(stored: CopyRange | None, now: ServerClock) -> CopyRange | None:
            del now
            if stored is None or not is_owned(stored, claim):
                return None
            exhausted = failing and stored.attempts >= MAX_ATTEMPTS
            return stored.evolve(state=RangeState.FAILED if exhausted else RangeState.PENDING, worker=None)

        found = change_model(self._access, RANGES, (claim.job_id, claim.number), freed)
        return self._required(found, claim.job_id).state

    # ---------------------------------------------------------------------------------------- inside

    def _heartbeat_if_due(self, job_id: str, worker: str, lease: timedelta) -> None:
        """Give a sign of life where the last one is some time ago.

        All threads of a worker share one row. Were it written for every range, they would wait for each
        other, and one that is stopped meanwhile would keep others from finding out that it is dead.
        """
        last = self._last_heartbeats.get((job_id, worker))
        # A third, so that two signs may be lost before the worker counts as dead.
        if last is None or time.monotonic() - last > lease.total_seconds() / 3:
            self.heartbeat(job_id, worker, lease)

    def _take_pending(self, job_id: str, worker: str, entity: str) -> Claim | None:
        where = (*of_entity(job_id, entity), Equals("state", RangeState.PENDING.value))
        query = self._query(RANGES, where, BY_NUMBER, 1)
        # A competing worker may have marked the row that was the first one; then there may be others.
        for pause in backoff_delays():
            marked = self._access.mark(RANGES, query, taken_by(worker))
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
                claim = self._take_from(job_id, worker, item)
                if claim is not None:
                    return claim
        return None

    def _is_dead(self, job_id: str, worker: str) -> bool:
        dead = True

        def inspect(stored: CopyWorker | None, now: ServerClock) -> None:
            nonlocal dead
            dead = stored is None or stored.expires_at <= now()

        change_model(self._access, WORKERS, (job_id, worker), inspect)
        return dead

    def _take_from(self, job_id: str, worker: str, seen: RangeProgress) -> Claim | None:
        """Take one range over; where rows are locked, one that is just being committed is passed over.

        One that would be taken over for the fifth time has failed: ``None``.
        """
        where = (
            Equals("jobId", job_id),
            Equals("number", seen.number),
            Equals("state", RangeState.COPYING.value),
            # Only as it was seen: if another worker took it over since, its fence has grown.
            # So its deaths are those that were seen, too.
            Equals("fence", seen.fence),
        )
        exhausted = seen.deaths + 1 >= MAX_DEATHS
        sets: FieldUpdates = (
            {"state": RangeState.FAILED.value, "worker": UNSET} if exhausted else taken_by(worker)
        )
        query = self._query(RANGES, where, BY_NUMBER, 1)
        marked = self._access.mark(RANGES, query, {**sets, "deaths": Add(1)})
        return claim_of(marked[0].model) if marked and not exhausted else None

    def _own(self, stored: CopyRange | None, claim: Claim) -> CopyRange:
        if stored is None or not is_owned(stored, claim):
            raise self._overtaken(stored, claim.worker)
        return stored

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


def taken_by(worker: str) -> FieldUpdates:
    """Return what puts an open range into the hands of a worker."""
    return {"state": RangeState.COPYING.value, "worker": worker, "fence": Add(1), "attempts": Add(1)}


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


def reopened(stored: CopyRange | None, now: ServerClock) -> CopyRange | None:
    """Return a finished or failed range as pending; one that is open stays as it is."""
    del now
    if stored is None or stored.state not in {RangeState.LIVE, RangeState.FAILED}:
        return None
    return stored.evolve(
        state=RangeState.PENDING, worker=None, attempts=0, deaths=0, tally=(), finished_at=None
    )


# A line of the quarantine may hold 1 MB, and a page is in memory as a whole.
PAGE_OF_LINES: Final = 20
# Of one transaction that stores lines ahead, in characters.
MAX_TRANSACTION_CHARACTERS: Final = 3_000_000


class Ledger(RangeLedger):
    """The durable record of jobs, ranges and lines, kept in the target."""

    def store_lines(
        self,
        access: Access,
        claim: Claim,
        bad: Iterable[QuarantineLine],
        conflicts: Iterable[ConflictLine],
        *,
        more: bool = False,
    ) -> None:
        """Store the lines of a range in place of those of an earlier attempt, inside its transaction.

        Both are read one line at a time, so that they need not all be in memory. With ``more`` they are
        stored in addition to those that :meth:`store_lines_early` has stored for this claim.
        """
        # A range that is copied again, after it was taken over or reopened, has lines of the attempt before.
        if not more:
            self._forget_lines(access, claim.job_id, claim.number)
        for line in bad:
            access.insert(QUARANTINE, ALL_TENANTS, Row(line))
        for conflict in conflicts:
            access.insert(CONFLICTS, ALL_TENANTS, Row(conflict))

    def store_lines_early(self, claim: Claim, bad: Iterable[QuarantineLine], *, more: bool) -> None:
        """Store lines of a range before it is committed, a few megabytes in each transaction.

        Stores bound transactions, and the documents of one range that cannot be moved may be gigabytes. What
        is stored so counts once the range is live; an attempt that fails leaves it to the next to forget.

        Raises:
            LeaseLostError: the range was taken over.
        """
        for lines in in_transactions(bad):
            self._in_unit(partial(self._store_lines_early, claim, lines, more=more))
            more = True

    def _store_lines_early(
        self, claim: Claim, lines: Sequence[QuarantineLine], unit: Access, *, more: bool
    ) -> None:
        self.hold(unit, claim)
        self.store_lines(unit, claim, lines, (), more=more)

    def live_numbers(self, job_id: str) -> frozenset[int]:
        """Return the numbers of the ranges whose lines count."""
        return frozenset(item.number for item in self.ranges(job_id, state=RangeState.LIVE))

    def quarantined(self, job_id: str, entity: str | None = None) -> Iterator[QuarantineLine]:
        """Return the quarantined documents of a job by range and line, each in one or more parts."""
        where = [Equals("jobId", job_id)]
        where += [] if entity is None else [Equals("entity", entity)]
        rows = self._all(QUARANTINE, where, key_order(QUARANTINE), PAGE_OF_LINES)
        return (row.model for row in rows)

    def quarantine_counts(self, job_id: str, entity: str) -> dict[str, int]:
        """Return how many documents of an entity are in quarantine by reason, also of ranges in progress."""
        where = (*of_entity(job_id, entity), Equals("part", 0))
        return self._access.count(
            QUARANTINE, self._query(QUARANTINE, where, key_order(QUARANTINE), 1), "reason"
        )

    def quarantined_reasons(self, job_id: str, entity: str, keys: Sequence[Key]) -> dict[Key, str]:
        """Return by key why a job has the documents of some keys in quarantine."""
        wanted = {key_json(key): key for key in keys}
        names = tuple(text for text in wanted if text is not None)
        where = (Equals("jobId", job_id), Equals("entity", entity), OneOf("key", names), Equals("part", 0))
        rows = self._all(QUARANTINE, where, key_order(QUARANTINE), PAGE_OF_LINES)
        return {wanted[row.model.key]: row.model.reason for row in rows}

    def conflicts(self, job_id: str) -> Iterator[ConflictLine]:
        """Return the conflicts of a job in the order of ranges and lines."""
        where = (Equals("jobId", job_id),)
        return (row.model for row in self._all(CONFLICTS, where, key_order(CONFLICTS)))


def in_transactions(lines: Iterable[QuarantineLine]) -> Iterator[list[QuarantineLine]]:
    """Yield lines as many at a time as one transaction takes."""
    some: list[QuarantineLine] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line.raw or "") + len(line.reason)
        if size > MAX_TRANSACTION_CHARACTERS:
            yield some
            some, size = [], 0
    if some:
        yield some

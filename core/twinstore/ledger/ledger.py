"""The ledger of copies, written once over :class:`~twinstore.access.protocol.Access`.

Who may do what:

- The **lease** of a job belongs to one coordinator; it plans, reopens, completes and stops.
- A **worker** takes ranges, and the worker that holds the fence of a range commits it.
- The **lines** about single documents are stored and forgotten with their range.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Final

from twinstore.access.paging import SortKey
from twinstore.access.protocol import Add
from twinstore.access.query import key_order
from twinstore.access.retry import backoff_delays
from twinstore.catalog.conditions import After, Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.clock import truncate_to_millisecond
from twinstore.errors import ConcurrencyError, LeaseLostError, NotFoundError
from twinstore.ledger.catalog import CONFLICTS, JOBS, QUARANTINE, RANGES, WORKERS
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
    Suspicion,
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
MAX_ATTEMPTS: Final = 5
# Servers bound the time of a transaction.
PLANNED_AT_ONCE: Final = 1000
BY_NUMBER: Final = (SortKey("number", number=True),)


class RangeLedger(JobLedger):
    """Ranges and the workers that copy them."""

    def __init__(self, access: Access, *, atomic: bool = True) -> None:
        super().__init__(access, atomic=atomic)
        # When a worker last said here that it lives, by the monotonic clock.
        self._last_heartbeats: dict[tuple[str, str], float] = {}
        self._beating = Lock()
        # What the clock of the server was then at least, and the monotonic clock afterwards.
        self._clocks: dict[tuple[str, str], tuple[datetime, float]] = {}

    def plan(self, lease: Lease, entity: str, ranges: Iterable[KeyRange], *, coarse: bool = False) -> None:
        """Store the ranges of an entity, some at a time; does nothing if all are stored already.

        Workers take none of them before all are stored. Those of a plan that was interrupted are forgotten.
        A worker that claims a ``coarse`` one has to :meth:`cut` it.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        job = self.find(lease.job_id)
        # Looked for before the lease is: a job that is resumed has planned long ago and writes nothing here.
        if job is not None and entity in job.cut:
            return
        self._forget_plan(lease, entity)
        remaining = iter(ranges)
        while some := tuple(islice(remaining, PLANNED_AT_ONCE)):
            self._in_unit(partial(self._plan, lease, entity, some, coarse=coarse))
        self._leased(lease, lambda job: job.evolve(cut=(*job.cut, entity)))

    def _plan(
        self, lease: Lease, entity: str, ranges: Sequence[KeyRange], unit: Access, *, coarse: bool
    ) -> None:
        planned: list[Row[CopyRange]] = []

        def grow(job: CopyJob) -> CopyJob:
            # Numbered inside the rule, from the count that it has locked: two entities never share a number.
            planned[:] = map(Row, planned_ranges(job, entity, ranges, coarse=coarse))
            return job.evolve(planned=job.planned + len(planned))

        self._leased(lease, grow, unit)
        unit.insert_all(RANGES, ALL_TENANTS, planned)

    def _forget_plan(self, lease: Lease, entity: str) -> None:
        """Remove the ranges of a plan that was interrupted, which no worker has seen."""
        query = self._query(RANGES, of_entity(lease.job_id, entity), BY_NUMBER, PLANNED_AT_ONCE)

        def some(unit: Access) -> int:
            # Written in any case: whoever has the lease by then plans alone.
            self._leased(lease, lambda job: job, unit)
            return unit.remove(RANGES, query)

        while self._first(self._access, RANGES, of_entity(lease.job_id, entity)) is not None:
            self._in_unit(some)

    def ranges(
        self, job_id: str, entity: str | None = None, *, state: RangeState | None = None
    ) -> Iterator[RangeProgress]:
        """Return the ranges of the current generation in order of number."""
        where: list[Condition] = [Equals("jobId", job_id)]
        where += [] if entity is None else [Equals("entity", entity)]
        where += [] if state is None else [Equals("state", state.value)]
        return (RangeProgress.of(row.model) for row in self._all(RANGES, where, BY_NUMBER))

    def noted_ranges(self, job: CopyJob) -> Iterator[RangeProgress]:
        """Return the live ranges whose tally has anything that a later run may look at again."""
        where: list[Condition] = [Equals("jobId", job.id), Equals("state", RangeState.LIVE.value)]
        # Ranges of an earlier release do not say it.
        where += [] if job.is_unmarked else [Equals("noted", value=True)]
        found = (RangeProgress.of(row.model) for row in self._all(RANGES, where, BY_NUMBER))
        return (item for item in found if item.tally is not None and item.tally.noted)

    def finished_after(self, job_id: str, moment: datetime) -> Iterator[RangeProgress]:
        """Return the ranges that were finished after a moment, in order of time."""
        where = (Equals("jobId", job_id), After("finishedAt", moment))
        order = (SortKey("finishedAt", time=True), SortKey("number", number=True))
        return (RangeProgress.of(row.model) for row in self._all(RANGES, where, order))

    def copied_otherwise(self, job_id: str, entity: str, under: str | None) -> Iterator[int]:
        """Return the numbers of the live ranges of an entity that were copied under other rules."""
        where = (*of_entity(job_id, entity), Equals("state", RangeState.LIVE.value))
        found = self._access.count(RANGES, self._query(RANGES, where, BY_NUMBER, 1), "under")
        for digest in found.keys() - {under or ""}:
            chosen = IsNull("under") if not digest else Equals("under", digest)
            yield from (row.model.number for row in self._all(RANGES, (*where, chosen), BY_NUMBER))

    def counts(self, job_id: str, entity: str | None = None) -> dict[str, int]:
        """Return the number of ranges by state, of one entity or of all. Not planned: empty."""
        where = (Equals("jobId", job_id),) if entity is None else of_entity(job_id, entity)
        return self._access.count(RANGES, self._query(RANGES, where, BY_NUMBER, 1), "state")

    def has_ranges(self, job_id: str, entity: str, states: Iterable[RangeState]) -> bool:
        """Whether a range of an entity has one of some states."""
        of = of_entity(job_id, entity)
        return any(
            self._first(self._access, RANGES, (*of, Equals("state", state.value))) is not None
            for state in states
        )

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

        stored = self._required(change_model(self._access, WORKERS, (job_id, worker), alive), job_id)
        self._clocks[job_id, worker] = stored.expires_at - lease, time.monotonic()
        self._last_heartbeats[job_id, worker] = sign

    def living(self, job_id: str, worker: str) -> int:
        """Return how many workers of a job live, this one included, which has given a sign of life."""
        now = self._clock(job_id, worker)
        return max(1, sum(now is None or item.expires_at > now for item in self.workers(job_id)))

    def workers(self, job_id: str) -> Iterator[CopyWorker]:
        """Return the workers of a job; one that was killed is among them until the job begins again."""
        rows = self._all(WORKERS, [Equals("jobId", job_id)], key_order(WORKERS))
        return (row.model for row in rows)

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
        """Claim the next range of an entity: the oldest that is pending, else by :meth:`take_over`.

        A claim is a sign of life, unless there was one a moment ago. Nothing to do, or the job is to stop:
        ``None``.

        Raises:
            NotFoundError: there is no such job.
        """
        job = self.find(job_id)
        if job is None:
            raise self._unknown(job_id)
        if job.stop or entity not in job.cut:
            return None
        # Pending ones first: a worker that only seems dead gets the longest time to come back.
        pending = self.take_pending(job_id, worker, entity, lease)
        return pending or self.take_over(job_id, worker, [entity], lease)[0]

    def take_pending(self, job_id: str, worker: str, entity: str, lease: timedelta) -> Claim | None:
        """Claim the oldest pending range of an entity whose ranges are all planned; none: ``None``.

        Those under suspicion are left to :meth:`take_over`.
        """
        self._heartbeat_if_due(job_id, worker, lease)
        where = (*pending_of(job_id, entity), IsNull("suspicion"))
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

    def take_over(
        self,
        job_id: str,
        worker: str,
        entities: Collection[str],
        lease: timedelta,
        *,
        dangerous: bool = True,
    ) -> tuple[Claim | None, frozenset[str]]:
        """Take a range of a worker that gives no sign of life, whose later commit fails on the fence.

        Otherwise one that is pending and under suspicion. Without ``dangerous`` none whose claim would be;
        see :attr:`Claim.dangerous`. Return it, or ``None``, and the entities of which there are such ranges,
        or other workers copy some.

        Raises:
            ConcurrencyError: a transaction, perhaps of a worker that was killed, holds what could be taken.
        """
        self._heartbeat_if_due(job_id, worker, lease)
        # One after the other: servers find the ranges of several in their order only by reading all others.
        copying = [item for name in entities for item in self.ranges(job_id, name, state=RangeState.COPYING)]
        held = {item.worker for item in copying if item.worker is not None} - {worker}
        dead = self._dead(job_id, worker, held)
        free = [item for item in copying if item.worker in dead]
        free += [item for name in entities for item in self._suspects(job_id, name)]
        claim = self._take_first(worker, job_id, [item for item in free if dangerous or not item.dangerous])
        return claim, frozenset(item.entity for item in (*copying, *free))

    def _suspects(self, job_id: str, entity: str) -> Iterator[RangeProgress]:
        where = (*pending_of(job_id, entity), IsPresent("suspicion"))
        return (RangeProgress.of(row.model) for row in self._all(RANGES, where, BY_NUMBER))

    def _take_first(self, worker: str, job_id: str, free: Iterable[RangeProgress]) -> Claim | None:
        lost: ConcurrencyError | None = None
        for item in free:
            try:
                claim = self._take_from(job_id, worker, item)
            except ConcurrencyError as error:
                # What one worker left open does not hold the ranges of others.
                lost = error
            else:
                if claim is not None:
                    return claim
        if lost is not None:
            raise lost
        return None

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
        # Not a clock that has to be asked for: it decides nothing.
        time_here = self._clock(claim.job_id, claim.worker)

        def live(stored: CopyRange | None, now: ServerClock) -> CopyRange:
            # In the transaction of the rows: a worker that was held for dead commits none of them.
            own = self._own(stored, claim)
            return own.evolve(
                state=RangeState.LIVE,
                tally=tally.lines(),
                under=next(iter(tally.under), None),
                noted=tally.noted,
                finished_at=time_here or now(),
            )

        change_model(access, RANGES, (claim.job_id, claim.number), live)

    def give_back(self, claim: Claim) -> RangeState:
        """Open a range that could not be copied; after too many attempts it has failed. Return its state."""
        return self._free(claim, failing=True)

    def split(self, claim: Claim, at: Key, *, lower: Suspicion, upper: Suspicion) -> None:
        """Cut a range in two at a key; both parts are pending, and a part has to kill one worker only.

        Raises:
            LeaseLostError: it was taken over.
        """
        ends = claim.within
        self._divide(
            claim,
            lambda own: suspected(part_of(own, KeyRange(ends.lower, at)), lower),
            [lambda own: suspected(part_of(own, KeyRange(at, ends.upper)), upper)],
        )

    def cut(self, claim: Claim, ranges: Iterable[KeyRange]) -> Claim:
        """Put the ranges of which a claimed coarse one consists in its place, up to 1,000 in one step.

        The first one stays claimed, and its claim is returned; the others are pending. What is left beyond
        them is coarse again.

        Raises:
            LeaseLostError: it was taken over.
        """
        first, *others = islice(ranges, PLANNED_AT_ONCE)
        end = (others or [first])[-1].upper
        rest = [] if end == claim.within.upper else [KeyRange(end, claim.within.upper)]

        def pending(within: KeyRange, own: CopyRange) -> CopyRange:
            return reset(part_of(own, within)).evolve(coarse=within in rest)

        return claim_of(
            self._divide(
                claim,
                lambda own: part_of(own, first).evolve(coarse=False, deaths=0),
                [partial(pending, within) for within in (*others, *rest)],
            )
        )

    def _divide(
        self,
        claim: Claim,
        shorten: Callable[[CopyRange], CopyRange],
        others: Sequence[Callable[[CopyRange], CopyRange]],
    ) -> CopyRange:
        """Shorten a claimed range, and store the others that are made of it; return the shortened one.

        The others have numbers that follow all that there are.
        """

        def grow(job: CopyJob | None, now: ServerClock) -> CopyJob:
            del now
            found = self._required(job, claim.job_id)
            return found.evolve(planned=found.planned + len(others))

        def changed(unit: Access, change: Callable[[CopyRange], CopyRange]) -> CopyRange:
            key = claim.job_id, claim.number
            found = change_model(unit, RANGES, key, lambda stored, _: change(self._own(stored, claim)))
            return self._required(found, claim.job_id)

        def divide(unit: Access) -> CopyRange:
            job = self._required(change_model(unit, JOBS, (claim.job_id,), grow), claim.job_id)
            own = changed(unit, lambda own: own)
            numbered = enumerate(others, job.planned - len(others) + 1)
            rows = [Row(part(own).evolve(number=number, fence=0)) for number, part in numbered]
            if rows:
                unit.insert_all(RANGES, ALL_TENANTS, rows)
            self._forget_lines(unit, claim.job_id, claim.number)
            # Last: a store without transactions keeps the whole range until its parts are there.
            return changed(unit, shorten)

        return self._in_unit(divide)

    def suspect(self, claim: Claim) -> None:
        """Say that a range has one row left, which gets as many tries as a range does.

        Raises:
            LeaseLostError: it was taken over.
        """
        change_model(
            self._access,
            RANGES,
            (claim.job_id, claim.number),
            lambda stored, _: suspected(self._own(stored, claim), Suspicion.ROW),
        )

    def _free(self, claim: Claim, *, failing: bool) -> RangeState:
        def freed(stored: CopyRange | None, now: ServerClock) -> CopyRange | None:
            del now
            if stored is None or not is_owned(stored, claim):
                return None
            exhausted = failing and (claim.kills or stored.attempts >= MAX_ATTEMPTS)
            return stored.evolve(state=RangeState.FAILED if exhausted else RangeState.PENDING, worker=None)

        found = change_model(self._access, RANGES, (claim.job_id, claim.number), freed)
        return self._required(found, claim.job_id).state

    # ---------------------------------------------------------------------------------------- inside

    def _heartbeat_if_due(self, job_id: str, worker: str, lease: timedelta) -> None:
        """Give a sign of life where the last one is some time ago.

        All threads of a worker share one row. Were it written for every range, they would wait for each
        other, and one that is stopped meanwhile would keep others from finding out that it is dead.
        """
        # A third, so that two signs may be lost before the worker counts as dead.
        if not self._is_silent(job_id, worker, lease / 3):
            return
        # One thread writes it. The others wait only where the worker may count as dead.
        if self._beating.acquire(blocking=self._is_silent(job_id, worker, 2 * lease / 3)):
            try:
                if self._is_silent(job_id, worker, lease / 3):
                    self.heartbeat(job_id, worker, lease)
            finally:
                self._beating.release()

    def _is_silent(self, job_id: str, worker: str, duration: timedelta) -> bool:
        """Whether the last sign of life was so long ago, or there was none."""
        last = self._last_heartbeats.get((job_id, worker))
        return last is None or time.monotonic() - last > duration.total_seconds()

    def _dead(self, job_id: str, worker: str, others: Collection[str]) -> frozenset[str]:
        """Return which other workers are dead by the server's clock, read without a lock."""
        now = self._clock(job_id, worker) if others else None
        if now is None:
            return frozenset()
        names = sorted(others)
        rows = self._access.find(WORKERS, ALL_TENANTS, [(job_id, name) for name in names])
        pairs = zip(names, rows, strict=True)
        return frozenset(name for name, row in pairs if row is None or row.model.expires_at <= now)

    def _clock(self, job_id: str, worker: str) -> datetime | None:
        """Return the least that the server's clock shows, known from the last sign of life of a worker."""
        known = self._clocks.get((job_id, worker))
        if known is None:
            return None
        server, local = known
        return truncate_to_millisecond(server + timedelta(seconds=time.monotonic() - local))

    def _take_from(self, job_id: str, worker: str, seen: RangeProgress) -> Claim | None:
        """Take one range as it was seen; where rows are locked, one that is being committed is passed over.

        Raises:
            ConcurrencyError: a transaction holds it.
        """
        where = (
            Equals("jobId", job_id),
            Equals("number", seen.number),
            Equals("state", seen.state.value),
            # If another worker took it since, its fence has grown. So its deaths are those that were seen.
            Equals("fence", seen.fence),
        )
        query = self._query(RANGES, where, BY_NUMBER, 1)
        sets = taken_by(worker) if seen.state is RangeState.PENDING else taken_from_the_dead(worker)
        # In a unit, for the reason of JobLedger._change; not repeated, because there may be others.
        with self._access.unit(ALL_TENANTS, atomic=self._atomic) as unit:
            marked = unit.mark(RANGES, query, sets)
        return claim_of(marked[0].model) if marked else None

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


def pending_of(job_id: str, entity: str) -> tuple[Equals, Equals, Equals]:
    """Return the conditions of the pending ranges of one entity."""
    return *of_entity(job_id, entity), Equals("state", RangeState.PENDING.value)


def planned_ranges(job: CopyJob, entity: str, ranges: Sequence[KeyRange], *, coarse: bool) -> list[CopyRange]:
    """Return the rows of new ranges, numbered after those that the job has."""
    return [
        CopyRange(
            job_id=job.id,
            number=number,
            entity=entity,
            lower=key_json(within.lower),
            upper=key_json(within.upper),
            coarse=coarse,
        )
        for number, within in enumerate(ranges, job.planned + 1)
    ]


def taken_by(worker: str) -> FieldUpdates:
    """Return what puts an open range into the hands of a worker."""
    return {"state": RangeState.COPYING.value, "worker": worker, "fence": Add(1), "attempts": Add(1)}


def taken_from_the_dead(worker: str) -> FieldUpdates:
    """Return what puts a range of a dead worker into the hands of another one."""
    return {"worker": worker, "fence": Add(1), "deaths": Add(1)}


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
    return Claim(
        stored.job_id,
        stored.number,
        stored.worker or "",
        stored.fence,
        stored.entity,
        within_of(stored),
        stored.deaths,
        stored.suspicion,
        stored.coarse,
    )


def is_owned(stored: CopyRange, claim: Claim) -> bool:
    """Whether a range is still copying for a claim."""
    mine = (RangeState.COPYING, claim.worker, claim.fence)
    return (stored.state, stored.worker, stored.fence) == mine


def part_of(stored: CopyRange, within: KeyRange) -> CopyRange:
    """Return a range with other ends."""
    return stored.evolve(lower=key_json(within.lower), upper=key_json(within.upper))


def reset(stored: CopyRange) -> CopyRange:
    """Return a range as pending, as if nobody had claimed it."""
    return stored.evolve(state=RangeState.PENDING, worker=None, attempts=0, deaths=0)


def suspected(stored: CopyRange, suspicion: Suspicion) -> CopyRange:
    """Return a range as pending that is known to have killed workers."""
    return reset(stored).evolve(suspicion=suspicion)


def reopened(stored: CopyRange | None, now: ServerClock) -> CopyRange | None:
    """Return a finished or failed range as pending; one that is open stays as it is."""
    del now
    if stored is None or stored.state not in {RangeState.LIVE, RangeState.FAILED}:
        return None
    return reset(stored).evolve(suspicion=None, tally=(), under=None, noted=False, finished_at=None)


# A line of the quarantine may hold 1 MB, and a page is in memory as a whole.
PAGE_OF_LINES: Final = 20
# Of one transaction that stores lines ahead, in characters.
MAX_TRANSACTION_CHARACTERS: Final = 3_000_000


class Ledger(RangeLedger):
    """The durable record of jobs, ranges and lines, kept in the target."""

    def __init__(self, access: Access, *, atomic: bool = True) -> None:
        super().__init__(access, atomic=atomic)
        # Claims of which lines are stored before their range is committed; another try may follow.
        self._stored_early: set[Claim] = set()

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
        if not more and self._may_have_lines(claim):
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
            self._stored_early.add(claim)
            self._in_unit(partial(self._store_lines_early, claim, lines, more=more))
            more = True

    def _store_lines_early(
        self, claim: Claim, lines: Sequence[QuarantineLine], unit: Access, *, more: bool
    ) -> None:
        self.hold(unit, claim)
        self.store_lines(unit, claim, lines, (), more=more)

    def _may_have_lines(self, claim: Claim) -> bool:
        """Whether an earlier attempt may have stored lines of a range: this is its first claim otherwise."""
        return claim.fence > 1 or claim in self._stored_early or not self._atomic

    def finish_unread(self, claim: Claim, line: QuarantineLine) -> None:
        """Mark a range as live whose only row is named by a line.

        Raises:
            LeaseLostError: it was taken over.
        """
        one = {line.tenant: 1}

        def finished(unit: Access) -> None:
            self.store_lines(unit, claim, [line], ())
            self.finish(unit, claim, RangeTally(read=one, quarantined=one))

        self._in_unit(finished)

    def quarantined(self, job_id: str, entity: str | None = None) -> Iterator[QuarantineLine]:
        """Return the quarantined documents of a job by range and line, each in one or more parts."""
        where = [Equals("jobId", job_id)]
        where += [] if entity is None else [Equals("entity", entity)]
        rows = self._all(QUARANTINE, where, key_order(QUARANTINE), PAGE_OF_LINES)
        return (row.model for row in rows)

    def quarantine_counts(self, job_id: str, entity: str | None = None) -> dict[str, int]:
        """Return how many documents are in quarantine by reason, also of ranges in progress."""
        of = (Equals("jobId", job_id),) if entity is None else of_entity(job_id, entity)
        where = (*of, Equals("part", 0))
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

    def conflict_count(self, job_id: str) -> int:
        """Return the number of rows that the target of a job had with other content, and keeps."""
        where = (Equals("jobId", job_id), Equals("overwritten", value=False))
        found = self._access.count(
            CONFLICTS, self._query(CONFLICTS, where, key_order(CONFLICTS), 1), "entity"
        )
        return sum(found.values())

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

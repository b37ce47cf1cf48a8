"""Jobs of the ledger, and the lease that lets one coordinator plan, reopen, complete and stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from twinstore.access.leases import LeaseState, acquired, held, owned, released, renewed
from twinstore.access.paging import SortKey
from twinstore.access.scope import instant_argument
from twinstore.catalog.conditions import Equals
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import LeaseLostError
from twinstore.ledger.catalog import CONFLICTS, JOBS, QUARANTINE, RANGES, WORKERS
from twinstore.ledger.models import PAUSED, CopyJob, JobState, Lease
from twinstore.ledger.rows import LedgerRows, change_model
from twinstore.models.json_text import format_timestamp

if TYPE_CHECKING:
    from twinstore.access.protocol import Access, ServerClock


class JobLedger(LedgerRows):
    """Jobs and their leases."""

    def find(self, job_id: str) -> CopyJob | None:
        """Return a job. Absent: ``None``."""
        (row,) = self._access.find(JOBS, ALL_TENANTS, ((job_id,),))
        return None if row is None else row.model

    def jobs(self) -> Iterator[CopyJob]:
        """Return all jobs, the latest start first."""
        order = (SortKey("startedAt", descending=True, time=True), SortKey("id"))
        return (row.model for row in self._all(JOBS, (), order))

    def start(
        self, job_id: str, settings: Mapping[str, str], as_of: datetime, *, again: bool = False
    ) -> CopyJob:
        """Create a job, or begin the next generation of a complete one: its ranges and lines are forgotten.

        A running job is returned as it is, unless it has to begin ``again``.
        """
        instant = instant_argument(as_of, "as_of")

        def begun(stored: CopyJob | None, now: ServerClock) -> CopyJob | None:
            if stored is None:
                return CopyJob(id=job_id, settings=dict(settings), as_of=instant, started_at=now())
            if stored.state is JobState.RUNNING and not again:
                return None
            fresh = CopyJob(
                id=job_id,
                settings=dict(settings),
                generation=stored.generation + 1,
                as_of=instant,
                started_at=now(),
            )
            # The lease goes over, so that its fence keeps growing: a coordinator of the last generation stays
            # out.
            return fresh.leased(stored.lease)

        def begin(unit: Access) -> CopyJob:
            # Read apart from the change, which may run more than once, to see whether a generation began.
            before = self._job_in(unit, job_id)
            job = self._required(change_model(unit, JOBS, (job_id,), begun), job_id)
            if before is not None and before.generation != job.generation:
                for entity in (RANGES, QUARANTINE, CONFLICTS, WORKERS):
                    self._forget(unit, entity, (Equals("jobId", job_id),))
            return job

        return self._in_unit(begin)

    def describe(self, lease: Lease, settings: Mapping[str, str]) -> None:
        """Give a job other settings.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        self._leased(lease, lambda job: job.evolve(settings=dict(settings)))

    def complete(self, lease: Lease) -> None:
        """Mark the job as complete.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        self._leased(lease, lambda job: job.evolve(state=JobState.COMPLETE))

    def stop(self, lease: Lease, reason: str) -> None:
        """Ask every worker of the job to take no more ranges."""
        self._leased(lease, lambda job: job.evolve(stop=True, stop_reason=reason))

    def halt(self, job_id: str, reason: str) -> CopyJob:
        """Ask every worker of a job to take no more ranges, for a reason that any of them has found.

        Stopped already: nothing changes.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._update_job(
            job_id,
            lambda job: job if job.stop and not job.paused else job.evolve(stop=True, stop_reason=reason),
        )

    def resume(self, lease: Lease) -> None:
        """Let workers take ranges again."""
        self._leased(lease, lambda job: job.evolve(stop=False, stop_reason=None) if job.stop else job)

    def pause(self, job_id: str) -> CopyJob:
        """Ask every worker of a job to wait before the next range; no lease is needed for that.

        One that was stopped for another reason stays stopped. Repeated: nothing changes.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._update_job(
            job_id, lambda job: job if job.stop else job.evolve(stop=True, stop_reason=PAUSED)
        )

    def unpause(self, job_id: str) -> CopyJob:
        """Let the workers of a paused job take ranges again. Not paused: nothing changes.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._update_job(
            job_id, lambda job: job.evolve(stop=False, stop_reason=None) if job.paused else job
        )

    def set_rate(self, job_id: str, rate: int | None) -> CopyJob:
        """Give a job another rate, in documents per second over all workers; ``None`` is no limit.

        Raises:
            NotFoundError: there is no such job.
        """
        return self._update_job(job_id, lambda job: job.evolve(max_rate=rate))

    def _update_job(self, job_id: str, change: Callable[[CopyJob], CopyJob]) -> CopyJob:
        """Change a job on behalf of a caller that does not hold its lease."""

        def changed(stored: CopyJob | None, now: ServerClock) -> CopyJob:
            del now
            if stored is None:
                raise self._unknown(job_id)
            return change(stored)

        return self._required(self._change(job_id, changed), job_id)

    # ---------------------------------------------------------------------------------------- leases

    def lease(self, job_id: str) -> Lease | None:
        """Return the lease held on a job now. Not held, or expired: ``None``."""
        found: list[Lease] = []

        def inspect(stored: CopyJob | None, now: ServerClock) -> None:
            # The rule may be called again after a lost race.
            found.clear()
            if stored is not None and held(stored.lease, now()):
                found.append(lease_of(stored))

        # Through a change that writes nothing, because only a change has access to the server clock.
        change_model(self._access, JOBS, (job_id,), inspect)
        return found[0] if found else None

    def acquire(self, job_id: str, holder: str, lease: timedelta, *, dead: str | None = None) -> Lease:
        """Take the lease of a job and grow its fence.

        ``dead`` names a holder that is known to be gone; its lease is taken before it expires.

        Raises:
            LeaseLostError: another holder has it; the message names holder and expiry, ``key`` the holder.
        """

        def take(stored: CopyJob | None, now: ServerClock) -> CopyJob:
            if stored is None:
                raise self._unknown(job_id)
            taken = acquired(stored.lease, holder, now(), lease, dead=() if dead is None else (dead,))
            if taken is None:
                raise self._held(stored)
            return stored.leased(taken)

        return lease_of(self._required(self._change(job_id, take), job_id))

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease.

        Raises:
            LeaseLostError: it expired or another holder has it.
        """

        def extend(stored: CopyJob | None, now: ServerClock) -> CopyJob:
            state = LeaseState() if stored is None else stored.lease
            longer = renewed(state, lease.holder, lease.fence, now(), duration)
            if stored is None or longer is None:
                raise self._lost(lease)
            return stored.leased(longer)

        return lease_of(self._required(self._change(lease.job_id, extend), lease.job_id))

    def regain(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease that may have expired, as long as no other holder has taken it since.

        Raises:
            LeaseLostError: another holder has, or had, it.
        """

        def extend(stored: CopyJob | None, now: ServerClock) -> CopyJob:
            # The same fence: there was no owner in between, so nothing was planned, completed or stopped.
            if stored is None or not owned(stored.lease, lease.holder, lease.fence):
                raise self._lost(lease)
            return stored.leased(LeaseState(lease.holder, lease.fence, now() + duration))

        return lease_of(self._required(self._change(lease.job_id, extend), lease.job_id))

    def release(self, lease: Lease) -> None:
        """Give a lease back; does nothing when it is lost already."""

        def give_back(stored: CopyJob | None, now: ServerClock) -> CopyJob | None:
            del now
            free = None if stored is None else released(stored.lease, lease.holder, lease.fence)
            return None if stored is None or free is None else stored.leased(free)

        self._change(lease.job_id, give_back)

    def _leased(
        self, lease: Lease, change: Callable[[CopyJob], CopyJob], access: Access | None = None
    ) -> None:
        """Change a job under its lease; the row is always written, so that a competing writer conflicts."""

        def checked(stored: CopyJob | None, now: ServerClock) -> CopyJob:
            if stored is None or not owned(stored.lease, lease.holder, lease.fence):
                raise self._lost(lease)
            if not held(stored.lease, now()):
                raise self._lost(lease)
            return change(stored)

        if access is None:
            self._change(lease.job_id, checked)
        else:
            change_model(access, JOBS, (lease.job_id,), checked)

    def _change(
        self, job_id: str, rule: Callable[[CopyJob | None, ServerClock], CopyJob | None]
    ) -> CopyJob | None:
        """Change the row of a job; return it as it is then.

        In a unit, where another writer's open transaction ends it at once. Outside of one MongoDB would wait
        for the transaction of a killed process until the call times out.
        """
        return self._in_unit(lambda unit: change_model(unit, JOBS, (job_id,), rule))

    def _job_in(self, access: Access, job_id: str) -> CopyJob | None:
        (row,) = access.find(JOBS, ALL_TENANTS, ((job_id,),))
        return None if row is None else row.model

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
            "taken; ranges that are finished are saved, and nothing else was written. Run the copy again.",
            key=lease.holder,
            driver=self.driver,
        )


def lease_of(job: CopyJob) -> Lease:
    """Return the lease of a job that has one."""
    if job.holder is None or job.expires_at is None:
        raise LookupError(job.id)  # met by programmers only
    return Lease(job.id, job.holder, job.fence, job.expires_at)

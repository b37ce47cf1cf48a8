"""The ledger of a backfill: two collections beside the data; the clock of the server judges the leases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from bson.int64 import Int64
from pymongo.errors import DuplicateKeyError

from twinstore.bulk import Claim, Job, JobState, Lease, RangeState
from twinstore.errors import ConcurrencyError, LeaseLostError, NotFoundError
from twinstore.jsontext import format_timestamp
from twinstore_mongo.bulk_rows import (
    job_of,
    lease_of,
    progress_of,
    range_document,
    tally_document,
    within_of,
)
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.units import Unit, translating

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pymongo.collection import Collection

    from twinstore.bulk import KeyRange, RangeProgress, RangeTally
    from twinstore_mongo.connection import Document

__all__ = ["MongoLedger"]

T = TypeVar("T")

JOBS: Final = "backfill_jobs"
RANGES: Final = "backfill_ranges"


@dataclass(frozen=True, slots=True)
class MongoLedger:
    """Implements :class:`~twinstore.bulk.Ledger`."""

    unit: Unit

    def find(self, job_id: str) -> Job | None:
        """Return a job; see the Protocol."""
        with translating(self.unit.store.where):
            found = self.jobs_of(self.unit).find_one({"_id": job_id})
        return None if found is None else job_of(found)

    def jobs(self) -> Iterator[Job]:
        """Return all jobs, the latest start first; see the Protocol."""
        with translating(self.unit.store.where):
            found = list(self.jobs_of(self.unit).find().sort([("startedAt", -1), ("_id", 1)]))
        return map(job_of, found)

    def lease(self, job_id: str) -> Lease | None:
        """Return the lease that somebody holds on a job now; see the Protocol."""
        with translating(self.unit.store.where):
            now = self.unit.store.now()
            found = self.jobs_of(self.unit).find_one({"_id": job_id, "expiresAt": {"$gt": now}})
        return None if found is None else lease_of(found)

    def start(self, job_id: str, settings: Mapping[str, str], as_of: datetime) -> Job:
        """Create a job, or begin the next generation of a complete one; see the Protocol."""
        fresh = {
            "settings": [{"name": name, "value": value} for name, value in sorted(settings.items())],
            "state": JobState.RUNNING.value,
            "asOf": as_of,
        }
        return self._atomic(lambda unit: self._start(unit, job_id, fresh))

    def _start(self, unit: Unit, job_id: str, fresh: Document) -> Job:
        jobs = self.jobs_of(unit)
        found = jobs.find_one({"_id": job_id}, session=unit.session)
        if found is not None and found["state"] == JobState.RUNNING:
            return job_of(found)
        generation = Int64(1 if found is None else found["generation"] + 1)
        known: Document = found or {"fence": Int64(0)}
        kept: Document = {name: known[name] for name in LEASE_FIELDS if name in known}
        job: Document = {
            "_id": job_id,
            **fresh,
            "generation": generation,
            "startedAt": unit.store.now(),
            "planned": Int64(0),
            **kept,
        }
        if found is None:
            insert_once(jobs, job, unit)
        else:
            jobs.replace_one({"_id": job_id}, job, session=unit.session)
        self.ranges_of(unit).delete_many({"jobId": job_id}, session=unit.session)
        return job_of(job)

    def acquire(self, job_id: str, holder: str, lease: timedelta, *, dead: str | None = None) -> Lease:
        """Take the lease of a job and grow its fence; see the Protocol."""
        return self._atomic(lambda unit: self._acquire(unit, job_id, holder, lease, dead))

    def _acquire(self, unit: Unit, job_id: str, holder: str, duration: timedelta, dead: str | None) -> Lease:
        job, now = self._job(unit, job_id), unit.store.now()
        other = job.get("holder")
        if other is not None and other not in {holder, dead} and job["expiresAt"] > now:
            raise held(job_id, other, job["expiresAt"])
        fence, expires_at = Int64(job["fence"] + 1), now + duration
        taken = {"holder": holder, "fence": fence, "expiresAt": expires_at}
        self.jobs_of(unit).update_one({"_id": job_id}, {"$set": taken}, session=unit.session)
        # Whoever is about to commit one of these ranges under the old fence meets a write conflict.
        copying = {"jobId": job_id, "generation": job["generation"], "state": RangeState.COPYING.value}
        self.ranges_of(unit).update_many(copying, {"$set": {"fence": fence}}, session=unit.session)
        return Lease(job_id, holder, int(fence), expires_at)

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease; see the Protocol."""
        with translating(self.unit.store.where):
            now = self.unit.store.now()
            expires_at = now + duration
            change = {"$set": {"expiresAt": expires_at}}
            if not self.jobs_of(self.unit).update_one(alive(lease, now), change).matched_count:
                raise lost(lease)
        return Lease(lease.job_id, lease.holder, lease.fence, expires_at)

    def release(self, lease: Lease) -> None:
        """Give a lease back; see the Protocol."""
        with translating(self.unit.store.where):
            change = {"$set": {"expiresAt": self.unit.store.now()}, "$unset": {"holder": ""}}
            self.jobs_of(self.unit).update_one(owned(lease), change)

    def plan(self, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        """Store the ranges of an entity; see the Protocol."""
        self._atomic(lambda unit: self._plan(unit, lease, entity, ranges))

    def _plan(self, unit: Unit, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        job = self.checked(unit, lease)
        owner = {"jobId": lease.job_id, "generation": job["generation"]}
        collection = self.ranges_of(unit)
        if not ranges or collection.find_one({**owner, "entity": entity}, session=unit.session) is not None:
            return
        first = int(job["planned"])
        rows = [range_document(owner, entity, first + n, within) for n, within in enumerate(ranges)]
        collection.insert_many(rows, session=unit.session)
        grown = {"$set": {"planned": Int64(first + len(rows))}}
        self.jobs_of(unit).update_one({"_id": lease.job_id}, grown, session=unit.session)

    def ranges(self, job_id: str, entity: str | None = None) -> Iterator[RangeProgress]:
        """Return the ranges of the current generation in order of number; see the Protocol."""
        with translating(self.unit.store.where):
            job = self.jobs_of(self.unit).find_one({"_id": job_id})
            if job is None:
                return
            condition = {"jobId": job_id, "generation": job["generation"]}
            if entity is not None:
                condition["entity"] = entity
            for row in self.ranges_of(self.unit).find(condition).sort([("number", 1)]):
                yield progress_of(row)

    def claim(self, lease: Lease, number: int) -> Claim:
        """Mark a range as copying before it is read; see the Protocol."""
        row = self._atomic(lambda unit: self._claim(unit, lease, number))
        return Claim(lease, number, row["entity"], within_of(row))

    def _claim(self, unit: Unit, lease: Lease, number: int) -> Document:
        job = self.checked(unit, lease)
        which = {"jobId": lease.job_id, "generation": job["generation"], "number": number}
        change = {"$set": {"state": RangeState.COPYING.value, "fence": Int64(lease.fence)}}
        row = self.ranges_of(unit).find_one_and_update(which, change, session=unit.session)
        if row is None:
            raise NotFoundError(
                f"Job {lease.job_id!r} has no range {number}.", key=str(number), driver=DRIVER
            )
        return row

    def complete(self, lease: Lease) -> None:
        """Mark the job as complete; see the Protocol."""
        with translating(self.unit.store.where):
            change = {"$set": {"state": JobState.COMPLETE.value}}
            condition = alive(lease, self.unit.store.now())
            if not self.jobs_of(self.unit).update_one(condition, change).matched_count:
                raise lost(lease)

    def touch(self, unit: Unit, claim: Claim) -> None:
        """Make sure, inside a transaction, that the claim is still the claimant's own.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        self._change_claimed(unit, claim, {"$inc": {"parts": 1}})

    def finish(self, unit: Unit, claim: Claim, tally: RangeTally) -> None:
        """Mark a claimed range as live with its tally, inside a transaction.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        done = {
            "state": RangeState.LIVE.value,
            "tally": tally_document(tally),
            "finishedAt": unit.store.now(),
        }
        self._change_claimed(unit, claim, {"$set": done})

    def _change_claimed(self, unit: Unit, claim: Claim, change: Document) -> None:
        job = self.checked(unit, claim.lease)
        condition = {
            "jobId": claim.lease.job_id,
            "generation": job["generation"],
            "number": claim.number,
            "state": RangeState.COPYING.value,
            "fence": claim.lease.fence,
        }
        if not self.ranges_of(unit).update_one(condition, change, session=unit.session).matched_count:
            raise lost(claim.lease)

    def checked(self, unit: Unit, lease: Lease) -> Document:
        """Return the job while the lease is held and has not expired."""
        condition = alive(lease, unit.store.now())
        job = self.jobs_of(unit).find_one(condition, session=unit.session)
        if job is None:
            raise lost(lease)
        return job

    def _job(self, unit: Unit, job_id: str) -> Document:
        job = self.jobs_of(unit).find_one({"_id": job_id}, session=unit.session)
        if job is None:
            raise NotFoundError(f"There is no job {job_id!r}; start it first.", key=job_id, driver=DRIVER)
        return job

    def _atomic(self, action: Callable[[Unit], T]) -> T:
        def guarded(unit: Unit) -> T:
            with translating(unit.store.where), unit.store.limited():
                return action(unit)

        return self.unit.atomic(guarded)

    @staticmethod
    def jobs_of(unit: Unit) -> Collection[Document]:
        """Return the collection of jobs."""
        return unit.store.collection(JOBS)

    @staticmethod
    def ranges_of(unit: Unit) -> Collection[Document]:
        """Return the collection of ranges."""
        return unit.store.collection(RANGES)


LEASE_FIELDS: Final = ("holder", "fence", "expiresAt")


def insert_once(jobs: Collection[Document], job: Document, unit: Unit) -> None:
    """Insert a job that nobody has started meanwhile."""
    try:
        jobs.insert_one(job, session=unit.session)
    except DuplicateKeyError as error:
        raise ConcurrencyError(f"Job {job['_id']!r} was started by somebody else.", driver=DRIVER) from error


def owned(lease: Lease) -> Document:
    """Return the filter of a job whose lease is this one."""
    return {"_id": lease.job_id, "holder": lease.holder, "fence": lease.fence}


def alive(lease: Lease, now: datetime) -> Document:
    """Return the filter of a job whose lease is this one and has not expired."""
    return {**owned(lease), "expiresAt": {"$gt": now}}


def lost(lease: Lease) -> LeaseLostError:
    """Return the error of a lease that is gone."""
    return LeaseLostError(
        f"The lease of {lease.holder} on job {lease.job_id!r} (fence {lease.fence}) expired or was taken; "
        "stop, and start again to take it anew.",
        key=lease.holder,
        driver=DRIVER,
    )


def held(job_id: str, holder: str, expires_at: datetime) -> LeaseLostError:
    """Return the error of a lease that somebody else holds."""
    return LeaseLostError(
        f"{holder} works on job {job_id!r}; its lease ends at {format_timestamp(expires_at)} "
        "unless it is renewed.",
        key=holder,
        driver=DRIVER,
    )

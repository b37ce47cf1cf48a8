"""Policy jobs: a queue whose jobs are leased, replaced by their lease holders, and released."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.access.guard import check_replacement
from twinstore.access.paging import Page, decode_token, undecodable_row
from twinstore.access.protocol import Add, UniqueKey, WritingOperation
from twinstore.access.repository import Repository
from twinstore.access.scope import (
    duration_argument,
    function_argument,
    id_argument,
    instant_argument,
    member_argument,
)
from twinstore.catalog.conditions import Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DocumentDecodeError, LeaseLostError, ValidationError
from twinstore.runtime.formatting import safe_repr
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.enums import PolicyRunJobStatus
from twinstore.scheduler.policy_jobs import LEASE, PolicyJobQueryOptions, PolicyJobRepository, PolicyRunJob
from twinstore.scheduler.rules import policy_jobs as rules

if TYPE_CHECKING:
    from twinstore.access.protocol import FieldUpdates
    from twinstore.access.query import Query
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants

# The operations of a driver that lease jobs, and that replace those of one lease holder.
CLAIM: Final = WritingOperation("claim_policy_jobs")
COMPLETE: Final = WritingOperation("complete_policy_jobs")
MILLISECOND: Final = timedelta(milliseconds=1)
ONE_PER_RUN: Final = POLICY_JOBS.unique("tenant_run")

Jobs = tuple[PolicyRunJob, ...]


class PolicyJobs(Repository, PolicyJobRepository):
    """Implements :class:`~twinstore.scheduler.policy_jobs.PolicyJobRepository`."""

    @override
    def create(self, job: PolicyRunJob) -> PolicyRunJob:
        job = self._model(job, PolicyRunJob, "job")
        scope = self._admit(job.tenant_id)
        rules.check_create(job)
        return self._access.insert(POLICY_JOBS, scope, Row(job)).model

    @override
    def get(self, tenant_id: str, job_id: str) -> PolicyRunJob | None:
        scope = self._admit(tenant_id)
        return self._get(POLICY_JOBS, scope, (id_argument(job_id, "job_id"),))

    @override
    def get_required(self, tenant_id: str, job_id: str) -> PolicyRunJob:
        return self._required(self.get(tenant_id, job_id), POLICY_JOBS, job_id.strip())

    @override
    def get_by_run(self, tenant_id: str, run_id: str) -> PolicyRunJob | None:
        scope = self._admit(tenant_id)
        key = UniqueKey(ONE_PER_RUN, (scope.id, id_argument(run_id, "run_id")))
        return self._get(POLICY_JOBS, scope, key)

    @override
    def list(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> Page[PolicyRunJob]:
        return self._page(POLICY_JOBS, queries.policy_jobs(self._admit(tenant_id), options))

    @override
    def count(self, tenant_id: str, options: PolicyJobQueryOptions | None = None) -> int:
        return self._count(POLICY_JOBS, queries.policy_jobs(self._admit(tenant_id), options))

    @override
    def try_replace(
        self,
        job: PolicyRunJob,
        expected: PolicyRunJobStatus,
        *,
        lease_owner: str | None = None,
        now: datetime | None = None,
    ) -> bool:
        job = self._model(job, PolicyRunJob, "job")
        owner, instant = holder_arguments(lease_owner, now)
        status = status_argument(expected)
        self._admit(job.tenant_id)
        rules.check_move(job, status)
        return self._replace(job, status, owner, instant)

    @override
    def modify(
        self, tenant_id: str, job_id: str, change: Callable[[PolicyRunJob], PolicyRunJob | None]
    ) -> PolicyRunJob | None:
        scope, key = self._admit(tenant_id), (id_argument(job_id, "job_id"),)
        function_argument(change, "change")

        def revised(stored: PolicyRunJob | None) -> PolicyRunJob | None:
            after = None if stored is None else change(stored)
            if stored is None or after is None:
                return None
            return rules.revised(stored, self._model(after, PolicyRunJob, "change"))

        return self._revise(POLICY_JOBS, scope, key, revised)

    @override
    def lease_next(
        self, lease_owner: str, now: datetime, *, lease: timedelta = LEASE, tenant_id: str | None = None
    ) -> PolicyRunJob | None:
        for job in self._lease(lease_owner, now, 1, lease, tenant_id, "lease_next"):
            return job
        return None

    @override
    def lease_many(
        self,
        lease_owner: str,
        now: datetime,
        *,
        limit: int = 100,
        lease: timedelta = LEASE,
        tenant_id: str | None = None,
    ) -> tuple[PolicyRunJob, ...]:
        return self._lease(lease_owner, now, limit, lease, tenant_id, "lease_many")

    @override
    def complete_many(
        self,
        jobs: Sequence[PolicyRunJob],
        expected: PolicyRunJobStatus,
        *,
        lease_owner: str | None,
        now: datetime,
    ) -> tuple[bool, ...]:
        jobs = self._models(jobs, PolicyRunJob, "jobs")
        owner, status = holder_arguments(lease_owner, now)[0], status_argument(expected)
        instant = instant_argument(now, "now")
        for job in jobs:
            rules.check_move(job, status)
        self._check_writable()
        if not jobs:
            return ()
        scope = self._scope_of(jobs)
        for job in jobs:
            check_replacement(self._access, POLICY_JOBS, scope, Row(job))
        return self._special(COMPLETE, self._complete)(scope, jobs, status, owner, instant)

    @override
    def release_expired(self, now: datetime, *, limit: int = 100) -> int:
        scope = self._admit_system("release_expired")
        query = queries.expired_leases(now, limit)
        instant = instant_argument(now, "now")
        self._check_writable()
        freed, wanted = 0, query.limit
        tried: dict[Key, bool] = {}
        with self._partial_progress() as steps:
            while True:
                keys = self._access.keys(POLICY_JOBS, query)
                for key in [key for key in keys if key not in tried][: wanted - sum(tried.values())]:
                    try:
                        freed += self._release(scope, key, instant)
                        tried[key] = True
                    except DocumentDecodeError:
                        tried[key] = False  # passed over; the next ones may be readable
                    steps.done()
                if sum(tried.values()) >= wanted or len(keys) < query.limit:
                    return freed
                query = replace(query, limit=2 * query.limit)

    @override
    def count_by_status(self, tenant_id: str) -> dict[PolicyRunJobStatus, int]:
        counted = self._access.count(POLICY_JOBS, queries.policy_jobs_of(self._admit(tenant_id)), "status")
        return {PolicyRunJobStatus(status): number for status, number in sorted(counted.items())}

    @override
    def delete(self, tenant_id: str, job_id: str) -> bool:
        scope = self._admit(tenant_id)
        return self._remove(POLICY_JOBS, scope, (id_argument(job_id, "job_id"),))

    def _lease(  # noqa: PLR0917  # what both forms need
        self,
        lease_owner: str,
        now: datetime,
        limit: int,
        lease: timedelta,
        tenant_id: str | None,
        purpose: str,
    ) -> Jobs:
        owner, instant = id_argument(lease_owner, "lease_owner"), instant_argument(now, "now")
        until = end_of_lease(instant, lease)
        query = queries.available_jobs(self._admit_optional(tenant_id, purpose), instant, limit)
        sets: FieldUpdates = {
            "status": PolicyRunJobStatus.DISPATCHING.value,
            "attemptCount": Add(1),
            "lastAttemptAt": instant,
            "updatedAt": instant,
            "leaseOwner": owner,
            "leaseExpiresAt": until,
        }
        self._check_writable()
        return self._special(CLAIM, self._claim)(query, sets)

    def _claim(self, query: Query, sets: FieldUpdates) -> Jobs:
        """Lease the first jobs of a list one after the other, each only while it is still due."""
        while True:
            keys = self._first(query)
            ones = (replace(query, where=(*query.where, Equals("id", key)), limit=1) for key in keys)
            leased = [row.model for one in ones for row in self._access.mark(POLICY_JOBS, one, sets)]
            # If other workers were faster with all of them, others may be due.
            if leased or not keys:
                return tuple(leased)

    def _first(self, query: Query) -> tuple[str, ...]:
        """Return the keys of the first jobs of a list that can be read, as many as it asks for."""
        found: tuple[str, ...] = ()
        while True:
            page = self._access.page(POLICY_JOBS, query)
            found += tuple(row.model.id for row in page)
            token = page.next_page_token
            # A page of all tenants is shorter by what it passed over.
            if token is None or len(found) >= query.limit:
                return found[: query.limit]
            after = decode_token(token, query.entity, query.fingerprint, query.order)
            query = replace(query, after=after)

    def _scope_of(self, jobs: Jobs) -> Tenants:
        """Return the scope of some jobs: their one tenant, or the system."""
        tenants = {job.tenant_id for job in jobs}
        return self._admit(*tenants) if len(tenants) == 1 else self._admit_system("complete_many")

    def _complete(
        self,
        scope: Tenants,
        jobs: Jobs,
        expected: PolicyRunJobStatus,
        lease_owner: str | None,
        now: datetime,
    ) -> tuple[bool, ...]:
        del scope  # each job names its own
        answers: list[bool] = []
        with self._partial_progress() as steps:
            for job in jobs:
                answers.append(self._held(job, expected, lease_owner, now))
                steps.done()
        return tuple(answers)

    def _held(
        self, job: PolicyRunJob, expected: PolicyRunJobStatus, lease_owner: str | None, now: datetime
    ) -> bool:
        """Replace a job; neither a lost lease nor an unreadable job is an error here."""
        try:
            return self._replace(job, expected, lease_owner, now)
        except LeaseLostError:
            return False
        except DocumentDecodeError as error:
            undecodable_row(error, job.tenant_id)  # logs it
            return False

    def _replace(
        self,
        job: PolicyRunJob,
        expected: PolicyRunJobStatus,
        lease_owner: str | None,
        now: datetime | None,
    ) -> bool:
        is_replaced = False

        def replaced(stored: PolicyRunJob | None) -> PolicyRunJob | None:
            nonlocal is_replaced
            after = rules.replaced(stored, job, expected, lease_owner, now)
            is_replaced = after is not None
            return after

        self._revise(POLICY_JOBS, Tenant(job.tenant_id), (job.id,), replaced)
        return is_replaced

    def _release(self, scope: Tenants, key: Key, now: datetime) -> bool:
        """End the lease of a job, unless another caller did so meanwhile, or leased it again."""
        is_free = False

        def released(stored: PolicyRunJob | None) -> PolicyRunJob | None:
            nonlocal is_free
            after = None if stored is None else rules.released(stored, now)
            is_free = after is not None
            return after

        self._revise(POLICY_JOBS, scope, key, released)
        return is_free


def holder_arguments(lease_owner: str | None, now: datetime | None) -> tuple[str | None, datetime | None]:
    """Return the holder of a lease and the instant by which it is judged; neither without the other.

    Raises:
        ValidationError: a holder without an instant, or an argument is not acceptable.
    """
    instant = None if now is None else instant_argument(now, "now")
    if lease_owner is None:
        return None, instant
    if instant is None:
        raise ValidationError(
            "Argument now is missing; it decides whether the lease of lease_owner has expired."
        )
    return id_argument(lease_owner, "lease_owner"), instant


def status_argument(status: PolicyRunJobStatus) -> PolicyRunJobStatus:
    """Return a status, or raise ``ValidationError``."""
    return member_argument(status, PolicyRunJobStatus, "expected")


def end_of_lease(now: datetime, lease: object) -> datetime:
    """Return when a lease expires, in whole milliseconds.

    Raises:
        ValidationError: it is no time, shorter than a millisecond, or ends after the year 9999.
    """
    length = duration_argument(lease, "lease")
    if length < MILLISECOND:
        raise ValidationError(
            f"Argument lease should be a time of at least one millisecond, not {safe_repr(lease)}."
        )
    try:
        return instant_argument(now + length, "lease")
    except OverflowError as error:
        raise ValidationError("Argument lease ends after the year 9999.") from error

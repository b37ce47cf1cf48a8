"""What workers of every store of policy jobs may rely on: each job is leased to one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore.errors import InvalidTransitionError, TwinstoreError, ValidationError
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.enums import PolicyRunJobStatus, PolicyRunPriority
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.policy_builders import as_ended, as_submitted, make_policy_job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.scheduler.policy_jobs import PolicyJobRepository, PolicyRunJob
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["PolicyClaimContract"]

PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
NORMAL, HIGH, EMERGENCY = PolicyRunPriority
MINUTE: Final = timedelta(minutes=1)
RIVALS: Final = 8


def queued(workspace: SchedulerWorkspace, *names: str, **changes: object) -> list[PolicyRunJob]:
    """Store pending jobs."""
    create = workspace.storage.policy_jobs.create
    return [create(make_policy_job(workspace.tenant, workspace.id(name), **changes)) for name in names]


def ids(jobs: Sequence[PolicyRunJob]) -> list[str]:
    """Return the ids of some jobs."""
    return [job.id for job in jobs]


def submitted(jobs: Sequence[PolicyRunJob], second: float = 1) -> list[PolicyRunJob]:
    """Return leased jobs as their worker submits them."""
    return [as_submitted(job, at(second)) for job in jobs]


class PolicyClaimContract(SchedulerCases):
    """Leases: in order, each job once, ended by expiry; answers of a batch one by one."""

    def test_a_lease_sets_owner_expiry_and_attempt_and_returns_the_job_as_it_is_stored(
        self, workspace: SchedulerWorkspace
    ) -> None:
        (job,) = queued(workspace, "a")
        jobs, tenant = workspace.storage.policy_jobs, workspace.tenant
        leased = jobs.lease_next("w", at(3), lease=timedelta(seconds=1.5), tenant_id=tenant)
        assert leased == job.evolve(
            status=DISPATCHING,
            attempt_count=1,
            last_attempt_at=at(3),
            updated_at=at(3),
            lease_owner="w",
            lease_expires_at=at(4.5),
        )
        assert jobs.get(tenant, job.id) == leased
        assert jobs.lease_next("w", at(3), tenant_id=tenant) is None
        assert jobs.lease_many("w", at(3), tenant_id=tenant) == ()

    @pytest.mark.parametrize("batch", [1, 3, 100])
    def test_jobs_are_leased_by_priority_then_availability_then_age_then_id(
        self, workspace: SchedulerWorkspace, batch: int
    ) -> None:
        jobs, tenant = workspace.storage.policy_jobs, workspace.tenant
        wanted = [
            *queued(workspace, "z", priority=EMERGENCY, available_at=at(2)),
            *queued(workspace, "y", priority=HIGH, available_at=at(1), created_at=at(9)),
            *queued(workspace, "x", priority=HIGH, available_at=at(2)),
            *queued(workspace, "w", available_at=at(0), created_at=at(9)),
            *queued(workspace, "v", available_at=at(1), created_at=at(1)),
            *queued(workspace, "\uffff", available_at=at(1), created_at=at(2)),
            *queued(workspace, "\U00010000", available_at=at(1), created_at=at(2)),
        ]
        queued(workspace, "late", priority=EMERGENCY, available_at=at(3.001))
        found: list[PolicyRunJob] = []
        while leased := jobs.lease_many("worker", at(3), limit=batch, tenant_id=tenant):
            assert len(leased) <= batch
            found += leased
        assert ids(found) == ids(wanted)

    def test_a_worker_of_one_tenant_leases_no_job_of_another(self, workspace: SchedulerWorkspace) -> None:
        (own,) = queued(workspace, "a")
        queued(workspace.elsewhere, "a", priority=EMERGENCY)
        jobs = workspace.storage.policy_jobs
        assert ids(jobs.lease_many("w", at(1), tenant_id=workspace.tenant)) == [own.id]
        assert jobs.count_by_status(workspace.foreign) == {PENDING: 1}

    def test_a_worker_of_all_tenants_leases_jobs_of_each(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        own, theirs = (
            queued(isolated_workspace, "a"),
            queued(isolated_workspace.elsewhere, "a", priority=HIGH),
        )
        jobs = isolated_workspace.storage.policy_jobs
        assert [job.tenant_id for job in jobs.lease_many("w", at(1))] == [
            theirs[0].tenant_id,
            own[0].tenant_id,
        ]

    @pytest.mark.parametrize("batch", [1, 5])
    def test_rivals_of_one_name_lease_each_job_once(self, workspace: SchedulerWorkspace, batch: int) -> None:
        tenant = workspace.tenant
        wanted = set(ids(queued(workspace, *(f"job {number}" for number in range(RIVALS * 2)))))

        def drain(storage: SchedulerStorage, rival: int) -> list[str]:
            del rival  # they have one name, at one instant: nothing but the lease itself tells them apart
            found: list[str] = []
            misses = 0
            while misses < RIVALS:
                leased = storage.policy_jobs.lease_many("same", at(1), limit=batch, tenant_id=tenant)
                misses = 0 if leased else misses + 1
                found += ids(leased)
            return found

        results = workspace.race(drain, range(RIVALS))
        leased = [job for result in results if not isinstance(result, TwinstoreError) for job in result]
        assert len(results) == RIVALS
        assert sorted(leased) == sorted(wanted)

    def test_a_batch_is_answered_one_by_one(self, workspace: SchedulerWorkspace) -> None:
        jobs, tenant = workspace.storage.policy_jobs, workspace.tenant
        queued(workspace, *"abcdef")
        leased = list(jobs.lease_many("w", at(0), tenant_id=tenant))
        after = submitted(leased)
        # One is gone, one has another owner, one was leased anew, one is ended twice.
        jobs.delete(tenant, leased[1].id)
        assert jobs.try_replace(as_ended(leased[2], FAILED), DISPATCHING)
        after[3] = after[3].evolve(attempt_count=2)
        after[4] = after[4].evolve(tenant_id=workspace.foreign)
        batch = [after[0], after[1], after[2], after[3], after[5], after[0]]
        answers = jobs.complete_many(batch, DISPATCHING, lease_owner="w", now=at(1))
        assert answers == (True, False, False, False, True, False)
        found = jobs.count_by_status(tenant)
        assert found == {DISPATCHING: 2, SUBMITTED: 2, FAILED: 1}
        assert jobs.get(tenant, leased[0].id) == after[0]
        assert jobs.complete_many([], DISPATCHING, lease_owner="w", now=at(1)) == ()
        done = [as_ended(job, COMPLETED, at(2)) for job in (after[0], after[5])]
        assert jobs.complete_many(done, SUBMITTED, lease_owner="w", now=at(2)) == (False, False)
        assert jobs.complete_many(done, SUBMITTED, lease_owner=None, now=at(2)) == (True, True)

    def test_a_batch_holds_jobs_of_several_tenants(self, isolated_workspace: SchedulerWorkspace) -> None:
        queued(isolated_workspace, "a")
        queued(isolated_workspace.elsewhere, "b")
        jobs = isolated_workspace.storage.policy_jobs
        batch = submitted(jobs.lease_many("w", at(0)))
        assert jobs.complete_many(batch, DISPATCHING, lease_owner="w", now=at(1)) == (True, True)
        assert jobs.count_by_status(isolated_workspace.foreign) == {SUBMITTED: 1}

    def test_a_move_that_is_forbidden_stops_a_batch_before_anything_is_written(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, tenant = workspace.storage.policy_jobs, workspace.tenant
        queued(workspace, "a", "b")
        one, two = jobs.lease_many("w", at(0), tenant_id=tenant)
        batch = [as_submitted(one), as_ended(as_submitted(two), COMPLETED)]
        with pytest.raises(InvalidTransitionError):
            jobs.complete_many(batch, DISPATCHING, lease_owner="w", now=at(1))
        assert jobs.count_by_status(tenant) == {DISPATCHING: 2}

    def test_leases_that_expire_in_the_middle_of_a_batch_are_lost_one_by_one(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, tenant = workspace.storage.policy_jobs, workspace.tenant
        queued(workspace, "a", "b")
        first = jobs.lease_next("w", at(0), lease=MINUTE, tenant_id=tenant)
        second = jobs.lease_next("w", at(30), lease=MINUTE, tenant_id=tenant)
        assert first is not None
        assert second is not None
        batch = submitted([first, second], 60)
        assert jobs.complete_many(batch, DISPATCHING, lease_owner="w", now=at(60)) == (False, True)

    def test_an_expired_lease_returns_with_its_attempt_counted(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        jobs, tenant = isolated_workspace.storage.policy_jobs, isolated_workspace.tenant
        queued(isolated_workspace, "a", "b")
        (lost, kept) = jobs.lease_many("dies", at(0), lease=MINUTE)
        assert jobs.try_replace(
            kept.evolve(lease_expires_at=at(61)), DISPATCHING, lease_owner="dies", now=at(1)
        )
        assert jobs.release_expired(at(59.999)) == 0
        assert (jobs.release_expired(at(60)), jobs.release_expired(at(60))) == (1, 0)
        free = jobs.get_required(tenant, lost.id)
        assert (free.status, free.attempt_count, free.available_at) == (PENDING, 1, at(60))
        assert (free.lease_owner, free.last_error) == (None, "The lease of dies expired.")
        again = jobs.lease_next("lives", at(60))
        assert again is not None
        assert (again.id, again.attempt_count) == (lost.id, 2)
        # The first holder wakes up, and has the name of the second one: the attempt tells them apart.
        late = submitted([lost], 61)
        assert jobs.complete_many(late, DISPATCHING, lease_owner="lives", now=at(61)) == (False,)
        assert jobs.complete_many(submitted([again], 61), DISPATCHING, lease_owner="lives", now=at(61)) == (
            True,
        )

    def test_expired_leases_end_in_order_and_in_portions(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        jobs = isolated_workspace.storage.policy_jobs
        for number, name in enumerate("cab"):
            queued(isolated_workspace, name)
            assert jobs.lease_next("w", at(number))
        assert [jobs.release_expired(at(99), limit=2) for _ in range(3)] == [2, 1, 0]
        assert ids(jobs.lease_many("w", at(99), limit=1)) == [isolated_workspace.id("a")]

    def test_a_cancellation_that_was_requested_meanwhile_outlives_the_worker(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        here = isolated_workspace
        jobs, runs = here.storage.policy_jobs, here.storage.policy_run_service
        queued(here, *"abc")
        one, two, three = jobs.lease_many("w", at(0))
        for job in (one, two, three):
            runs.request_cancellation(here.tenant, job.run_id or "", "enough", now=at(1))
        again = one.evolve(status=PENDING, lease_owner=None, lease_expires_at=None)
        assert jobs.try_replace(again, DISPATCHING, lease_owner="w", now=at(2))
        assert jobs.complete_many(submitted([two]), DISPATCHING, lease_owner="w", now=at(2)) == (True,)
        assert jobs.release_expired(at(99)) == 1
        found = [jobs.get_required(here.tenant, job.id) for job in (one, two, three)]
        assert [job.status for job in found] == [CANCELLED, SUBMITTED, CANCELLED]
        assert [(job.cancellation_requested, job.cancellation_reason) for job in found] == [
            (True, "enough")
        ] * 3
        assert jobs.lease_next("w", at(999)) is None

    def test_a_clock_that_goes_back_leases_nothing_twice_and_keeps_what_is_held(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        jobs = isolated_workspace.storage.policy_jobs
        queued(isolated_workspace, "a", created_at=at(50), updated_at=at(50), available_at=at(0))
        job = jobs.lease_next("ahead", at(100))
        assert job is not None
        assert jobs.lease_next("behind", at(1)) is None
        assert jobs.release_expired(at(1)) == 0
        assert jobs.complete_many(submitted([job]), DISPATCHING, lease_owner="ahead", now=at(2)) == (True,)

    def test_a_job_that_cannot_be_read_keeps_no_other_from_a_worker_of_all_tenants(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        jobs = isolated_workspace.storage.policy_jobs
        broken = queued(isolated_workspace, "a", "b", "c")
        queued(isolated_workspace, "d", "e", "f")
        (held,) = jobs.lease_many("w", at(0), limit=1)
        for job in broken:
            isolated_workspace.probe.poison(POLICY_JOBS, (job.id,), "s3cr3t")
        one = jobs.lease_next("w", at(1))
        assert one is not None
        assert ids([one, *jobs.lease_many("w", at(1))]) == [
            isolated_workspace.id(name) for name in ("d", "e", "f")
        ]
        # The lease of one that nobody can read stays; those of the others end.
        assert held.id == broken[0].id
        assert jobs.release_expired(at(999), limit=2) <= 2
        assert jobs.release_expired(at(999)) <= 1
        for name in "def":
            assert jobs.get_required(isolated_workspace.tenant, isolated_workspace.id(name)).status is PENDING

    def test_a_broken_job_stops_neither_the_leases_nor_the_completions_of_its_tenant(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, tenant = workspace.storage.policy_jobs, workspace.tenant
        first, *others = queued(workspace, "a", "b", "c")
        workspace.probe.poison(POLICY_JOBS, (first.id,), "s3cr3t")
        leased = jobs.lease_many("w", at(1), tenant_id=tenant)
        assert ids(leased) == ids(others)
        done = [as_submitted(job, at(2)) for job in leased]
        answers = jobs.complete_many(
            [as_submitted(first, at(2)), *done], DISPATCHING, lease_owner="w", now=at(2)
        )
        assert answers == (False, True, True)
        assert jobs.delete(tenant, first.id) is True

    @pytest.mark.parametrize(
        "lease", [timedelta(0), timedelta(seconds=-1), timedelta(days=3_000_000), None, 5]
    )
    def test_an_unacceptable_lease_owner_or_limit_is_refused(
        self, workspace: SchedulerWorkspace, lease: timedelta
    ) -> None:
        (job,) = queued(workspace, "a")
        jobs: PolicyJobRepository = workspace.storage.policy_jobs
        with pytest.raises(ValidationError, match="lease"):
            jobs.lease_next("w", at(1), lease=lease, tenant_id=workspace.tenant)
        with pytest.raises(ValidationError, match="lease_owner"):
            jobs.lease_next(" ", at(1), tenant_id=workspace.tenant)
        with pytest.raises(ValidationError, match="limit"):
            jobs.lease_many("w", at(1), limit=0, tenant_id=workspace.tenant)
        with pytest.raises(ValidationError, match="now"):
            jobs.lease_many("w", datetime(2025, 1, 1, tzinfo=UTC).replace(tzinfo=None))
        nothing = cast("Sequence[PolicyRunJob]", None)
        with pytest.raises(ValidationError, match="jobs should be a sequence of PolicyRunJob, not NoneType"):
            jobs.complete_many(nothing, DISPATCHING, lease_owner="w", now=at(1))
        assert jobs.get(workspace.tenant, job.id) == job

"""What every store of policy jobs must do, and the service of policy runs on every driver.

Of a job: look-ups, compare-and-set, the state machine. Workers may rely on it that each
job is leased to one of them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    LeaseLostError,
    NotFoundError,
    TwinstoreError,
    ValidationError,
)
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.enums import (
    PolicyRunExecutionStatus,
    PolicyRunJobStatus,
    PolicyRunMode,
    PolicyRunPriority,
)
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions, policy_job_id
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import (
    WORKER,
    as_dispatched,
    as_ended,
    as_submitted,
    make_policy_job,
    make_policy_request,
)
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.scheduler.policy_jobs import PolicyJobRepository, PolicyRunJob, PolicyRunStatus
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["PolicyClaimContract", "PolicyJobContract", "PolicyRunServiceContract"]

PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
NO_LEASE: Final = {"lease_owner": None, "lease_expires_at": None}
ALLOWED: Final = {
    (PENDING, DISPATCHING),
    (PENDING, CANCELLED),
    (DISPATCHING, SUBMITTED),
    (DISPATCHING, PENDING),
    (DISPATCHING, FAILED),
    (DISPATCHING, CANCELLED),
    (SUBMITTED, COMPLETED),
    (SUBMITTED, FAILED),
    (SUBMITTED, CANCELLED),
    (FAILED, PENDING),
}


def stored(
    workspace: SchedulerWorkspace, status: PolicyRunJobStatus = PENDING, name: str = "a", **changes: object
) -> PolicyRunJob:
    """Store a job and move it into a status."""
    jobs = workspace.storage.policy_jobs
    job = jobs.create(make_policy_job(workspace.tenant, workspace.id(name), **changes))
    for end in {PENDING: (), CANCELLED: (CANCELLED,)}.get(status, (DISPATCHING, SUBMITTED, status)):
        if job.status is not status:
            after = moved(job, end)
            assert jobs.try_replace(after, job.status)
            job = after
    return job


def moved(job: PolicyRunJob, status: PolicyRunJobStatus) -> PolicyRunJob:
    """Return a job in another status, with all that this one asks for."""
    bare = job.evolve(**{"status": PENDING, "completed_at": None, "cancelled_at": None, **NO_LEASE})
    if status is PENDING:
        return bare.evolve(available_at=at(5), last_error="again")
    if status is DISPATCHING:
        return as_dispatched(bare)
    if status is SUBMITTED:
        return as_submitted(bare)
    started = bare.evolve(submitted_at=job.submitted_at or at()) if status is COMPLETED else bare
    return as_ended(started, status)


class PolicyJobContract(SchedulerCases):
    """One job after the other; what many workers do at once is in :class:`PolicyClaimContract`."""

    def test_a_new_job_is_pending_and_its_run_has_no_other(self, workspace: SchedulerWorkspace) -> None:
        job, jobs = stored(workspace), workspace.storage.policy_jobs
        assert jobs.get_by_run(workspace.tenant, job.run_id or "") == job
        with pytest.raises(DuplicateError, match="run"):
            jobs.create(job.evolve(id=workspace.id("other")))
        with pytest.raises(DuplicateError):
            jobs.create(job.evolve(run_id=workspace.id("other")))
        assert jobs.create(job.evolve(id=workspace.id("free"), run_id=None)).run_id is None
        assert jobs.create(job.evolve(id=workspace.id("also free"), run_id=None)).run_id is None
        foreign = make_policy_job(workspace.foreign, workspace.elsewhere.id("x"), run_id=job.run_id)
        assert jobs.create(foreign) == foreign
        for refused in (as_dispatched(job), job.evolve(attempt_count=1)):
            with pytest.raises(ValidationError):
                jobs.create(refused.evolve(id=workspace.id("refused"), run_id=None))
        assert workspace.count(POLICY_JOBS) == 3

    @pytest.mark.parametrize("start", PolicyRunJobStatus)
    @pytest.mark.parametrize("end", PolicyRunJobStatus)
    def test_a_status_changes_as_the_state_machine_allows_in_either_way(
        self, workspace: SchedulerWorkspace, start: PolicyRunJobStatus, end: PolicyRunJobStatus
    ) -> None:
        job, jobs = stored(workspace, start), workspace.storage.policy_jobs
        if start is end:
            assert jobs.try_replace(job, start) is True
            assert jobs.modify(workspace.tenant, job.id, lambda found: found) == job
            return
        after = moved(job, end)
        if (start, end) not in ALLOWED:
            with pytest.raises(InvalidTransitionError) as refusal:
                jobs.try_replace(after, start)
            assert (refusal.value.from_state, refusal.value.to_state) == (start, end)
            with pytest.raises(InvalidTransitionError):
                jobs.modify(workspace.tenant, job.id, lambda _: after)
            assert jobs.get(workspace.tenant, job.id) == job
            return
        assert jobs.try_replace(after, end) is (end is PENDING and start is PENDING)
        assert jobs.try_replace(after, start, now=at(77)) is True
        assert jobs.get(workspace.tenant, job.id) == after.evolve(updated_at=at(77))
        assert jobs.try_replace(after, start) is False

    @pytest.mark.parametrize("status", [COMPLETED, CANCELLED])
    def test_a_job_that_has_ended_never_changes(
        self, workspace: SchedulerWorkspace, status: PolicyRunJobStatus
    ) -> None:
        job, jobs = stored(workspace, status), workspace.storage.policy_jobs
        stamp = workspace.stamp(POLICY_JOBS, (job.id,))
        assert jobs.try_replace(job, status, now=at(99)) is True
        with pytest.raises(InvalidTransitionError):
            jobs.try_replace(job.evolve(last_error="late"), status)
        assert workspace.stamp(POLICY_JOBS, (job.id,)) == stamp

    def test_what_was_asked_for_and_the_instants_of_a_status_never_change(
        self, workspace: SchedulerWorkspace
    ) -> None:
        job, jobs = stored(workspace, SUBMITTED), workspace.storage.policy_jobs
        for changes in (
            {"created_at": at(1)},
            {"run_id": "other"},
            {"policy_id": "other"},
            {"priority": PolicyRunPriority.HIGH},
            {"metadata": {"a": "b"}},
            {"submitted_at": at(1)},
            {"last_attempt_at": at(1)},
        ):
            with pytest.raises(ValidationError, match=next(iter(changes))):
                jobs.try_replace(job.evolve(**changes), SUBMITTED)
        assert jobs.try_replace(job.evolve(attempt_count=2), SUBMITTED) is False
        assert jobs.get(workspace.tenant, job.id) == job
        assert jobs.try_replace(job.evolve(last_error="half of it"), SUBMITTED) is True

    def test_a_lease_is_judged_by_owner_attempt_and_instant(self, workspace: SchedulerWorkspace) -> None:
        job, jobs = stored(workspace, DISPATCHING), workspace.storage.policy_jobs
        after = as_submitted(job, at(1))
        for owner, now, changes in (
            ("other", at(1), {}),
            (WORKER, at(60), {}),
            (WORKER, at(1), {"attempt_count": 2}),
        ):
            with pytest.raises(LeaseLostError) as loss:
                jobs.try_replace(after.evolve(**changes), DISPATCHING, lease_owner=owner, now=now)
            assert (loss.value.entity, loss.value.key) == ("policy_jobs", job.id)
        with pytest.raises(ValidationError, match="now"):
            jobs.try_replace(after, DISPATCHING, lease_owner=WORKER)
        renewed = job.evolve(lease_expires_at=at(120))
        assert jobs.try_replace(renewed, DISPATCHING, lease_owner=WORKER, now=at(59.999))
        assert jobs.try_replace(after, DISPATCHING, lease_owner=WORKER, now=at(119.999))
        assert jobs.get(workspace.tenant, job.id) == after.evolve(updated_at=at(119.999))

    def test_only_its_owner_changes_a_lease(self, workspace: SchedulerWorkspace) -> None:
        job, jobs = stored(workspace, DISPATCHING), workspace.storage.policy_jobs
        stolen = job.evolve(lease_owner="thief", lease_expires_at=at(999), last_error="seen")
        assert jobs.try_replace(stolen, DISPATCHING)
        assert jobs.get(workspace.tenant, job.id) == job.evolve(last_error="seen")
        with pytest.raises(ValidationError, match="lease_owner"):
            jobs.try_replace(stolen, DISPATCHING, lease_owner=WORKER, now=at(1))

    def test_one_of_many_concurrent_calls_replaces_a_job(self, workspace: SchedulerWorkspace) -> None:
        job = stored(workspace)

        def lease(storage: SchedulerStorage, second: int) -> bool:
            return storage.policy_jobs.try_replace(as_dispatched(job, at(second)), PENDING)

        results = workspace.race(lease, range(8))
        assert outcomes(results) == {"ok": 8}
        assert sorted(results, key=bool) == [*[False] * 7, True]
        found = workspace.storage.policy_jobs.get_required(workspace.tenant, job.id)
        assert (found.status, found.attempt_count) == (DISPATCHING, 1)

    def test_a_list_is_filtered_by_status_and_policy_and_counted_by_status(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs = workspace.storage.policy_jobs
        one = stored(workspace, PENDING, "one", created_at=at(1))
        two = stored(workspace, FAILED, "two", created_at=at(2), policy_id="policy-2")
        three = stored(workspace, PENDING, "three", created_at=at(2), policy_id="policy-2")

        def ids(**options: object) -> list[str]:
            found = PolicyJobQueryOptions(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # any of them
            return [job.id for job in jobs.list(workspace.tenant, found)]

        assert ids() == [three.id, two.id, one.id]
        assert ids(statuses=[PENDING]) == [three.id, one.id]
        assert ids(statuses=[FAILED, PENDING], policy_id="policy-2") == [three.id, two.id]
        assert ids(statuses=[]) == []
        assert jobs.count_by_status(workspace.tenant) == {PENDING: 2, FAILED: 1}
        assert jobs.count_by_status(workspace.foreign) == {}
        with pytest.raises(ValidationError, match="statuses"):
            ids(statuses=["asleep"])

    def test_a_job_is_removed_whatever_its_status(self, workspace: SchedulerWorkspace) -> None:
        jobs = workspace.storage.policy_jobs
        for status in PolicyRunJobStatus:
            job = stored(workspace, status, status.value)
            assert (jobs.delete(workspace.tenant, job.id), jobs.delete(workspace.tenant, job.id)) == (
                True,
                False,
            )


NORMAL, HIGH, EMERGENCY = PolicyRunPriority
MINUTE: Final = timedelta(minutes=1)
CONCURRENCY: Final = 8


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
    def test_concurrent_workers_of_one_name_lease_each_job_once(
        self, workspace: SchedulerWorkspace, batch: int
    ) -> None:
        tenant = workspace.tenant
        wanted = set(ids(queued(workspace, *(f"job {number}" for number in range(CONCURRENCY * 2)))))

        def drain(storage: SchedulerStorage, competitor: int) -> list[str]:
            del competitor  # they have one name, at one instant: only the lease itself distinguishes them
            found: list[str] = []
            misses = 0
            while misses < CONCURRENCY:
                leased = storage.policy_jobs.lease_many("same", at(1), limit=batch, tenant_id=tenant)
                misses = 0 if leased else misses + 1
                found += ids(leased)
            return found

        results = workspace.race(drain, range(CONCURRENCY))
        leased = [job for result in results if not isinstance(result, TwinstoreError) for job in result]
        assert len(results) == CONCURRENCY
        assert sorted(leased) == sorted(wanted)

    def test_a_batch_is_answered_one_by_one(self, workspace: SchedulerWorkspace) -> None:
        jobs, tenant = workspace.storage.policy_jobs, workspace.tenant
        queued(workspace, *"abcdef")
        leased = list(jobs.lease_many("w", at(0), tenant_id=tenant))
        after = submitted(leased)
        # One is gone, one has another owner, one was leased again, one is ended twice.
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
        # The first holder wakes up, and has the name of the second one: the attempt distinguishes them.
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
        # The lease of one that cannot be decoded stays; those of the others end.
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


QUEUED, RUNNING, SUCCEEDED, HAS_FAILED, CANCELED, REPLAY_PENDING = PolicyRunExecutionStatus
RUN = "run-1"


def enqueued(workspace: SchedulerWorkspace) -> PolicyRunStatus:
    """Ask for the one run of the tenant."""
    request = make_policy_request(workspace.tenant, RUN)
    return workspace.storage.policy_run_service.enqueue(request, now=at(1))


def leased(workspace: SchedulerWorkspace) -> PolicyRunJob:
    """Lease its job."""
    job = workspace.storage.policy_jobs.lease_next("w", at(2), tenant_id=workspace.tenant)
    assert job is not None
    return job


def status(workspace: SchedulerWorkspace) -> PolicyRunExecutionStatus:
    """Return the status of the run."""
    found = workspace.storage.policy_run_service.get(workspace.tenant, RUN)
    assert found is not None
    return found.status


class PolicyRunServiceContract(SchedulerCases):
    """Requests, their repetition, cancellation and retry, and what is reported to callers."""

    def test_a_request_becomes_one_job_however_often_it_is_made(self, workspace: SchedulerWorkspace) -> None:
        runs, first = workspace.storage.policy_run_service, enqueued(workspace)
        assert (first.run_id, first.status, first.attempts, first.queued_at) == (RUN, QUEUED, 0, at(1))
        request = make_policy_request(workspace.tenant, RUN)
        assert runs.enqueue(request, now=at(9)) == first
        job = workspace.storage.policy_jobs.get_by_run(workspace.tenant, RUN)
        assert job is not None
        assert job.id == policy_job_id(workspace.tenant, RUN)
        leased(workspace)
        assert runs.enqueue(request).attempts == 1
        with pytest.raises(ConflictError, match="mode"):
            runs.enqueue(request.evolve(mode=PolicyRunMode.SIMULATE))
        assert workspace.count(POLICY_JOBS) == 1

    def test_a_request_without_a_run_id_is_a_new_run_each_time(self, workspace: SchedulerWorkspace) -> None:
        runs = workspace.storage.policy_run_service
        request = make_policy_request(workspace.tenant, None, queued_at=at(-5))
        found = [runs.enqueue(request, now=at(number)) for number in range(2)]
        assert all(run.run_id.startswith("prun_") and run.queued_at == at(-5) for run in found)
        assert [run.run_id for run in runs.list(workspace.tenant)] == [run.run_id for run in reversed(found)]
        assert tuple(runs.list(workspace.tenant, PolicyJobQueryOptions(statuses=[FAILED]))) == ()

    def test_concurrent_requests_for_one_run_get_the_same_one(self, workspace: SchedulerWorkspace) -> None:
        request = make_policy_request(workspace.tenant, RUN)

        def request_run(storage: SchedulerStorage, second: int) -> PolicyRunStatus:
            return storage.policy_run_service.enqueue(request, now=at(second))

        results = workspace.race(request_run, range(8))
        assert outcomes(results) == {"ok": 8}
        assert len(set(map(str, results))) == 1
        assert workspace.count(POLICY_JOBS) == 1

    @needs("transactions")
    def test_a_repetition_leaves_a_unit_of_work_as_it_is(self, workspace: SchedulerWorkspace) -> None:
        first = enqueued(workspace)
        with workspace.storage.transaction(workspace.tenant) as unit:
            assert unit.policy_run_service.enqueue(make_policy_request(workspace.tenant, RUN)) == first
            unit.runs.create(workspace.run())
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("a")) is not None

    def test_every_status_of_a_job_has_its_name_for_callers(self, workspace: SchedulerWorkspace) -> None:
        jobs = workspace.storage.policy_jobs
        enqueued(workspace)
        assert status(workspace) is QUEUED
        job = leased(workspace)
        assert status(workspace) is QUEUED
        back = job.evolve(status=PENDING, lease_owner=None, lease_expires_at=None)
        assert jobs.try_replace(back, DISPATCHING)
        assert status(workspace) is REPLAY_PENDING
        job = as_submitted(leased(workspace), at(4))
        assert jobs.try_replace(job, DISPATCHING)
        assert status(workspace) is RUNNING
        job = as_ended(job, COMPLETED, at(5))
        assert jobs.try_replace(job, SUBMITTED)
        found = workspace.storage.policy_run_service.get(workspace.tenant, RUN)
        assert found is not None
        assert (found.status, found.started_at, found.finished_at) == (SUCCEEDED, at(4), at(5))
        assert workspace.storage.policy_run_service.get(workspace.tenant, "missing") is None

    def test_a_pending_run_is_cancelled_at_once_and_a_dispatched_one_is_asked_to_end(
        self, workspace: SchedulerWorkspace
    ) -> None:
        runs, tenant = workspace.storage.policy_run_service, workspace.tenant
        enqueued(workspace)
        job = leased(workspace)
        requested = runs.request_cancellation(tenant, RUN, " enough ", now=at(3))
        assert requested.status is QUEUED
        stored = workspace.storage.policy_jobs.get_required(tenant, job.id)
        assert stored == job.evolve(
            cancellation_requested=True,
            cancellation_requested_at=at(3),
            cancellation_reason="enough",
            updated_at=at(3),
        )
        assert runs.request_cancellation(tenant, RUN, "other", now=at(4)) == requested
        other = runs.enqueue(make_policy_request(tenant, "run-2"), now=at(1))
        ended = runs.request_cancellation(tenant, other.run_id, None, now=at(5))
        assert (ended.status, ended.finished_at) == (CANCELED, at(5))
        assert runs.request_cancellation(tenant, other.run_id, None, now=at(6)) == ended
        with pytest.raises(NotFoundError):
            runs.request_cancellation(tenant, "missing", None)

    def test_only_a_failed_run_is_retried_and_its_attempts_are_counted_on(
        self, workspace: SchedulerWorkspace
    ) -> None:
        runs, tenant = workspace.storage.policy_run_service, workspace.tenant
        enqueued(workspace)
        with pytest.raises(InvalidTransitionError):
            runs.retry(tenant, RUN)
        job = leased(workspace)
        runs.request_cancellation(tenant, RUN, "too late", now=at(3))
        assert workspace.storage.policy_jobs.try_replace(as_ended(job, FAILED, at(4)), DISPATCHING)
        assert status(workspace) is HAS_FAILED
        with pytest.raises(InvalidTransitionError):
            runs.request_cancellation(tenant, RUN, None)
        again = runs.retry(tenant, RUN, now=at(5))
        assert (again.status, again.attempts, again.finished_at) == (REPLAY_PENDING, 1, None)
        with pytest.raises(InvalidTransitionError):
            runs.retry(tenant, RUN)
        with pytest.raises(NotFoundError):
            runs.retry(tenant, "missing")
        second = workspace.storage.policy_jobs.lease_next("w", at(5), tenant_id=tenant)
        assert second is not None
        assert (second.attempt_count, second.cancellation_requested) == (2, False)

"""What every store of policy jobs must do: look-ups, compare-and-set, the state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import DuplicateError, InvalidTransitionError, LeaseLostError, ValidationError
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.enums import PolicyRunJobStatus, PolicyRunPriority
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.policy_builders import (
    WORKER,
    as_dispatched,
    as_ended,
    as_submitted,
    make_policy_job,
)
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["PolicyJobContract"]

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

    def test_nobody_but_its_owner_changes_a_lease(self, workspace: SchedulerWorkspace) -> None:
        job, jobs = stored(workspace, DISPATCHING), workspace.storage.policy_jobs
        stolen = job.evolve(lease_owner="thief", lease_expires_at=at(999), last_error="seen")
        assert jobs.try_replace(stolen, DISPATCHING)
        assert jobs.get(workspace.tenant, job.id) == job.evolve(last_error="seen")
        with pytest.raises(ValidationError, match="lease_owner"):
            jobs.try_replace(stolen, DISPATCHING, lease_owner=WORKER, now=at(1))

    def test_one_of_many_rivals_replaces_a_job(self, workspace: SchedulerWorkspace) -> None:
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

"""What the service of policy runs does on every driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ConflictError, InvalidTransitionError, NotFoundError
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.enums import PolicyRunExecutionStatus, PolicyRunJobStatus, PolicyRunMode
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions, policy_job_id
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.policy_builders import as_ended, as_submitted, make_policy_request
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.scheduler.policy_jobs import PolicyRunJob, PolicyRunStatus
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["PolicyRunServiceContract"]

PENDING, DISPATCHING, SUBMITTED, COMPLETED, FAILED, CANCELLED = PolicyRunJobStatus
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
    """Return where the run stands."""
    found = workspace.storage.policy_run_service.get(workspace.tenant, RUN)
    assert found is not None
    return found.status


class PolicyRunServiceContract(SchedulerCases):
    """Requests, their repetition, cancellation and retry, and what callers are told."""

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

    def test_rivals_that_ask_for_one_run_get_the_same_one(self, workspace: SchedulerWorkspace) -> None:
        request = make_policy_request(workspace.tenant, RUN)

        def ask(storage: SchedulerStorage, second: int) -> PolicyRunStatus:
            return storage.policy_run_service.enqueue(request, now=at(second))

        results = workspace.race(ask, range(8))
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
        asked = runs.request_cancellation(tenant, RUN, " enough ", now=at(3))
        assert asked.status is QUEUED
        stored = workspace.storage.policy_jobs.get_required(tenant, job.id)
        assert stored == job.evolve(
            cancellation_requested=True,
            cancellation_requested_at=at(3),
            cancellation_reason="enough",
            updated_at=at(3),
        )
        assert runs.request_cancellation(tenant, RUN, "other", now=at(4)) == asked
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

"""What ``twinstore smoke`` does with a scheduler: every entity through its states, in a separate tenant.

A service fires, leases and looks for dead workers on the same store meanwhile, over all tenants. So every
instant lies far in the future: at any present ``now`` nothing of it is due, available, expired or silent.
Audit records are never removed, so this one is written in a unit of work that is rolled back.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Final

from twinstore.plugins.checks import Trial, TrialStep, expect, never_committed
from twinstore.scheduler.audit import AuditActor, AuditEvent
from twinstore.scheduler.enums import (
    GraphBuildTrigger,
    GraphJobStatus,
    PolicyRunJobStatus,
    PolicyRunMode,
    RunState,
    SelectorScope,
)
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.scheduler.graph_jobs import GraphBuildJob, new_graph_build_job_id
from twinstore.scheduler.impact_snapshots import ImpactImage, ImpactSet
from twinstore.scheduler.policy_jobs import PolicyRunInputs, PolicyRunRequest
from twinstore.scheduler.rules.locks import MAX_LEASE
from twinstore.scheduler.schedules import Schedule
from twinstore.scheduler.selectors import Selector
from twinstore.scheduler.smoke import held_locks
from twinstore.scheduler.workers import Worker, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

SMOKE_NAME: Final = "twinstore-smoke"
# Within what every store holds, and before the last instant at which "everything is due" in a comparison.
FAR_FUTURE: Final = datetime(9000, 1, 1, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)
DIGEST: Final = "sha256:" + "0" * 64
EVERY_IMAGE: Final = Selector(scope=SelectorScope.ALL_IMAGES)


class SchedulerTrial:
    """The steps in one tenant; each builds on those before."""

    def __init__(self, storage: SchedulerStorage, tenant: str) -> None:
        """Take the storage and the tenant, which has no rows."""
        self._storage = storage
        self._tenant = tenant
        # Ids are unique across tenants, and the name of the tenant is.
        self._id = f"{tenant}/1"

    def steps(self) -> Iterator[TrialStep]:
        """Yield the steps in order."""
        if self._storage.capabilities.bulk:
            yield TrialStep("no lock outlives the longest lease", self._locks)
        yield TrialStep("schedule with its trigger", self._schedule)
        yield TrialStep("trigger fires once", self._fire)
        yield TrialStep("run to its end, with its summary", self._run_to_its_end)
        yield TrialStep("execution log", self._log)
        yield TrialStep("impact snapshot", self._snapshot)
        yield TrialStep("policy job leased and completed", self._policy_job)
        yield TrialStep("graph job with its events", self._graph_job)
        yield TrialStep("worker", self._worker)
        if self._storage.capabilities.transactions:
            yield TrialStep("audit record, rolled back", self._audit)
        yield TrialStep("schedule removed softly", self._soft_delete)

    @cached_property
    def _fired(self) -> Run:
        return self._storage.runs.list(self._tenant)[0]

    def _locks(self) -> Iterator[str]:
        """Look for leases that no caller can have requested: any caller of such a lock would wait forever."""
        return held_locks(self._storage, MAX_LEASE)

    def _schedule(self) -> Iterator[str]:
        schedule = Schedule(
            id=self._id,
            tenant_id=self._tenant,
            name=SMOKE_NAME,
            when_cron="* * * * *",
            selection=EVERY_IMAGE,
            created_at=FAR_FUTURE,
            created_by=SMOKE_NAME,
        )
        self._storage.schedules.upsert(schedule)
        stored = self._storage.schedules.get(self._tenant, self._id)
        yield from expect("the stored schedule", found=stored, wanted=schedule)
        trigger = self._storage.triggers.get_required(self._tenant, self._id)
        yield from expect(
            "the next instant of the trigger", found=trigger.next_fire_at, wanted=FAR_FUTURE + MINUTE
        )

    def _fire(self) -> Iterator[str]:
        due = FAR_FUTURE + MINUTE
        early = self._storage.triggers.fire(self._tenant, self._id, due - SECOND)
        yield from expect("what a trigger gives before it is due", found=early, wanted=None)
        fired = self._storage.triggers.fire(self._tenant, self._id, due)
        if fired is None:
            yield "the trigger is due but does not fire"
            return
        yield from expect("whether firing made a run", found=fired.created, wanted=True)
        yield from expect("the state of the run", found=fired.run.state, wanted=RunState.PLANNING)
        again = self._storage.triggers.fire(self._tenant, self._id, due)
        yield from expect("what a second firing of one instant gives", found=again, wanted=None)

    def _run_to_its_end(self) -> Iterator[str]:
        run, runs, now = self._fired, self._storage.runs, FAR_FUTURE + MINUTE
        queued = runs.update(run.evolve(state=RunState.QUEUED))
        yield from expect("whether the run became queued", found=queued, wanted=True)
        runs.start(self._tenant, run.id, now + SECOND)
        completed = runs.complete(self._tenant, run.id, now + 2 * SECOND)
        stored = runs.get(self._tenant, run.id)
        yield from expect("the stored run", found=stored, wanted=completed)
        summary = self._storage.run_summaries.get_required(self._tenant, self._id)
        yield from expect("completed runs of the summary", found=summary.counters.completed, wanted=1)
        mine = [item.id for item in runs.get_runs_by_schedule(self._tenant, self._id, 10)]
        yield from expect("the runs of the schedule", found=mine, wanted=[run.id])

    def _log(self) -> Iterator[str]:
        run = self._fired.id
        entries = [
            ExecutionLogEntry(tenant_id=self._tenant, run_id=run, logged_at=FAR_FUTURE, message=text)
            for text in ("first", "second")
        ]
        self._storage.execution_logs.append(entries)
        stored = self._storage.execution_logs.list(self._tenant, run)
        found = [(entry.sequence, entry.message) for entry in stored]
        yield from expect("the log of the run", found=found, wanted=[(1, "first"), (2, "second")])

    def _snapshot(self) -> Iterator[str]:
        image = ImpactImage(image_digest=DIGEST, registry="registry.example", repository=SMOKE_NAME)
        selector = EVERY_IMAGE.evolve(tenant_id=self._tenant)
        snapshot = ImpactSet(selector=selector, images=(image,), generated_at=FAR_FUTURE)
        repository = self._storage.impact_snapshots
        key = repository.upsert(self._tenant, snapshot, run_id=self._fired.id)
        found = repository.get_required(self._tenant, key).images
        yield from expect("the images of the stored snapshot", found=found, wanted=snapshot.images)
        listed = len(repository.list_by_run(self._tenant, self._fired.id))
        yield from expect("the number of snapshots of the run", found=listed, wanted=1)

    def _policy_job(self) -> Iterator[str]:
        jobs, tenant = self._storage.policy_jobs, self._tenant
        request = PolicyRunRequest(
            tenant_id=tenant,
            policy_id=SMOKE_NAME,
            mode=PolicyRunMode.FULL,
            run_id=self._id,
            inputs=PolicyRunInputs(),
        )
        self._storage.policy_run_service.enqueue(request, now=FAR_FUTURE)
        early = jobs.lease_next(SMOKE_NAME, FAR_FUTURE - SECOND, tenant_id=tenant)
        yield from expect("what can be leased before the job is available", found=early, wanted=None)
        leased = jobs.lease_next(SMOKE_NAME, FAR_FUTURE, tenant_id=tenant)
        if leased is None:
            yield "the job is available but is not leased"
            return
        again = jobs.lease_next(SMOKE_NAME, FAR_FUTURE, tenant_id=tenant)
        yield from expect("what a second lease of one job gives", found=again, wanted=None)
        submitted = leased.evolve(
            status=PolicyRunJobStatus.SUBMITTED,
            submitted_at=FAR_FUTURE,
            lease_owner=None,
            lease_expires_at=None,
        )
        done = jobs.try_replace(
            submitted, PolicyRunJobStatus.DISPATCHING, lease_owner=SMOKE_NAME, now=FAR_FUTURE
        )
        yield from expect("whether the leased job was submitted", found=done, wanted=True)
        stored = jobs.get_required(tenant, leased.id)
        completed = stored.evolve(status=PolicyRunJobStatus.COMPLETED, completed_at=FAR_FUTURE)
        done = jobs.try_replace(completed, PolicyRunJobStatus.SUBMITTED, now=FAR_FUTURE)
        yield from expect("whether the submitted job was completed", found=done, wanted=True)
        counted = jobs.count_by_status(tenant)
        wanted = {PolicyRunJobStatus.COMPLETED: 1}
        yield from expect("the jobs of the tenant by status", found=counted, wanted=wanted)

    def _graph_job(self) -> Iterator[str]:
        store = self._storage.graph_job_store
        job = GraphBuildJob(
            id=new_graph_build_job_id(),
            tenant_id=self._tenant,
            sbom_id=SMOKE_NAME,
            sbom_version_id=SMOKE_NAME,
            sbom_digest=DIGEST,
            trigger=GraphBuildTrigger.SBOM_VERSION,
            created_at=FAR_FUTURE,
        )
        store.add(job)
        running = job.evolve(status=GraphJobStatus.RUNNING, attempts=1, started_at=FAR_FUTURE)
        done = store.update(running, GraphJobStatus.QUEUED)
        yield from expect("whether the graph job was started", found=done, wanted=True)
        completed = running.evolve(status=GraphJobStatus.COMPLETED, completed_at=FAR_FUTURE)
        done = store.update(completed, GraphJobStatus.RUNNING)
        yield from expect("whether the graph job was completed", found=done, wanted=True)
        events = self._storage.graph_jobs.list_events(self._tenant, job.id)
        reported = sorted(event.payload.status for event in events)
        wanted = sorted((GraphJobStatus.QUEUED, GraphJobStatus.RUNNING, GraphJobStatus.COMPLETED))
        yield from expect("what the events of the graph job report", found=reported, wanted=wanted)

    def _worker(self) -> Iterator[str]:
        workers = self._storage.workers
        worker = Worker(
            id=self._id,
            tenant_id=self._tenant,
            hostname=SMOKE_NAME,
            last_heartbeat_at=FAR_FUTURE,
            registered_at=FAR_FUTURE,
        )
        workers.register(worker)
        alive = workers.heartbeat(worker.id, FAR_FUTURE + MINUTE, current_jobs=1)
        yield from expect("whether the worker is known", found=alive, wanted=True)
        # At once, so that no scheduler gives it work.
        workers.set_status(worker.id, WorkerStatus.STOPPED)
        stored = workers.get_required(worker.id)
        yield from expect("the last heartbeat", found=stored.last_heartbeat_at, wanted=FAR_FUTURE + MINUTE)
        yield from expect("whether the worker was removed", found=workers.remove(worker.id), wanted=True)

    def _audit(self) -> Iterable[str]:
        with never_committed(self._storage.transaction(self._tenant)) as unit:
            found = [*self._audited(unit)]
        left = len(self._storage.audit.list(self._tenant))
        return [*found, *expect("the number of audit records after rolling back", found=left, wanted=0)]

    def _audited(self, unit: SchedulerSession) -> Iterable[str]:
        event = AuditEvent(
            tenant_id=self._tenant,
            category="scheduler",
            action="smoke.tried",
            occurred_at=FAR_FUTURE,
            actor=AuditActor(actor_id=SMOKE_NAME, display_name=SMOKE_NAME, kind="service"),
        )
        record = unit.audit_service.write(event)
        return expect("the audit record", found=unit.audit.get(self._tenant, record.id), wanted=record)

    def _soft_delete(self) -> Iterator[str]:
        schedules = self._storage.schedules
        deleted = schedules.soft_delete(self._tenant, self._id, SMOKE_NAME, FAR_FUTURE + MINUTE)
        yield from expect("whether the schedule was removed", found=deleted, wanted=True)
        gone = schedules.get(self._tenant, self._id)
        yield from expect("the removed schedule", found=gone, wanted=None)
        trigger = self._storage.triggers.get_required(self._tenant, self._id)
        yield from expect("the next instant of its trigger", found=trigger.next_fire_at, wanted=None)


def steps(storage: SchedulerStorage, tenant: str) -> Iterable[TrialStep]:
    """Return the steps in a tenant without rows."""
    return SchedulerTrial(storage, tenant).steps()


SCHEDULER_TRIAL: Final = Trial(steps=steps)

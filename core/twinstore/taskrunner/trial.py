"""What ``twinstore smoke`` does with a task runner: a run through its states, in a separate tenant.

A service purges logs on the same store meanwhile, over all tenants. So every instant lies far in the future:
nothing of it is ever as old. Runs are never removed by a service; the command empties the tenant afterwards.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConflictError, NotFoundError
from twinstore.plugins.checks import Trial, TrialStep, expect
from twinstore.taskrunner.enums import (
    LogLevel,
    PackApprovalStatus,
    PackArtifactStatus,
    PackRunStepKind,
    PackRunStepStatus,
)
from twinstore.taskrunner.pack_artifacts import PackRunArtifact
from twinstore.taskrunner.pack_run_approvals import PackRunApproval
from twinstore.taskrunner.pack_run_logs import PackRunLogDraft
from twinstore.taskrunner.state_factory import PackRunStateFactory, PackRunStepPlan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.taskrunner.storage import TaskRunnerStorage

__all__ = ["TASKRUNNER_TRIAL"]

SMOKE_NAME: Final = "twinstore-smoke"
FAR_FUTURE: Final = datetime(9000, 1, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
GATE: Final = "gate"
BUILD: Final = "build"
REPORT: Final = "report"
RELEASE: Final = "release"
PLANS: Final = (
    PackRunStepPlan(step_id=BUILD),
    PackRunStepPlan(step_id=GATE, kind=PackRunStepKind.GATE_APPROVAL, approval_id=RELEASE),
)
STATES: Final = (PackRunStepStatus.RUNNING, PackRunStepStatus.SUCCEEDED)


class TaskRunnerTrial:
    """The steps in one tenant; each builds on those before."""

    def __init__(self, storage: TaskRunnerStorage, tenant: str) -> None:
        """Take the storage and the tenant, which has no rows."""
        self._storage = storage
        self._tenant = tenant
        # Ids are unique across tenants, and the name of the tenant is.
        self._id = f"{tenant}/1"

    def steps(self) -> Iterator[TrialStep]:
        """Yield the steps in order."""
        yield TrialStep("pack run with a gate", self._create)
        yield TrialStep("step to its end", self._move)
        yield TrialStep("log in order, appended once", self._log)
        yield TrialStep("artifact", self._artifact)
        yield TrialStep("approval decided once", self._approve)
        yield TrialStep("nothing of it without the tenant", self._scope)

    def _create(self) -> Iterable[str]:
        run = PackRunStateFactory.create_initial(
            self._id, SMOKE_NAME, {"name": SMOKE_NAME}, PLANS, FAR_FUTURE, tenant_id=self._tenant
        )
        self._storage.pack_runs.create(run)
        found = self._storage.pack_runs.get(self._id, tenant_id=self._tenant)
        return expect("the stored pack run", found=found, wanted=run)

    def _move(self) -> Iterator[str]:
        runs = self._storage.pack_runs
        for number, status in enumerate(STATES, start=1):
            run = runs.get_required(self._id, tenant_id=self._tenant)
            moment = FAR_FUTURE + number * SECOND
            steps = tuple(
                step.evolve(status=status, last_transition_at=moment) if step.step_id == BUILD else step
                for step in run.steps
            )
            runs.save(run.evolve(steps=steps, updated_at=moment), expected_updated_at=run.updated_at)
        listed = runs.list(tenant_id=self._tenant)
        found = [(step.step_id, step.status) for run in listed for step in run.steps]
        wanted = [(BUILD, PackRunStepStatus.SUCCEEDED), (GATE, PackRunStepStatus.PENDING)]
        yield from expect("the steps of the listed pack run", found=found, wanted=wanted)

    def _log(self) -> Iterator[str]:
        logs = self._storage.pack_run_logs
        draft = PackRunLogDraft(
            timestamp=FAR_FUTURE, level=LogLevel.INFO, event_type="smoke", message=SMOKE_NAME
        )
        entries = [logs.append_next(self._id, draft, tenant_id=self._tenant) for _ in range(2)]
        again = logs.append(entries, tenant_id=self._tenant)
        yield from expect("the number of entries that a second append added", found=again, wanted=0)
        stored = logs.read(self._id, tenant_id=self._tenant)
        yield from expect("the log", found=[entry.sequence for entry in stored], wanted=[1, 2])

    def _artifact(self) -> Iterable[str]:
        record = PackRunArtifact(
            run_id=self._id,
            name=REPORT,
            type="file",
            status=PackArtifactStatus.PENDING,
            captured_at=FAR_FUTURE,
        )
        store = self._storage.pack_artifacts
        store.upload(record, tenant_id=self._tenant)
        copied = record.evolve(status=PackArtifactStatus.COPIED, stored_path=SMOKE_NAME)
        store.upload(copied, tenant_id=self._tenant)
        found = store.list(self._id, tenant_id=self._tenant)
        return expect("the artifacts", found=found, wanted=(copied,))

    def _approve(self) -> Iterator[str]:
        store = self._storage.pack_run_approvals
        waiting = PackRunApproval(
            run_id=self._id, approval_id=RELEASE, requested_at=FAR_FUTURE, tenant_id=self._tenant
        )
        store.save(self._id, [waiting], tenant_id=self._tenant)
        decided = store.decide(
            self._id,
            RELEASE,
            PackApprovalStatus.APPROVED,
            FAR_FUTURE,
            actor_id=SMOKE_NAME,
            tenant_id=self._tenant,
        )
        yield from expect("the decision", found=decided.status, wanted=PackApprovalStatus.APPROVED)
        try:
            store.decide(
                self._id,
                RELEASE,
                PackApprovalStatus.REJECTED,
                FAR_FUTURE,
                actor_id=SMOKE_NAME,
                tenant_id=self._tenant,
            )
        except ConflictError:
            return
        yield "an approval that was approved could be rejected"

    def _scope(self) -> Iterator[str]:
        if not self._storage.admits_no_tenant:
            return
        found = self._storage.pack_runs.get(self._id)
        yield from expect("the pack run as one without tenant", found=found, wanted=None)
        draft = PackRunLogDraft(
            timestamp=FAR_FUTURE, level=LogLevel.INFO, event_type="smoke", message=SMOKE_NAME
        )
        try:
            self._storage.pack_run_logs.append_next(self._id, draft)
        except NotFoundError:
            return
        yield "an entry could be appended without the tenant of the run"


def steps(storage: TaskRunnerStorage, tenant: str) -> Iterable[TrialStep]:
    """Return the steps in a tenant without rows."""
    return TaskRunnerTrial(storage, tenant).steps()


TASKRUNNER_TRIAL: Final = Trial(steps=steps)

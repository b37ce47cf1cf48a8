"""What every store of approvals must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ConflictError, NotFoundError, TwinstoreError, ValidationError
from twinstore.taskrunner.catalog import PACK_RUN_APPROVALS
from twinstore.taskrunner.enums import PackApprovalStatus
from twinstore.taskrunner.pack_run_approvals import PackRunApproval
from twinstore.testing.instants import at
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.taskrunner.builders import make_approval, rich_approval
from twinstore.testing.taskrunner.cases import TaskRunnerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.testing.taskrunner.cases import TaskRunnerWorkspace

__all__ = ["PackRunApprovalContract"]

PENDING, APPROVED, REJECTED, EXPIRED = PackApprovalStatus
CONCURRENCY: Final = 16


def saved(workspace: TaskRunnerWorkspace, approval_id: str = "release") -> PackRunApproval:
    """Store a run with an approval that waits."""
    run = workspace.created()
    approval = make_approval(workspace.tenant, run.run_id, approval_id)
    workspace.storage.pack_run_approvals.save(run.run_id, [approval], tenant_id=workspace.tenant)
    return approval


class PackRunApprovalContract(TaskRunnerCases):
    """Approvals are saved with the plan and decided once."""

    def test_what_is_missing_is_inserted_and_what_is_decided_stays(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        run, store, tenant = workspace.created(), workspace.storage.pack_run_approvals, workspace.tenant
        waiting, decided = make_approval(tenant, run.run_id, "a"), rich_approval(tenant, run.run_id, "b")
        store.save(run.run_id, [decided, waiting], tenant_id=tenant)
        assert store.list(run.run_id, tenant_id=tenant) == (waiting, decided)
        stamp = workspace.stamp(PACK_RUN_APPROVALS, (run.run_id, "a"))
        store.save(run.run_id, [waiting, decided], tenant_id=tenant)
        assert workspace.stamp(PACK_RUN_APPROVALS, (run.run_id, "a")) == stamp
        requested_again = waiting.evolve(messages=("please",))
        forged = rich_approval(tenant, run.run_id, "a")
        new = make_approval(tenant, run.run_id, "c")
        store.save(
            run.run_id, [new, requested_again, make_approval(tenant, run.run_id, "b")], tenant_id=tenant
        )
        store.save(run.run_id, [forged], tenant_id=tenant)
        assert store.list(run.run_id, tenant_id=tenant) == (requested_again, decided, new)
        store.save(run.run_id, [], tenant_id=tenant)

    def test_approvals_belong_to_the_run_and_its_tenant(self, workspace: TaskRunnerWorkspace) -> None:
        run, store, tenant = workspace.created(), workspace.storage.pack_run_approvals, workspace.tenant
        mine = make_approval(tenant, run.run_id)
        wrong = (
            [make_approval(tenant, workspace.id("other"))],
            [mine.evolve(tenant_id=None)],
            [mine.evolve(tenant_id=workspace.foreign)],
            [mine, mine],
        )
        for approvals in wrong:
            with pytest.raises(ValidationError):
                store.save(run.run_id, [make_approval(tenant, run.run_id, "x"), *approvals], tenant_id=tenant)
        with pytest.raises(NotFoundError):
            store.save(workspace.id("other"), [], tenant_id=tenant)
        assert store.list(run.run_id, tenant_id=tenant) == ()

    def test_approvals_are_listed_by_id(self, workspace: TaskRunnerWorkspace) -> None:
        run, store, tenant = workspace.created(), workspace.storage.pack_run_approvals, workspace.tenant
        store.save(
            run.run_id,
            [make_approval(tenant, run.run_id, name) for name in reversed(EDGE_TEXTS)],
            tenant_id=tenant,
        )
        found = store.list(run.run_id, tenant_id=tenant)
        assert [item.approval_id for item in found] == sorted(EDGE_TEXTS)

    @pytest.mark.parametrize("status", [APPROVED, REJECTED, EXPIRED])
    def test_a_decision_is_made_once(
        self, workspace: TaskRunnerWorkspace, status: PackApprovalStatus
    ) -> None:
        waiting, store, tenant = saved(workspace), workspace.storage.pack_run_approvals, workspace.tenant
        actor = None if status is EXPIRED else "ada"
        key = (waiting.run_id, waiting.approval_id)
        decided = store.decide(*key, status, at(5), actor_id=actor, summary=" why ", tenant_id=tenant)
        assert decided == waiting.evolve(status=status, completed_at=at(5), actor_id=actor, summary="why")
        # A caller who lost the answer asks again, later.
        again = store.decide(*key, status, at(9), actor_id=actor, summary="why", tenant_id=tenant)
        assert again == decided == store.get_required(*key, tenant_id=tenant)
        for other, who, why in (
            (APPROVED, "eve", "why"),
            (REJECTED, "eve", "why"),
            (status, "ada", "other"),
            (EXPIRED, "eve", None),
        ):
            with pytest.raises(ConflictError):
                store.decide(*key, other, at(6), actor_id=who, summary=why, tenant_id=tenant)
        assert store.get(*key, tenant_id=tenant) == decided

    def test_what_is_no_decision_is_refused(self, workspace: TaskRunnerWorkspace) -> None:
        waiting, store, tenant = saved(workspace), workspace.storage.pack_run_approvals, workspace.tenant
        key = (waiting.run_id, waiting.approval_id)
        with pytest.raises(ValidationError, match="not a decision"):
            store.decide(*key, PENDING, at(5), tenant_id=tenant)
        for status in (APPROVED, REJECTED):
            with pytest.raises(ValidationError, match="actor_id"):
                store.decide(*key, status, at(5), actor_id=" ", tenant_id=tenant)
        with pytest.raises(ConflictError, match="another plan"):
            store.decide(*key, APPROVED, at(5), actor_id="ada", plan_hash="older", tenant_id=tenant)
        with pytest.raises(NotFoundError):
            store.decide(waiting.run_id, "no-approval", APPROVED, at(5), actor_id="ada", tenant_id=tenant)
        assert store.get(*key, tenant_id=tenant) == waiting
        decided = store.decide(*key, APPROVED, at(5), actor_id="ada", plan_hash="hash", tenant_id=tenant)
        assert decided.status is APPROVED

    def test_of_sixteen_deciders_one_decides(self, workspace: TaskRunnerWorkspace) -> None:
        waiting, tenant = saved(workspace), workspace.tenant

        def decide(storage: TaskRunnerStorage, number: int) -> PackRunApproval:
            status = APPROVED if number % 2 else REJECTED
            return storage.pack_run_approvals.decide(
                waiting.run_id,
                waiting.approval_id,
                status,
                at(number),
                actor_id=f"actor {number}",
                tenant_id=tenant,
            )

        results = workspace.race(decide, range(CONCURRENCY))
        assert outcomes(results) == {"ConflictError": CONCURRENCY - 1, "ok": 1}
        (winner,) = [result for result in results if not isinstance(result, TwinstoreError)]
        stored = workspace.storage.pack_run_approvals.get(
            waiting.run_id, waiting.approval_id, tenant_id=tenant
        )
        assert stored == winner

    def test_a_decision_survives_a_save_at_the_same_moment(self, workspace: TaskRunnerWorkspace) -> None:
        waiting, tenant = saved(workspace), workspace.tenant

        def act(storage: TaskRunnerStorage, number: int) -> None:
            store, key = storage.pack_run_approvals, (waiting.run_id, waiting.approval_id)
            if number:
                store.save(waiting.run_id, [waiting.evolve(messages=(str(number),))], tenant_id=tenant)
            else:
                store.decide(*key, APPROVED, at(5), actor_id="ada", tenant_id=tenant)

        assert outcomes(workspace.race(act, range(6))) == {"ok": 6}
        stored = workspace.storage.pack_run_approvals.get_required(
            waiting.run_id, waiting.approval_id, tenant_id=tenant
        )
        assert (stored.status, stored.actor_id) == (APPROVED, "ada")

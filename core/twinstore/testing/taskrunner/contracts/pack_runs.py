"""What every store of pack runs must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import (
    ConflictError,
    DocumentDecodeError,
    DuplicateError,
    InvalidTransitionError,
    TwinstoreError,
    ValidationError,
)
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.taskrunner.catalog import PACK_RUNS
from twinstore.taskrunner.enums import PackRunStepKind, PackRunStepStatus
from twinstore.taskrunner.pack_runs import PackRunQueryOptions, PackRunStep
from twinstore.taskrunner.state_factory import PackRunStateFactory, PackRunStepPlan
from twinstore.taskrunner.states import STEP_MOVES
from twinstore.testing.instants import at
from twinstore.testing.taskrunner.builders import PLAN, make_step
from twinstore.testing.taskrunner.cases import TaskRunnerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.testing.taskrunner.cases import TaskRunnerWorkspace

__all__ = ["PackRunStateContract"]

POLICY: Final = {"max_attempts": 2, "backoff_seconds": 30}
PENDING, RUNNING, SUCCEEDED, FAILED, SKIPPED = PackRunStepStatus
PAIRS: Final = [(origin, target) for origin in PackRunStepStatus for target in PackRunStepStatus]


def step_in(status: PackRunStepStatus, **changes: object) -> PackRunStep:
    """Return a step that came into a status at the first second, after one failure."""
    moved = None if status is PENDING else at(1)
    return make_step("a", **{"status": status, "attempts": 1, "last_transition_at": moved, **changes})


def step_to(status: PackRunStepStatus, **changes: object) -> PackRunStep:
    """Return the step as it is after the move to a status in the tenth second."""
    attempts = 2 if status == FAILED else 1
    return step_in(status, **{"attempts": attempts, "last_transition_at": at(10), **changes})


# What is wrong with a move that is allowed, by what it says.
BROKEN_MOVES: Final = {
    "no instant": (step_in(PENDING), step_to(RUNNING, last_transition_at=None)),
    "an instant before the last move": (step_in(RUNNING), step_to(SUCCEEDED, last_transition_at=at(0.999))),
    "before the next attempt": (step_in(PENDING, next_attempt_at=at(10.001)), step_to(RUNNING)),
    "attempts of a start": (step_in(PENDING), step_to(RUNNING, attempts=2)),
    "a reason of success": (step_in(RUNNING), step_to(SUCCEEDED, status_reason="x")),
    "a next attempt after success": (step_in(RUNNING), step_to(SUCCEEDED, next_attempt_at=at(11))),
    "attempts of success": (step_in(RUNNING), step_to(SUCCEEDED, attempts=2)),
    "a failure that is not counted": (step_in(RUNNING), step_to(FAILED, attempts=1)),
    "failed with an attempt left": (step_in(RUNNING, attempts=0), step_to(FAILED, attempts=1)),
    "again without an attempt left": (step_in(RUNNING), step_to(PENDING, attempts=2)),
    "again too early": (step_in(RUNNING, attempts=0), step_to(PENDING, next_attempt_at=at(39.999))),
    "an attempt without a move": (step_in(RUNNING), step_in(RUNNING, attempts=2)),
    "an instant without a move": (step_in(RUNNING), step_in(RUNNING, last_transition_at=at(2))),
    "a change of a final step": (step_in(SUCCEEDED), step_in(SUCCEEDED, status_reason="x")),
}
GOOD_MOVES: Final = {
    "start": (step_in(PENDING), step_to(RUNNING)),
    "start when the pause is over": (step_in(PENDING, next_attempt_at=at(10)), step_to(RUNNING)),
    "success": (step_in(RUNNING, status_reason="x", next_attempt_at=at(1)), step_to(SUCCEEDED)),
    "failure, again": (step_in(RUNNING, attempts=0), step_to(PENDING, next_attempt_at=at(40))),
    "failure, the last": (step_in(RUNNING), step_to(FAILED)),
    "skipped": (step_in(PENDING), step_to(SKIPPED, status_reason="condition is false")),
    "resumed": (step_in(FAILED), step_to(PENDING)),
    "another reason": (step_in(PENDING), step_in(PENDING, status_reason="policy-pending")),
}


class PackRunStateContract(TaskRunnerCases):
    """Runs are saved as a whole, while each step moves as the state machine lets it."""

    @pytest.mark.parametrize("case", GOOD_MOVES)
    def test_a_step_moves_as_the_state_machine_lets_it(
        self, workspace: TaskRunnerWorkspace, case: str
    ) -> None:
        before, after = GOOD_MOVES[case]
        run = workspace.created(failure_policy=POLICY, steps=(before,))
        saved = run.evolve(updated_at=at(10), steps=(after,))
        assert workspace.storage.pack_runs.save(saved, expected_updated_at=run.updated_at) == saved
        assert workspace.storage.pack_runs.get(run.run_id, tenant_id=workspace.tenant) == saved

    @pytest.mark.parametrize("case", BROKEN_MOVES)
    def test_a_move_that_breaks_a_condition_is_refused(
        self, workspace: TaskRunnerWorkspace, case: str
    ) -> None:
        before, after = BROKEN_MOVES[case]
        run = workspace.created(failure_policy=POLICY, steps=(before,))
        with pytest.raises(InvalidTransitionError) as refusal:
            workspace.storage.pack_runs.save(run.evolve(updated_at=at(10), steps=(after,)))
        assert (refusal.value.entity, refusal.value.key) == ("pack_runs", run.run_id)
        assert workspace.storage.pack_runs.get(run.run_id, tenant_id=workspace.tenant) == run

    def test_every_move_that_is_not_listed_is_refused(self, workspace: TaskRunnerWorkspace) -> None:
        found: set[tuple[PackRunStepStatus, PackRunStepStatus]] = set()
        for number, (origin, target) in enumerate(PAIRS):
            run = workspace.created(str(number), failure_policy=POLICY, steps=(step_in(origin),))
            allowed = target in STEP_MOVES[origin]
            # A failure that is repeated is the only move whose form depends on where it starts.
            again = (
                {"attempts": 2, "next_attempt_at": at(40)} if (origin, target) == (RUNNING, PENDING) else {}
            )
            try:
                workspace.storage.pack_runs.save(run.evolve(steps=(step_to(target, **again),)))
            except InvalidTransitionError as error:
                told = (error.from_state, error.to_state)
                assert told == (origin.value, target.value)
                continue
            assert allowed
            found.add((origin, target))
        listed = {(origin, target) for origin, targets in STEP_MOVES.items() for target in targets}
        assert found == listed - {(RUNNING, PENDING)}  # no attempt is left for it here

    def test_steps_may_be_added_and_never_disappear(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created(steps=(make_step("m"),))
        more = run.evolve(steps=(make_step("m[1]::a"), make_step("m"), make_step("m[0]::a")))
        assert [step.step_id for step in more.steps] == ["m", "m[0]::a", "m[1]::a"]
        store = workspace.storage.pack_runs
        assert store.save(more) == more == store.get(run.run_id, tenant_id=workspace.tenant)
        with pytest.raises(ValidationError, match=r"m\[0\]::a"):
            store.save(run)
        assert store.get(run.run_id, tenant_id=workspace.tenant) == more

    def test_a_save_inserts_what_is_absent_and_writes_nothing_that_is_equal(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        run, store = workspace.run(), workspace.storage.pack_runs
        assert store.save(run) == run == store.get_required(run.run_id, tenant_id=workspace.tenant)
        stamp = workspace.stamp(PACK_RUNS, (run.run_id,))
        assert store.save(run) == run
        assert store.save(run, expected_updated_at=run.updated_at) == run
        assert workspace.stamp(PACK_RUNS, (run.run_id,)) == stamp
        with pytest.raises(DuplicateError):
            store.create(run)

    def test_what_identifies_a_run_never_changes(self, workspace: TaskRunnerWorkspace) -> None:
        run, store = workspace.created(), workspace.storage.pack_runs
        for changes in ({"plan_hash": "other"}, {"created_at": at(-1)}):
            with pytest.raises(ValidationError):
                store.save(run.evolve(**changes))
        for tenant in (None, workspace.foreign):
            with pytest.raises(DuplicateError):
                store.save(run.evolve(tenant_id=tenant))
        assert store.get(run.run_id, tenant_id=workspace.tenant) == run

    def test_a_save_that_expects_another_state_is_refused(self, workspace: TaskRunnerWorkspace) -> None:
        run, store = workspace.created(), workspace.storage.pack_runs
        first = run.evolve(updated_at=at(1), plan={"name": "first"})
        assert store.save(first, expected_updated_at=run.updated_at) == first
        with pytest.raises(ConflictError):
            store.save(run.evolve(updated_at=at(2)), expected_updated_at=run.updated_at)
        with pytest.raises(ConflictError):
            store.save(workspace.run("absent"), expected_updated_at=at())
        # Else two writers who compare could both be right, and the second would not see the first.
        with pytest.raises(ValidationError, match="updatedAt should be later"):
            store.save(first.evolve(plan={}), expected_updated_at=first.updated_at)
        assert store.get(run.run_id, tenant_id=workspace.tenant) == first
        assert store.get(workspace.id("absent"), tenant_id=workspace.tenant) is None

    def test_of_writers_that_compare_one_wins(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created()

        def save(storage: TaskRunnerStorage, number: int) -> object:
            mine = run.evolve(updated_at=at(1 + number), plan={"writer": number})
            return storage.pack_runs.save(mine, expected_updated_at=run.updated_at)

        results = workspace.race(save, range(8))
        assert outcomes(results) == {"ConflictError": 7, "ok": 1}
        (winner,) = [result for result in results if not isinstance(result, TwinstoreError)]
        assert workspace.storage.pack_runs.get(run.run_id, tenant_id=workspace.tenant) == winner

    def test_no_step_moves_twice(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created(failure_policy=POLICY, steps=(step_in(RUNNING),))

        def end(storage: TaskRunnerStorage, status: PackRunStepStatus) -> object:
            return storage.pack_runs.save(run.evolve(updated_at=at(20), steps=(step_to(status),)))

        results = workspace.race(end, [SUCCEEDED, FAILED] * 3)
        stored = workspace.storage.pack_runs.get_required(run.run_id, tenant_id=workspace.tenant)
        (ended,) = stored.steps
        # Whoever asks for the same end as the winner finds it done.
        assert outcomes(results) == {"InvalidTransitionError": 3, "ok": 3}
        assert ended.status in {SUCCEEDED, FAILED}

    def test_a_plan_is_kept_in_canonical_form(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created(plan=PLAN)
        stored = workspace.storage.pack_runs.get_required(run.run_id, tenant_id=workspace.tenant)
        assert CanonicalJsonSerializer.serialize(stored) == CanonicalJsonSerializer.serialize(run)

    def test_a_gate_says_what_it_waits_for(self, workspace: TaskRunnerWorkspace) -> None:
        plans = (
            PackRunStepPlan(step_id="approve", kind=PackRunStepKind.GATE_APPROVAL, approval_id="release"),
            PackRunStepPlan(step_id="check", kind=PackRunStepKind.GATE_POLICY, gate_message="clean?"),
            PackRunStepPlan(step_id="build"),
            PackRunStepPlan(step_id="off", kind=PackRunStepKind.GATE_APPROVAL, enabled=False),
        )
        run = PackRunStateFactory.create_initial(
            workspace.id("made"), "hash", PLAN, plans, at(), requested_at=at(1), tenant_id=workspace.tenant
        )
        assert workspace.storage.pack_runs.create(run) == run
        stored = workspace.storage.pack_runs.get_required(run.run_id, tenant_id=workspace.tenant)
        assert [(step.step_id, step.status, step.status_reason) for step in stored.steps] == [
            ("approve", PENDING, "requires-approval"),
            ("build", PENDING, None),
            ("check", PENDING, "requires-policy"),
            ("off", SKIPPED, "disabled"),
        ]

    def test_a_list_is_narrowed_to_a_time_both_bounds_left_out(self, workspace: TaskRunnerWorkspace) -> None:
        for number in range(4):
            workspace.created(str(number), updated_at=at(number))
        options = PackRunQueryOptions(updated_after=at(0), updated_before=at(3))
        found = workspace.storage.pack_runs.list(options, tenant_id=workspace.tenant)
        assert [run.updated_at for run in found] == [at(2), at(1)]
        first = workspace.storage.pack_runs.list(
            PackRunQueryOptions(updated_after=at(0), limit=1), tenant_id=workspace.tenant
        )
        token = first.next_page_token
        with pytest.raises(ValidationError):
            workspace.storage.pack_runs.list(
                PackRunQueryOptions(updated_after=at(1), page_token=token), tenant_id=workspace.tenant
            )

    def test_a_save_replaces_a_run_that_nobody_can_read(self, workspace: TaskRunnerWorkspace) -> None:
        runs = workspace.storage.pack_runs
        state = runs.create(workspace.run())
        workspace.probe.poison(PACK_RUNS, (state.run_id,), "no such thing")
        with pytest.raises(DocumentDecodeError):
            runs.save(state, expected_updated_at=state.updated_at)
        assert runs.save(state) == state
        assert runs.get(state.run_id, tenant_id=workspace.tenant) == state
        # That of another tenant stays out of sight.
        workspace.probe.poison(PACK_RUNS, (state.run_id,), "no such thing")
        with pytest.raises(DuplicateError):
            runs.save(state.evolve(tenant_id=workspace.foreign))

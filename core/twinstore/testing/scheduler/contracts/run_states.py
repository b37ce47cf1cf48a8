"""The state machine of runs and the invariants of an update, each move tried on the stored run."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import InvalidTransitionError, ValidationError
from twinstore.models.fields import INT64_MAX
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.runs import RunReason, RunStats
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import moved
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.contracts.runs import in_state

if TYPE_CHECKING:
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["RunStateContract"]

# Written out, because the table of the library is what is tested.
ALLOWED: Final = frozenset(
    {
        ("planning", "planning"),
        ("planning", "queued"),
        ("planning", "completed"),
        ("planning", "error"),
        ("planning", "cancelled"),
        ("queued", "queued"),
        ("queued", "running"),
        ("queued", "error"),
        ("queued", "cancelled"),
        ("running", "running"),
        ("running", "completed"),
        ("running", "error"),
        ("running", "cancelled"),
    }
)
PAIRS: Final = list(product(RunState, RunState))
TERMINAL: Final = [RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED]


class RunStateContract(SchedulerCases):
    """Every pair of states, and what an update must not change."""

    @pytest.mark.parametrize(("origin", "target"), [pair for pair in PAIRS if pair in ALLOWED])
    def test_an_allowed_move_is_stored(
        self, workspace: SchedulerWorkspace, origin: RunState, target: RunState
    ) -> None:
        run = in_state(workspace, origin)
        following = moved(run, target, reason=RunReason(cursor="moved"))
        assert workspace.storage.runs.update(following, expected_state=origin) is True
        assert workspace.storage.runs.get(workspace.tenant, run.id) == following

    @pytest.mark.parametrize(("origin", "target"), [pair for pair in PAIRS if pair not in ALLOWED])
    def test_a_forbidden_move_is_refused(
        self, workspace: SchedulerWorkspace, origin: RunState, target: RunState
    ) -> None:
        run = in_state(workspace, origin)
        with pytest.raises(InvalidTransitionError) as refusal:
            workspace.storage.runs.update(moved(run, target, reason=RunReason(cursor="moved")))
        assert (refusal.value.from_state, refusal.value.to_state) == (origin.value, target.value)
        assert (refusal.value.entity, refusal.value.key) == ("runs", run.id)
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    @pytest.mark.parametrize("stats", [RunStats(candidates=1), RunStats(queued=1)])
    def test_planning_completes_only_without_work(
        self, workspace: SchedulerWorkspace, stats: RunStats
    ) -> None:
        run = in_state(workspace, RunState.PLANNING)
        with pytest.raises(InvalidTransitionError):
            workspace.storage.runs.update(moved(run, RunState.COMPLETED, stats=stats))
        assert workspace.storage.runs.update(moved(run, RunState.COMPLETED, stats=RunStats(deltas=1))) is True

    @pytest.mark.parametrize("state", RunState)
    def test_an_identical_run_is_accepted_without_a_write(
        self, workspace: SchedulerWorkspace, state: RunState
    ) -> None:
        run = in_state(workspace, state)
        before = workspace.stamp(RUNS, (run.id,))
        assert workspace.storage.runs.update(run) is True
        assert workspace.storage.runs.update(run, expected_state=state) is True
        assert workspace.stamp(RUNS, (run.id,)) == before

    @pytest.mark.parametrize("state", TERMINAL)
    def test_a_terminal_run_never_changes(self, workspace: SchedulerWorkspace, state: RunState) -> None:
        run = in_state(workspace, state)
        for changed in (
            run.evolve(finished_at=at(90)),
            run.evolve(stats=RunStats(candidates=1)),
            run.evolve(reason=RunReason(cursor="late")),
        ):
            with pytest.raises(InvalidTransitionError):
                workspace.storage.runs.update(changed)
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    @pytest.mark.parametrize(
        "change",
        [
            {"schedule_id": "s-2"},
            {"schedule_id": None},
            {"trigger": RunTrigger.POLICY},
            {"created_at": at(-1)},
            {"created_at": at(0.001)},
            {"retry_of": "r-2"},
            {"retry_of": None},
            {"started_at": at(11)},
        ],
        ids="-".join,
    )
    def test_an_immutable_field_cannot_change(
        self, workspace: SchedulerWorkspace, change: dict[str, object]
    ) -> None:
        run = in_state(workspace, RunState.RUNNING, schedule_id="s-1", retry_of="r-1")
        for target in (RunState.RUNNING, RunState.COMPLETED):
            with pytest.raises(ValidationError, match=next(iter(change))):
                workspace.storage.runs.update(moved(run, target, **change))
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    def test_the_start_is_kept_by_the_terminal_states(self, workspace: SchedulerWorkspace) -> None:
        run = in_state(workspace, RunState.RUNNING)
        for state in TERMINAL:
            with pytest.raises(ValidationError, match="started_at"):
                workspace.storage.runs.update(moved(run, state, started_at=None))
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    def test_a_planned_run_may_fail_without_or_with_a_start(self, workspace: SchedulerWorkspace) -> None:
        run = in_state(workspace, RunState.PLANNING)
        failed = moved(run, RunState.ERROR, started_at=at(1))
        assert workspace.storage.runs.update(failed) is True
        assert workspace.storage.runs.get(workspace.tenant, run.id) == failed

    @pytest.mark.parametrize("counter", list(RunStats.model_fields))
    def test_no_counter_falls(self, workspace: SchedulerWorkspace, counter: str) -> None:
        # The two wholes are higher than their parts, so that each counter can fall alone.
        high = RunStats.model_validate(
            dict.fromkeys(RunStats.model_fields, 5) | {"deduped": 4, "completed": 4}
        )
        run = workspace.storage.runs.create(workspace.run(stats=high))
        lower = high.evolve(**{counter: getattr(high, counter) - 1})
        with pytest.raises(ValidationError, match=counter):
            workspace.storage.runs.update(run.evolve(stats=lower))
        higher = high.evolve(**{"candidates": INT64_MAX, "queued": INT64_MAX, counter: INT64_MAX})
        assert workspace.storage.runs.update(run.evolve(stats=higher)) is True
        assert workspace.storage.runs.get_required(workspace.tenant, run.id).stats == higher

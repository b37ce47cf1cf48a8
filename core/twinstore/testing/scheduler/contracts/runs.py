"""What every repository of runs must do, apart from the state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    ValidationError,
)
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.runs import RunQueryOptions, RunStats
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import moved, rich_delta, rich_run
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.steps import finished
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinstore.scheduler.runs import Run
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["RunRepositoryContract", "finished", "in_state"]

PENDING = {"state": RunState.QUEUED, "started_at": None, "finished_at": None, "error": None}
PATHS: dict[RunState, tuple[RunState, ...]] = {
    RunState.PLANNING: (),
    RunState.QUEUED: (RunState.QUEUED,),
    RunState.RUNNING: (RunState.QUEUED, RunState.RUNNING),
    RunState.COMPLETED: (RunState.QUEUED, RunState.RUNNING, RunState.COMPLETED),
    RunState.ERROR: (RunState.ERROR,),
    RunState.CANCELLED: (RunState.QUEUED, RunState.CANCELLED),
}


def in_state(workspace: SchedulerWorkspace, state: RunState, name: str = "a", /, **changes: object) -> Run:
    """Store a run and move it step by step into a state."""
    run = workspace.storage.runs.create(workspace.run(name, **changes))
    for step in PATHS[state]:
        run = moved(run, step)
        assert workspace.storage.runs.update(run) is True
    return run


def ids(runs: Iterable[Run]) -> list[str]:
    """Return the names that the test gave to the runs."""
    return [run.id.partition("@")[0] for run in runs]


def listed(workspace: SchedulerWorkspace, **options: object) -> list[str]:
    """Return the names of the listed runs."""
    chosen = RunQueryOptions(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # passed on as given
    return ids(workspace.storage.runs.list(workspace.tenant, chosen))


class RunRepositoryContract(SchedulerCases):
    """Create, read, update, retry, lists and purge."""

    def test_create_returns_and_get_finds_every_field(self, workspace: SchedulerWorkspace) -> None:
        run = rich_run(workspace.tenant, workspace.id("a"), **PENDING)
        assert workspace.storage.runs.create(run) == run
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run
        assert workspace.storage.runs.get_required(workspace.tenant, run.id) == run

    def test_an_unknown_run_is_absent_everywhere(self, workspace: SchedulerWorkspace) -> None:
        runs, missing = workspace.storage.runs, workspace.run("missing")
        assert runs.get(workspace.tenant, missing.id) is None
        assert runs.update(missing) is False
        assert runs.update(missing, expected_state=RunState.RUNNING) is False
        assert (tuple(runs.list(workspace.tenant)), tuple(runs.get_pending_runs(workspace.tenant))) == (
            (),
            (),
        )
        assert tuple(runs.get_runs_by_schedule(workspace.tenant, "missing", 10)) == ()
        required: list[Callable[[], Run]] = [
            lambda: runs.get_required(workspace.tenant, f" {missing.id} "),
            lambda: runs.retry(workspace.tenant, missing.id, "ada", at()),
        ]
        for call in required:
            with pytest.raises(NotFoundError) as absence:
                call()
            assert (absence.value.entity, absence.value.key) == ("runs", missing.id)
        assert workspace.count(RUNS) == 0

    @pytest.mark.parametrize("state", [RunState.PLANNING, RunState.QUEUED])
    def test_a_run_begins_in_planning_or_queued(self, workspace: SchedulerWorkspace, state: RunState) -> None:
        run = workspace.storage.runs.create(workspace.run(state=state))
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    @pytest.mark.parametrize("state", [state for state in RunState if state.rank > RunState.QUEUED.rank])
    def test_a_run_cannot_begin_later(self, workspace: SchedulerWorkspace, state: RunState) -> None:
        with pytest.raises(ValidationError):
            workspace.storage.runs.create(workspace.run(state=state))
        assert workspace.count(RUNS) == 0

    def test_create_again_is_refused_even_when_equal(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        for again in (run, run.evolve(trigger=RunTrigger.CRON), run.evolve(tenant_id=workspace.foreign)):
            with pytest.raises(DuplicateError) as refusal:
                workspace.storage.runs.create(again)
            assert (refusal.value.entity, refusal.value.key) == ("runs", run.id)
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run
        assert workspace.elsewhere.count(RUNS) == 0

    def test_update_replaces_every_mutable_field(self, workspace: SchedulerWorkspace) -> None:
        first = workspace.storage.runs.create(
            rich_run(workspace.tenant, workspace.id("a"), **PENDING, stats=RunStats(), reason=None, deltas=())
        )
        second = rich_run(workspace.tenant, first.id, **PENDING, deltas=(rich_delta(3),))
        assert workspace.storage.runs.update(second) is True
        assert workspace.storage.runs.get(workspace.tenant, first.id) == second
        third = second.evolve(deltas=(), reason=None)
        assert workspace.storage.runs.update(third, expected_state=RunState.QUEUED) is True
        assert workspace.storage.runs.get(workspace.tenant, first.id) == third

    def test_an_expected_state_may_be_given_as_text(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        text = cast("RunState", "planning")
        assert workspace.storage.runs.update(moved(run, RunState.QUEUED), expected_state=text) is True
        with pytest.raises(ValidationError, match="expected_state"):
            workspace.storage.runs.update(run, expected_state=cast("RunState", "no state"))

    def test_an_expected_state_must_be_the_stored_one(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        with pytest.raises(ConflictError):
            workspace.storage.runs.update(moved(run, RunState.RUNNING), expected_state=RunState.QUEUED)
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    def test_a_retry_is_a_new_run_and_the_origin_stays(self, workspace: SchedulerWorkspace) -> None:
        origin = in_state(workspace, RunState.COMPLETED, schedule_id="s-1", trigger=RunTrigger.CRON)
        retried = workspace.storage.runs.retry(workspace.tenant, origin.id, " ada ", at(500))
        assert retried.id.startswith(f"run:{workspace.tenant}:retry:")
        assert (retried.state, retried.trigger, retried.retry_of) == (
            RunState.PLANNING,
            RunTrigger.MANUAL,
            origin.id,
        )
        assert (retried.schedule_id, retried.created_at, retried.stats) == ("s-1", at(500), RunStats())
        assert workspace.storage.runs.get(workspace.tenant, retried.id) == retried
        assert workspace.storage.runs.get(workspace.tenant, origin.id) == origin

    def test_a_retry_again_is_another_run_unless_named(self, workspace: SchedulerWorkspace) -> None:
        origin = in_state(workspace, RunState.ERROR)
        runs = workspace.storage.runs
        first, second = (runs.retry(workspace.tenant, origin.id, "ada", at(500)) for _ in range(2))
        assert first.id != second.id
        named = runs.retry(workspace.tenant, origin.id, "ada", at(500), new_run_id=f" {workspace.id('new')} ")
        assert named.id == workspace.id("new")
        with pytest.raises(DuplicateError):
            runs.retry(workspace.tenant, origin.id, "ada", at(500), new_run_id=named.id)
        assert workspace.count(RUNS) == 4

    @pytest.mark.parametrize("state", [RunState.PLANNING, RunState.QUEUED, RunState.RUNNING])
    def test_only_a_terminal_run_can_be_retried(self, workspace: SchedulerWorkspace, state: RunState) -> None:
        run = in_state(workspace, state)
        with pytest.raises(InvalidTransitionError) as refusal:
            workspace.storage.runs.retry(workspace.tenant, run.id, "ada", at(500))
        assert (refusal.value.from_state, refusal.value.to_state) == (state.value, "planning")
        assert workspace.count(RUNS) == 1

    def test_pending_runs_are_the_oldest_first(self, workspace: SchedulerWorkspace) -> None:
        for name, seconds in (("d", 5), ("b", 1), ("a", 1), ("c", 3)):
            workspace.storage.runs.create(workspace.run(name, created_at=at(seconds)))
        in_state(workspace, RunState.QUEUED, "q", created_at=at(2))
        for state in (RunState.RUNNING, RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED):
            in_state(workspace, state, state.value, created_at=at(0))
        pending = workspace.storage.runs.get_pending_runs(workspace.tenant)
        assert ids(pending) == ["a", "b", "q", "c", "d"]
        assert tuple(workspace.storage.runs.get_pending_runs(workspace.tenant, limit=2)) == pending[:2]

    def test_runs_of_a_schedule_are_the_newest_first(self, workspace: SchedulerWorkspace) -> None:
        for name, seconds in (("b", 1), ("c", 2), ("a", 1)):
            workspace.storage.runs.create(workspace.run(name, created_at=at(seconds), schedule_id="s-1"))
        workspace.storage.runs.create(workspace.run("other", schedule_id="s-2"))
        workspace.storage.runs.create(workspace.run("ad-hoc"))
        found = workspace.storage.runs.get_runs_by_schedule(workspace.tenant, " s-1 ", 10)
        assert ids(found) == ["c", "a", "b"]
        assert tuple(workspace.storage.runs.get_runs_by_schedule(workspace.tenant, "s-1", 2)) == found[:2]

    def test_filters_combine(self, workspace: SchedulerWorkspace) -> None:
        for number in range(6):
            state = RunState.QUEUED if number % 2 else RunState.PLANNING
            schedule = "s-1" if number < 4 else None
            workspace.storage.runs.create(
                workspace.run(str(number), created_at=at(number), state=state, schedule_id=schedule)
            )
        assert listed(workspace) == ["5", "4", "3", "2", "1", "0"]
        assert listed(workspace, ascending=True) == ["0", "1", "2", "3", "4", "5"]
        assert listed(workspace, states=[RunState.QUEUED]) == ["5", "3", "1"]
        assert listed(workspace, states={RunState.QUEUED, RunState.PLANNING}, schedule_id="s-1") == list(
            "3210"
        )
        assert listed(workspace, created_after=at(1), created_before=at(4)) == ["3", "2"]
        assert listed(workspace, states=[RunState.RUNNING]) == []
        assert listed(workspace, created_after=at(4), created_before=at(1)) == []

    def test_bounds_are_compared_to_the_millisecond(self, workspace: SchedulerWorkspace) -> None:
        for number in range(4):
            workspace.storage.runs.create(workspace.run(str(number), created_at=at(number / 1000)))
        assert listed(workspace, created_after=at(0.001)) == ["3", "2"]
        assert listed(workspace, created_before=at(0.002)) == ["1", "0"]
        assert listed(workspace, created_after=at(0), created_before=at(0.003)) == ["2", "1"]

    @pytest.mark.parametrize("empty", [(), [], set[RunState](), frozenset[RunState]()])
    def test_an_empty_collection_of_states_matches_nothing(
        self, workspace: SchedulerWorkspace, empty: list[RunState]
    ) -> None:
        workspace.storage.runs.create(workspace.run())
        assert listed(workspace, states=empty) == []
        assert listed(workspace, states=None) == ["a"]

    def test_unacceptable_filters_are_refused(self, workspace: SchedulerWorkspace) -> None:
        for options in (
            {"states": ["no-state"]},
            {"created_after": at().replace(tzinfo=None)},
            {"schedule_id": " "},
        ):
            with pytest.raises(ValidationError):
                listed(workspace, **options)

    def test_something_that_is_no_run_is_refused(self, workspace: SchedulerWorkspace) -> None:
        for call in (workspace.storage.runs.create, workspace.storage.runs.update):
            with pytest.raises(ValidationError, match="run"):
                call(workspace.schedule())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    def test_purge_removes_what_finished_up_to_the_instant(self, workspace: SchedulerWorkspace) -> None:
        for name, seconds in (("before", -0.001), ("exactly", 0), ("after", 0.001)):
            finished(workspace, name, seconds)
        in_state(workspace, RunState.RUNNING, "running", created_at=at(-9999))
        finished(workspace.elsewhere, "foreign", -5)
        assert workspace.storage.runs.purge_finished(at(0), tenant_id=workspace.tenant) == 2
        assert sorted(listed(workspace)) == ["after", "running"]
        assert workspace.storage.runs.purge_finished(at(0), tenant_id=workspace.tenant) == 0
        assert workspace.elsewhere.count(RUNS) == 1

    @pytest.mark.parametrize("batch_size", [1, 2, 5, 500])
    def test_purge_of_runs_goes_on_over_several_batches(
        self, workspace: SchedulerWorkspace, batch_size: int
    ) -> None:
        for number in range(5):
            finished(workspace, str(number), -number)
        removed = workspace.storage.runs.purge_finished(
            at(0), tenant_id=workspace.tenant, batch_size=batch_size
        )
        assert (removed, workspace.count(RUNS)) == (5, 0)

    def test_purge_of_runs_without_tenant_sees_all_tenants(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        for number in range(3):
            finished(isolated_workspace, str(number), -1)
            finished(isolated_workspace.elsewhere, str(number), -1)
        assert isolated_workspace.storage.runs.purge_finished(at(0), batch_size=4) == 6
        assert (isolated_workspace.count(RUNS), isolated_workspace.elsewhere.count(RUNS)) == (0, 0)

    def test_runs_of_all_tenants_in_a_state_are_the_oldest_first(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        other = isolated_workspace.elsewhere
        runs = [
            in_state(workspace, RunState.QUEUED, created_at=at(3 - n))
            for n, workspace in enumerate([isolated_workspace, other])
        ]
        in_state(isolated_workspace, RunState.RUNNING, "running")
        assert tuple(isolated_workspace.storage.runs.list_by_state(RunState.QUEUED)) == tuple(reversed(runs))
        assert tuple(isolated_workspace.storage.runs.list_by_state(RunState.ERROR)) == ()

    @needs("transactions")
    def test_of_rivals_creating_one_id_exactly_one_wins(self, workspace: SchedulerWorkspace) -> None:
        rivals = [workspace.run("a", created_at=at(number)) for number in range(8)]
        results = workspace.race(lambda storage, run: storage.runs.create(run), rivals)
        assert outcomes(results) == {"DuplicateError": 7, "ok": 1}
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("a")) in results

    @needs("transactions")
    def test_of_rivals_moving_one_run_exactly_one_wins(self, workspace: SchedulerWorkspace) -> None:
        run = in_state(workspace, RunState.RUNNING)
        states = [RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED] * 2
        rivals = [moved(run, state, finished_at=at(100 + number)) for number, state in enumerate(states)]
        results = workspace.race(
            lambda storage, rival: storage.runs.update(rival, expected_state=RunState.RUNNING), rivals
        )
        assert outcomes(results) == {"ConflictError": 5, "ok": 1}
        assert workspace.storage.runs.get(workspace.tenant, run.id) == rivals[results.index(True)]

    @needs("transactions")
    def test_rival_counters_never_fall(self, workspace: SchedulerWorkspace) -> None:
        run = in_state(workspace, RunState.RUNNING)
        rivals = [run.evolve(stats=RunStats(candidates=number)) for number in range(1, 9)]
        results = workspace.race(lambda storage, rival: storage.runs.update(rival), rivals)
        assert set(outcomes(results)) <= {"ok", "ValidationError"}
        assert workspace.storage.runs.get_required(workspace.tenant, run.id).stats == RunStats(candidates=8)

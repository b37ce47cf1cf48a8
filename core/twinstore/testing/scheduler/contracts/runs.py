"""What every repository of runs must do, the state machine of runs, and the store of their execution logs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    ValidationError,
)
from twinstore.models.fields import INT64_MAX
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUN_SUMMARIES, RUNS
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.runs import RunQueryOptions, RunReason, RunStats
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run, moved, rich_delta, rich_run
from twinstore.testing.scheduler.calls import finished
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.examples import make_log_entry
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.scheduler.execution_logs import ExecutionLogEntry
    from twinstore.scheduler.runs import Run, RunRepository
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = [
    "ExecutionLogContract",
    "RunMoveContract",
    "RunRepositoryContract",
    "RunStateContract",
    "finished",
    "in_state",
]

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
        some = RunQueryOptions(states=[RunState.QUEUED], schedule_id="s-1", limit=1)
        assert workspace.storage.runs.count(workspace.tenant, some) == 2
        # Behind the first page as well, the count is that of the whole list.
        token = workspace.storage.runs.list(workspace.tenant, RunQueryOptions(limit=1)).next_page_token
        behind = RunQueryOptions(limit=1, page_token=token)
        assert workspace.storage.runs.count(workspace.tenant, behind) == 6
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

    @pytest.mark.parametrize("state", RunState)
    def test_a_run_is_removed_with_its_log_in_any_state(
        self, workspace: SchedulerWorkspace, state: RunState
    ) -> None:
        runs, tenant = workspace.storage.runs, workspace.tenant
        gone, kept = in_state(workspace, state), in_state(workspace, state, "b")
        for run in (gone, kept):
            workspace.storage.execution_logs.append(unnumbered(run, "a"))
        assert runs.delete(workspace.foreign, gone.id) is False
        assert [runs.delete(tenant, f" {gone.id} ") for _ in range(2)] == [True, False]
        assert (workspace.count(RUNS), workspace.count(EXECUTION_LOGS)) == (1, 1)
        assert runs.get(tenant, kept.id) == kept

    def test_something_that_is_no_run_is_refused(self, workspace: SchedulerWorkspace) -> None:
        for call in (workspace.storage.runs.create, workspace.storage.runs.update):
            with pytest.raises(ValidationError, match="run"):
                call(workspace.schedule())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    def test_a_schedule_id_that_no_summary_can_have_is_refused(self, workspace: SchedulerWorkspace) -> None:
        with pytest.raises(ValidationError, match=r"run\.schedule_id: Id contains a control character"):
            workspace.storage.runs.create(workspace.run(schedule_id="a\nb"))
        assert workspace.count(RUNS) == 0

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
    def test_of_concurrent_creations_of_one_id_exactly_one_wins(self, workspace: SchedulerWorkspace) -> None:
        competitors = [workspace.run("a", created_at=at(number)) for number in range(8)]
        results = workspace.race(lambda storage, run: storage.runs.create(run), competitors)
        assert outcomes(results) == {"DuplicateError": 7, "ok": 1}
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("a")) in results

    @needs("transactions")
    def test_of_concurrent_moves_of_one_run_exactly_one_wins(self, workspace: SchedulerWorkspace) -> None:
        run = in_state(workspace, RunState.RUNNING)
        states = [RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED] * 2
        competitors = [moved(run, state, finished_at=at(100 + number)) for number, state in enumerate(states)]
        results = workspace.race(
            lambda storage, competitor: storage.runs.update(competitor, expected_state=RunState.RUNNING),
            competitors,
        )
        assert outcomes(results) == {"ConflictError": 5, "ok": 1}
        assert workspace.storage.runs.get(workspace.tenant, run.id) == competitors[results.index(True)]

    @needs("transactions")
    def test_concurrently_written_counters_never_fall(self, workspace: SchedulerWorkspace) -> None:
        run = in_state(workspace, RunState.RUNNING)
        competitors = [run.evolve(stats=RunStats(candidates=number)) for number in range(1, 9)]
        results = workspace.race(lambda storage, competitor: storage.runs.update(competitor), competitors)
        assert set(outcomes(results)) <= {"ok", "ValidationError"}
        assert workspace.storage.runs.get_required(workspace.tenant, run.id).stats == RunStats(candidates=8)


# Each move is tried on the stored run.
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


MOVES: Final[dict[RunState, Callable[[RunRepository, Run, datetime], Run]]] = {
    RunState.RUNNING: lambda runs, run, now: runs.start(run.tenant_id, run.id, now),
    RunState.COMPLETED: lambda runs, run, now: runs.complete(run.tenant_id, run.id, now),
    RunState.ERROR: lambda runs, run, now: runs.fail(run.tenant_id, run.id, now, " boom "),
    RunState.CANCELLED: lambda runs, run, now: runs.cancel(run.tenant_id, run.id, now),
}
each_move = pytest.mark.parametrize("target", list(MOVES))


class RunMoveContract(SchedulerCases):
    """``start``, ``complete``, ``fail`` and ``cancel``, each with the summary of the schedule."""

    @each_move
    def test_a_move_sets_its_instant_and_a_forbidden_one_is_refused_whatever_the_instant(
        self, workspace: SchedulerWorkspace, target: RunState
    ) -> None:
        runs, move = workspace.storage.runs, MOVES[target]
        for origin in RunState:
            run = in_state(workspace, origin, origin.value)
            if (origin, target) not in ALLOWED:
                with pytest.raises(InvalidTransitionError) as refusal:
                    move(runs, run, at(-9))
                assert (refusal.value.from_state, refusal.value.to_state) == (origin.value, target.value)
            elif origin is not target:
                instant = "started_at" if target is RunState.RUNNING else "finished_at"
                run = moved(run, target, **{instant: at(200)})
                assert move(runs, run, at(200)) == run
            assert runs.get(workspace.tenant, run.id) == run

    @each_move
    def test_the_summary_of_the_schedule_moves_with_the_run(
        self, workspace: SchedulerWorkspace, target: RunState
    ) -> None:
        storage, schedule = workspace.storage, workspace.id("s")
        origin = RunState.RUNNING if target is RunState.COMPLETED else RunState.QUEUED
        first, second = (in_state(workspace, origin, name, schedule_id=schedule) for name in "ab")
        for number, run in enumerate((first, second), start=1):
            stored = MOVES[target](storage.runs, run, at(200 + number))
            summary = storage.run_summaries.get_required(workspace.tenant, schedule)
            assert (len(summary.recent), summary.updated_at) == (number, at(200 + number))
            assert storage.run_summary_service.project(stored, now=at()) == summary
        assert workspace.count(RUN_SUMMARIES) == 1

    @each_move
    def test_a_repeated_move_writes_nothing_and_another_end_is_refused(
        self, workspace: SchedulerWorkspace, target: RunState
    ) -> None:
        storage, schedule = workspace.storage, workspace.id("s")
        origin = RunState.RUNNING if target is RunState.COMPLETED else RunState.QUEUED
        run = MOVES[target](storage.runs, in_state(workspace, origin, schedule_id=schedule), at(200))
        keys = ((RUNS, (run.id,)), (RUN_SUMMARIES, (workspace.tenant, schedule)))
        before = [workspace.stamp(entity, key) for entity, key in keys]
        assert MOVES[target](storage.runs, run, at(200)) == run
        if target is RunState.RUNNING:
            assert storage.runs.start(workspace.tenant, run.id, at(201)) == run
        else:
            with pytest.raises(InvalidTransitionError, match="ended before"):
                MOVES[target](storage.runs, run, at(201))
        assert [workspace.stamp(entity, key) for entity, key in keys] == before

    def test_an_end_brings_its_counters_or_its_error(self, workspace: SchedulerWorkspace) -> None:
        runs, stats = workspace.storage.runs, RunStats(candidates=2, new_high=1)
        run = in_state(workspace, RunState.RUNNING, schedule_id=workspace.id("s"))
        assert runs.complete(workspace.tenant, f" {run.id} ", at(200), stats=stats).stats == stats
        summary = workspace.storage.run_summaries.get_required(workspace.tenant, workspace.id("s"))
        assert summary.counters.total_new_high == 1
        with pytest.raises(InvalidTransitionError):
            runs.complete(workspace.tenant, run.id, at(200), stats=RunStats())
        failed = runs.fail(workspace.tenant, in_state(workspace, RunState.QUEUED, "b").id, at(200), " boom ")
        assert failed.error == "boom"
        with pytest.raises(InvalidTransitionError):
            runs.fail(workspace.tenant, failed.id, at(200), "other")

    def test_a_planned_run_completes_only_without_work(self, workspace: SchedulerWorkspace) -> None:
        runs, run = workspace.storage.runs, in_state(workspace, RunState.PLANNING)
        with pytest.raises(InvalidTransitionError, match="without candidates"):
            runs.complete(workspace.tenant, run.id, at(200), stats=RunStats(candidates=1))
        assert runs.complete(workspace.tenant, run.id, at(200)).state is RunState.COMPLETED

    def test_unacceptable_arguments_of_a_move_change_nothing(self, workspace: SchedulerWorkspace) -> None:
        runs, tenant = workspace.storage.runs, workspace.tenant
        stats = RunStats(candidates=3)
        run = in_state(workspace, RunState.RUNNING, schedule_id=workspace.id("s"), stats=stats)
        refused: list[tuple[Callable[[], Run], str]] = [
            (lambda: runs.complete(tenant, run.id, at(-9)), "before"),
            (lambda: runs.complete(tenant, run.id, at(200), stats=RunStats(candidates=2)), "candidates"),
            (lambda: runs.complete(tenant, run.id, at(200), stats=cast("RunStats", {})), "stats"),
            (lambda: runs.fail(tenant, run.id, at(200), " "), "error"),
            (lambda: runs.cancel(tenant, run.id, at(200).replace(tzinfo=None)), "now"),
        ]
        for call, problem in refused:
            with pytest.raises(ValidationError, match=problem):
                call()
        assert runs.get(tenant, run.id) == run
        assert workspace.count(RUN_SUMMARIES) == 0

    @each_move
    def test_a_move_of_an_absent_or_foreign_run_finds_nothing(
        self, workspace: SchedulerWorkspace, target: RunState
    ) -> None:
        theirs = in_state(workspace.elsewhere, RunState.RUNNING, schedule_id=workspace.id("s"))
        for run in (theirs.evolve(tenant_id=workspace.tenant), workspace.run("missing")):
            with pytest.raises(NotFoundError) as absence:
                MOVES[target](workspace.storage.runs, run, at(200))
            assert (absence.value.entity, absence.value.key) == ("runs", run.id)
        assert workspace.elsewhere.storage.runs.get(workspace.foreign, theirs.id) == theirs
        assert workspace.count(RUN_SUMMARIES) == 0

    @needs("transactions")
    def test_of_concurrent_ends_of_one_run_exactly_one_wins(self, workspace: SchedulerWorkspace) -> None:
        run = in_state(workspace, RunState.RUNNING, schedule_id=workspace.id("s"))
        ends = [RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED] * 2
        competitors = [(end, at(200 + number)) for number, end in enumerate(ends)]
        results = workspace.race(lambda storage, end: MOVES[end[0]](storage.runs, run, end[1]), competitors)
        assert outcomes(results) == {"InvalidTransitionError": 5, "ok": 1}
        stored = workspace.storage.runs.get_required(workspace.tenant, run.id)
        summary = workspace.storage.run_summaries.get_required(workspace.tenant, workspace.id("s"))
        assert stored in results
        assert [(entry.run_id, entry.state) for entry in summary.recent] == [(run.id, stored.state)]

    @needs("transactions")
    def test_concurrent_moves_of_the_runs_of_one_schedule_are_all_in_its_summary(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = workspace.id("s")
        competitors = [in_state(workspace, RunState.QUEUED, name, schedule_id=schedule) for name in "abcdef"]
        results = workspace.race(
            lambda storage, run: storage.runs.start(run.tenant_id, run.id, at(200)), competitors
        )
        assert outcomes(results) == {"ok": 6}
        summary = workspace.storage.run_summaries.get_required(workspace.tenant, schedule)
        assert summary.counters.running == 6

    @needs("transactions")
    def test_a_move_in_a_unit_that_is_rolled_back_leaves_run_and_summary(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run = in_state(workspace, RunState.QUEUED, schedule_id=workspace.id("s"))
        with suppress(KeyError), workspace.storage.transaction(workspace.tenant) as unit:
            unit.runs.start(workspace.tenant, run.id, at(200))
            raise KeyError
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run
        assert workspace.count(RUN_SUMMARIES) == 0


def started(workspace: SchedulerWorkspace, name: str = "a") -> Run:
    """Store a run that is planned."""
    return workspace.storage.runs.create(workspace.run(name))


def unnumbered(run: Run, *messages: str) -> list[ExecutionLogEntry]:
    """Return entries of a run whose numbers are still to be assigned."""
    return [make_log_entry(run.tenant_id, run.id, sequence=None, message=text) for text in messages]


def shown(entries: Iterable[ExecutionLogEntry]) -> list[tuple[int | None, str]]:
    """Return numbers and messages."""
    return [(entry.sequence, entry.message) for entry in entries]


class ExecutionLogContract(SchedulerCases):
    """Entries are numbered below their run, listed in order, removed by age or with the run."""

    def test_entries_are_numbered_in_the_order_given_and_listed_by_number(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        first = logs.append(unnumbered(run, "a", "b"))
        second = logs.append(unnumbered(run, "c"))
        assert shown([*first, *second]) == [(1, "a"), (2, "b"), (3, "c")]
        assert logs.list(workspace.tenant, run.id) == (*first, *second)
        assert logs.append([]) == ()

    def test_a_list_begins_after_a_number_and_ends_at_its_limit(self, workspace: SchedulerWorkspace) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        stored = logs.append(unnumbered(run, *"abcde"))
        assert logs.list(workspace.tenant, run.id, limit=2) == stored[:2]
        assert logs.list(workspace.tenant, run.id, after_sequence=2, limit=2) == stored[2:4]
        assert logs.list(workspace.tenant, run.id, after_sequence=5) == ()
        assert logs.list(workspace.tenant, workspace.id("missing")) == ()
        assert logs.list(workspace.foreign, run.id) == ()
        for bad in ({"limit": 0}, {"after_sequence": -1}, {"after_sequence": INT64_MAX + 1}):
            with pytest.raises(ValidationError):
                logs.list(workspace.tenant, run.id, **bad)

    def test_an_entry_that_is_stored_already_is_returned_and_not_written_again(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        (entry,) = logs.append(unnumbered(run, "a"))
        key = (run.id, 1)
        stamp = workspace.stamp(EXECUTION_LOGS, key)
        assert logs.append([entry, entry]) == (entry, entry)
        assert shown(logs.append([entry, *unnumbered(run, "b")])) == [(1, "a"), (2, "b")]
        assert workspace.stamp(EXECUTION_LOGS, key) == stamp
        assert shown(logs.list(workspace.tenant, run.id)) == [(1, "a"), (2, "b")]

    def test_other_content_under_a_number_is_a_conflict_and_nothing_is_appended(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        (entry,) = logs.append(unnumbered(run, "a"))
        for changes in ({"message": "b"}, {"data": {"a": 1}}, {"logged_at": at(1)}, {"logger": "x"}):
            with pytest.raises(ConflictError) as refusal:
                logs.append([*unnumbered(run, "new"), entry.evolve(**changes)])
            assert (refusal.value.entity, refusal.value.key) == ("execution_logs", f"{run.id}:1")
        assert logs.list(workspace.tenant, run.id) == (entry,)

    @needs("transactions")
    def test_entries_of_several_runs_are_appended_together_or_not_at_all(
        self, workspace: SchedulerWorkspace
    ) -> None:
        one, other, logs = started(workspace, "b"), started(workspace, "a"), workspace.storage.execution_logs
        mixed = [*unnumbered(one, "1"), *unnumbered(other, "2"), *unnumbered(one, "3")]
        stored = logs.append(mixed)
        assert shown(stored) == [(1, "1"), (1, "2"), (2, "3")]
        missing = make_run(workspace.tenant, workspace.id("missing"))
        with pytest.raises(NotFoundError):
            logs.append([*unnumbered(one, "4"), *unnumbered(missing, "5")])
        with pytest.raises(ConflictError):
            logs.append([*unnumbered(other, "4"), stored[0].evolve(message="other")])
        assert workspace.count(EXECUTION_LOGS) == 3

    def test_entries_of_several_tenants_are_refused(self, workspace: SchedulerWorkspace) -> None:
        run, theirs = started(workspace), started(workspace.elsewhere)
        with pytest.raises(ValidationError, match="2 tenants"):
            workspace.storage.execution_logs.append([*unnumbered(run, "a"), *unnumbered(theirs, "b")])
        with pytest.raises(ValidationError, match="entries should be a sequence"):
            workspace.storage.execution_logs.append(cast("list[ExecutionLogEntry]", None))
        assert workspace.count(EXECUTION_LOGS) == 0

    def test_a_run_that_is_absent_or_foreign_has_no_log(self, workspace: SchedulerWorkspace) -> None:
        theirs, logs = started(workspace.elsewhere), workspace.storage.execution_logs
        for run in (theirs.evolve(tenant_id=workspace.tenant), make_run(workspace.tenant, "missing")):
            with pytest.raises(NotFoundError) as absence:
                logs.append(unnumbered(run, "a"))
            assert (absence.value.entity, absence.value.key) == ("runs", run.id)
        assert workspace.elsewhere.count(EXECUTION_LOGS) == 0

    def test_no_entry_follows_the_highest_number(self, workspace: SchedulerWorkspace) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        (last,) = logs.append([make_log_entry(run.tenant_id, run.id, sequence=INT64_MAX)])
        with pytest.raises(ConflictError):
            logs.append(unnumbered(run, "a"))
        assert logs.list(workspace.tenant, run.id) == (last,)

    @needs("transactions")
    def test_concurrent_appends_get_numbers_without_a_gap_and_none_twice(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run = started(workspace)

        def append(storage: SchedulerStorage, name: str) -> tuple[ExecutionLogEntry, ...]:
            return storage.execution_logs.append(unnumbered(run, f"{name}1", f"{name}2"))

        results = workspace.race(append, "abcdef")
        assert outcomes(results) == {"ok": 6}
        found = workspace.storage.execution_logs.list(workspace.tenant, run.id)
        assert [entry.sequence for entry in found] == list(range(1, 13))
        # Those of one call follow each other.
        assert all(one.message[0] == two.message[0] for one, two in zip(found[::2], found[1::2], strict=True))

    def test_the_log_of_a_run_goes_with_it(self, workspace: SchedulerWorkspace) -> None:
        gone, kept, storage = started(workspace), started(workspace, "kept"), workspace.storage
        for run in (gone, kept):
            storage.execution_logs.append(unnumbered(run, "a", "b"))
        storage.runs.update(moved(gone, RunState.CANCELLED))
        assert storage.runs.purge_finished(at(10_000), tenant_id=workspace.tenant) == 1
        assert (workspace.count(RUNS), workspace.count(EXECUTION_LOGS)) == (1, 2)
        assert storage.execution_logs.list(workspace.tenant, gone.id) == ()

    def test_entries_are_purged_by_the_instant_at_which_they_were_logged(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        entries = [make_log_entry(run.tenant_id, run.id, sequence=n, logged_at=at(n)) for n in (3, 1, 2)]
        logs.append(entries)
        assert logs.purge(at(2), tenant_id=workspace.tenant) == 2
        assert logs.purge(at(2), tenant_id=workspace.tenant) == 0
        assert [entry.sequence for entry in logs.list(workspace.tenant, run.id)] == [3]
        # The next number follows the highest one that is there.
        assert shown(logs.append(unnumbered(run, "on"))) == [(4, "on")]

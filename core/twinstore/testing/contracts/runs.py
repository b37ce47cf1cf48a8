"""What every repository of runs must do, apart from the state machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import outcomes
from twinstore.testing.builders import at, moved, rich_delta, rich_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinstore.scheduler.runs import Run
    from twinstore.testing.bench import Bench

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


def in_state(bench: Bench, state: RunState, name: str = "a", /, **changes: object) -> Run:
    """Store a run and move it step by step into a state."""
    run = bench.storage.runs.create(bench.run(name, **changes))
    for step in PATHS[state]:
        run = moved(run, step)
        assert bench.storage.runs.update(run) is True
    return run


def finished(bench: Bench, name: str, seconds: float) -> Run:
    """Store a run that was cancelled at an instant."""
    run = bench.storage.runs.create(bench.run(name, created_at=at(-1000)))
    run = moved(run, RunState.CANCELLED, finished_at=at(seconds))
    assert bench.storage.runs.update(run) is True
    return run


def ids(runs: Iterable[Run]) -> list[str]:
    """Return the names that the test gave to the runs."""
    return [run.id.partition("@")[0] for run in runs]


def listed(bench: Bench, **options: object) -> list[str]:
    """Return the names of the listed runs."""
    chosen = RunQueryOptions(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # passed on as given
    return ids(bench.storage.runs.list(bench.tenant, chosen))


class RunRepositoryContract(Contract):
    """Create, read, update, retry, lists and purge."""

    def test_create_returns_and_get_finds_every_field(self, bench: Bench) -> None:
        run = rich_run(bench.tenant, bench.id("a"), **PENDING)
        assert bench.storage.runs.create(run) == run
        assert bench.storage.runs.get(bench.tenant, run.id) == run
        assert bench.storage.runs.get_required(bench.tenant, run.id) == run

    def test_an_unknown_run_is_absent_everywhere(self, bench: Bench) -> None:
        runs, missing = bench.storage.runs, bench.run("missing")
        assert runs.get(bench.tenant, missing.id) is None
        assert runs.update(missing) is False
        assert runs.update(missing, expected_state=RunState.RUNNING) is False
        assert (tuple(runs.list(bench.tenant)), tuple(runs.get_pending_runs(bench.tenant))) == ((), ())
        assert tuple(runs.get_runs_by_schedule(bench.tenant, "missing", 10)) == ()
        required: list[Callable[[], Run]] = [
            lambda: runs.get_required(bench.tenant, f" {missing.id} "),
            lambda: runs.retry(bench.tenant, missing.id, "ada", at()),
        ]
        for call in required:
            with pytest.raises(NotFoundError) as absence:
                call()
            assert (absence.value.entity, absence.value.key) == ("runs", missing.id)
        assert bench.count(RUNS) == 0

    @pytest.mark.parametrize("state", [RunState.PLANNING, RunState.QUEUED])
    def test_a_run_begins_in_planning_or_queued(self, bench: Bench, state: RunState) -> None:
        run = bench.storage.runs.create(bench.run(state=state))
        assert bench.storage.runs.get(bench.tenant, run.id) == run

    @pytest.mark.parametrize("state", [state for state in RunState if state.rank > RunState.QUEUED.rank])
    def test_a_run_cannot_begin_later(self, bench: Bench, state: RunState) -> None:
        with pytest.raises(ValidationError):
            bench.storage.runs.create(bench.run(state=state))
        assert bench.count(RUNS) == 0

    def test_create_again_is_refused_even_when_equal(self, bench: Bench) -> None:
        run = bench.storage.runs.create(bench.run())
        for again in (run, run.evolve(trigger=RunTrigger.CRON), run.evolve(tenant_id=bench.foreign)):
            with pytest.raises(DuplicateError) as refusal:
                bench.storage.runs.create(again)
            assert (refusal.value.entity, refusal.value.key) == ("runs", run.id)
        assert bench.storage.runs.get(bench.tenant, run.id) == run
        assert bench.elsewhere.count(RUNS) == 0

    def test_update_replaces_every_mutable_field(self, bench: Bench) -> None:
        first = bench.storage.runs.create(
            rich_run(bench.tenant, bench.id("a"), **PENDING, stats=RunStats(), reason=None, deltas=())
        )
        second = rich_run(bench.tenant, first.id, **PENDING, deltas=(rich_delta(3),))
        assert bench.storage.runs.update(second) is True
        assert bench.storage.runs.get(bench.tenant, first.id) == second
        third = second.evolve(deltas=(), reason=None)
        assert bench.storage.runs.update(third, expected_state=RunState.QUEUED) is True
        assert bench.storage.runs.get(bench.tenant, first.id) == third

    def test_an_expected_state_must_be_the_stored_one(self, bench: Bench) -> None:
        run = bench.storage.runs.create(bench.run())
        with pytest.raises(ConflictError):
            bench.storage.runs.update(moved(run, RunState.RUNNING), expected_state=RunState.QUEUED)
        assert bench.storage.runs.get(bench.tenant, run.id) == run

    def test_a_retry_is_a_new_run_and_the_origin_stays(self, bench: Bench) -> None:
        origin = in_state(bench, RunState.COMPLETED, schedule_id="s-1", trigger=RunTrigger.CRON)
        retried = bench.storage.runs.retry(bench.tenant, origin.id, " ada ", at(500))
        assert retried.id.startswith(f"run:{bench.tenant}:retry:")
        assert (retried.state, retried.trigger, retried.retry_of) == (
            RunState.PLANNING,
            RunTrigger.MANUAL,
            origin.id,
        )
        assert (retried.schedule_id, retried.created_at, retried.stats) == ("s-1", at(500), RunStats())
        assert bench.storage.runs.get(bench.tenant, retried.id) == retried
        assert bench.storage.runs.get(bench.tenant, origin.id) == origin

    def test_a_retry_again_is_another_run_unless_named(self, bench: Bench) -> None:
        origin = in_state(bench, RunState.ERROR)
        runs = bench.storage.runs
        first, second = (runs.retry(bench.tenant, origin.id, "ada", at(500)) for _ in range(2))
        assert first.id != second.id
        named = runs.retry(bench.tenant, origin.id, "ada", at(500), new_run_id=f" {bench.id('new')} ")
        assert named.id == bench.id("new")
        with pytest.raises(DuplicateError):
            runs.retry(bench.tenant, origin.id, "ada", at(500), new_run_id=named.id)
        assert bench.count(RUNS) == 4

    @pytest.mark.parametrize("state", [RunState.PLANNING, RunState.QUEUED, RunState.RUNNING])
    def test_only_a_terminal_run_can_be_retried(self, bench: Bench, state: RunState) -> None:
        run = in_state(bench, state)
        with pytest.raises(InvalidTransitionError) as refusal:
            bench.storage.runs.retry(bench.tenant, run.id, "ada", at(500))
        assert (refusal.value.from_state, refusal.value.to_state) == (state.value, "planning")
        assert bench.count(RUNS) == 1

    def test_pending_runs_are_the_oldest_first(self, bench: Bench) -> None:
        for name, seconds in (("d", 5), ("b", 1), ("a", 1), ("c", 3)):
            bench.storage.runs.create(bench.run(name, created_at=at(seconds)))
        in_state(bench, RunState.QUEUED, "q", created_at=at(2))
        for state in (RunState.RUNNING, RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED):
            in_state(bench, state, state.value, created_at=at(0))
        pending = bench.storage.runs.get_pending_runs(bench.tenant)
        assert ids(pending) == ["a", "b", "q", "c", "d"]
        assert tuple(bench.storage.runs.get_pending_runs(bench.tenant, limit=2)) == pending[:2]

    def test_runs_of_a_schedule_are_the_newest_first(self, bench: Bench) -> None:
        for name, seconds in (("b", 1), ("c", 2), ("a", 1)):
            bench.storage.runs.create(bench.run(name, created_at=at(seconds), schedule_id="s-1"))
        bench.storage.runs.create(bench.run("other", schedule_id="s-2"))
        bench.storage.runs.create(bench.run("ad-hoc"))
        found = bench.storage.runs.get_runs_by_schedule(bench.tenant, " s-1 ", 10)
        assert ids(found) == ["c", "a", "b"]
        assert tuple(bench.storage.runs.get_runs_by_schedule(bench.tenant, "s-1", 2)) == found[:2]

    def test_filters_combine(self, bench: Bench) -> None:
        for number in range(6):
            state = RunState.QUEUED if number % 2 else RunState.PLANNING
            schedule = "s-1" if number < 4 else None
            bench.storage.runs.create(
                bench.run(str(number), created_at=at(number), state=state, schedule_id=schedule)
            )
        assert listed(bench) == ["5", "4", "3", "2", "1", "0"]
        assert listed(bench, ascending=True) == ["0", "1", "2", "3", "4", "5"]
        assert listed(bench, states=[RunState.QUEUED]) == ["5", "3", "1"]
        assert listed(bench, states={RunState.QUEUED, RunState.PLANNING}, schedule_id="s-1") == list("3210")
        assert listed(bench, created_after=at(1), created_before=at(4)) == ["3", "2"]
        assert listed(bench, states=[RunState.RUNNING]) == []
        assert listed(bench, created_after=at(4), created_before=at(1)) == []

    def test_bounds_are_compared_to_the_millisecond(self, bench: Bench) -> None:
        for number in range(4):
            bench.storage.runs.create(bench.run(str(number), created_at=at(number / 1000)))
        assert listed(bench, created_after=at(0.001)) == ["3", "2"]
        assert listed(bench, created_before=at(0.002)) == ["1", "0"]
        assert listed(bench, created_after=at(0), created_before=at(0.003)) == ["2", "1"]

    @pytest.mark.parametrize("empty", [(), [], set[RunState](), frozenset[RunState]()])
    def test_an_empty_collection_of_states_matches_nothing(self, bench: Bench, empty: list[RunState]) -> None:
        bench.storage.runs.create(bench.run())
        assert listed(bench, states=empty) == []
        assert listed(bench, states=None) == ["a"]

    def test_unacceptable_filters_are_refused(self, bench: Bench) -> None:
        for options in (
            {"states": ["no-state"]},
            {"created_after": at().replace(tzinfo=None)},
            {"schedule_id": " "},
        ):
            with pytest.raises(ValidationError):
                listed(bench, **options)

    def test_something_that_is_no_run_is_refused(self, bench: Bench) -> None:
        for call in (bench.storage.runs.create, bench.storage.runs.update):
            with pytest.raises(ValidationError, match="run"):
                call(bench.schedule())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    def test_purge_removes_what_finished_up_to_the_instant(self, bench: Bench) -> None:
        for name, seconds in (("before", -0.001), ("exactly", 0), ("after", 0.001)):
            finished(bench, name, seconds)
        in_state(bench, RunState.RUNNING, "running", created_at=at(-9999))
        finished(bench.elsewhere, "foreign", -5)
        assert bench.storage.runs.purge_finished(at(0), tenant_id=bench.tenant) == 2
        assert sorted(listed(bench)) == ["after", "running"]
        assert bench.storage.runs.purge_finished(at(0), tenant_id=bench.tenant) == 0
        assert bench.elsewhere.count(RUNS) == 1

    @pytest.mark.parametrize("batch_size", [1, 2, 5, 500])
    def test_purge_of_runs_goes_on_over_several_batches(self, bench: Bench, batch_size: int) -> None:
        for number in range(5):
            finished(bench, str(number), -number)
        removed = bench.storage.runs.purge_finished(at(0), tenant_id=bench.tenant, batch_size=batch_size)
        assert (removed, bench.count(RUNS)) == (5, 0)

    def test_purge_of_runs_without_tenant_sees_all_tenants(self, lone_bench: Bench) -> None:
        for number in range(3):
            finished(lone_bench, str(number), -1)
            finished(lone_bench.elsewhere, str(number), -1)
        assert lone_bench.storage.runs.purge_finished(at(0), batch_size=4) == 6
        assert (lone_bench.count(RUNS), lone_bench.elsewhere.count(RUNS)) == (0, 0)

    def test_runs_of_all_tenants_in_a_state_are_the_oldest_first(self, lone_bench: Bench) -> None:
        other = lone_bench.elsewhere
        runs = [
            in_state(bench, RunState.QUEUED, created_at=at(3 - n))
            for n, bench in enumerate([lone_bench, other])
        ]
        in_state(lone_bench, RunState.RUNNING, "running")
        assert tuple(lone_bench.storage.runs.list_by_state(RunState.QUEUED)) == tuple(reversed(runs))
        assert tuple(lone_bench.storage.runs.list_by_state(RunState.ERROR)) == ()

    @needs("transactions")
    def test_of_rivals_creating_one_id_exactly_one_wins(self, bench: Bench) -> None:
        rivals = [bench.run("a", created_at=at(number)) for number in range(8)]
        results = bench.race(lambda storage, run: storage.runs.create(run), rivals)
        assert outcomes(results) == {"DuplicateError": 7, "ok": 1}
        assert bench.storage.runs.get(bench.tenant, bench.id("a")) in results

    @needs("transactions")
    def test_of_rivals_moving_one_run_exactly_one_wins(self, bench: Bench) -> None:
        run = in_state(bench, RunState.RUNNING)
        states = [RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED] * 2
        rivals = [moved(run, state, finished_at=at(100 + number)) for number, state in enumerate(states)]
        results = bench.race(
            lambda storage, rival: storage.runs.update(rival, expected_state=RunState.RUNNING), rivals
        )
        assert outcomes(results) == {"ConflictError": 5, "ok": 1}
        assert bench.storage.runs.get(bench.tenant, run.id) == rivals[results.index(True)]

    @needs("transactions")
    def test_rival_counters_never_fall(self, bench: Bench) -> None:
        run = in_state(bench, RunState.RUNNING)
        rivals = [run.evolve(stats=RunStats(candidates=number)) for number in range(1, 9)]
        results = bench.race(lambda storage, rival: storage.runs.update(rival), rivals)
        assert set(outcomes(results)) <= {"ok", "ValidationError"}
        assert bench.storage.runs.get_required(bench.tenant, run.id).stats == RunStats(candidates=8)

"""What every repository of run summaries must do, and how runs are projected into them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.clock import FixedClock
from twinstore.errors import ConflictError, NotFoundError, ValidationError
from twinstore.fields import INT64_MAX
from twinstore.scheduler.catalog import RUN_SUMMARIES
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.run_summaries import WINDOW, RunSummary, RunSummaryCounters
from twinstore.scheduler.runs import RunStats
from twinstore.testing.base import Contract, examples, needs
from twinstore.testing.bench import outcomes, unique
from twinstore.testing.builders import at, make_run_summary, moved, rich_run_summary
from twinstore.testing.contracts.runs import in_state

if TYPE_CHECKING:
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.bench import Bench

__all__ = ["RunSummaryRepositoryContract", "RunSummaryServiceContract"]


def life(bench: Bench, name: str, schedule_id: str, seconds: float, end: RunState) -> list[Run]:
    """Return the updates of one run from planning to its end."""
    planned = bench.run(name, schedule_id=schedule_id, created_at=at(seconds))
    queued = moved(planned, RunState.QUEUED, stats=RunStats(candidates=3))
    running = moved(queued, RunState.RUNNING, stats=RunStats(candidates=3, deltas=1))
    return [planned, queued, running, moved(running, end, stats=RunStats(candidates=3, deltas=2, new_high=1))]


def projected(bench: Bench, run: Run, seconds: float = 0) -> RunSummary:
    """Project an update and return the summary."""
    summary = bench.storage.run_summary_service.project(run, now=at(seconds))
    assert summary is not None
    return summary


def foreign_to(bench: Bench, name: str) -> object:
    """Return what no change of the summary of ``a`` may return."""
    return {
        "another tenant": make_run_summary(bench.foreign, bench.id("a"), updated_at=at(9)),
        "another schedule": bench.summary("b"),
        "another type": bench.run("a"),
        "no model": {"tenantId": bench.tenant, "scheduleId": bench.id("a")},
        "unvalidated": bench.summary("a").model_copy(update={"tenant_id": bench.foreign}),
    }[name]


STRANGERS: Final = ("another tenant", "another schedule", "another type", "no model", "unvalidated")


def summaries_of(bench: Bench) -> list[RunSummary]:
    """Return the summaries of both tenants."""
    tenants = (bench.tenant, bench.foreign)
    return [summary for tenant in tenants for summary in bench.storage.run_summaries.list(tenant)]


class RunSummaryRepositoryContract(Contract):
    """One summary per tenant and schedule."""

    def test_upsert_of_a_summary_returns_and_get_finds_every_field(self, bench: Bench) -> None:
        summary = rich_run_summary(bench.tenant, bench.id("a"))
        assert bench.storage.run_summaries.upsert(summary) == summary
        assert bench.storage.run_summaries.get(bench.tenant, summary.schedule_id) == summary
        assert bench.storage.run_summaries.get_required(bench.tenant, f" {summary.schedule_id} ") == summary
        assert bench.storage.run_summaries.upsert(summary) == summary
        assert bench.count(RUN_SUMMARIES) == 1

    def test_an_unknown_summary_is_absent(self, bench: Bench) -> None:
        summaries, missing = bench.storage.run_summaries, bench.id("missing")
        assert summaries.get(bench.tenant, missing) is None
        assert tuple(summaries.list(bench.tenant)) == ()
        with pytest.raises(NotFoundError) as absence:
            summaries.get_required(bench.tenant, f" {missing} ")
        assert (absence.value.entity, absence.value.key) == ("run_summaries", f"{bench.tenant}:{missing}")

    def test_tenants_have_their_own_summary_of_one_schedule_id(self, bench: Bench) -> None:
        mine = make_run_summary(bench.tenant, "s-1", [bench.run(schedule_id="s-1")])
        theirs = make_run_summary(bench.foreign, "s-1")
        for summary in (mine, theirs):
            bench.storage.run_summaries.upsert(summary)
        assert bench.storage.run_summaries.get(bench.tenant, "s-1") == mine
        assert bench.storage.run_summaries.get(bench.foreign, "s-1") == theirs

    def test_upsert_replaces(self, bench: Bench) -> None:
        bench.storage.run_summaries.upsert(rich_run_summary(bench.tenant, bench.id("a")))
        empty = bench.storage.run_summaries.upsert(bench.summary("a"))
        assert bench.storage.run_summaries.get(bench.tenant, empty.schedule_id) == empty

    def test_an_expected_instant_of_a_summary_must_be_the_stored_one(self, bench: Bench) -> None:
        summaries = bench.storage.run_summaries
        first = bench.summary("a")
        with pytest.raises(ConflictError):
            summaries.upsert(first, expected_updated_at=at())
        assert bench.count(RUN_SUMMARIES) == 0
        summaries.upsert(first)
        second = summaries.upsert(first.evolve(updated_at=at(1)), expected_updated_at=at())
        with pytest.raises(ConflictError):
            summaries.upsert(first.evolve(updated_at=at(2)), expected_updated_at=at())
        assert summaries.get(bench.tenant, first.schedule_id) == second

    @needs("transactions")
    def test_of_rivals_expecting_one_summary_exactly_one_wins(self, bench: Bench) -> None:
        first = bench.storage.run_summaries.upsert(bench.summary("a"))
        rivals = [first.evolve(updated_at=at(number)) for number in range(1, 7)]
        results = bench.race(
            lambda storage, rival: storage.run_summaries.upsert(rival, expected_updated_at=at()), rivals
        )
        assert outcomes(results) == {"ConflictError": 5, "ok": 1}
        assert bench.storage.run_summaries.get(bench.tenant, first.schedule_id) in results

    def test_modify_sees_the_stored_summary_and_stores_the_new_one(self, bench: Bench) -> None:
        summaries, key = bench.storage.run_summaries, bench.id("a")
        seen: list[RunSummary | None] = []

        def touch(stored: RunSummary | None) -> RunSummary:
            seen.append(stored)
            return bench.summary("a") if stored is None else stored.evolve(updated_at=at(9))

        first = summaries.modify(bench.tenant, key, touch)
        second = summaries.modify(bench.tenant, f" {key} ", touch)
        assert (first, second) == (bench.summary("a"), bench.summary("a").evolve(updated_at=at(9)))
        assert seen == [None, first]
        assert summaries.get(bench.tenant, key) == second

    def test_modify_leaves_a_summary_alone_when_told_nothing(self, bench: Bench) -> None:
        summaries, key = bench.storage.run_summaries, bench.id("a")
        assert summaries.modify(bench.tenant, key, lambda _: None) is None
        assert bench.count(RUN_SUMMARIES) == 0
        stored = summaries.upsert(bench.summary("a"))
        before = bench.stamp(RUN_SUMMARIES, (bench.tenant, key))
        assert summaries.modify(bench.tenant, key, lambda _: None) == stored
        assert bench.stamp(RUN_SUMMARIES, (bench.tenant, key)) == before

    def test_an_exception_of_the_change_leaves_the_summary_alone(self, bench: Bench) -> None:
        stored = bench.storage.run_summaries.upsert(bench.summary("a"))

        def broken(_: RunSummary | None) -> RunSummary:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            bench.storage.run_summaries.modify(bench.tenant, stored.schedule_id, broken)
        assert bench.storage.run_summaries.get(bench.tenant, stored.schedule_id) == stored

    @pytest.mark.parametrize("stored", [False, True])
    @pytest.mark.parametrize("name", STRANGERS)
    def test_a_change_that_returns_another_summary_writes_nothing(
        self, bench: Bench, name: str, *, stored: bool
    ) -> None:
        summaries = bench.storage.run_summaries
        if stored:
            summaries.upsert(bench.summary("a"))
            summaries.upsert(make_run_summary(bench.foreign, bench.id("a")))
        before, returned = summaries_of(bench), cast("RunSummary", foreign_to(bench, name))
        with pytest.raises(ValidationError, match="run summary") as refusal:
            summaries.modify(bench.tenant, bench.id("a"), lambda _: returned)
        assert refusal.value.key == f"{bench.tenant}:{bench.id('a')}"
        assert summaries_of(bench) == before

    @needs("transactions")
    @pytest.mark.parametrize("name", STRANGERS)
    def test_a_change_that_returns_another_summary_leaves_the_unit_usable(
        self, bench: Bench, name: str
    ) -> None:
        returned = cast("RunSummary", foreign_to(bench, name))
        with bench.storage.transaction(bench.tenant) as unit:
            with pytest.raises(ValidationError, match="run summary"):
                unit.run_summaries.modify(bench.tenant, bench.id("a"), lambda _: returned)
            unit.run_summaries.modify(bench.tenant, bench.id("a"), lambda _: bench.summary("a"))
        assert summaries_of(bench) == [bench.summary("a")]

    def test_a_change_that_is_no_function_is_refused(self, bench: Bench) -> None:
        with pytest.raises(ValidationError, match="change"):
            bench.storage.run_summaries.modify(bench.tenant, bench.id("a"), None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    @needs("transactions")
    def test_rival_modifications_lose_nothing(self, bench: Bench) -> None:
        key = bench.id("a")

        def grow(stored: RunSummary | None) -> RunSummary:
            if stored is None:
                return bench.summary("a")
            return stored.evolve(updated_at=at((stored.updated_at - at()).total_seconds() + 1))

        results = bench.race(
            lambda storage, _: storage.run_summaries.modify(bench.tenant, key, grow), range(8)
        )
        assert outcomes(results) == {"ok": 8}
        assert bench.storage.run_summaries.get_required(bench.tenant, key).updated_at == at(7)

    def test_something_that_is_no_summary_is_refused(self, bench: Bench) -> None:
        with pytest.raises(ValidationError, match="summary"):
            bench.storage.run_summaries.upsert(bench.run())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test


class RunSummaryServiceContract(Contract):
    """Projection in any order, the window, and rebuilding."""

    def test_a_run_without_schedule_is_not_projected(self, bench: Bench) -> None:
        assert bench.storage.run_summary_service.project(bench.run(), now=at()) is None
        assert bench.count(RUN_SUMMARIES) == 0

    def test_updates_of_a_run_count_it_once(self, bench: Bench) -> None:
        for seconds, run in enumerate(life(bench, "r", bench.id("s"), 0, RunState.COMPLETED)):
            projected(bench, run, seconds)
        summary = bench.storage.run_summaries.get_required(bench.tenant, bench.id("s"))
        assert summary.counters == RunSummaryCounters(total=1, completed=1, total_deltas=2, total_new_high=1)
        assert (summary.updated_at, len(summary.recent)) == (at(3), 1)
        assert bench.storage.run_summary_service.get(bench.tenant, bench.id("s")) == summary
        assert tuple(bench.storage.run_summary_service.list(bench.tenant)) == (summary,)

    @examples(15)
    @given(data=st.data())
    def test_the_order_of_arrival_does_not_matter(self, bench: Bench, data: st.DataObject) -> None:
        schedule_id = bench.id(unique("s"))
        ends = [RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED]
        lives = [life(bench, f"r{n}", schedule_id, n // 2, end) for n, end in enumerate(ends)]
        updates = [update for states in lives for update in states]
        repeated = data.draw(st.lists(st.sampled_from(updates), max_size=4))
        for run in data.draw(st.permutations([*updates, *repeated])):
            projected(bench, run)
        expected = make_run_summary(bench.tenant, schedule_id, [states[-1] for states in lives])
        assert bench.storage.run_summaries.get(bench.tenant, schedule_id) == expected

    def test_a_late_or_repeated_update_changes_nothing_but_the_instant(self, bench: Bench) -> None:
        states = life(bench, "r", bench.id("s"), 0, RunState.COMPLETED)
        before = projected(bench, states[-1], 5)
        for seconds, run in enumerate(states, start=6):
            after = projected(bench, run, seconds)
            assert after == before.evolve(updated_at=at(seconds))

    def test_the_instant_of_a_summary_never_goes_back(self, bench: Bench) -> None:
        first, second, *_ = life(bench, "r", bench.id("s"), 0, RunState.COMPLETED)
        projected(bench, first, 100)
        assert projected(bench, second, 50).updated_at == at(100)

    def test_a_second_terminal_state_is_ignored(self, bench: Bench) -> None:
        *_, running, completed = life(bench, "r", bench.id("s"), 0, RunState.COMPLETED)
        projected(bench, completed)
        summary = projected(bench, moved(running, RunState.ERROR))
        assert (summary.counters.completed, summary.counters.error) == (1, 0)

    def test_of_equal_ranks_the_later_arrival_wins(self, bench: Bench) -> None:
        run = bench.run("r", schedule_id=bench.id("s"))
        projected(bench, run.evolve(stats=RunStats(deltas=9)))
        assert projected(bench, run.evolve(stats=RunStats(deltas=4))).counters.total_deltas == 4

    def test_the_window_holds_the_twenty_newest(self, bench: Bench) -> None:
        runs = [
            bench.run(f"{n:02}", schedule_id=bench.id("s"), created_at=at(n // 3)) for n in range(WINDOW + 5)
        ]
        for run in runs[::-1][::2] + runs[::-1][1::2]:
            projected(bench, run)
        summary = bench.storage.run_summaries.get_required(bench.tenant, bench.id("s"))
        assert [entry.run_id for entry in summary.recent] == [run.id for run in runs[:4:-1]]
        assert all(newer.position > older.position for newer, older in pairwise(summary.recent))
        assert (summary.last_run, summary.counters.total) == (summary.recent[0], WINDOW)

    def test_counters_beyond_64_bits_are_refused_and_nothing_is_stored(self, bench: Bench) -> None:
        full = RunStats(deltas=INT64_MAX)
        summary = projected(bench, bench.run("a", schedule_id=bench.id("s"), stats=full))
        with pytest.raises(ValidationError):
            projected(bench, bench.run("b", schedule_id=bench.id("s"), stats=full))
        assert bench.storage.run_summaries.get(bench.tenant, bench.id("s")) == summary

    @needs("transactions")
    def test_fifty_projections_from_eight_threads_lose_none(self, bench: Bench) -> None:
        schedule_id = bench.id("s")
        updates = [
            moved(bench.run(f"{n % WINDOW:02}", schedule_id=schedule_id, created_at=at(n % WINDOW)), state)
            for state in (RunState.QUEUED, RunState.RUNNING, RunState.COMPLETED)
            for n in range(WINDOW)
        ][:50]

        def share(storage: SchedulerStorage, number: int) -> None:
            for run in updates[number::8]:
                storage.run_summary_service.project(run, now=at())

        results = bench.race(share, range(8))
        assert outcomes(results) == {"ok": 8}
        counters = bench.storage.run_summaries.get_required(bench.tenant, schedule_id).counters
        assert (counters.total, counters.completed, counters.running) == (WINDOW, 10, 10)

    def test_rebuild_recomputes_the_window_from_the_stored_runs(self, bench: Bench) -> None:
        schedule_id, service = bench.id("s"), bench.storage.run_summary_service
        assert service.rebuild(bench.tenant, schedule_id, now=at()) is None
        runs = [
            in_state(bench, state, state.value, schedule_id=schedule_id, created_at=at(n))
            for n, state in enumerate(RunState)
        ]
        expected = make_run_summary(bench.tenant, schedule_id, runs, updated_at=at(50))
        assert service.rebuild(bench.tenant, schedule_id, now=at(50)) == expected
        bench.storage.run_summaries.upsert(make_run_summary(bench.tenant, schedule_id, updated_at=at(60)))
        assert service.rebuild(f" {bench.tenant} ", f" {schedule_id} ", now=at(50)) == expected.evolve(
            updated_at=at(60)
        )
        assert bench.storage.run_summaries.get(bench.tenant, schedule_id) == expected.evolve(
            updated_at=at(60)
        )

    def test_rebuild_empties_a_summary_whose_runs_are_gone(self, bench: Bench) -> None:
        summary = projected(bench, bench.run("gone", schedule_id=bench.id("s")))
        rebuilt = bench.storage.run_summary_service.rebuild(bench.tenant, summary.schedule_id, now=at(5))
        assert rebuilt == make_run_summary(bench.tenant, summary.schedule_id, updated_at=at(5))

    def test_the_clock_of_the_storage_stamps_summaries(self, bench: Bench) -> None:
        run = bench.run(schedule_id=bench.id("s"))
        with bench.deployment.open(clock=FixedClock(at(42))) as storage:
            summary = storage.run_summary_service.project(run)
        assert summary is not None
        assert summary.updated_at == at(42)

    def test_unacceptable_arguments_are_refused(self, bench: Bench) -> None:
        service, run = bench.storage.run_summary_service, bench.run(schedule_id=bench.id("s"))
        with pytest.raises(ValidationError, match="run"):
            service.project(bench.schedule())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
        with pytest.raises(ValidationError, match="now"):
            service.project(run, now=at().replace(tzinfo=None))
        with pytest.raises(ValidationError, match="schedule_id"):
            service.rebuild(bench.tenant, " ")
        assert bench.count(RUN_SUMMARIES) == 0

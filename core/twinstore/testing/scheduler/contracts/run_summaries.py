"""What every repository of run summaries must do, and how runs are projected into them."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.errors import ConflictError, NotFoundError, ValidationError
from twinstore.models.fields import INT64_MAX
from twinstore.scheduler.catalog import RUN_SUMMARIES
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.run_summaries import ERROR_LENGTH, WINDOW, RunSummary, RunSummaryCounters
from twinstore.scheduler.runs import RunStats
from twinstore.testing.base import examples, needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run_summary, moved, rich_run_summary
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.contracts.runs import in_state
from twinstore.testing.workspace import outcomes, unique

if TYPE_CHECKING:
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["RunSummaryRepositoryContract", "RunSummaryServiceContract"]


def life(
    workspace: SchedulerWorkspace, name: str, schedule_id: str, seconds: float, end: RunState
) -> list[Run]:
    """Return the updates of one run from planning to its end."""
    planned = workspace.run(name, schedule_id=schedule_id, created_at=at(seconds))
    queued = moved(planned, RunState.QUEUED, stats=RunStats(candidates=3))
    running = moved(queued, RunState.RUNNING, stats=RunStats(candidates=3, deltas=1))
    return [planned, queued, running, moved(running, end, stats=RunStats(candidates=3, deltas=2, new_high=1))]


def projected(workspace: SchedulerWorkspace, run: Run, seconds: float = 0) -> RunSummary:
    """Project an update and return the summary."""
    summary = workspace.storage.run_summary_service.project(run, now=at(seconds))
    assert summary is not None
    return summary


def foreign_to(workspace: SchedulerWorkspace, name: str) -> object:
    """Return what no change of the summary of ``a`` may return."""
    return {
        "another tenant": make_run_summary(workspace.foreign, workspace.id("a"), updated_at=at(9)),
        "another schedule": workspace.summary("b"),
        "another type": workspace.run("a"),
        "no model": {"tenantId": workspace.tenant, "scheduleId": workspace.id("a")},
        "unvalidated": workspace.summary("a").model_copy(update={"tenant_id": workspace.foreign}),
    }[name]


STRANGERS: Final = ("another tenant", "another schedule", "another type", "no model", "unvalidated")


def summaries_of(workspace: SchedulerWorkspace) -> list[RunSummary]:
    """Return the summaries of both tenants."""
    tenants = (workspace.tenant, workspace.foreign)
    return [summary for tenant in tenants for summary in workspace.storage.run_summaries.list(tenant)]


class RunSummaryRepositoryContract(SchedulerCases):
    """One summary per tenant and schedule."""

    def test_upsert_of_a_summary_returns_and_get_finds_every_field(
        self, workspace: SchedulerWorkspace
    ) -> None:
        summary = rich_run_summary(workspace.tenant, workspace.id("a"))
        assert workspace.storage.run_summaries.upsert(summary) == summary
        assert workspace.storage.run_summaries.get(workspace.tenant, summary.schedule_id) == summary
        assert (
            workspace.storage.run_summaries.get_required(workspace.tenant, f" {summary.schedule_id} ")
            == summary
        )
        assert workspace.storage.run_summaries.upsert(summary) == summary
        assert workspace.count(RUN_SUMMARIES) == 1

    def test_an_unknown_summary_is_absent(self, workspace: SchedulerWorkspace) -> None:
        summaries, missing = workspace.storage.run_summaries, workspace.id("missing")
        assert summaries.get(workspace.tenant, missing) is None
        assert tuple(summaries.list(workspace.tenant)) == ()
        with pytest.raises(NotFoundError) as absence:
            summaries.get_required(workspace.tenant, f" {missing} ")
        assert (absence.value.entity, absence.value.key) == ("run_summaries", f"{workspace.tenant}:{missing}")

    def test_tenants_have_their_own_summary_of_one_schedule_id(self, workspace: SchedulerWorkspace) -> None:
        mine = make_run_summary(workspace.tenant, "s-1", [workspace.run(schedule_id="s-1")])
        theirs = make_run_summary(workspace.foreign, "s-1")
        for summary in (mine, theirs):
            workspace.storage.run_summaries.upsert(summary)
        assert workspace.storage.run_summaries.get(workspace.tenant, "s-1") == mine
        assert workspace.storage.run_summaries.get(workspace.foreign, "s-1") == theirs

    def test_upsert_replaces(self, workspace: SchedulerWorkspace) -> None:
        workspace.storage.run_summaries.upsert(rich_run_summary(workspace.tenant, workspace.id("a")))
        empty = workspace.storage.run_summaries.upsert(workspace.summary("a"))
        assert workspace.storage.run_summaries.get(workspace.tenant, empty.schedule_id) == empty

    def test_an_expected_instant_of_a_summary_must_be_the_stored_one(
        self, workspace: SchedulerWorkspace
    ) -> None:
        summaries = workspace.storage.run_summaries
        first = workspace.summary("a")
        with pytest.raises(ConflictError):
            summaries.upsert(first, expected_updated_at=at())
        assert workspace.count(RUN_SUMMARIES) == 0
        summaries.upsert(first)
        second = summaries.upsert(first.evolve(updated_at=at(1)), expected_updated_at=at())
        with pytest.raises(ConflictError):
            summaries.upsert(first.evolve(updated_at=at(2)), expected_updated_at=at())
        assert summaries.get(workspace.tenant, first.schedule_id) == second

    @needs("transactions")
    def test_of_concurrent_writers_expecting_one_summary_exactly_one_wins(
        self, workspace: SchedulerWorkspace
    ) -> None:
        first = workspace.storage.run_summaries.upsert(workspace.summary("a"))
        competitors = [first.evolve(updated_at=at(number)) for number in range(1, 7)]
        results = workspace.race(
            lambda storage, competitor: storage.run_summaries.upsert(competitor, expected_updated_at=at()),
            competitors,
        )
        assert outcomes(results) == {"ConflictError": 5, "ok": 1}
        assert workspace.storage.run_summaries.get(workspace.tenant, first.schedule_id) in results

    def test_modify_sees_the_stored_summary_and_stores_the_new_one(
        self, workspace: SchedulerWorkspace
    ) -> None:
        summaries, key = workspace.storage.run_summaries, workspace.id("a")
        seen: list[RunSummary | None] = []

        def touch(stored: RunSummary | None) -> RunSummary:
            seen.append(stored)
            return workspace.summary("a") if stored is None else stored.evolve(updated_at=at(9))

        first = summaries.modify(workspace.tenant, key, touch)
        second = summaries.modify(workspace.tenant, f" {key} ", touch)
        assert (first, second) == (workspace.summary("a"), workspace.summary("a").evolve(updated_at=at(9)))
        assert seen == [None, first]
        assert summaries.get(workspace.tenant, key) == second

    def test_modify_leaves_a_summary_alone_if_the_function_returns_none(
        self, workspace: SchedulerWorkspace
    ) -> None:
        summaries, key = workspace.storage.run_summaries, workspace.id("a")
        assert summaries.modify(workspace.tenant, key, lambda _: None) is None
        assert workspace.count(RUN_SUMMARIES) == 0
        stored = summaries.upsert(workspace.summary("a"))
        before = workspace.stamp(RUN_SUMMARIES, (workspace.tenant, key))
        assert summaries.modify(workspace.tenant, key, lambda _: None) == stored
        assert workspace.stamp(RUN_SUMMARIES, (workspace.tenant, key)) == before

    def test_an_exception_of_the_change_leaves_the_summary_alone(self, workspace: SchedulerWorkspace) -> None:
        stored = workspace.storage.run_summaries.upsert(workspace.summary("a"))

        def broken(_: RunSummary | None) -> RunSummary:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            workspace.storage.run_summaries.modify(workspace.tenant, stored.schedule_id, broken)
        assert workspace.storage.run_summaries.get(workspace.tenant, stored.schedule_id) == stored

    @pytest.mark.parametrize("stored", [False, True])
    @pytest.mark.parametrize("name", STRANGERS)
    def test_a_change_that_returns_another_summary_writes_nothing(
        self, workspace: SchedulerWorkspace, name: str, *, stored: bool
    ) -> None:
        summaries = workspace.storage.run_summaries
        if stored:
            summaries.upsert(workspace.summary("a"))
            summaries.upsert(make_run_summary(workspace.foreign, workspace.id("a")))
        before, returned = summaries_of(workspace), cast("RunSummary", foreign_to(workspace, name))
        with pytest.raises(ValidationError, match="run summary") as refusal:
            summaries.modify(workspace.tenant, workspace.id("a"), lambda _: returned)
        assert refusal.value.key == f"{workspace.tenant}:{workspace.id('a')}"
        assert summaries_of(workspace) == before

    @needs("transactions")
    @pytest.mark.parametrize("name", STRANGERS)
    def test_a_change_that_returns_another_summary_leaves_the_unit_usable(
        self, workspace: SchedulerWorkspace, name: str
    ) -> None:
        returned = cast("RunSummary", foreign_to(workspace, name))
        with workspace.storage.transaction(workspace.tenant) as unit:
            with pytest.raises(ValidationError, match="run summary"):
                unit.run_summaries.modify(workspace.tenant, workspace.id("a"), lambda _: returned)
            unit.run_summaries.modify(workspace.tenant, workspace.id("a"), lambda _: workspace.summary("a"))
        assert summaries_of(workspace) == [workspace.summary("a")]

    def test_a_change_that_is_no_function_is_refused(self, workspace: SchedulerWorkspace) -> None:
        with pytest.raises(ValidationError, match="change"):
            workspace.storage.run_summaries.modify(workspace.tenant, workspace.id("a"), None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    @needs("transactions")
    def test_concurrent_modifications_lose_nothing(self, workspace: SchedulerWorkspace) -> None:
        key = workspace.id("a")

        def grow(stored: RunSummary | None) -> RunSummary:
            if stored is None:
                return workspace.summary("a")
            return stored.evolve(updated_at=at((stored.updated_at - at()).total_seconds() + 1))

        results = workspace.race(
            lambda storage, _: storage.run_summaries.modify(workspace.tenant, key, grow), range(8)
        )
        assert outcomes(results) == {"ok": 8}
        assert workspace.storage.run_summaries.get_required(workspace.tenant, key).updated_at == at(7)

    def test_something_that_is_no_summary_is_refused(self, workspace: SchedulerWorkspace) -> None:
        with pytest.raises(ValidationError, match="summary"):
            workspace.storage.run_summaries.upsert(workspace.run())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    def test_a_summary_is_removed_and_the_next_move_of_a_run_writes_a_new_one(
        self, workspace: SchedulerWorkspace
    ) -> None:
        summaries, tenant, schedule = workspace.storage.run_summaries, workspace.tenant, workspace.id("s")
        first, second = (in_state(workspace, RunState.QUEUED, name, schedule_id=schedule) for name in "ab")
        workspace.storage.runs.start(tenant, first.id, at(200))
        assert summaries.delete(workspace.foreign, schedule) is False
        assert [summaries.delete(tenant, f" {schedule} ") for _ in range(2)] == [True, False]
        workspace.storage.runs.start(tenant, second.id, at(200))
        stored = summaries.get_required(tenant, schedule)
        assert [entry.run_id for entry in stored.recent] == [second.id]


class RunSummaryServiceContract(SchedulerCases):
    """Projection in any order, the window, and rebuilding."""

    def test_a_run_without_schedule_is_not_projected(self, workspace: SchedulerWorkspace) -> None:
        assert workspace.storage.run_summary_service.project(workspace.run(), now=at()) is None
        assert workspace.count(RUN_SUMMARIES) == 0

    def test_updates_of_a_run_count_it_once(self, workspace: SchedulerWorkspace) -> None:
        for seconds, run in enumerate(life(workspace, "r", workspace.id("s"), 0, RunState.COMPLETED)):
            projected(workspace, run, seconds)
        summary = workspace.storage.run_summaries.get_required(workspace.tenant, workspace.id("s"))
        assert summary.counters == RunSummaryCounters(total=1, completed=1, total_deltas=2, total_new_high=1)
        assert (summary.updated_at, len(summary.recent)) == (at(3), 1)
        assert workspace.storage.run_summary_service.get(workspace.tenant, workspace.id("s")) == summary
        assert tuple(workspace.storage.run_summary_service.list(workspace.tenant)) == (summary,)

    @examples(15)
    @given(data=st.data())
    def test_the_order_of_arrival_does_not_matter(
        self, workspace: SchedulerWorkspace, data: st.DataObject
    ) -> None:
        schedule_id = workspace.id(unique("s"))
        ends = [RunState.COMPLETED, RunState.ERROR, RunState.CANCELLED]
        lives = [life(workspace, f"r{n}", schedule_id, n // 2, end) for n, end in enumerate(ends)]
        updates = [update for states in lives for update in states]
        repeated = data.draw(st.lists(st.sampled_from(updates), max_size=4))
        for run in data.draw(st.permutations([*updates, *repeated])):
            projected(workspace, run)
        expected = make_run_summary(workspace.tenant, schedule_id, [states[-1] for states in lives])
        assert workspace.storage.run_summaries.get(workspace.tenant, schedule_id) == expected

    def test_a_late_or_repeated_update_changes_nothing_but_the_instant(
        self, workspace: SchedulerWorkspace
    ) -> None:
        states = life(workspace, "r", workspace.id("s"), 0, RunState.COMPLETED)
        before = projected(workspace, states[-1], 5)
        for seconds, run in enumerate(states, start=6):
            after = projected(workspace, run, seconds)
            assert after == before.evolve(updated_at=at(seconds))

    def test_the_instant_of_a_summary_never_goes_back(self, workspace: SchedulerWorkspace) -> None:
        first, second, *_ = life(workspace, "r", workspace.id("s"), 0, RunState.COMPLETED)
        projected(workspace, first, 100)
        assert projected(workspace, second, 50).updated_at == at(100)

    def test_a_second_terminal_state_is_ignored(self, workspace: SchedulerWorkspace) -> None:
        *_, running, completed = life(workspace, "r", workspace.id("s"), 0, RunState.COMPLETED)
        projected(workspace, completed)
        summary = projected(workspace, moved(running, RunState.ERROR))
        assert (summary.counters.completed, summary.counters.error) == (1, 0)

    def test_of_equal_ranks_the_later_arrival_wins(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.run("r", schedule_id=workspace.id("s"))
        projected(workspace, run.evolve(stats=RunStats(deltas=9)))
        assert projected(workspace, run.evolve(stats=RunStats(deltas=4))).counters.total_deltas == 4

    def test_the_window_holds_the_twenty_newest(self, workspace: SchedulerWorkspace) -> None:
        runs = [
            workspace.run(f"{n:02}", schedule_id=workspace.id("s"), created_at=at(n // 3))
            for n in range(WINDOW + 5)
        ]
        for run in runs[::-1][::2] + runs[::-1][1::2]:
            projected(workspace, run)
        summary = workspace.storage.run_summaries.get_required(workspace.tenant, workspace.id("s"))
        assert [entry.run_id for entry in summary.recent] == [run.id for run in runs[:4:-1]]
        assert all(newer.position > older.position for newer, older in pairwise(summary.recent))
        assert (summary.last_run, summary.counters.total) == (summary.recent[0], WINDOW)

    def test_a_long_error_is_cut_in_the_summary_and_whole_in_the_run(
        self, workspace: SchedulerWorkspace
    ) -> None:
        service, schedule_id = workspace.storage.run_summary_service, workspace.id("s")
        text = "ä" * (ERROR_LENGTH - 1) + "🜂" + "b" * 100
        failed = in_state(workspace, RunState.RUNNING, schedule_id=schedule_id)
        failed = moved(failed, RunState.ERROR, error=text)
        assert workspace.storage.runs.update(failed)
        cut = f"{text[:ERROR_LENGTH]} … [cut: {len(text)} characters in all; the run has the whole text]"
        made = (service.project(failed), service.rebuild(workspace.tenant, schedule_id))
        assert [found.last_run.error for found in made if found and found.last_run] == [cut, cut]
        assert workspace.storage.runs.get_required(workspace.tenant, failed.id).error == text

    def test_counters_beyond_64_bits_are_refused_and_nothing_is_stored(
        self, workspace: SchedulerWorkspace
    ) -> None:
        full = RunStats(deltas=INT64_MAX)
        summary = projected(workspace, workspace.run("a", schedule_id=workspace.id("s"), stats=full))
        with pytest.raises(ValidationError):
            projected(workspace, workspace.run("b", schedule_id=workspace.id("s"), stats=full))
        assert workspace.storage.run_summaries.get(workspace.tenant, workspace.id("s")) == summary

    @needs("transactions")
    def test_fifty_projections_from_eight_threads_lose_none(self, workspace: SchedulerWorkspace) -> None:
        schedule_id = workspace.id("s")
        updates = [
            moved(
                workspace.run(f"{n % WINDOW:02}", schedule_id=schedule_id, created_at=at(n % WINDOW)), state
            )
            for state in (RunState.QUEUED, RunState.RUNNING, RunState.COMPLETED)
            for n in range(WINDOW)
        ][:50]

        def share(storage: SchedulerStorage, number: int) -> None:
            for run in updates[number::8]:
                storage.run_summary_service.project(run, now=at())

        results = workspace.race(share, range(8))
        assert outcomes(results) == {"ok": 8}
        counters = workspace.storage.run_summaries.get_required(workspace.tenant, schedule_id).counters
        assert (counters.total, counters.completed, counters.running) == (WINDOW, 10, 10)

    def test_rebuild_recomputes_the_window_from_the_stored_runs(self, workspace: SchedulerWorkspace) -> None:
        schedule_id, service = workspace.id("s"), workspace.storage.run_summary_service
        assert service.rebuild(workspace.tenant, schedule_id, now=at()) is None
        runs = [
            in_state(workspace, state, state.value, schedule_id=schedule_id, created_at=at(n))
            for n, state in enumerate(RunState)
        ]
        expected = make_run_summary(workspace.tenant, schedule_id, runs, updated_at=at(50))
        assert service.rebuild(workspace.tenant, schedule_id, now=at(50)) == expected
        workspace.storage.run_summaries.upsert(
            make_run_summary(workspace.tenant, schedule_id, updated_at=at(60))
        )
        assert service.rebuild(f" {workspace.tenant} ", f" {schedule_id} ", now=at(50)) == expected.evolve(
            updated_at=at(60)
        )
        assert workspace.storage.run_summaries.get(workspace.tenant, schedule_id) == expected.evolve(
            updated_at=at(60)
        )

    def test_a_run_that_is_created_again_is_in_its_summary_after_a_rebuild(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule_id, storage = workspace.id("s"), workspace.storage
        for second in (0, 5):
            run = storage.runs.create(workspace.run(schedule_id=schedule_id, created_at=at(second)))
            storage.runs.cancel(workspace.tenant, run.id, at(second))
            if not second:
                storage.runs.delete(workspace.tenant, run.id)
        for created_at in (at(0), at(5)):
            (entry,) = storage.run_summaries.get_required(workspace.tenant, schedule_id).recent
            assert entry.created_at == created_at
            storage.run_summary_service.rebuild(workspace.tenant, schedule_id)

    def test_rebuild_empties_a_summary_whose_runs_are_gone(self, workspace: SchedulerWorkspace) -> None:
        summary = projected(workspace, workspace.run("gone", schedule_id=workspace.id("s")))
        rebuilt = workspace.storage.run_summary_service.rebuild(
            workspace.tenant, summary.schedule_id, now=at(5)
        )
        assert rebuilt == make_run_summary(workspace.tenant, summary.schedule_id, updated_at=at(5))

    def test_the_clock_of_the_storage_stamps_summaries(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.run(schedule_id=workspace.id("s"))
        with workspace.opened_at(at(42)) as storage:
            summary = storage.run_summary_service.project(run)
        assert summary is not None
        assert summary.updated_at == at(42)

    def test_unacceptable_arguments_are_refused(self, workspace: SchedulerWorkspace) -> None:
        service, run = workspace.storage.run_summary_service, workspace.run(schedule_id=workspace.id("s"))
        with pytest.raises(ValidationError, match="run"):
            service.project(workspace.schedule())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test
        with pytest.raises(ValidationError, match="now"):
            service.project(run, now=at().replace(tzinfo=None))
        with pytest.raises(ValidationError, match="schedule_id"):
            service.rebuild(workspace.tenant, " ")
        assert workspace.count(RUN_SUMMARIES) == 0

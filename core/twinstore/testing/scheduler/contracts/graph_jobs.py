"""What every repository and every store of graph jobs must do."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    ValidationError,
)
from twinstore.scheduler.catalog import GRAPH_JOB_EVENTS, GRAPH_JOBS
from twinstore.scheduler.enums import GraphJobEventKind, GraphJobStatus, GraphJobType
from twinstore.scheduler.states import graph_job_move_allowed
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.graph_jobs import (
    graph_job_event,
    graph_moved,
    make_graph_build_job,
    make_graph_overlay_job,
)
from twinstore.testing.workspace import all_pages, until_it_wins

if TYPE_CHECKING:
    from twinstore.scheduler.graph_jobs import GraphBuildJob, GraphJob, GraphOverlayJob
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["GraphJobEventContract", "GraphJobRepositoryContract", "GraphJobStoreContract"]

QUEUED, RUNNING, COMPLETED, FAILED, CANCELED, PENDING = GraphJobStatus
MOVES: Final = tuple(product(GraphJobStatus, repeat=2))
CONCURRENCY: Final = 16


def build(workspace: SchedulerWorkspace, name: str = "a", /, **changes: object) -> GraphBuildJob:
    """Build a build job of the tenant."""
    return make_graph_build_job(workspace.tenant, workspace.id(name), **changes)


def overlay(workspace: SchedulerWorkspace, name: str = "a", /, **changes: object) -> GraphOverlayJob:
    """Build an overlay job of the tenant, with the digits of the build job of that name."""
    return make_graph_overlay_job(workspace.tenant, workspace.id(name), **changes)


def stored_job(workspace: SchedulerWorkspace, status: GraphJobStatus, name: str = "a") -> GraphBuildJob:
    """Insert a build job that has a given status."""
    job = graph_moved(build(workspace, name), status)
    workspace.storage.graph_jobs.insert(job)
    return job


def appended(workspace: SchedulerWorkspace, job: GraphJob) -> list[GraphJobEventKind]:
    """Return the kinds of the events of a job, the last one first."""
    return [event.kind for event in workspace.storage.graph_jobs.list_events(job.tenant_id, job.id)]


class GraphJobRepositoryContract(SchedulerCases):
    """Jobs of two types in one place, moved by compare-and-set."""

    def test_a_build_and_an_overlay_job_never_have_the_same_digits(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, first = workspace.storage.graph_jobs, build(workspace)
        jobs.insert(first)
        for taken in (first, overlay(workspace), overlay(workspace).evolve(tenant_id=workspace.foreign)):
            with pytest.raises(DuplicateError) as refusal:
                jobs.insert(taken)
            assert (refusal.value.entity, refusal.value.key) == ("graph_jobs", taken.id)
        other = overlay(workspace).id
        assert (jobs.get_overlay_job(workspace.tenant, other), jobs.get(workspace.tenant, other)) == (
            None,
            None,
        )
        assert jobs.delete(workspace.tenant, other) is False
        assert jobs.get_build_job(workspace.tenant, first.id) == first

    @pytest.mark.parametrize("wrong", ["gbj_1", "x", "{upper}", "gbj_{upper}", "GBJ_{digits}", "{digits}"])
    def test_what_is_no_id_of_a_job_is_absent(self, workspace: SchedulerWorkspace, wrong: str) -> None:
        job = stored_job(workspace, QUEUED)
        key, jobs = wrong.format(upper=job.uuid.upper(), digits=job.uuid), workspace.storage.graph_jobs
        found = (jobs.get(workspace.tenant, key), jobs.get_build_job(workspace.tenant, key))
        assert (found, jobs.delete(workspace.tenant, key)) == ((None, None), False)
        assert jobs.list_events(workspace.tenant, key).items == ()
        with pytest.raises(NotFoundError):
            jobs.get_build_job_required(workspace.tenant, key)

    @pytest.mark.parametrize(("origin", "target"), MOVES, ids=str)
    def test_every_move_is_made_or_refused_as_the_state_machine_says(
        self, workspace: SchedulerWorkspace, origin: GraphJobStatus, target: GraphJobStatus
    ) -> None:
        jobs, job = workspace.storage.graph_jobs, stored_job(workspace, origin)
        moved = graph_moved(job, target, 5, cartographer_job_id="moved")
        if origin is target:
            moved = job.evolve(cartographer_job_id="moved")
        absent = moved.evolve(id=build(workspace, "absent").id)
        if graph_job_move_allowed(origin, target):
            assert jobs.try_replace(moved, origin) is True
            assert jobs.get_build_job(workspace.tenant, job.id) == moved
            assert jobs.try_replace(absent, origin) is False
            return
        with pytest.raises(InvalidTransitionError) as refusal:
            jobs.try_replace(moved, origin)
        states = (refusal.value.from_state, refusal.value.to_state)
        assert (states, refusal.value.key) == ((origin.value, target.value), job.id)
        assert jobs.get_build_job(workspace.tenant, job.id) == job
        if origin is not target:
            with pytest.raises(InvalidTransitionError):
                jobs.try_replace(absent, origin)

    def test_another_status_tenant_or_type_than_expected_changes_nothing(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, job = workspace.storage.graph_jobs, stored_job(workspace, RUNNING)
        before = workspace.stamp(GRAPH_JOBS, (job.uuid,))
        running = graph_moved(job, RUNNING)
        assert jobs.try_replace(running.evolve(attempts=1), QUEUED) is False
        done = graph_moved(job, COMPLETED, 9)
        assert jobs.try_replace(done.evolve(tenant_id=workspace.foreign), RUNNING) is False
        twin = graph_moved(overlay(workspace, status=RUNNING, attempts=1, started_at=at(1)), COMPLETED, 9)
        assert jobs.try_replace_overlay(twin, RUNNING) is False
        assert workspace.stamp(GRAPH_JOBS, (job.uuid,)) == before
        assert jobs.try_replace(done, RUNNING) is True
        assert jobs.try_replace(done, RUNNING) is False
        assert jobs.try_replace(done, COMPLETED) is True

    def test_an_overlay_job_is_moved_by_its_own_call_and_found_by_its_own_look_ups(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, job = workspace.storage.graph_jobs, overlay(workspace)
        jobs.insert(job)
        running = graph_moved(job, RUNNING)
        assert jobs.try_replace_overlay(running, PENDING) is False
        assert jobs.get_overlay_job(workspace.tenant, job.id) == job
        assert jobs.try_replace_overlay(running, QUEUED) is True
        assert jobs.try_replace_overlay(running, QUEUED) is False
        assert jobs.get_overlay_job_required(workspace.tenant, job.id) == running
        with pytest.raises(InvalidTransitionError):
            jobs.try_replace_overlay(job, RUNNING)
        assert jobs.try_replace_overlay(graph_moved(running, COMPLETED, 9), RUNNING) is True
        assert jobs.get_build_job(workspace.tenant, build(workspace).id) is None

    @pytest.mark.parametrize("changes", [{"created_at": at(-1)}, {"started_at": None}], ids=str)
    def test_entering_running_sets_the_start(
        self, workspace: SchedulerWorkspace, changes: dict[str, object]
    ) -> None:
        job = stored_job(workspace, QUEUED)
        with pytest.raises(ValidationError):
            workspace.storage.graph_jobs.try_replace(graph_moved(job, RUNNING).evolve(**changes), QUEUED)
        assert workspace.storage.graph_jobs.get(workspace.tenant, job.id) == job

    def test_attempts_are_counted_by_the_caller(self, workspace: SchedulerWorkspace) -> None:
        jobs, job = workspace.storage.graph_jobs, build(workspace)
        jobs.insert(job)
        for origin, target, attempts in (
            (QUEUED, RUNNING, 0),
            (RUNNING, RUNNING, 7),
            (RUNNING, COMPLETED, 3),
        ):
            job = graph_moved(job, target, 9).evolve(attempts=attempts)
            assert jobs.try_replace(job, origin) is True
            assert jobs.get_build_job(workspace.tenant, job.id) == job

    def test_the_start_is_set_once(self, workspace: SchedulerWorkspace) -> None:
        jobs, job = workspace.storage.graph_jobs, stored_job(workspace, RUNNING)
        for changes in ({"started_at": at(2)}, {"started_at": None}):
            with pytest.raises(ValidationError):
                jobs.try_replace(job.evolve(**changes), RUNNING)
            with pytest.raises(ValidationError):
                jobs.try_replace(graph_moved(job, COMPLETED, 9).evolve(**changes), RUNNING)
        assert jobs.try_replace(job.evolve(metadata={"seen": "yes"}), RUNNING) is True

    def test_of_many_callers_with_one_expectation_one_moves_the_job_on(
        self, workspace: SchedulerWorkspace
    ) -> None:
        job = stored_job(workspace, PENDING)
        for target in (QUEUED, RUNNING, COMPLETED):
            origin = job.status
            competitors = [
                graph_moved(job, target, 5, cartographer_job_id=f"rival {number}")
                for number in range(CONCURRENCY)
            ]

            def step(
                storage: SchedulerStorage, competitor: GraphBuildJob, origin: GraphJobStatus = origin
            ) -> bool:
                return storage.graph_jobs.try_replace(competitor, origin)

            won = workspace.race(step, competitors)
            assert [answer for answer in won if answer is not False] == [True]
            stored = workspace.storage.graph_jobs.get_build_job_required(workspace.tenant, job.id)
            assert stored == competitors[won.index(True)]
            job = stored

    def test_lists_are_narrowed_by_type_and_status_and_hold_200_at_most(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, tenant = workspace.storage.graph_jobs, workspace.tenant
        for number in range(203):
            make = overlay if number in {7, 9} else build
            jobs.insert(make(workspace, str(number), created_at=at(number // 3)))
        assert jobs.try_replace(graph_moved(build(workspace, "8", created_at=at(2)), RUNNING), QUEUED)
        first = jobs.list_build_jobs(tenant, None, 200)
        assert len(first) == 200
        with pytest.raises(ValidationError, match="from 1 to 200"):
            jobs.list_build_jobs(tenant, None, 201)
        rest = jobs.list_build_jobs(tenant, None, 200, page_token=first.next_page_token)
        assert len({job.id for job in (*first, *rest)}) == 201
        assert [job.id for job in jobs.list_build_jobs(tenant, RUNNING, 5)] == [build(workspace, "8").id]
        assert len(jobs.list_overlay_jobs(tenant, QUEUED, 5)) == 2
        assert jobs.list_overlay_jobs(tenant, RUNNING, 5).items == ()
        assert jobs.count_by_status(tenant) == {QUEUED: 202, RUNNING: 1}
        assert jobs.count_by_status(tenant, job_type=GraphJobType.OVERLAY) == {QUEUED: 2}
        assert jobs.count_by_status(workspace.foreign) == {}
        everything = all_pages(lambda token: jobs.list_jobs(tenant, limit=100, page_token=token))
        order = [(job.created_at, job.uuid) for job in everything]
        assert order == sorted(
            sorted(order, key=lambda pair: pair[1]), key=lambda pair: pair[0], reverse=True
        )
        with pytest.raises(ValidationError, match="limit"):
            jobs.list_build_jobs(tenant, None, 0)


class GraphJobEventContract(SchedulerCases):
    """Events of jobs: appended once, in the order in which they came, and gone with their job."""

    def test_an_event_is_appended_once_and_never_changes(self, workspace: SchedulerWorkspace) -> None:
        jobs, job = workspace.storage.graph_jobs, stored_job(workspace, QUEUED)
        event = graph_job_event(job, workspace.id("e"))
        jobs.append_event(event)
        before = workspace.stamp(GRAPH_JOB_EVENTS, (event.event_id,))
        jobs.append_event(event)
        with pytest.raises(ConflictError) as refusal:
            jobs.append_event(event.evolve(ts=at(7)))
        assert (refusal.value.entity, refusal.value.key) == ("graph_job_events", event.event_id)
        assert workspace.stamp(GRAPH_JOB_EVENTS, (event.event_id,)) == before
        assert jobs.list_events(workspace.tenant, job.id).items == (event,)

    def test_an_event_of_an_unknown_foreign_or_other_job_is_refused(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, job = workspace.storage.graph_jobs, stored_job(workspace, QUEUED)
        foreign = build(workspace.elsewhere, "b")
        jobs.insert(foreign)
        unowned_jobs = (
            build(workspace, "absent"),
            overlay(workspace),
            foreign.evolve(tenant_id=workspace.tenant),
        )
        for unowned_job in unowned_jobs:
            with pytest.raises(NotFoundError) as refusal:
                jobs.append_event(graph_job_event(unowned_job, workspace.id("e")))
            assert (refusal.value.entity, refusal.value.key) == ("graph_jobs", unowned_job.id)
            assert jobs.list_events(workspace.tenant, unowned_job.id).items == ()
        jobs.append_event(graph_job_event(job, workspace.id("e")))
        assert jobs.list_events(workspace.foreign, job.id).items == ()
        assert jobs.list_events(workspace.tenant, overlay(workspace).id).items == ()
        with pytest.raises(DuplicateError):
            jobs.append_event(graph_job_event(foreign, workspace.id("e")))

    def test_events_of_one_instant_come_in_the_reverse_order_of_their_insertion(
        self, workspace: SchedulerWorkspace
    ) -> None:
        jobs, job = workspace.storage.graph_jobs, stored_job(workspace, QUEUED)
        events = [graph_job_event(job, workspace.id(f"e{number}")) for number in range(9)]
        later = graph_job_event(job, workspace.id("later"), 1)
        for event in (later, *events):
            jobs.append_event(event)
        wanted = [later, *reversed(events)]
        for limit in (1, 2, 50):
            list_page = partial(jobs.list_events, workspace.tenant, job.id, limit=limit)
            assert all_pages(lambda token, list_page=list_page: list_page(page_token=token)) == wanted  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def test_many_writers_append_every_event_once(self, workspace: SchedulerWorkspace) -> None:
        jobs = [stored_job(workspace, QUEUED, name) for name in ("a", "b")]
        events = [
            graph_job_event(jobs[number % 2], workspace.id(f"e{number // 2}-{number % 2}"))
            for number in range(CONCURRENCY)
        ]

        def step(storage: SchedulerStorage, number: int) -> None:
            until_it_wins(lambda: storage.graph_jobs.append_event(events[number % len(events)]))

        assert set(workspace.race(step, range(2 * CONCURRENCY))) == {None}
        for number, job in enumerate(jobs):
            found = workspace.storage.graph_jobs.list_events(workspace.tenant, job.id)
            assert {event.event_id for event in found} == {event.event_id for event in events[number::2]}

    def test_the_events_of_a_job_go_with_it(self, workspace: SchedulerWorkspace) -> None:
        jobs, job, other = (
            workspace.storage.graph_jobs,
            stored_job(workspace, QUEUED),
            stored_job(workspace, QUEUED, "b"),
        )
        event, kept = graph_job_event(job, workspace.id("e")), graph_job_event(other, workspace.id("kept"))
        jobs.append_event(event)
        jobs.append_event(kept)
        assert jobs.delete(workspace.foreign, job.id) is False
        assert (jobs.delete(workspace.tenant, job.id), jobs.delete(workspace.tenant, job.id)) == (True, False)
        assert workspace.probe.read(GRAPH_JOB_EVENTS, (event.event_id,)) is None
        assert jobs.list_events(workspace.tenant, other.id).items == (kept,)
        with pytest.raises(NotFoundError):
            jobs.append_event(event)


class GraphJobStoreContract(SchedulerCases):
    """Each change of a job leaves an event, and nothing else does."""

    def test_a_job_is_added_with_an_event_or_not_at_all(self, workspace: SchedulerWorkspace) -> None:
        store, job = workspace.storage.graph_job_store, overlay(workspace)
        assert store.add(job) == job
        with pytest.raises(DuplicateError) as refusal:
            store.add(build(workspace))
        assert refusal.value.key == build(workspace).id
        with pytest.raises(DuplicateError):
            workspace.storage.graph_job_store.add(job.evolve(tenant_id=workspace.foreign))
        assert store.get(workspace.tenant, job.id) == job
        assert appended(workspace, job) == [GraphJobEventKind.CREATED]
        (event,) = workspace.storage.graph_jobs.list_events(workspace.tenant, job.id)
        assert (event.payload.job, event.payload.occurred_at, event.attributes) == (job, event.ts, {})

    def test_each_update_leaves_an_event_and_a_refused_one_none(self, workspace: SchedulerWorkspace) -> None:
        store, job = workspace.storage.graph_job_store, build(workspace)
        store.add(job)
        running = graph_moved(job, RUNNING)
        assert store.update(running, PENDING) is False
        assert store.update(running, QUEUED) is True
        assert store.update(running, RUNNING) is True
        failed = graph_moved(running, FAILED, 9)
        with pytest.raises(InvalidTransitionError):
            store.update(failed.evolve(status=QUEUED, completed_at=None, error=None), RUNNING)
        with pytest.raises(ValidationError):
            store.update(failed.evolve(started_at=at(2)), RUNNING)
        assert (store.update(failed, RUNNING), store.update(failed, RUNNING)) == (True, False)
        kinds = [GraphJobEventKind.COMPLETED, GraphJobEventKind.UPDATED, GraphJobEventKind.CREATED]
        assert appended(workspace, job) == kinds

    def test_of_many_updates_one_leaves_an_event(self, workspace: SchedulerWorkspace) -> None:
        job = build(workspace)
        workspace.storage.graph_job_store.add(job)
        competitors = [
            graph_moved(job, RUNNING, 5, cartographer_job_id=f"rival {number}")
            for number in range(CONCURRENCY)
        ]

        def step(storage: SchedulerStorage, competitor: GraphBuildJob) -> bool:
            return storage.graph_job_store.update(competitor, QUEUED)

        won = workspace.race(step, competitors)
        assert [answer for answer in won if answer is not False] == [True]
        (updated, _) = workspace.storage.graph_jobs.list_events(workspace.tenant, job.id)
        assert updated.payload.job == competitors[won.index(True)]

    def test_a_list_answers_as_an_api_does(self, workspace: SchedulerWorkspace) -> None:
        store = workspace.storage.graph_job_store
        store.add(build(workspace, "b"))
        store.add(overlay(workspace, "o", created_at=at(1)))
        shown = store.list(workspace.tenant)
        assert [(item.id, item.kind, item.payload) for item in shown] == [
            (overlay(workspace, "o").id, GraphJobType.OVERLAY, overlay(workspace, "o", created_at=at(1))),
            (build(workspace, "b").id, GraphJobType.BUILD, build(workspace, "b")),
        ]
        only = store.list(workspace.tenant, job_type=GraphJobType.BUILD, status=QUEUED, limit=1)
        assert [item.id for item in only] == [build(workspace, "b").id]
        assert store.list(workspace.tenant, status=FAILED).items == ()

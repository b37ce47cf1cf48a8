"""What every registry of workers must do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

import pytest

from twinstore.errors import DuplicateError, InvalidTransitionError, ValidationError
from twinstore.scheduler.catalog import WORKERS
from twinstore.scheduler.workers import WorkerStatus
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.examples import make_worker

if TYPE_CHECKING:
    from twinstore.scheduler.workers import Worker
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["WorkerRepositoryContract"]

ACTIVE, DRAINING, STOPPED, DEAD = WorkerStatus


def registered(
    workspace: SchedulerWorkspace,
    name: str = "w",
    into: WorkerStatus = WorkerStatus.ACTIVE,
    **changes: object,
) -> Worker:
    """Register a worker of no tenant and move it into a status."""
    worker = workspace.storage.workers.register(make_worker(None, workspace.id(name), **changes))
    assert workspace.storage.workers.set_status(worker.id, into)
    return worker.evolve(status=into)


class WorkerRepositoryContract(SchedulerCases):
    """Registration, signs of life, status, and what becomes of the silent."""

    def test_registering_again_replaces_all_but_the_first_instant(
        self, workspace: SchedulerWorkspace
    ) -> None:
        first, workers = registered(workspace, into=STOPPED), workspace.storage.workers
        changed = make_worker(None, first.id, hostname="node-2", registered_at=at(9), status=DEAD)
        again = workers.register(changed)
        assert (again.hostname, again.status, again.registered_at) == ("node-2", ACTIVE, first.registered_at)
        with pytest.raises(DuplicateError):
            workers.register(again.evolve(tenant_id=workspace.tenant))
        assert workers.get(first.id) == again
        assert (again.tenant_id, workers.remove(first.id), workers.remove(first.id)) == (None, True, False)

    def test_a_sign_of_life_never_goes_back_and_revives_the_dead_only(
        self, workspace: SchedulerWorkspace
    ) -> None:
        dead, workers = registered(workspace, "dead", DEAD), workspace.storage.workers
        assert workers.heartbeat(dead.id, at(20), current_jobs=2)
        assert workers.heartbeat(dead.id, at(10))
        alive = dead.evolve(status=ACTIVE, last_heartbeat_at=at(20), current_jobs=2)
        assert workers.get(dead.id) == alive
        assert workers.heartbeat(workspace.id("missing"), at(10)) is False
        stopped = registered(workspace, "stopped", STOPPED)
        with pytest.raises(InvalidTransitionError) as refusal:
            workers.heartbeat(stopped.id, at(1))
        assert (refusal.value.entity, refusal.value.key) == ("workers", stopped.id)
        assert workers.get(stopped.id) == stopped

    @pytest.mark.parametrize("start", WorkerStatus)
    @pytest.mark.parametrize("end", WorkerStatus)
    def test_a_status_changes_as_the_state_machine_allows(
        self, workspace: SchedulerWorkspace, start: WorkerStatus, end: WorkerStatus
    ) -> None:
        worker = registered(workspace, into=start)
        allowed = {(ACTIVE, DRAINING), (ACTIVE, STOPPED), (ACTIVE, DEAD)}
        allowed |= {(DRAINING, STOPPED), (DRAINING, DEAD), (DEAD, ACTIVE)}
        if start is end or (start, end) in allowed:
            assert workspace.storage.workers.set_status(worker.id, end) is True
            assert workspace.storage.workers.get_required(worker.id).status is end
            return
        with pytest.raises(InvalidTransitionError):
            workspace.storage.workers.set_status(worker.id, end)
        assert workspace.storage.workers.get(worker.id) == worker

    def test_the_silent_are_found_and_marked_once(self, isolated_workspace: SchedulerWorkspace) -> None:
        workers = isolated_workspace.storage.workers
        silent = [
            registered(isolated_workspace, name, status, last_heartbeat_at=at(number / 1000))
            for number, (name, status) in enumerate(zip("cab", (ACTIVE, DRAINING, STOPPED), strict=True))
        ]
        now = at() + timedelta(minutes=6)
        alive = registered(isolated_workspace, "alive", last_heartbeat_at=now)
        found = tuple(worker.id for worker in workers.find_dead(now))
        assert found == (silent[0].id, silent[1].id)
        assert (workers.mark_dead(now), workers.mark_dead(now)) == (found, ())
        assert [workers.get_required(item.id).status for item in silent] == [DEAD, DEAD, STOPPED]
        assert workers.get(alive.id) == alive

    def test_a_list_is_filtered_by_status_and_tenant(self, workspace: SchedulerWorkspace) -> None:
        workers = workspace.storage.workers
        own = workers.register(make_worker(workspace.tenant, workspace.id("own")))
        assert tuple(workers.list(tenant_id=workspace.tenant)) == (own,)
        assert tuple(workers.list(tenant_id=workspace.tenant, statuses=[STOPPED])) == ()
        assert tuple(workers.list(statuses=[])) == ()

    def test_an_unacceptable_status_load_or_threshold_is_refused(self, workspace: SchedulerWorkspace) -> None:
        worker, workers = registered(workspace), workspace.storage.workers
        with pytest.raises(ValidationError):
            workers.heartbeat(worker.id, at(1), current_jobs=-1)
        with pytest.raises(ValidationError):
            workers.set_status(worker.id, cast("WorkerStatus", "asleep"))
        for threshold in (timedelta(0), cast("timedelta", None)):
            with pytest.raises(ValidationError, match="threshold"):
                workers.find_dead(at(), threshold=threshold)
        # Longer than the calendar: no worker has been silent since then.
        assert tuple(workers.find_dead(at(), threshold=timedelta.max)) == ()
        assert workers.get(worker.id) == worker

    def test_a_worker_that_cannot_be_read_keeps_no_other_from_being_marked(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        workers, probe = isolated_workspace.storage.workers, isolated_workspace.probe
        broken, other = (
            registered(isolated_workspace, name, last_heartbeat_at=at(number))
            for number, name in enumerate("ab")
        )
        now, key = at() + timedelta(minutes=6), (broken.id,)
        probe.poison(WORKERS, key, "no such thing")
        before = probe.read(WORKERS, key)
        assert before is not None
        assert (workers.mark_dead(now), workers.mark_dead(now)) == ((other.id,), ())
        assert workers.get_required(other.id).status is DEAD
        assert probe.read(WORKERS, key) == before

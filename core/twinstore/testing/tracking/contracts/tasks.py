"""What every repository of tasks must do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    ValidationError,
)
from twinstore.testing.instants import at
from twinstore.testing.tracking.cases import TrackingCases
from twinstore.tracking.catalog import TASKS
from twinstore.tracking.enums import TaskStatus
from twinstore.tracking.tasks import TaskQueryOptions

if TYPE_CHECKING:
    from twinstore.testing.tracking.builders import TrackingWorkspace
    from twinstore.tracking.tasks import TrackingTask, TrackingTaskRepository

__all__ = ["TaskRepositoryContract"]

PENDING, IN_PROGRESS, COMPLETED, FAILED, BLOCKED = TaskStatus
# Written out again: the rule must not be its own proof.
BY_UPDATE: Final[Mapping[TaskStatus, set[TaskStatus]]] = {
    PENDING: {PENDING, IN_PROGRESS, BLOCKED},
    IN_PROGRESS: {IN_PROGRESS, BLOCKED, COMPLETED, FAILED},
    BLOCKED: {BLOCKED, PENDING, IN_PROGRESS},
    FAILED: {FAILED, PENDING},
    COMPLETED: set(),
}
Act = Callable[["TrackingTaskRepository", str], "TrackingTask"]
# By method: the status from which it moves, and those in which it changes nothing.
METHODS: Final[Mapping[str, tuple[Act, set[TaskStatus], set[TaskStatus]]]] = {
    "start": (lambda tasks, key: tasks.start(key, at(8)), {PENDING, BLOCKED}, {IN_PROGRESS}),
    "complete": (lambda tasks, key: tasks.complete(key, at(8)), {IN_PROGRESS}, set()),
    "fail": (lambda tasks, key: tasks.fail(key, at(8), error_message="boo"), {IN_PROGRESS}, set()),
    "retry": (lambda tasks, key: tasks.retry(key), {FAILED}, {PENDING}),
}
INSTANTS: Final[Mapping[TaskStatus, dict[str, object]]] = {
    PENDING: {},
    IN_PROGRESS: {"started_at": at(1)},
    BLOCKED: {"started_at": at(1)},
    COMPLETED: {"started_at": at(1), "completed_at": at(2)},
    FAILED: {"started_at": at(1), "completed_at": at(2), "error_message": "it broke"},
}
DAY: Final = timedelta(days=1)


def stored(workspace: TrackingWorkspace, status: TaskStatus, name: str = "t") -> TrackingTask:
    """Store a task in a status with its instants."""
    return workspace.task(name, status=status, **INSTANTS[status])


class TaskRepositoryContract(TrackingCases):
    """Tasks from their beginning to their end, and again."""

    def test_the_store_sets_both_instants_whatever_a_record_says(self, workspace: TrackingWorkspace) -> None:
        record = workspace.task("made").evolve(task_id=workspace.id("t"), created_at=at(900))
        with workspace.opened_at(at(10)) as early, workspace.opened_at(at(20)) as late:
            created = early.tasks.create(record.evolve(updated_at=at(901)))
            assert (created.created_at, created.updated_at) == (at(10), at(10))
            assert late.tasks.update(created.evolve(task_name="another", created_at=at(902)))
            assert late.tasks.get(created.task_id) == created.evolve(task_name="another", updated_at=at(20))
        with pytest.raises(DuplicateError):
            workspace.storage.tasks.create(created)

    @pytest.mark.parametrize("start", TaskStatus)
    @pytest.mark.parametrize("end", TaskStatus)
    def test_an_update_moves_a_task_as_the_state_machine_allows(
        self, workspace: TrackingWorkspace, start: TaskStatus, end: TaskStatus
    ) -> None:
        before = stored(workspace, start)
        wanted = before.evolve(status=end, task_name="another")
        with workspace.opened_at(at(30)) as storage:
            tasks = storage.tasks
            if end not in BY_UPDATE[start]:
                with pytest.raises(InvalidTransitionError) as refusal:
                    tasks.update(wanted)
                assert (refusal.value.from_state, refusal.value.to_state) == (start.value, end.value)
                assert tasks.update(before) is True
                assert tasks.get(before.task_id) == before
                return
            assert tasks.update(wanted, expected_status=start) is True
            after = tasks.get_required(before.task_id)
            assert (after.status, after.task_name, after.updated_at) == (end, "another", at(30))
            begins = start is PENDING and end is IN_PROGRESS
            assert after.started_at == (at(30) if begins else before.started_at)
            ends_at = at(30) if end in {COMPLETED, FAILED} and start is not end else before.completed_at
            is_retried = (start, end) == (FAILED, PENDING)
            assert after.completed_at == (None if is_retried else ends_at)
            assert after.error_message == (None if is_retried else before.error_message)

    def test_an_update_changes_nothing_that_moves_decide(self, workspace: TrackingWorkspace) -> None:
        before, tasks = stored(workspace, IN_PROGRESS), workspace.storage.tasks
        changes: dict[str, object] = {
            "session_id": "other",
            "project_id": "other",
            "started_at": at(9),
            "completed_at": at(9),
        }
        for name, value in changes.items():
            with pytest.raises(ValidationError, match=name):
                tasks.update(before.evolve(**{name: value}))
        with pytest.raises(ConflictError, match="in_progress"):
            tasks.update(before, expected_status=PENDING)
        assert tasks.update(before.evolve(task_id=workspace.id("absent"))) is False
        # A caller who knows when it ended may say so with the move.
        assert tasks.update(before.evolve(status=COMPLETED, completed_at=at(3)))
        assert tasks.get_required(before.task_id).completed_at == at(3)

    @pytest.mark.parametrize("name", METHODS)
    @pytest.mark.parametrize("start", TaskStatus)
    def test_a_method_moves_from_its_statuses_only(
        self, workspace: TrackingWorkspace, name: str, start: TaskStatus
    ) -> None:
        before, tasks = stored(workspace, start), workspace.storage.tasks
        act, moves, stays = METHODS[name]
        if start in moves:
            after = act(tasks, before.task_id)
            stamp = workspace.stamp(TASKS, (before.task_id,))
            assert act(tasks, before.task_id) == tasks.get(before.task_id) == after != before
            assert workspace.stamp(TASKS, (before.task_id,)) == stamp
        elif start in stays:
            assert act(tasks, before.task_id) == before
        else:
            with pytest.raises(InvalidTransitionError):
                act(tasks, before.task_id)
        if start not in moves:
            assert tasks.get(before.task_id) == before
        with pytest.raises(NotFoundError):
            act(tasks, workspace.id("absent"))

    def test_moves_set_and_clear_their_instants(self, workspace: TrackingWorkspace) -> None:
        tasks, key = workspace.storage.tasks, workspace.task().task_id
        assert tasks.start(key, at(1)).started_at == at(1)
        failed = tasks.fail(key, at(2), error_message=" it broke ")
        assert (failed.status, failed.completed_at, failed.error_message) == (FAILED, at(2), "it broke")
        with pytest.raises(InvalidTransitionError):
            tasks.fail(key, at(3), error_message="it broke")
        again = tasks.retry(key)
        assert (again.status, again.started_at, again.completed_at) == (PENDING, at(1), None)
        assert again.error_message is None
        assert tasks.start(key, at(4)).started_at == at(4)
        done = tasks.complete(key, at(5))
        assert (done.status, done.completed_at) == (COMPLETED, at(5))
        with pytest.raises(ValidationError, match="error_message"):
            tasks.fail(key, at(6), error_message=" ")
        assert tasks.get(key) == done

    def test_a_list_is_filtered_and_progress_counts(self, workspace: TrackingWorkspace) -> None:
        tasks, session = workspace.storage.tasks, workspace.id("s")
        rows = [
            workspace.task(f"{n}", status=status, session_id=session, created_at=at(9 - n))
            for n, status in enumerate((COMPLETED, FAILED, COMPLETED, PENDING, BLOCKED, COMPLETED))
        ]
        other = workspace.task("other", status=COMPLETED)

        def shown(**filters: object) -> list[TrackingTask]:
            return [*tasks.list(TaskQueryOptions(**filters))]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # each as the case says

        assert shown(session_id=session) == rows[::-1]
        assert shown(session_id=session, statuses=[FAILED, BLOCKED]) == [rows[4], rows[1]]
        assert shown(project_id=other.project_id) == [other, *rows[::-1]]
        assert shown(session_id=session, statuses=[]) == []
        found = tasks.progress(session_id=session)
        assert (found.total, found.completed, found.failed, found.percentage) == (6, 3, 1, 50)
        assert found.by_status == {PENDING: 1, COMPLETED: 3, FAILED: 1, BLOCKED: 1}
        assert tasks.progress(project_id=other.project_id).percentage == 57
        assert tasks.progress(session_id=workspace.id("none")).percentage == 0
        for both in ({}, {"session_id": "a", "project_id": "b"}):
            with pytest.raises(ValidationError, match="session_id"):
                tasks.progress(**both)
        assert (tasks.delete(other.task_id), tasks.delete(other.task_id)) == (True, False)

    def test_what_ended_long_ago_is_purged(self, isolated_workspace: TrackingWorkspace) -> None:
        rows = {
            name: isolated_workspace.task(name, status=status, completed_at=completed_at)
            for name, status, completed_at in (
                ("due", COMPLETED, at()),
                ("failed", FAILED, at(-1)),
                ("young", COMPLETED, at(0.001)),
                ("blocked", BLOCKED, at(-9)),
            )
        }
        _, tasks = isolated_workspace.kept_for(1)
        _, never = isolated_workspace.kept_for(0)
        assert never.purge_expired(at() + DAY) == 0
        assert tasks.purge_expired(at() + DAY) == 2
        assert {name for name, row in rows.items() if tasks.get(row.task_id) == row} == {"young", "blocked"}

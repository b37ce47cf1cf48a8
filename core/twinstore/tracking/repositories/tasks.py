"""Tasks: each moved alone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from typing_extensions import override

from twinstore.access.paging import Page
from twinstore.access.scope import id_argument, instant_argument, member_argument, text_argument
from twinstore.catalog.row import Row
from twinstore.errors import ValidationError
from twinstore.tracking import queries
from twinstore.tracking.catalog import TASKS
from twinstore.tracking.enums import TaskStatus
from twinstore.tracking.repositories.base import TrackingRepository
from twinstore.tracking.rules import tasks as rules
from twinstore.tracking.rules.records import created
from twinstore.tracking.tasks import TaskProgress, TaskQueryOptions, TrackingTask, TrackingTaskRepository


class TrackingTasks(TrackingRepository, TrackingTaskRepository):
    """Implements :class:`~twinstore.tracking.tasks.TrackingTaskRepository`."""

    @override
    def create(self, record: TrackingTask) -> TrackingTask:
        record, scope = self._model(record, TrackingTask, "record"), self._scope()
        return self._access.insert(TASKS, scope, Row(created(record, self._clock.now()))).model

    @override
    def get(self, task_id: str) -> TrackingTask | None:
        return self._get(TASKS, self._scope(), (id_argument(task_id, "task_id"),))

    @override
    def get_required(self, task_id: str) -> TrackingTask:
        return self._required(self.get(task_id), TASKS, task_id.strip())

    @override
    def list(self, options: TaskQueryOptions | None = None) -> Page[TrackingTask]:
        self._scope()
        return self._page(TASKS, queries.tasks(options))

    @override
    def count(self, options: TaskQueryOptions | None = None) -> int:
        self._scope()
        return self._count(TASKS, queries.tasks(options), "status")

    @override
    def update(self, record: TrackingTask, *, expected_status: TaskStatus | None = None) -> bool:
        record, now = self._model(record, TrackingTask, "record"), self._clock.now()
        expected = (
            None
            if expected_status is None
            else member_argument(expected_status, TaskStatus, "expected_status")
        )
        change = partial(rules.updated, record=record, expected=expected, now=now)
        return self._move(record.task_id, change) is not None

    @override
    def start(self, task_id: str, now: datetime) -> TrackingTask:
        return self._moved(task_id, partial(rules.started, now=instant_argument(now, "now")))

    @override
    def complete(self, task_id: str, now: datetime) -> TrackingTask:
        instant = instant_argument(now, "now")
        return self._moved(task_id, partial(rules.ended, status=TaskStatus.COMPLETED, now=instant))

    @override
    def fail(self, task_id: str, now: datetime, *, error_message: str) -> TrackingTask:
        instant, text = instant_argument(now, "now"), text_argument(error_message, "error_message")
        change = partial(rules.ended, status=TaskStatus.FAILED, now=instant, error_message=text)
        return self._moved(task_id, change)

    @override
    def retry(self, task_id: str) -> TrackingTask:
        return self._moved(task_id, partial(rules.retried, now=self._clock.now()))

    @override
    def progress(self, *, session_id: str | None = None, project_id: str | None = None) -> TaskProgress:
        self._scope()
        if (session_id is None) == (project_id is None):
            raise ValidationError("Give session_id or project_id, and not both.", entity=TASKS.name)
        query = queries.counted_tasks(session_id, project_id)
        return rules.progress_of(self._access.count(TASKS, query, "status"))

    @override
    def delete(self, task_id: str) -> bool:
        return self._remove(TASKS, self._scope(), (id_argument(task_id, "task_id"),))

    @override
    def purge_expired(self, now: datetime, *, batch_size: int = 500) -> int:
        return self._purge_ended(TASKS, now, batch_size)

    def _moved(self, task_id: str, change: Callable[[TrackingTask], TrackingTask]) -> TrackingTask:
        """Change a task that must exist; return it as it is stored then."""
        key = id_argument(task_id, "task_id")
        return self._required(self._move(key, change), TASKS, key)

    def _move(self, key: str, change: Callable[[TrackingTask], TrackingTask]) -> TrackingTask | None:
        """Change a task that exists; return it as it is stored then."""
        return self._touch(TASKS, key, change)

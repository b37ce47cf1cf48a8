"""The fixed set of lists of tracking that both sides must answer alike; none of them is about a tenant."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.plugins.checks import (
    Cutoffs,
    ListedRow,
    ListQuery,
    ModuleChecks,
    StoredList,
    paged,
    single_page,
)
from twinstore.tracking import queries
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS
from twinstore.tracking.enums import MachineStatus, SessionStatus, TaskStatus
from twinstore.tracking.sessions import SessionQueryOptions
from twinstore.tracking.storage import TrackingStorage
from twinstore.tracking.tasks import TaskQueryOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access.paging import Page
    from twinstore.tracking.machines import MachineAvailability, TrackingMachine
    from twinstore.tracking.sessions import TrackingSession
    from twinstore.tracking.tasks import TrackingTask

TrackingList = ListQuery[TrackingStorage]
LAST_INSTANT: Final = datetime(9999, 12, 31, tzinfo=UTC)
# The default limit of the list, which is what a service asks for.
SILENT: Final = 100
MOMENT: Final = timedelta(milliseconds=1)


class TrackingLists(ModuleChecks[TrackingStorage]):
    """Builds the queries."""

    def __init__(self, cutoffs: Cutoffs, page: int) -> None:
        """Take, by entity, the instant up to which rows are expired, and the rows per page."""
        self._cutoffs = cutoffs
        self._page = page

    @override
    def of_tenant(self, tenant: str, source: TrackingStorage) -> Iterator[TrackingList]:
        """Return nothing: no row has a tenant."""
        del tenant, source
        return iter(())

    @override
    def over_all(self) -> Iterator[TrackingList]:
        yield self._sessions("sessions, latest first", SessionQueryOptions(limit=self._page))
        for status in SessionStatus:
            options = SessionQueryOptions(statuses=(status,), limit=self._page)
            yield self._sessions(f"sessions that are {status}", options)
        yield ListQuery(
            "active sessions, silent ones first",
            # At the end of time every active session is silent, so the order is compared and not the clock.
            lambda side, _: single_page(
                side.tracking_sessions.find_stale(LAST_INSTANT, threshold=MOMENT, limit=SILENT),
                self._session_row,
            ),
            (SESSIONS.name,),
            stored=StoredList(
                SESSIONS, queries.stale_sessions(LAST_INSTANT, MOMENT, SILENT), self._session_row
            ),
        )
        yield self._tasks("tasks, oldest first", TaskQueryOptions(limit=self._page))
        for task_status in TaskStatus:
            yield self._tasks(
                f"tasks that are {task_status}", TaskQueryOptions(statuses=(task_status,), limit=self._page)
            )
        yield self._machines("machines", None)
        yield self._machines("machines that are offline or online", OFFLINE_OR_ONLINE)
        yield ListQuery(
            "machines with a free slot",
            lambda side, token: paged(
                side.machines.list_available(limit=self._page, page_token=token), availability_row
            ),
            (MACHINES.name, SESSIONS.name),
        )

    def _sessions(self, name: str, options: SessionQueryOptions) -> TrackingList:
        def fetch(side: TrackingStorage, token: str | None) -> Page[ListedRow | None]:
            return paged(side.tracking_sessions.list(replace(options, page_token=token)), self._session_row)

        stored = StoredList(SESSIONS, queries.sessions(options), self._session_row)
        return ListQuery(name, fetch, (SESSIONS.name,), stored=stored)

    def _tasks(self, name: str, options: TaskQueryOptions) -> TrackingList:
        def fetch(side: TrackingStorage, token: str | None) -> Page[ListedRow | None]:
            return paged(side.tasks.list(replace(options, page_token=token)), self._task_row)

        stored = StoredList(TASKS, queries.tasks(options), self._task_row)
        return ListQuery(name, fetch, (TASKS.name,), stored=stored)

    def _machines(self, name: str, statuses: tuple[MachineStatus, ...] | None) -> TrackingList:
        def fetch(side: TrackingStorage, token: str | None) -> Page[ListedRow | None]:
            page = side.machines.list(statuses=statuses, limit=self._page, page_token=token)
            return paged(page, machine_row)

        stored = StoredList(MACHINES, queries.machines(statuses, self._page, None), machine_row)
        return ListQuery(name, fetch, (MACHINES.name,), stored=stored)

    def _session_row(self, session: TrackingSession) -> ListedRow | None:
        """Identify a session and its status; ``None`` for one that a store may have removed."""
        gone = self._is_gone(SESSIONS.name, session.completed_at, ended=session.status.ended)
        return None if gone else (session.session_id, session.status.value)

    def _task_row(self, task: TrackingTask) -> ListedRow | None:
        """Identify a task and its status; ``None`` for one that a store may have removed."""
        gone = self._is_gone(TASKS.name, task.completed_at, ended=task.status.ended)
        return None if gone else (task.task_id, task.status.value)

    def _is_gone(self, entity: str, completed_at: datetime | None, *, ended: bool) -> bool:
        limit = self._cutoffs.get(entity)
        return ended and limit is not None and completed_at is not None and completed_at <= limit


OFFLINE_OR_ONLINE: Final = (MachineStatus.OFFLINE, MachineStatus.ONLINE)


def machine_row(machine: TrackingMachine) -> ListedRow:
    """Identify a machine and its sessions."""
    return (machine.machine_id, *machine.active_sessions)


def availability_row(found: MachineAvailability) -> ListedRow:
    """Identify a machine and its free slots."""
    return (found.machine.machine_id, *map(str, found.free_slots))

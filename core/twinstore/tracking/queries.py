"""The lists of tracking as data: filter, order and limits in one place for every driver."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, build_query
from twinstore.access.scope import (
    duration_argument,
    id_argument,
    instant_argument,
    members_argument,
    options_argument,
)
from twinstore.catalog.conditions import Before, Condition, Equals, OneOf
from twinstore.catalog.tenancy import NO_TENANT
from twinstore.errors import ValidationError
from twinstore.runtime.formatting import safe_repr
from twinstore.tracking.enums import MachineStatus, SessionStatus, TaskStatus
from twinstore.tracking.sessions import SessionQueryOptions
from twinstore.tracking.tasks import TaskQueryOptions

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from enum import StrEnum

MAX_PAGE: Final = 100
MAX_STALE: Final = 1000
MOMENT: Final = timedelta(milliseconds=1)
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
LATEST_SESSIONS: Final = (SortKey("started_at", descending=True, time=True), SortKey("session_id"))
SILENT_SESSIONS: Final = (SortKey("last_heartbeat", time=True), SortKey("session_id"))
OLDEST_TASKS: Final = (SortKey("created_at", time=True), SortKey("task_id"))
BY_MACHINE: Final = (SortKey("machine_id"),)


def sessions(options: SessionQueryOptions | None) -> Query:
    """Return the query of ``TrackingSessionRepository.list``."""
    options = options_argument(options, SessionQueryOptions)
    where = _statuses(options.statuses, SessionStatus)
    where += _equal("project_id", options.project_id)
    where += _equal("machine_id", options.machine_id)
    return _page("sessions", where, LATEST_SESSIONS, options.limit, options.page_token)


def stale_sessions(now: datetime, threshold: object, limit: int) -> Query:
    """Return the query of ``TrackingSessionRepository.find_stale``."""
    # In whole milliseconds as every stored instant; a server that cuts off the rest would find fewer.
    silence = threshold_argument(threshold) // MOMENT * MOMENT
    instant = instant_argument(now, "now")
    # No session was silent since before the calendar began.
    since = instant - silence if silence <= instant - EARLIEST else EARLIEST
    where = (Equals("status", SessionStatus.ACTIVE.value), Before("last_heartbeat", since))
    found = build_query(
        "sessions", scope=NO_TENANT, where=where, order=SILENT_SESSIONS, limit=limit, maximum=MAX_STALE
    )
    # One broken row would keep every other session from being found.
    return replace(found, skips_undecodable=True)


def threshold_argument(threshold: object) -> timedelta:
    """Return a length of time, or raise ``ValidationError``."""
    length = duration_argument(threshold, "threshold")
    if length <= timedelta(0):
        raise ValidationError(f"Argument threshold should be longer than zero, not {safe_repr(threshold)}.")
    return length


def sessions_named(session_ids: Sequence[str]) -> Query:
    """Return the query of some sessions; unreadable ones are named."""
    return Query(
        entity="sessions",
        scope=NO_TENANT,
        where=(OneOf("session_id", tuple(session_ids)),),
        order=(SortKey("session_id"),),
        limit=max(len(session_ids), 1),
        skips_undecodable=True,
    )


def sessions_of_project(project_id: str) -> Query:
    """Return the query behind ``TrackingSessionRepository.count_by_status``."""
    where = _equal("project_id", project_id)
    order = (SortKey("session_id"),)
    return build_query("sessions", scope=NO_TENANT, where=where, order=order, limit=1, maximum=1)


def tasks(options: TaskQueryOptions | None) -> Query:
    """Return the query of ``TrackingTaskRepository.list``."""
    options = options_argument(options, TaskQueryOptions)
    where = _statuses(options.statuses, TaskStatus)
    where += _equal("session_id", options.session_id)
    where += _equal("project_id", options.project_id)
    return _page("tasks", where, OLDEST_TASKS, options.limit, options.page_token)


def tasks_of_session(session_id: str, limit: int) -> Query:
    """Return the query of the tasks of a session, for their removal."""
    where = _equal("session_id", session_id)
    return build_query("tasks", scope=NO_TENANT, where=where, order=OLDEST_TASKS, limit=limit, maximum=limit)


def counted_tasks(session_id: str | None, project_id: str | None) -> Query:
    """Return the query behind ``TrackingTaskRepository.progress``."""
    where = [*_equal("session_id", session_id), *_equal("project_id", project_id)]
    return build_query("tasks", scope=NO_TENANT, where=where, order=OLDEST_TASKS, limit=1, maximum=1)


def machines(statuses: Collection[MachineStatus] | None, limit: int, page_token: str | None) -> Query:
    """Return the query of ``TrackingMachineRepository.list``."""
    return _page("machines", _statuses(statuses, MachineStatus), BY_MACHINE, limit, page_token)


def available_machines(limit: int, page_token: str | None) -> Query:
    """Return the query behind ``TrackingMachineRepository.list_available``: what is online."""
    online = Equals("status", MachineStatus.ONLINE.value)
    found = _page("machines", (online,), BY_MACHINE, limit, page_token)
    # One broken row would keep every other machine from being found.
    return replace(found, skips_undecodable=True)


def _page(
    entity: str, where: Sequence[Condition], order: tuple[SortKey, ...], limit: int, page_token: str | None
) -> Query:
    return build_query(
        entity,
        scope=NO_TENANT,
        where=where,
        order=order,
        limit=limit,
        maximum=MAX_PAGE,
        page_token=page_token,
    )


def _statuses(statuses: Collection[StrEnum] | None, cls: type[StrEnum]) -> list[Condition]:
    if statuses is None:
        return []
    # Sorted, because a page token holds a print of the filter: the caller may name them in any order.
    values = sorted({status.value for status in members_argument(statuses, cls, "statuses")})
    return [OneOf("status", tuple(values))]


def _equal(field: str, value: str | None) -> list[Condition]:
    return [] if value is None else [Equals(field, id_argument(value, field))]

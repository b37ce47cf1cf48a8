"""What the generic contracts ask of tracking, beyond what follows from its examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

import pytest

from twinstore.testing.base import Contract
from twinstore.testing.calls import Listing, Touch
from twinstore.testing.tracking.builders import TrackingWorkspace, project_of
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES
from twinstore.tracking.catalog import SESSIONS, TASKS
from twinstore.tracking.enums import SessionStatus, TaskStatus
from twinstore.tracking.sessions import SessionQueryOptions
from twinstore.tracking.tasks import TaskQueryOptions

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.testing.examples import OneOfEach
    from twinstore.testing.workspace import AnyStorage
    from twinstore.tracking.storage import TrackingStorage, TrackingUnit

__all__ = ["TrackingCases"]

# Before the contracts are imported, so that their failures show both sides of a comparison.
pytest.register_assert_rewrite("twinstore.testing.tracking.contracts")


def sessions_of_project(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the sessions of a project."""
    options = SessionQueryOptions(project_id=project_of(tenant), limit=limit, page_token=token)
    return cast("TrackingStorage", storage).tracking_sessions.list(options)


def sessions_by_every_filter(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for sessions through every filter."""
    options = SessionQueryOptions(
        statuses=[SessionStatus.STALLED, SessionStatus.ACTIVE],
        project_id=project_of(tenant),
        machine_id=f"machine@{tenant}",
        limit=limit,
        page_token=token,
    )
    return cast("TrackingStorage", storage).tracking_sessions.list(options)


def tasks_of_session(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the tasks of a session."""
    options = TaskQueryOptions(session_id=f"session@{tenant}", limit=limit, page_token=token)
    return cast("TrackingStorage", storage).tasks.list(options)


def tasks_by_every_filter(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for tasks through every filter."""
    options = TaskQueryOptions(
        statuses=[TaskStatus.PENDING, TaskStatus.BLOCKED],
        session_id=f"session@{tenant}",
        project_id=project_of(tenant),
        limit=limit,
        page_token=token,
    )
    return cast("TrackingStorage", storage).tasks.list(options)


def shown_sessions(session: object, tenant: str, one_of_each: OneOfEach) -> object:
    """List the sessions of a tenant of the kit."""
    del one_of_each
    options = SessionQueryOptions(project_id=project_of(tenant))
    return cast("TrackingUnit", session).tracking_sessions.list(options)


def shown_tasks(session: object, tenant: str, one_of_each: OneOfEach) -> object:
    """List the tasks of a tenant of the kit."""
    del one_of_each
    return cast("TrackingUnit", session).tasks.list(TaskQueryOptions(project_id=project_of(tenant)))


OF_SESSIONS, OF_TASKS = TRACKING_EXAMPLES.of(SESSIONS), TRACKING_EXAMPLES.of(TASKS)
LATEST, OLDEST = "-started_at session_id", "created_at task_id"


class TrackingCases(Contract):
    """Base of all contracts of tracking."""

    module = TRACKING_EXAMPLES
    workspace_class = TrackingWorkspace
    more_listings: ClassVar[tuple[Listing, ...]] = (
        Listing(
            name="sessions of a project", example=OF_SESSIONS, order=LATEST, fetch_page=sessions_of_project
        ),
        Listing(
            name="sessions by every filter",
            example=OF_SESSIONS,
            order=LATEST,
            fetch_page=sessions_by_every_filter,
        ),
        Listing(name="tasks of a session", example=OF_TASKS, order=OLDEST, fetch_page=tasks_of_session),
        Listing(
            name="tasks by every filter", example=OF_TASKS, order=OLDEST, fetch_page=tasks_by_every_filter
        ),
    )
    more_touches: ClassVar[tuple[Touch, ...]] = (
        Touch("list", SESSIONS, shown_sessions, repeatable=True),
        Touch("list", TASKS, shown_tasks, repeatable=True),
    )

"""The examples of tracking. Its rows have no tenant: names mark those of a tenant of the kit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.models.canonical import CanonicalModel
from twinstore.testing.examples import Example, ModuleExamples, example
from twinstore.testing.tracking.builders import (
    make_machine,
    make_session,
    make_task,
    put_record,
    rich_machine,
    rich_session,
    rich_task,
)
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS
from twinstore.tracking.machines import TrackingMachineRepository
from twinstore.tracking.module import MODULE
from twinstore.tracking.sessions import TrackingSessionRepository
from twinstore.tracking.tasks import TrackingTaskRepository

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity

__all__ = ["TRACKING_EXAMPLES"]

M = TypeVar("M", bound=CanonicalModel)


def stored(attribute: str, entity: Entity[M], session: object, tenant: str, record: M) -> M:
    """Store a record as it is."""
    del tenant
    return put_record(session, attribute, entity, record)


def sessions() -> Example:
    """Return the example of sessions."""
    return example(
        entity=SESSIONS,
        protocol=TrackingSessionRepository,
        repository="tracking_sessions",
        small=make_session,
        rich=rich_session,
        store=partial(stored, "tracking_sessions", SESSIONS),
        orders={"list": "-started_at session_id"},
        remove="delete",
    )


def tasks() -> Example:
    """Return the example of tasks."""
    return example(
        entity=TASKS,
        protocol=TrackingTaskRepository,
        small=make_task,
        rich=rich_task,
        store=partial(stored, "tasks", TASKS),
        orders={"list": "created_at task_id"},
        moves=("retry",),
        remove="delete",
    )


def machines() -> Example:
    """Return the example of machines."""
    return example(
        entity=MACHINES,
        protocol=TrackingMachineRepository,
        small=make_machine,
        rich=rich_machine,
        store=partial(stored, "machines", MACHINES),
        orders={"list": "machine_id"},
        remove="delete",
    )


TRACKING_EXAMPLES: Final = ModuleExamples(MODULE, (sessions(), tasks(), machines()))

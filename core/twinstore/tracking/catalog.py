"""The entities of tracking, in the order in which they are copied.

The indexes that a comment calls fixed are the customer's and exist exactly so; the others are additions, each
for the list that its comment names. Every list has its index, except the sessions of a machine in a project
and the tasks of a session in a project: these read the rows of the machine or session and filter by project.
"""

from __future__ import annotations

from typing import Final

from twinstore.catalog.conditions import IsPresent, OneOf
from twinstore.catalog.entity import Entity, Module, Retention
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import text
from twinstore.catalog.tenancy import Tenancy
from twinstore.tracking.enums import ENDED_SESSIONS, ENDED_TASKS
from twinstore.tracking.machines import TrackingMachine
from twinstore.tracking.sessions import TrackingSession
from twinstore.tracking.tasks import TrackingTask

MODULE: Final = "tracking"
TABLES: Final = frozenset({StoreKind.TABLES})
DOCUMENTS: Final = frozenset({StoreKind.DOCUMENTS})
RETENTION: Final = "retention_days"
ENDED_SESSION: Final = OneOf("status", tuple(sorted(status.value for status in ENDED_SESSIONS)))
ENDED_TASK: Final = OneOf("status", tuple(sorted(status.value for status in ENDED_TASKS)))

SESSIONS: Final = Entity(
    name="sessions",
    singular="session",
    module=MODULE,
    model=TrackingSession,
    key_parts=(text("session_id"),),
    tenancy=Tenancy.none(),
    group="sessions",
    dated="updated_at",
    narrow=("docker_slot", "recovery_attempts"),
    generated_id=True,
    indexes=(
        # Fixed.
        Index(fields=("project_id",), name="project_id"),
        Index(fields=("machine_id",), name="machine_id"),
        Index(fields=("status",), name="status"),
        Index(fields=("last_heartbeat",), name="last_heartbeat"),
        Index(fields=("project_id", "status"), name="project_status"),
        Index(fields=("machine_id", "status"), name="machine_status"),
        Index(
            fields=("completed_at",),
            name="expiry",
            expires=True,
            where=(IsPresent("completed_at"), ENDED_SESSION),
            stores=DOCUMENTS,
            document_name="ttl_completed_at",
        ),
        # The same for the purge of tables, which removes the oldest first.
        Index(
            fields=("completed_at", "session_id"),
            name="expiry",
            where=(IsPresent("completed_at"), ENDED_SESSION),
            stores=TABLES,
        ),
        # list(), and with each of its filters: latest start first.
        Index(fields=("-started_at", "session_id"), name="started"),
        Index(fields=("status", "-started_at", "session_id"), name="status_started"),
        Index(fields=("project_id", "-started_at", "session_id"), name="project_started"),
        Index(fields=("project_id", "status", "-started_at", "session_id"), name="project_status_started"),
        Index(fields=("machine_id", "-started_at", "session_id"), name="machine_started"),
        Index(fields=("machine_id", "status", "-started_at", "session_id"), name="machine_status_started"),
        # find_stale() and mark_stalled().
        Index(fields=("status", "last_heartbeat", "session_id"), name="status_heartbeat"),
    ),
    retention=Retention(field="completed_at", option=RETENTION, where=(ENDED_SESSION,)),
    versioned=True,
)
TASKS: Final = Entity(
    name="tasks",
    singular="task",
    module=MODULE,
    model=TrackingTask,
    key_parts=(text("task_id"),),
    tenancy=Tenancy.none(),
    group="tasks",
    dated="updated_at",
    generated_id=True,
    indexes=(
        # Fixed.
        Index(fields=("session_id",), name="session_id"),
        Index(fields=("project_id",), name="project_id"),
        Index(fields=("status",), name="status"),
        Index(fields=("session_id", "status"), name="session_status"),
        Index(fields=("project_id", "status"), name="project_status"),
        Index(
            fields=("completed_at",),
            name="expiry",
            expires=True,
            where=(IsPresent("completed_at"), ENDED_TASK),
            stores=DOCUMENTS,
            document_name="ttl_completed_at",
        ),
        # The same for the purge of tables, which removes the oldest first.
        Index(
            fields=("completed_at", "task_id"),
            name="expiry",
            where=(IsPresent("completed_at"), ENDED_TASK),
            stores=TABLES,
        ),
        # list(), and with each of its filters: oldest first.
        Index(fields=("created_at", "task_id"), name="created"),
        Index(fields=("status", "created_at", "task_id"), name="status_created"),
        Index(fields=("session_id", "created_at", "task_id"), name="session_created"),
        Index(fields=("session_id", "status", "created_at", "task_id"), name="session_status_created"),
        Index(fields=("project_id", "created_at", "task_id"), name="project_created"),
        Index(fields=("project_id", "status", "created_at", "task_id"), name="project_status_created"),
    ),
    retention=Retention(field="completed_at", option=RETENTION, where=(ENDED_TASK,)),
    versioned=True,
)
MACHINES: Final = Entity(
    name="machines",
    singular="machine",
    module=MODULE,
    model=TrackingMachine,
    key_parts=(text("machine_id"),),
    tenancy=Tenancy.none(),
    group="machines",
    dated="updated_at",
    narrow=("docker_slots",),
    generated_id=True,
    # No retention: machines persist.
    indexes=(
        # Fixed.
        Index(fields=("status",), name="status"),
        Index(fields=("last_heartbeat",), name="last_heartbeat"),
        # list(statuses=...) and list_available().
        Index(fields=("status", "machine_id"), name="status_machine"),
    ),
    versioned=True,
)

TRACKING: Final = Module(name=MODULE, entities=(SESSIONS, TASKS, MACHINES))

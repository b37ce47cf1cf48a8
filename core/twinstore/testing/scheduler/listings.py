"""The lists of the scheduler that are asked through filters, or whose rows no example makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.examples import TIES
from twinstore.testing.instants import at
from twinstore.testing.listings import Listing
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.scheduler.builders import make_schedule
from twinstore.testing.scheduler.examples import LISTED_SCHEDULE, SCHEDULER_EXAMPLES, SNAPSHOT_RUN

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.models.canonical import CanonicalModel
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.testing.workspace import AnyStorage

__all__ = ["FILTERED_LISTINGS"]


def scheduler(storage: AnyStorage) -> SchedulerStorage:
    """Return the storage as what it is in this kit."""
    return cast("SchedulerStorage", storage)


def deleted_page(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[Schedule]:
    """Ask for all schedules."""
    options = ScheduleQueryOptions(include_deleted=True, limit=limit, page_token=token)
    return scheduler(storage).schedules.list(tenant, options)


def store_deleted(session: object, tenant: str, model: CanonicalModel) -> CanonicalModel:
    """Store a schedule and soft-delete it at once."""
    schedules = cast("SchedulerSession", session).schedules
    schedule = schedules.upsert(cast("Schedule", model))
    assert schedules.soft_delete(tenant, schedule.id, "eve", at(100))
    return schedule


def deleted_schedule(tenant: str, key: str, number: int) -> Schedule:
    """Return a schedule that shares its name with others, which only deleted ones may."""
    return make_schedule(tenant, key, name=EDGE_TEXTS[number // TIES])


def filtered_runs(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for the oldest runs through every filter."""
    options = RunQueryOptions(
        schedule_id=LISTED_SCHEDULE,
        states=(RunState.QUEUED, RunState.ERROR),
        created_after=at(-0.001),
        created_before=at(0.005),
        ascending=True,
        limit=limit,
        page_token=token,
    )
    return scheduler(storage).runs.list(tenant, options)


def filtered_records(storage: AnyStorage, tenant: str, limit: int, token: str | None) -> Page[object]:
    """Ask for audit records through every filter."""
    options = AuditQueryOptions(
        category="run",
        schedule_id=LISTED_SCHEDULE,
        run_id=SNAPSHOT_RUN,
        occurred_after=at(-0.001),
        occurred_before=at(0.005),
        limit=limit,
        page_token=token,
    )
    return scheduler(storage).audit.list(tenant, options)


FILTERED_LISTINGS: Final = (
    Listing(
        name="schedules.list deleted",
        example=SCHEDULER_EXAMPLES.of(SCHEDULES),
        order="name id",
        ask=deleted_page,
        store=store_deleted,
        vary=deleted_schedule,
    ),
    Listing(
        name="runs.list filtered",
        example=SCHEDULER_EXAMPLES.of(RUNS),
        order="createdAt id",
        ask=filtered_runs,
    ),
    Listing(
        name="audit.list filtered",
        example=SCHEDULER_EXAMPLES.of(AUDIT),
        order="-occurredAt id",
        ask=filtered_records,
    ),
)

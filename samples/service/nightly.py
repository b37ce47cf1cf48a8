"""A small service that knows the contracts only; configuration decides which database answers.

Run it twice and compare the output::

    Persistence__Scheduler=Mongo    python samples/service/nightly.py --tenant acme
    Persistence__Scheduler=Postgres python samples/service/nightly.py --tenant acme

It may run again and again on the same data. Its runs are of October 2025: set
``Scheduler__Storage__RunRetentionDays=0`` to keep them, or MongoDB removes them as past their retention.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import twinstore
from twinstore.scheduler import (
    AuditActor,
    AuditEvent,
    Run,
    RunQueryOptions,
    RunState,
    RunStats,
    RunTrigger,
    Schedule,
    ScheduleQueryOptions,
    Selector,
    SelectorScope,
)

if TYPE_CHECKING:
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

START = datetime(2025, 10, 26, 2, 0, tzinfo=UTC)
SERVICE = AuditActor(actor_id="nightly", display_name="Nightly sample", kind="service")


def create_schedules(scheduler: SchedulerStorage, tenant: str) -> None:
    """Write three schedules; their triggers are written with them."""
    for name, cron in (("hourly", "0 * * * *"), ("nightly", "30 1 * * *"), ("weekly", "0 3 * * mon")):
        scheduler.schedules.upsert(
            Schedule(
                id=f"{tenant}-{name}",
                tenant_id=tenant,
                name=name,
                when_cron=cron,
                timezone="Europe/Zurich",
                selection=Selector(scope=SelectorScope.ALL_IMAGES),
                created_at=START,
                created_by="nightly",
            )
        )


def record(unit: SchedulerSession, run: Run) -> None:
    """Write an audit record of a new or moved run."""
    unit.audit_service.write(
        AuditEvent(
            id=f"audit-{run.id}-{run.state}",
            tenant_id=run.tenant_id,
            category="run",
            action=f"run.{run.state}",
            occurred_at=run.finished_at or run.started_at or run.created_at,
            actor=SERVICE,
            schedule_id=run.schedule_id,
            run_id=run.id,
        )
    )


def execute(scheduler: SchedulerStorage, tenant: str, number: int) -> None:
    """Take one run from the queue to its end, one unit of work a step; each move writes the summary too."""
    run_id = f"{tenant}-run-{number:02}"
    if scheduler.runs.get(tenant, run_id) is not None:
        return  # an earlier call took it to its end
    created = START + timedelta(hours=number)
    work = RunStats(candidates=number + 1, queued=number + 1)
    queued = Run(
        id=run_id,
        tenant_id=tenant,
        schedule_id=f"{tenant}-hourly",
        trigger=RunTrigger.CRON,
        state=RunState.QUEUED,
        created_at=created,
        stats=work,
    )
    with scheduler.transaction(tenant) as unit:
        record(unit, unit.runs.create(queued))
    with scheduler.transaction(tenant) as unit:
        record(unit, unit.runs.start(tenant, run_id, created + timedelta(seconds=5)))
    done = work.evolve(completed=number + 1, new_high=number % 3)
    with scheduler.transaction(tenant) as unit:
        record(unit, unit.runs.complete(tenant, run_id, created + timedelta(minutes=2), stats=done))


def show(scheduler: SchedulerStorage, tenant: str) -> None:
    """Print what is stored, page by page."""
    for schedule in scheduler.schedules.list(tenant, ScheduleQueryOptions(limit=10)):
        trigger = scheduler.triggers.get_required(tenant, schedule.id)
        print(f"schedule {schedule.name}: next at {trigger.next_fire_at}")
    token: str | None = None
    while True:
        page = scheduler.runs.list(tenant, RunQueryOptions(limit=3, page_token=token))
        print("runs", *(f"{run.id}={run.state}" for run in page), "next", page.next_page_token)
        token = page.next_page_token
        if token is None:
            break
    summary = scheduler.run_summaries.get_required(tenant, f"{tenant}-hourly")
    print(f"summary: {summary.counters.total} runs, {summary.counters.total_new_high} new high")
    records = scheduler.audit.list(tenant)
    print(f"audit: {len(records)} records, latest {records[0].action}")


def main() -> None:
    """Write and read as one tenant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tenant", default="acme")
    parser.add_argument("--config", help="appsettings file; the environment is read in any case")
    options = parser.parse_args()
    with twinstore.open_storage(options.config) as storage:
        storage.scheduler.initializer.ensure_migrations()
        create_schedules(storage.scheduler, options.tenant)
        for number in range(8):
            execute(storage.scheduler, options.tenant, number)
        show(storage.scheduler, options.tenant)


if __name__ == "__main__":
    main()

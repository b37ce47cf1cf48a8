"""A schedule falls due, and everything follows: trigger, run, worker, log, summary, audit; on each driver."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.databases import DRIVERS, fresh_settings
from twinstore import open_storage
from twinstore.scheduler import AuditActor, AuditEvent, ExecutionLogEntry, LogLevel, RunState, Worker
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_schedule, moved

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.scheduler import Run
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

TENANT: Final = "acme"
NIGHTLY: Final = "nightly"
MINUTE: Final = timedelta(minutes=1)
ACTOR: Final = AuditActor(actor_id="worker-1", display_name="Worker", kind="worker")


@pytest.fixture(params=DRIVERS)
def storage(request: pytest.FixtureRequest) -> Iterator[SchedulerStorage]:
    with (
        fresh_settings(str(request.param), request) as settings,
        open_storage(settings) as opened,
    ):
        opened.scheduler.initializer.ensure_migrations()
        yield opened.scheduler


def recorded(unit: SchedulerSession, run: Run, now: datetime) -> None:
    """Store what became of a run, with its summary and an audit record, in one unit."""
    assert unit.runs.update(run)
    unit.run_summary_service.project(run, now=now)
    unit.audit_service.write(
        AuditEvent(
            tenant_id=TENANT,
            category="run",
            action=f"run.{run.state}",
            occurred_at=now,
            actor=ACTOR,
            schedule_id=run.schedule_id,
            run_id=run.id,
        )
    )


def fired(storage: SchedulerStorage, due: datetime) -> Run:
    """Fire what is due at an instant, which is one schedule."""
    (schedule,) = storage.schedules.get_due_schedules(due)
    firing = storage.triggers.fire(TENANT, schedule.id, due)
    assert firing is not None
    assert (firing.created, firing.scheduled_for) == (True, due)
    return firing.run


def worked(storage: SchedulerStorage, run: Run, begin: datetime) -> Run:
    """Take a run through its states as a worker does."""
    storage.workers.register(
        Worker(
            id="worker-1", hostname="a", registered_at=begin, last_heartbeat_at=begin, max_concurrent_jobs=2
        )
    )
    for number, state in enumerate((RunState.QUEUED, RunState.RUNNING, RunState.COMPLETED), start=1):
        now = begin + number * MINUTE
        stamps: dict[str, object] = {"started_at": now} if state is RunState.RUNNING else {}
        stamps |= {"finished_at": now} if state is RunState.COMPLETED else {}
        run = moved(run, state, **stamps)
        with storage.transaction(TENANT) as unit:
            recorded(unit, run, now)
        assert storage.workers.heartbeat("worker-1", now, current_jobs=1)
        line = ExecutionLogEntry(
            run_id=run.id, tenant_id=TENANT, logged_at=now, level=LogLevel.INFO, message=state.value
        )
        storage.execution_logs.append([line])
    return run


def test_a_schedule_that_falls_due_becomes_a_finished_run_with_summary_log_and_audit(
    storage: SchedulerStorage,
) -> None:
    storage.schedules.upsert(make_schedule(TENANT, NIGHTLY, when_cron="0 2 * * *"))
    due = storage.triggers.get_required(TENANT, NIGHTLY).next_fire_at
    assert due is not None
    assert due > START
    assert storage.schedules.get_due_schedules(due - MINUTE).items == ()

    planned = fired(storage, due)
    finished = worked(storage, planned, due)

    assert storage.runs.get(TENANT, planned.id) == finished
    assert (finished.state, finished.schedule_id) == (RunState.COMPLETED, NIGHTLY)
    assert storage.schedules.get_due_schedules(due + MINUTE).items == ()
    assert storage.triggers.fire(TENANT, NIGHTLY, due + MINUTE) is None
    summary = storage.run_summaries.get_required(TENANT, NIGHTLY)
    assert [(item.run_id, item.state) for item in summary.recent] == [(planned.id, RunState.COMPLETED)]
    lines = storage.execution_logs.list(TENANT, planned.id)
    assert [(line.sequence, line.message) for line in lines] == [
        (1, "queued"),
        (2, "running"),
        (3, "completed"),
    ]
    records = storage.audit.list(TENANT).items
    assert [record.action for record in records] == ["run.completed", "run.running", "run.queued"]
    assert storage.workers.get_required("worker-1").last_heartbeat_at == due + 3 * MINUTE

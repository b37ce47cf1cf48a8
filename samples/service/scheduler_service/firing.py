"""Fires what is due and returns what was left behind: a separate program, of which any number may run.

    python -m scheduler_service.firing --every 5

An instant is fired once however many of them run: each claims what it fires, and the run of an instant has
one id. If one dies, the others fire its schedules when the lease ends. They write to the store directly,
because they serve all tenants.
"""

from __future__ import annotations

import argparse
import logging
import signal
from datetime import datetime
from functools import partial
from hashlib import sha256
from socket import gethostname
from threading import Event
from typing import Final

from twinstore import (
    Clock,
    ConfigurationError,
    SchedulerSession,
    SchedulerStorage,
    SystemClock,
    TwinstoreError,
    open_storage,
)
from twinstore.config import load_settings
from twinstore.scheduler import (
    AuditActor,
    AuditEvent,
    PolicyRunInputs,
    PolicyRunMode,
    PolicyRunRequest,
    Run,
    Schedule,
    ScheduleClaim,
)

__all__ = ["fire", "fire_due", "run", "tick"]

log = logging.getLogger("scheduler_service.firing")

ACTOR: Final = AuditActor(actor_id="firing", display_name="Firing", kind="service")
POLICY: Final = "policy-default"


def tick(scheduler: SchedulerStorage, now: datetime) -> int:
    """Do once what has to be done; return how many triggers fired."""
    fired = fire_due(scheduler, now)
    # Leases that their workers no longer renew: the jobs are claimed again.
    scheduler.policy_jobs.release_expired(now)
    scheduler.workers.mark_dead(now)
    return fired


def fire_due(scheduler: SchedulerStorage, now: datetime) -> int:
    """Fire a page of due schedules; one that fails stops no other, and is due again when its lease ends."""
    fired = 0
    for claim in scheduler.schedules.claim_due(gethostname(), now):
        schedule = claim.schedule
        try:
            step = partial(fire, schedule=schedule, now=now, claim=claim)
            fired += scheduler.transact(step, tenant_id=schedule.tenant_id) is not None
        except TwinstoreError:
            log.exception("schedule %s of %s did not fire", schedule.id, schedule.tenant_id)
    return fired


def fire(
    unit: SchedulerSession, schedule: Schedule, now: datetime, claim: ScheduleClaim | None = None
) -> Run | None:
    """Fire a trigger with all that follows, in one unit; ``None`` where another process was faster."""
    firing = unit.triggers.fire(schedule.tenant_id, schedule.id, now, claim=claim)
    if firing is None:
        return None
    unit.run_summary_service.project(firing.run, now=now)
    if firing.created:  # otherwise another process has fired this instant, and it is recorded
        unit.audit_service.write(fired_event(firing.run, now))
    unit.policy_run_service.enqueue(
        PolicyRunRequest(
            tenant_id=schedule.tenant_id,
            policy_id=schedule.only_if.policy_revision or POLICY,
            mode=PolicyRunMode.FULL,
            run_id=firing.run.id,
            inputs=PolicyRunInputs(),
        ),
        now=now,
    )
    return firing.run


def fired_event(planned: Run, now: datetime) -> AuditEvent:
    """Return what the audit says of a firing."""
    return AuditEvent(
        id=f"audit_{sha256(planned.id.encode()).hexdigest()[:32]}",
        tenant_id=planned.tenant_id,
        category="schedule",
        action="schedule.fired",
        occurred_at=now,
        actor=ACTOR,
        entity_id=planned.schedule_id,
        schedule_id=planned.schedule_id,
        run_id=planned.id,
    )


def run(scheduler: SchedulerStorage, clock: Clock, stop: Event, every: float) -> None:
    """Tick until asked to stop; an outage of the store is logged and waited for."""
    while not stop.is_set():
        try:
            tick(scheduler, clock.now())
        except TwinstoreError as error:
            log.warning("%s: %s", error.code, error)
        stop.wait(every)


def main(clock: Clock | None = None) -> None:
    """Fire until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", help="settings file; the environment is read in any case")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks")
    options = parser.parse_args()
    try:
        settings = load_settings(options.config)
    except ConfigurationError as error:
        parser.error(str(error))
    stop = Event()

    def end(*_: object) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    clock = clock or SystemClock()
    with open_storage(settings, clock=clock) as storage:
        storage.scheduler.initializer.ensure_migrations()
        run(storage.scheduler, clock, stop, options.every)


if __name__ == "__main__":
    main()

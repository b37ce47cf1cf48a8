"""What a write of a schedule does to the stored schedule and its trigger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from twinstore.errors import ConflictError, LeaseLostError, ValidationError
from twinstore.models.cron import CronError, next_fire, passed_and_next
from twinstore.models.json_text import format_timestamp
from twinstore.scheduler.enums import RunState, RunTrigger
from twinstore.scheduler.runs import Run
from twinstore.scheduler.schedules import Schedule, SoftDeletion
from twinstore.scheduler.triggers import Trigger

if TYPE_CHECKING:
    from twinstore.catalog.row import Row
    from twinstore.scheduler.schedules import ScheduleClaim


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A schedule with its storage markers."""

    schedule: Schedule
    deletion: SoftDeletion | None = None


def upserted(
    stored: StoredSchedule | None, schedule: Schedule, expected_updated_at: datetime | None
) -> StoredSchedule:
    """Return what an upsert stores; the owner and the creation of an existing schedule are kept."""
    _check_expectation(stored, schedule, expected_updated_at)
    if stored is None:
        return StoredSchedule(schedule)
    if stored.deletion is not None:
        raise ConflictError(
            f"Schedule {schedule.id!r} is soft-deleted; restore it before you change it.",
            entity="schedules",
            key=schedule.id,
        )
    created_at, created_by = stored.schedule.created_at, stored.schedule.created_by
    # As nearly all: a host sends back what it has read, and validating a copy costs more than this.
    if (schedule.created_at, schedule.created_by) == (created_at, created_by):
        return StoredSchedule(schedule)
    # Checked here, because the model would refuse a createdAt that the caller never sent.
    if schedule.updated_at < created_at:
        raise ValidationError(
            f"updatedAt of schedule {schedule.id!r} is before the stored createdAt, "
            f"{format_timestamp(created_at)}.",
            entity="schedules",
            key=schedule.id,
        )
    return StoredSchedule(schedule.evolve(created_at=created_at, created_by=created_by))


def _check_expectation(
    stored: StoredSchedule | None, schedule: Schedule, expected_updated_at: datetime | None
) -> None:
    if expected_updated_at is None:
        return
    actual = None if stored is None else stored.schedule.updated_at
    if actual != expected_updated_at:
        found = "none is stored" if actual is None else f"the stored one is {format_timestamp(actual)}"
        raise ConflictError(
            f"Schedule {schedule.id!r} was expected with updatedAt {format_timestamp(expected_updated_at)}, "
            f"but {found}; read it again and repeat the change.",
            entity="schedules",
            key=schedule.id,
        )


def deleted(stored: StoredSchedule | None, deleted_by: str, deleted_at: datetime) -> StoredSchedule | None:
    """Return what a soft delete stores, ``None`` when there is nothing to delete."""
    if stored is None or stored.deletion is not None:
        return None
    _check_instant(stored.schedule, "deleted_at", deleted_at)
    schedule = stored.schedule.evolve(enabled=False, updated_at=deleted_at, updated_by=deleted_by)
    return StoredSchedule(schedule, SoftDeletion(deleted_at=deleted_at, deleted_by=deleted_by))


def restored(
    stored: StoredSchedule | None, restored_by: str, restored_at: datetime, *, enabled: bool
) -> StoredSchedule | None:
    """Return what a restore stores, ``None`` when there is nothing to restore."""
    if stored is None or stored.deletion is None:
        return None
    _check_instant(stored.schedule, "restored_at", restored_at)
    return StoredSchedule(
        stored.schedule.evolve(enabled=enabled, updated_at=restored_at, updated_by=restored_by)
    )


def _check_instant(schedule: Schedule, name: str, instant: datetime) -> None:
    if instant < schedule.updated_at:
        raise ValidationError(
            f"Argument {name} ({format_timestamp(instant)}) is before updatedAt of schedule "
            f"{schedule.id!r}, {format_timestamp(schedule.updated_at)}.",
            entity="schedules",
            key=schedule.id,
        )


def synchronised(trigger: Trigger | None, stored: StoredSchedule) -> Trigger:
    """Return the trigger that belongs to a schedule after it was written.

    The next instant is recomputed only for a new trigger, one that was disabled, or a changed time
    rule; otherwise it is left alone, so that a write of other fields neither skips nor repeats a firing.
    """
    schedule = stored.schedule
    enabled = schedule.enabled and stored.deletion is None
    unchanged_rule = trigger is not None and (trigger.when_cron, trigger.timezone) == (
        schedule.when_cron,
        schedule.timezone,
    )
    if trigger is not None and unchanged_rule and trigger.enabled == enabled:
        return trigger
    # From the instant of the change and not from now: the same call gives the same trigger at any time.
    due = _next_instant(schedule, schedule.updated_at) if enabled else None
    return _with_next(trigger, schedule, enabled=enabled, due=due, now=schedule.updated_at)


def recalculated(trigger: Trigger | None, stored: StoredSchedule, now: datetime) -> Trigger:
    """Return the trigger with its next instant strictly after ``now``."""
    schedule = stored.schedule
    enabled = schedule.enabled and stored.deletion is None
    due = _next_instant(schedule, now) if enabled else None
    return _with_next(trigger, schedule, enabled=enabled, due=due, now=now)


@dataclass(frozen=True, slots=True)
class Firing:
    """What a firing stores.

    Attributes:
        trigger: the trigger, advanced.
        run: the run of the instant, new or found.
        misfires: the instants that passed since.
        created: whether the run is new.
    """

    trigger: Trigger
    run: Run
    misfires: int
    created: bool


def check_claim(trigger: Row[Trigger], claim: ScheduleClaim, now: datetime) -> None:
    """Refuse a worker that no longer holds a schedule; an instant that has been fired is left to the caller.

    Raises:
        LeaseLostError: it does not.
    """
    if trigger.model.next_fire_at != claim.scheduled_for:
        return
    holder, until, fence = map(trigger.storage.get, ("claimedBy", "claimedUntil", "claimFence"))
    if isinstance(until, datetime) and until > now and (holder, fence) == (claim.lease_owner, claim.fence):
        return
    raise LeaseLostError(
        f"Schedule {claim.schedule.id!r} is no longer held by {claim.lease_owner!r} with fence "
        f"{claim.fence}; leave its instant to the next claim.",
        entity="schedules",
        key=claim.schedule.id,
    )


def fired(  # noqa: PLR0917  # what is stored, and what is to be
    stored: StoredSchedule | None,
    trigger: Trigger | None,
    run: Run | None,
    run_id: str,
    due: datetime,
    now: datetime,
) -> Firing | None:
    """Return what firing an instant stores, ``None`` where it is not to be fired.

    Args:
        stored: the schedule.
        trigger: its trigger.
        run: the run that has this id, if there is one.
        run_id: the id of the run.
        due: the instant that was found due; another caller may have fired it meanwhile.
        now: the instant of the call.
    """
    if stored is None or trigger is None or trigger.next_fire_at != due or due > now:
        return None
    schedule = stored.schedule
    # A copy may have brought the pair out of step; the schedule says what holds.
    if not schedule.enabled or stored.deletion is not None:
        return None
    found = run or Run(
        id=run_id,
        tenant_id=schedule.tenant_id,
        schedule_id=schedule.id,
        trigger=RunTrigger.CRON,
        state=RunState.PLANNING,
        created_at=now,
    )
    try:
        misfires, following = passed_and_next(schedule.when_cron, schedule.timezone, due, now)
    except CronError as error:
        raise _without_next(schedule, error) from error
    advanced = trigger.evolve(
        when_cron=schedule.when_cron,
        timezone=schedule.timezone,
        next_fire_at=following,
        last_fire_at=due,
        last_run_id=found.id,
        fire_count=trigger.fire_count + 1,
        misfire_count=trigger.misfire_count + misfires,
        updated_at=now,
    )
    return Firing(advanced, found, misfires, created=run is None)


def _next_instant(schedule: Schedule, after: datetime) -> datetime:
    try:
        return next_fire(schedule.when_cron, schedule.timezone, after)
    except CronError as error:
        raise _without_next(schedule, error) from error


def _without_next(schedule: Schedule, error: CronError) -> ValidationError:
    text = f"Schedule {schedule.id!r} has no next instant: {error}."
    return ValidationError(text, entity="schedules", key=schedule.id)


def _with_next(
    trigger: Trigger | None, schedule: Schedule, *, enabled: bool, due: datetime | None, now: datetime
) -> Trigger:
    changes: dict[str, object] = {
        "when_cron": schedule.when_cron,
        "timezone": schedule.timezone,
        "enabled": enabled,
        "next_fire_at": due,
        "updated_at": now,
    }
    if trigger is not None:
        return trigger.evolve(**changes)
    owner = {"tenant_id": schedule.tenant_id, "schedule_id": schedule.id, "created_at": now}
    return Trigger.model_validate({**owner, **changes})

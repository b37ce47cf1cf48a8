"""Schedules: each write brings the trigger in step, in one step with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from twinstore.access.paging import Page, UndecodableRow, decode_token
from twinstore.access.protocol import UNSET, Add, Ref, UniqueKey, WritingOperation
from twinstore.access.repository import Repository
from twinstore.access.scope import flag_argument, id_argument, instant_argument, text_argument
from twinstore.catalog.row import Row
from twinstore.errors import DocumentDecodeError
from twinstore.models.canonical import decode_stored
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.policy_jobs import LEASE
from twinstore.scheduler.repositories.policy_jobs import end_of_lease
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.schedules import StoredSchedule
from twinstore.scheduler.schedules import (
    Schedule,
    ScheduleClaim,
    ScheduleQueryOptions,
    ScheduleRepository,
    SoftDeletion,
)
from twinstore.scheduler.triggers import Trigger

if TYPE_CHECKING:
    from twinstore.access.protocol import FieldUpdates, Values
    from twinstore.access.query import Query
    from twinstore.catalog.tenancy import Tenants

    Change = Callable[[StoredSchedule | None], StoredSchedule | None]

# The operation of a driver that reads due triggers with their schedules.
DUE: Final = "due_schedules"
# The operation that marks due triggers for one worker.
CLAIM: Final = WritingOperation("claim_triggers")
ONE_PER_SCHEDULE: Final = TRIGGERS.unique("schedule")


class Schedules(Repository, ScheduleRepository):
    """Implements :class:`~twinstore.scheduler.schedules.ScheduleRepository`."""

    @override
    def get(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule | None:
        row = self._own(tenant_id, schedule_id)
        if row is None or ("deletedAt" in row.storage and not include_deleted):
            return None
        return row.model

    @override
    def get_required(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule:
        found = self.get(tenant_id, schedule_id, include_deleted=include_deleted)
        return self._required(found, SCHEDULES, schedule_id.strip())

    @override
    def get_deletion(self, tenant_id: str, schedule_id: str) -> SoftDeletion | None:
        row = self._own(tenant_id, schedule_id)
        return None if row is None else deletion_of(row, self.driver)

    @override
    def list(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> Page[Schedule]:
        return self._page(SCHEDULES, queries.schedules(self._admit(tenant_id), options))

    @override
    def count(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> int:
        return self._count(SCHEDULES, queries.schedules(self._admit(tenant_id), options))

    @override
    def upsert(self, schedule: Schedule, *, expected_updated_at: datetime | None = None) -> Schedule:
        schedule = self._model(schedule, Schedule, "schedule")
        scope = self._admit(schedule.tenant_id)
        expected = (
            None
            if expected_updated_at is None
            else instant_argument(expected_updated_at, "expected_updated_at")
        )
        changed = self._store(
            scope,
            schedule.id,
            lambda stored: rules.upserted(stored, schedule, expected),
            # The expected state of an unreadable row cannot be checked.
            replaces_unreadable=expected is None,
        )
        return schedule if changed is None else changed.schedule

    @override
    def soft_delete(self, tenant_id: str, schedule_id: str, deleted_by: str, deleted_at: datetime) -> bool:
        scope, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        actor, instant = text_argument(deleted_by, "deleted_by"), instant_argument(deleted_at, "deleted_at")
        try:
            return self._store(scope, key, lambda stored: rules.deleted(stored, actor, instant)) is not None
        except DocumentDecodeError as error:
            if error.entity != SCHEDULES.name:
                raise
        return self._delete_unreadable(scope, key, actor, instant)

    @override
    def restore(
        self,
        tenant_id: str,
        schedule_id: str,
        restored_by: str,
        restored_at: datetime,
        *,
        enabled: bool = False,
    ) -> bool:
        scope, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        actor, instant = (
            text_argument(restored_by, "restored_by"),
            instant_argument(restored_at, "restored_at"),
        )
        wanted = flag_argument(enabled, "enabled")
        changed = self._store(
            scope, key, lambda stored: rules.restored(stored, actor, instant, enabled=wanted)
        )
        return changed is not None

    @override
    def get_due_schedules(self, now: datetime, *, limit: int = 100) -> Page[Schedule]:
        self._admit_system("get_due_schedules")
        query = queries.due_triggers(now, limit)
        pairs = self._special(DUE, self._pairs)
        due: tuple[Schedule, ...] = ()
        broken: tuple[UndecodableRow, ...] = ()
        # In turns: triggers of schedules that may not fire take places on a page.
        while True:
            triggers, schedules = pairs(query)
            due += tuple(schedule for _, schedule in active(triggers, schedules))
            broken += triggers.undecodable + schedules.undecodable
            token = triggers.next_page_token
            if token is None or len(due) >= query.limit:
                return Page(due[: query.limit], None, tuple(dict.fromkeys(broken)))
            query = replace(query, after=decode_token(token, query.entity, query.fingerprint, query.order))

    @override
    def claim_due(
        self, lease_owner: str, now: datetime, *, limit: int = 100, lease: timedelta = LEASE
    ) -> tuple[ScheduleClaim, ...]:
        self._admit_system("claim_due")
        owner = id_argument(lease_owner, "lease_owner")
        query = queries.due_triggers(now, limit, unclaimed=True)
        until = end_of_lease(instant_argument(now, "now"), lease)
        sets: FieldUpdates = {"claimedBy": owner, "claimedUntil": until, "claimFence": Add(1)}
        self._check_writable()
        claim = self._special(CLAIM, partial(self._access.mark, TRIGGERS))
        with self._partial_progress() as steps:
            while triggers := claim(query, sets):
                steps.done()
                pairs = active(triggers, self._schedules_of(triggers))
                claims = tuple(claim_of(*pair) for pair in pairs)
                # Those of schedules that may not fire are claimed as well, and out of the way then.
                if claims:
                    return claims
        return ()

    def _own(self, tenant_id: str, schedule_id: str) -> Row[Schedule] | None:
        scope = self._admit(tenant_id)
        return self._find(SCHEDULES, scope, (id_argument(schedule_id, "schedule_id"),))

    def _delete_unreadable(self, scope: Tenants, key: str, deleted_by: str, deleted_at: datetime) -> bool:
        """Mark a schedule as deleted and disable it and its trigger, regardless of their other fields.

        Unreadable rows stay, to be repaired.
        """
        with self._access.unit(scope, atomic=False) as unit:
            deleted: Values = {
                "enabled": False,
                "updatedAt": deleted_at,
                "updatedBy": deleted_by,
                "deletedAt": deleted_at,
                "deletedBy": deleted_by,
            }
            if not unit.amend(SCHEDULES, queries.active_schedule(scope, key), deleted):
                return False
            stopped: Values = {"enabled": False, "nextFireAt": UNSET, "updatedAt": deleted_at}
            unit.amend(TRIGGERS, queries.trigger_of(scope, key), stopped)
            return True

    def _store(
        self, scope: Tenants, key: str, change: Change, *, replaces_unreadable: bool = False
    ) -> StoredSchedule | None:
        """Change a schedule and its trigger in one step; return what the change made, ``None`` for nothing.

        The schedule is locked first everywhere, so that writers of one schedule do not deadlock. A trigger
        that cannot be read is rebuilt, because it follows from the schedule.
        """
        changed: StoredSchedule | None = None

        def rule(
            schedule: Row[Schedule] | None, trigger: Row[Trigger] | None
        ) -> tuple[Row[Schedule] | None, Row[Trigger] | None]:
            nonlocal changed
            changed = change(stored_of(schedule, self.driver))
            if changed is None:
                return None, None
            before = None if trigger is None else trigger.model
            after = rules.synchronised(before, changed)
            row = row_of(changed)
            advanced = None if after == before else unclaimed(after, trigger)
            # Either is left alone when nothing in it changed: a write of it could only conflict.
            return (None if row == schedule else row), advanced

        ref = Ref(SCHEDULES, scope, (key,), replaces_unreadable=replaces_unreadable)
        self._change_pair(ref, trigger_ref(scope, key), rule)
        return changed

    def _pairs(self, query: Query) -> tuple[Page[Row[Trigger]], Page[Row[Schedule]]]:
        """Return a page of triggers, and the schedules that they name."""
        triggers = self._access.page(TRIGGERS, query)
        return triggers, self._schedules_of(triggers)

    def _schedules_of(self, triggers: Iterable[Row[Trigger]]) -> Page[Row[Schedule]]:
        named = [row.model.schedule_id for row in triggers]
        return self._access.page(SCHEDULES, queries.schedules_of(named))


def active(
    triggers: Iterable[Row[Trigger]], schedules: Iterable[Row[Schedule]]
) -> Iterator[tuple[Row[Trigger], Schedule]]:
    """Yield some triggers with their schedules, where these are enabled and not deleted."""
    found = {(row.model.tenant_id, row.model.id): row for row in schedules}
    for trigger in triggers:
        # System scope sees all tenants: a trigger that names a schedule of another one must not fire it.
        row = found.get((trigger.model.tenant_id, trigger.model.schedule_id))
        if row is not None and row.model.enabled and "deletedAt" not in row.storage:
            yield trigger, row.model


def claim_of(trigger: Row[Trigger], schedule: Schedule) -> ScheduleClaim:
    """Return the claim that a trigger was just marked with."""
    markers = trigger.storage
    return ScheduleClaim(
        schedule=schedule,
        # Safe, because the trigger was due, and all markers were set.
        scheduled_for=cast("datetime", trigger.model.next_fire_at),
        lease_owner=cast("str", markers["claimedBy"]),
        lease_expires_at=cast("datetime", markers["claimedUntil"]),
        fence=cast("int", markers["claimFence"]),
    )


def unclaimed(trigger: Trigger, before: Row[Trigger] | None) -> Row[Trigger]:
    """Return the row of a changed trigger: no worker holds it, and its next claim has a higher fence."""
    fence = None if before is None else before.storage.get("claimFence")
    return Row(trigger) if fence is None else Row(trigger, {"claimFence": fence})


def trigger_ref(scope: Tenants, schedule_id: str) -> Ref[Trigger]:
    """Return where the one trigger of a schedule is; it is rebuilt if it cannot be read."""
    return Ref(TRIGGERS, scope, trigger_key(schedule_id), replaces_unreadable=True)


def trigger_key(schedule_id: str) -> UniqueKey:
    """Return what finds the one trigger of a schedule."""
    return UniqueKey(ONE_PER_SCHEDULE, (schedule_id,))


def schedule_of(row: Row[Schedule], driver: str) -> StoredSchedule:
    """Return the schedule of a row with its deletion markers."""
    return StoredSchedule(row.model, deletion_of(row, driver))


def stored_of(row: Row[Schedule] | None, driver: str) -> StoredSchedule | None:
    """Return the schedule of a row that may be absent."""
    return None if row is None else schedule_of(row, driver)


def deletion_of(row: Row[Schedule], driver: str) -> SoftDeletion | None:
    """Return the deletion markers of a row.

    Raises:
        DocumentDecodeError: only one of the two is there.
    """
    if not row.storage:
        return None
    return decode_stored(
        SoftDeletion, dict(row.storage), entity=SCHEDULES.name, key=row.model.id, driver=driver
    )


def row_of(stored: StoredSchedule) -> Row[Schedule]:
    """Return the row of a schedule."""
    return Row(stored.schedule, {} if stored.deletion is None else stored.deletion.wire())

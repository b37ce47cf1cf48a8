"""Triggers: written with their schedules, or recalculated from the stored one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from twinstore.access.paging import Page
from twinstore.access.protocol import Ref
from twinstore.access.repository import Repository
from twinstore.access.scope import id_argument, instance_argument, instant_argument, whole_argument
from twinstore.catalog.row import Row
from twinstore.errors import DocumentDecodeError, DuplicateError, ValidationError
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.repositories.schedules import (
    schedule_of,
    stored_of,
    trigger_key,
    trigger_ref,
    unclaimed,
)
from twinstore.scheduler.rules import schedules as rules
from twinstore.scheduler.rules.schedules import Firing
from twinstore.scheduler.runs import Run
from twinstore.scheduler.schedules import Schedule, ScheduleClaim
from twinstore.scheduler.triggers import (
    FiredTrigger,
    Trigger,
    TriggerRepository,
    fired_run_id,
    substitute_run_id,
)

if TYPE_CHECKING:
    from twinstore.access.protocol import Rows, ServerClock
    from twinstore.catalog.tenancy import Tenant

    FiringRows = tuple[Row[Schedule] | None, Row[Trigger] | None, Row[Run] | None]


class Triggers(Repository, TriggerRepository):
    """Implements :class:`~twinstore.scheduler.triggers.TriggerRepository`."""

    @override
    def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        scope = self._admit(tenant_id)
        return self._get(TRIGGERS, scope, trigger_key(id_argument(schedule_id, "schedule_id")))

    @override
    def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        return self._required(self.get(tenant_id, schedule_id), TRIGGERS, schedule_id.strip())

    @override
    def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        return self._page(TRIGGERS, queries.triggers(self._admit(tenant_id), limit, page_token))

    @override
    def count(self, tenant_id: str) -> int:
        return self._count(TRIGGERS, queries.triggers(self._admit(tenant_id), 1, None))

    @override
    def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        scope, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        instant = instant_argument(now, "now")

        def rule(
            schedule: Row[Schedule] | None, trigger: Row[Trigger] | None
        ) -> tuple[Row[Schedule] | None, Row[Trigger] | None]:
            # Required inside the rule: there the schedule is locked, and cannot be removed before the trigger
            # is written.
            stored = schedule_of(self._required(schedule, SCHEDULES, key), self.driver)
            before = None if trigger is None else trigger.model
            return None, unclaimed(rules.recalculated(before, stored, instant), trigger)

        _, trigger = self._change_pair(Ref(SCHEDULES, scope, (key,)), trigger_ref(scope, key), rule)
        return self._required(trigger, TRIGGERS, key).model

    @override
    def fire(
        self, tenant_id: str, schedule_id: str, now: datetime, *, claim: ScheduleClaim | None = None
    ) -> FiredTrigger | None:
        scope, key = self._admit(tenant_id), id_argument(schedule_id, "schedule_id")
        instant = instant_argument(now, "now")
        if claim is not None:
            claim = claim_argument(claim, scope, key)
        self._check_writable()
        due = self._due(scope, key) if claim is None else claim.scheduled_for
        # Without a claim most calls end here: a worker asks for what another one has fired already.
        if due is None or due > instant:
            return None
        firing = self._fire(scope, key, due, instant, claim)
        if firing is None:
            return None
        return FiredTrigger(
            run=firing.run,
            trigger=firing.trigger,
            scheduled_for=due,
            misfires=firing.misfires,
            created=firing.created,
        )

    def _due(self, scope: Tenant, key: str) -> datetime | None:
        trigger = self._get(TRIGGERS, scope, trigger_key(key))
        return None if trigger is None else trigger.next_fire_at

    def _fire(
        self, scope: Tenant, key: str, due: datetime, now: datetime, claim: ScheduleClaim | None
    ) -> Firing | None:
        """Fire an instant, even if the id of its run is taken."""
        fire_as = partial(self._fire_as, scope=scope, key=key, due=due, now=now, claim=claim)
        try:
            return fire_as(fired_run_id(scope.id, key, due))
        except DuplicateError as error:
            # Only the run is new, so its id is what a run out of sight has. A unit is over by then.
            if error.entity != RUNS.name or self._access.binding.in_unit:
                raise
        except DocumentDecodeError as error:
            # An unreadable run has the id; the schedule must fire all the same.
            if error.entity != RUNS.name:
                raise
        return fire_as(substitute_run_id(due))

    def _fire_as(
        self,
        run_id: str,
        *,
        scope: Tenant,
        key: str,
        due: datetime,
        now: datetime,
        claim: ScheduleClaim | None,
    ) -> Firing | None:
        """Fire an instant in one step; ``None`` if another caller was faster, or it must not fire."""
        firing: Firing | None = None

        def rule(rows: Rows, moment: ServerClock) -> Rows:
            nonlocal firing
            del moment
            # Safe, because a driver returns rows of the entity of each ref.
            schedule, trigger, run = cast("FiringRows", rows)
            if claim is not None and trigger is not None:
                rules.check_claim(trigger, claim, now)
            firing = rules.fired(
                stored_of(schedule, self.driver),
                None if trigger is None else trigger.model,
                None if run is None else run.model,
                run_id,
                due,
                now,
            )
            if firing is None:
                return None, None, None
            return None, unclaimed(firing.trigger, trigger), (Row(firing.run) if firing.created else None)

        # The schedule first, as all that write one do, so that no two of them deadlock.
        trigger = Ref(TRIGGERS, scope, trigger_key(key))
        refs = (Ref(SCHEDULES, scope, (key,)), trigger, Ref(RUNS, scope, (run_id,)))
        self._access.change(refs, rule)
        return firing


def claim_argument(claim: object, scope: Tenant, key: str) -> ScheduleClaim:
    """Return a claim of a schedule, or raise ``ValidationError``; a caller may have made it of a message."""
    found = instance_argument(claim, ScheduleClaim, "claim")
    named = instance_argument(found.schedule, Schedule, "claim.schedule")
    if (named.tenant_id, named.id) != (scope.id, key):
        raise ValidationError(
            f"Argument claim is of schedule {named.id!r} of tenant {named.tenant_id!r}; fire that schedule "
            "with it."
        )
    due = instant_argument(found.scheduled_for, "claim.scheduled_for")
    return replace(found, scheduled_for=due, fence=whole_argument(found.fence, "claim.fence"))

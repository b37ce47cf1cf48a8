"""Triggers: when a schedule is due next, and the contract of their repository."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol, cast

from pydantic import AliasChoices, Field, model_validator

from twinstore.canonical import CanonicalModel
from twinstore.fields import Count, Flag, Id, OptionalReference, TenantId, Timestamp
from twinstore.modelrules import PresentExactlyWhen
from twinstore.scheduler.schedules import CronText, TimezoneName

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page

__all__ = ["Trigger", "TriggerRepository", "trigger_id"]


OWNER_FIELDS: Final = (("tenantId", "tenant_id"), ("scheduleId", "schedule_id"))


def trigger_id(tenant_id: str, schedule_id: str) -> str:
    """Return the id of the one trigger of a schedule; it depends on nothing else."""
    return f"trg_{sha256(f'{tenant_id}:{schedule_id}'.encode()).hexdigest()[:32]}"


class Trigger(CanonicalModel):
    """The next due instant of a schedule and what has fired so far.

    One trigger per schedule, written together with it. A trigger that is not enabled has no ``nextFireAt``.
    """

    rules = (
        PresentExactlyWhen(
            "next_fire_at",
            flag="enabled",
            code="next_fire_at",
            message="nextFireAt should be present exactly when enabled is true",
        ),
    )

    id: Id
    tenant_id: TenantId
    schedule_id: Id
    when_cron: CronText = Field(
        validation_alias=AliasChoices("whenCron", "cronExpression"), serialization_alias="whenCron"
    )
    timezone: TimezoneName = "UTC"
    enabled: Flag = True
    next_fire_at: Timestamp | None = None
    last_fire_at: Timestamp | None = None
    last_run_id: OptionalReference = None
    fire_count: Count = 0
    misfire_count: Count = 0
    created_at: Timestamp
    updated_at: Timestamp

    @model_validator(mode="before")
    @classmethod
    def _derive_id(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        values = cast("dict[str, object]", data)
        if "id" in values:
            return values
        tenant, schedule = (values.get(wire, values.get(name)) for wire, name in OWNER_FIELDS)
        if not isinstance(tenant, str) or not isinstance(schedule, str):
            return values
        # Trimmed as the fields will be, since the id is derived before they are validated.
        return {"id": trigger_id(tenant.strip(), schedule.strip()), **values}


class TriggerRepository(Protocol):
    """Stores one trigger per schedule; it is written together with its schedule.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a trigger.
    """

    def get(self, tenant_id: str, schedule_id: str) -> Trigger | None:
        """Return the trigger of a schedule. Absent: ``None`` when unknown or foreign."""
        ...

    def get_required(self, tenant_id: str, schedule_id: str) -> Trigger:
        """Return the trigger of a schedule as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(self, tenant_id: str, *, limit: int = 100, page_token: str | None = None) -> Page[Trigger]:
        """Return a page of triggers.

        Order: (next_fire_at, id), triggers without a next instant first. Limit 100, at most 1000.
        Empty: an empty page.
        """
        ...

    def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        """Set the next instant strictly after ``now`` from the stored schedule; return the trigger.

        The trigger is created when absent; a disabled or deleted schedule has a disabled trigger.
        Repeated call: same instants. Atomic.

        Raises:
            NotFoundError: the schedule is unknown or foreign.
        """
        ...

"""Triggers: when a schedule is due next, and the contract of their repository."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from pydantic import AliasChoices, Field, model_validator

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Count, Flag, Id, OptionalReference, TenantId, Timestamp
from twinstore.models.rules import PresentExactlyWhen, when_missing
from twinstore.scheduler.schedules import CronText, TimezoneName

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import ScheduleClaim

__all__ = [
    "FiredTrigger",
    "Trigger",
    "TriggerRepository",
    "fired_run_id",
    "substitute_run_id",
    "trigger_id",
]


# Of an id, in characters.
MAX_ID_LENGTH: Final = 256
OWNER_FIELDS: Final = (("tenantId", "tenant_id"), ("scheduleId", "schedule_id"))


def trigger_id(tenant_id: str, schedule_id: str) -> str:
    """Return the id of the one trigger of a schedule; it depends on nothing else."""
    return f"trg_{sha256(f'{tenant_id}:{schedule_id}'.encode()).hexdigest()[:32]}"


def fired_run_id(tenant_id: str, schedule_id: str, due: datetime) -> str:
    """Return the id of the run that a trigger fires for an instant; it depends on nothing else."""
    owner, instant = f"{tenant_id}:{schedule_id}", instant_text(due)
    plain = f"run:{owner}:{instant}"
    return (
        plain if len(plain) <= MAX_ID_LENGTH else f"run:{sha256(owner.encode()).hexdigest()[:32]}:{instant}"
    )


def substitute_run_id(due: datetime) -> str:
    """Return an id for the run of an instant where another tenant has the one that follows from it.

    At random, because whatever follows from the names could be taken in advance as well.
    """
    return f"run:{uuid4().hex}:{instant_text(due)}"


def instant_text(due: datetime) -> str:
    """Return a fired instant as ids of runs have it."""
    return f"{due.year:04}{due:%m%dT%H%M%SZ}"


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
    @when_missing("id")
    def _derive_id(cls, values: dict[str, object]) -> object:
        tenant, schedule = (values.get(wire, values.get(name)) for wire, name in OWNER_FIELDS)
        if not isinstance(tenant, str) or not isinstance(schedule, str):
            # They are refused themselves; a missing id would be one more error, about a value that no caller
            # gave.
            return {"id": trigger_id("", ""), **values}
        # Trimmed as the fields will be, since the id is derived before they are validated.
        return {"id": trigger_id(tenant.strip(), schedule.strip()), **values}


@dataclass(frozen=True, slots=True, kw_only=True)
class FiredTrigger:
    """What one firing of a trigger did.

    Attributes:
        run: the run of the instant, new or found.
        trigger: the trigger as it is stored now.
        scheduled_for: the instant that was due.
        misfires: how many later instants had passed as well and are not made up for, at most 10,000.
        created: whether this call created the run; otherwise one with its id was there.
    """

    run: Run
    trigger: Trigger
    scheduled_for: datetime
    misfires: int
    created: bool


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

    def count(self, tenant_id: str) -> int:
        """Return how many triggers all pages of :meth:`list` have together. Empty: 0."""
        ...

    def recalculate(self, tenant_id: str, schedule_id: str, now: datetime) -> Trigger:
        """Set the next instant strictly after ``now`` from the stored schedule; return the trigger.

        The trigger is created when absent; a disabled or deleted schedule has a disabled trigger.
        Repeated call: same instants. Atomic.

        Raises:
            NotFoundError: the schedule is unknown or foreign.
        """
        ...

    def fire(
        self, tenant_id: str, schedule_id: str, now: datetime, *, claim: ScheduleClaim | None = None
    ) -> FiredTrigger | None:
        """Create the run of the instant that is due, and set the next instant after ``now``.

        The id of the run follows from tenant, schedule and instant, so that no instant has two runs. If a run
        of this id exists, the instant was fired before: the trigger advances all the same, and the run is
        returned. If that run is another tenant's, the new run gets a random id, so no tenant can keep a
        schedule of others from firing. Instants that passed since are counted in ``misfireCount`` and not
        made up for.
        Absent, not due, disabled, deleted, or fired by another caller meanwhile: ``None``, nothing changes.
        Repeated call: ``None`` until the next instant. Atomic.
        With a ``claim`` only its holder fires the claimed instant, once: the firing ends the claim. Without
        one, claims of others do not matter.

        Raises:
            LeaseLostError: the claim has expired, or another worker holds the schedule.
            DuplicateError: in a unit of work, a run of another tenant has the id of this run; the unit is
                aborted as by every duplicate, and the same call outside of it fires.
            ValidationError: the time rule has no further instant, or the claim is of another schedule.
        """
        ...

"""Schedules: what a schedule is, and the contract of its repository."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Final, Protocol

from pydantic import AfterValidator, AliasChoices, Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.cron import cron_field, timezone_field
from twinstore.models.fields import (
    Actor,
    Count,
    Flag,
    Id,
    Name,
    OptionalText,
    PositiveInt,
    SchemaVersion,
    StringSet,
    TenantId,
    Text,
    Timestamp,
)
from twinstore.models.rules import EqualOrAbsent, NotBefore, filled_from
from twinstore.scheduler.enums import ScheduleMode, SeverityRank
from twinstore.scheduler.policy_jobs import LEASE
from twinstore.scheduler.selectors import Selector

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = [
    "Schedule",
    "ScheduleClaim",
    "ScheduleLimits",
    "ScheduleNotify",
    "ScheduleOnlyIf",
    "ScheduleQueryOptions",
    "ScheduleRepository",
    "SoftDeletion",
]

SCHEDULE_VERSION: Final = "scheduler.schedule@1"

CronText = Annotated[Text, AfterValidator(cron_field)]
TimezoneName = Annotated[Text, AfterValidator(timezone_field)]


class ScheduleOnlyIf(CanonicalModel):
    """Gate before planning. ``last_report_older_than_days`` is in days."""

    last_report_older_than_days: Count | None = None
    policy_revision: OptionalText = None


class ScheduleNotify(CanonicalModel):
    """Which findings are announced."""

    on_new_findings: Flag = True
    min_severity: SeverityRank | None = None
    include_kev: Flag = True
    include_quiet_findings: Flag = False


class ScheduleLimits(CanonicalModel):
    """Throttles of a schedule; ``rate_per_second`` is in jobs per second."""

    max_jobs: PositiveInt | None = None
    rate_per_second: PositiveInt | None = None
    parallelism: PositiveInt | None = None
    burst: PositiveInt | None = None


class Schedule(CanonicalModel):
    """A time rule with the choice of images it applies to.

    One schedule per document. ``deletedAt`` and ``deletedBy`` mark a soft-deleted schedule; they are not part
    of the document and are set both or neither. A name is unique among the schedules of a tenant that are not
    deleted.
    """

    rules = (
        NotBefore(
            "updated_at",
            earlier=("created_at",),
            code="updated_before_created",
            message="updatedAt should not be before createdAt",
        ),
        EqualOrAbsent(
            "selection.tenant_id",
            other="tenant_id",
            code="selection_tenant",
            message="selection.tenantId should equal tenantId or be absent",
        ),
    )

    schema_version: Annotated[str, SchemaVersion(SCHEDULE_VERSION)] = SCHEDULE_VERSION
    id: Id
    tenant_id: TenantId
    name: Name
    enabled: Flag = True
    when_cron: CronText = Field(
        validation_alias=AliasChoices("whenCron", "cronExpression"), serialization_alias="whenCron"
    )
    timezone: TimezoneName = "UTC"
    mode: ScheduleMode = ScheduleMode.ANALYSIS_ONLY
    selection: Selector
    only_if: ScheduleOnlyIf = ScheduleOnlyIf()
    notify: ScheduleNotify = ScheduleNotify()
    limits: ScheduleLimits = ScheduleLimits()
    subscribers: StringSet = ()
    created_at: Timestamp
    created_by: Actor
    updated_at: Timestamp = filled_from("created_at")
    updated_by: Actor = filled_from("created_by")


class SoftDeletion(CanonicalModel):
    """When and by whom a schedule was soft-deleted."""

    deleted_at: Timestamp
    deleted_by: Actor


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleQueryOptions:
    """Filter of :meth:`ScheduleRepository.list`; order (name, id), limit 50, at most 200."""

    include_deleted: bool = False
    include_disabled: bool = True
    limit: int = 50
    page_token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleClaim:
    """A due schedule that one worker holds, to be fired with ``TriggerRepository.fire``.

    Attributes:
        schedule: the schedule.
        scheduled_for: the instant that is due.
        lease_owner: the worker.
        lease_expires_at: when the claim ends.
        fence: the number of the claim, higher than that of every earlier claim of this schedule, except that
            an unreadable trigger that was rebuilt starts at 1 again.
    """

    schedule: Schedule
    scheduled_for: datetime
    lease_owner: str
    lease_expires_at: datetime
    fence: int


class ScheduleRepository(Protocol):
    """Stores schedules. Each method sees one tenant only, except ``get_due_schedules`` and ``claim_due``.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form a schedule.
    """

    def get(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule | None:
        """Return one schedule.

        Absent: ``None`` when the id is unknown, belongs to another tenant, or is soft-deleted and
        ``include_deleted`` is false.
        """
        ...

    def get_required(self, tenant_id: str, schedule_id: str, *, include_deleted: bool = False) -> Schedule:
        """Return one schedule as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def get_deletion(self, tenant_id: str, schedule_id: str) -> SoftDeletion | None:
        """Return the deletion markers of a soft-deleted schedule.

        Absent: ``None`` when the schedule is unknown, foreign or not deleted.
        """
        ...

    def list(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> Page[Schedule]:
        """Return a page of schedules.

        Order: (name, id) by code point. Empty: an empty page. Absent tenant: an empty page.
        Rows inserted or removed between two pages neither repeat nor hide other rows.
        """
        ...

    def count(self, tenant_id: str, options: ScheduleQueryOptions | None = None) -> int:
        """Return how many schedules all pages of :meth:`list` have together. Empty: 0."""
        ...

    def upsert(self, schedule: Schedule, *, expected_updated_at: datetime | None = None) -> Schedule:
        """Insert a schedule, or replace the caller's own one; return what is stored.

        ``tenantId``, ``createdAt`` and ``createdBy`` of an existing schedule are kept. With
        ``expected_updated_at`` the write happens only when the stored ``updatedAt`` equals it.
        Repeated call: same result. Atomic with the trigger of the schedule.

        Raises:
            ConflictError: stale expectation, nothing stored although one was given, or a soft-deleted id.
            DuplicateError: the name is taken in the tenant, or the id belongs to another tenant.
        """
        ...

    def soft_delete(self, tenant_id: str, schedule_id: str, deleted_by: str, deleted_at: datetime) -> bool:
        """Mark a schedule as deleted and disable it and its trigger, in one transaction.

        Absent: false. Repeated call: false, nothing changes.

        Raises:
            ValidationError: ``deleted_at`` lies before ``updatedAt``.
        """
        ...

    def restore(
        self,
        tenant_id: str,
        schedule_id: str,
        restored_by: str,
        restored_at: datetime,
        *,
        enabled: bool = False,
    ) -> bool:
        """Clear the deletion markers, in one transaction with the trigger.

        Absent or not deleted: false, nothing changes.

        Raises:
            ValidationError: ``restored_at`` lies before ``updatedAt``.
            DuplicateError: the name was taken meanwhile.
        """
        ...

    def get_due_schedules(self, now: datetime, *, limit: int = 100) -> Page[Schedule]:
        """Return the schedules of all tenants that are due at ``now``; reads only, in system scope.

        Due: trigger and schedule enabled, not deleted, ``nextFireAt <= now``. A schedule that cannot be read,
        or whose trigger cannot, does not delay the others: ``undecodable`` names it, and the others are
        returned. Order: (next_fire_at, tenant_id, id) of the trigger. Limit 100, at most 1000; there is no
        next page, because what was fired is due no more. Empty: an empty page.
        """
        ...

    def claim_due(
        self, lease_owner: str, now: datetime, *, limit: int = 100, lease: timedelta = LEASE
    ) -> tuple[ScheduleClaim, ...]:
        """Claim the first schedules that are due at ``now`` and that no worker holds, in system scope.

        A claim ends with its lease, by the ``now`` of the callers, or when the trigger changes; nothing that
        readers see changes. Due and order as in ``get_due_schedules``; an unreadable schedule or trigger is
        passed over and logged. May return fewer than ``limit`` although more are due: call it until it
        returns ``()``. Repeated call: other schedules. Atomic for each schedule.
        """
        ...

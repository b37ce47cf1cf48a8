"""The lists of the scheduler as data: filter, order and limits in one place for every driver."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, build_query
from twinstore.access.scope import (
    duration_argument,
    flag_argument,
    id_argument,
    instant_argument,
    member_argument,
    members_argument,
    options_argument,
    tenant_argument,
    text_argument,
    whole_argument,
)
from twinstore.catalog.conditions import After, AtMost, Before, Condition, Equals, IsNull, NotAfter, OneOf
from twinstore.catalog.tenancy import ALL_TENANTS, Tenants
from twinstore.errors import ValidationError
from twinstore.models.fields import INT32_MAX
from twinstore.runtime.formatting import safe_repr
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.enums import PolicyRunJobStatus, RunState
from twinstore.scheduler.policy_jobs import PolicyJobQueryOptions
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.scheduler.workers import WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

E = TypeVar("E", bound=StrEnum)

NEWEST_RUNS: Final = (SortKey("createdAt", descending=True, time=True), SortKey("id"))
OLDEST_RUNS: Final = (SortKey("createdAt", time=True), SortKey("id"))
NEWEST_SNAPSHOTS: Final = (SortKey("generatedAt", descending=True, time=True), SortKey("snapshotId"))
# Every order ends with the key, or the tenant and the key: only a total order pages without gaps.
NEXT_TRIGGERS: Final = (SortKey("nextFireAt", time=True, nullable=True), SortKey("id"))
SILENT_WORKERS: Final = (SortKey("lastHeartbeatAt", time=True), SortKey("id"))
LEASE_ORDER: Final = (
    SortKey("priorityRank", descending=True, number=True),
    SortKey("availableAt", time=True),
    SortKey("createdAt", time=True),
    SortKey("id"),
)
MOMENT: Final = timedelta(milliseconds=1)
EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
LEASE_ENDS: Final = (SortKey("leaseExpiresAt", time=True), SortKey("id"))
DUE_TRIGGERS: Final = (SortKey("nextFireAt", time=True), SortKey("tenantId"), SortKey("id"))


def schedules(scope: Tenants, options: ScheduleQueryOptions | None) -> Query:
    """Return the query of ``ScheduleRepository.list``."""
    options = options_argument(options, ScheduleQueryOptions)
    where: list[Condition] = []
    if not flag_argument(options.include_deleted, "include_deleted"):
        where.append(IsNull("deletedAt"))
    if not flag_argument(options.include_disabled, "include_disabled"):
        where.append(Equals("enabled", value=True))
    return build_query(
        "schedules",
        scope=scope,
        where=where,
        order=(SortKey("name"), SortKey("id")),
        limit=options.limit,
        maximum=200,
        page_token=options.page_token,
    )


def active_schedule(scope: Tenants, schedule_id: str) -> Query:
    """Return the query of a schedule that is not deleted."""
    return Query(
        entity="schedules",
        scope=scope,
        where=(Equals("id", schedule_id), IsNull("deletedAt")),
        order=(SortKey("id"),),
        limit=1,
    )


def trigger_of(scope: Tenants, schedule_id: str) -> Query:
    """Return the query of the trigger of a schedule."""
    where = (Equals("scheduleId", schedule_id),)
    return Query(entity="triggers", scope=scope, where=where, order=(SortKey("id"),), limit=1)


def triggers(scope: Tenants, limit: int, page_token: str | None) -> Query:
    """Return the query of ``TriggerRepository.list``."""
    return build_query(
        "triggers",
        scope=scope,
        where=(),
        order=NEXT_TRIGGERS,
        limit=limit,
        maximum=1000,
        page_token=page_token,
    )


def due_triggers(now: datetime, limit: int, *, unclaimed: bool = False) -> Query:
    """Return the query of due triggers over all tenants, on request of those that no worker holds."""
    instant = instant_argument(now, "now")
    where: list[Condition] = [Equals("enabled", value=True), AtMost("nextFireAt", instant)]
    if unclaimed:
        where.append(NotAfter("claimedUntil", instant))
    return build_query(
        "triggers", scope=ALL_TENANTS, where=where, order=DUE_TRIGGERS, limit=limit, maximum=1000
    )


def schedules_of(schedule_ids: Sequence[str]) -> Query:
    """Return the query of the schedules of some triggers, over all tenants."""
    keys = tuple(dict.fromkeys(schedule_ids))
    return Query(
        entity="schedules",
        scope=ALL_TENANTS,
        where=(OneOf("id", keys),),
        order=(SortKey("id"),),
        limit=max(len(keys), 1),
        skips_undecodable=True,
    )


def runs(scope: Tenants, options: RunQueryOptions | None) -> Query:
    """Return the query of ``RunRepository.list``."""
    options = options_argument(options, RunQueryOptions)
    where: list[Condition] = []
    if options.schedule_id is not None:
        where.append(Equals("scheduleId", text_argument(options.schedule_id, "schedule_id")))
    if options.states is not None:
        where.append(OneOf("state", member_texts(options.states, RunState, "states")))
    where += _window("createdAt", options.created_after, options.created_before, "created")
    return build_query(
        "runs",
        scope=scope,
        where=where,
        order=OLDEST_RUNS if flag_argument(options.ascending, "ascending") else NEWEST_RUNS,
        limit=options.limit,
        maximum=200,
        page_token=options.page_token,
    )


def pending_runs(scope: Tenants, limit: int, page_token: str | None) -> Query:
    """Return the query of ``RunRepository.get_pending_runs``."""
    pending = OneOf("state", (RunState.PLANNING.value, RunState.QUEUED.value))
    return build_query(
        "runs",
        scope=scope,
        where=(pending,),
        order=OLDEST_RUNS,
        limit=limit,
        maximum=1000,
        page_token=page_token,
    )


def runs_by_schedule(scope: Tenants, schedule_id: str, limit: int, page_token: str | None) -> Query:
    """Return the query of ``RunRepository.get_runs_by_schedule``."""
    where = (Equals("scheduleId", text_argument(schedule_id, "schedule_id")),)
    return build_query(
        "runs",
        scope=scope,
        where=where,
        order=NEWEST_RUNS,
        limit=limit,
        maximum=200,
        page_token=page_token,
    )


def runs_by_state(state: RunState, limit: int, page_token: str | None) -> Query:
    """Return the query of ``RunRepository.list_by_state``, over all tenants."""
    return build_query(
        "runs",
        scope=ALL_TENANTS,
        where=(OneOf("state", (member_argument(state, RunState, "state").value,)),),
        order=OLDEST_RUNS,
        limit=limit,
        maximum=200,
        page_token=page_token,
    )


def execution_log(scope: Tenants, run_id: str, after_sequence: int, limit: int) -> Query:
    """Return the query of ``ExecutionLogRepository.list``."""
    after = whole_argument(after_sequence, "after_sequence")
    return build_query(
        "execution_logs",
        scope=scope,
        where=(Equals("runId", id_argument(run_id, "run_id")), After("sequence", after)),
        order=(SortKey("runId"), SortKey("sequence", number=True)),
        limit=limit,
        maximum=5000,
    )


def snapshots(scope: Tenants, limit: int, page_token: str | None, run_id: str | None = None) -> Query:
    """Return the query of ``ImpactSnapshotRepository.list`` and ``list_by_run``."""
    where = () if run_id is None else (Equals("runId", text_argument(run_id, "run_id")),)
    return build_query(
        "impact_snapshots",
        scope=scope,
        where=where,
        order=NEWEST_SNAPSHOTS,
        limit=limit,
        maximum=200,
        page_token=page_token,
    )


def latest_snapshot(scope: Tenants, digest: str) -> Query:
    """Return the query of ``ImpactSnapshotRepository.get_latest_by_selector``."""
    return build_query(
        "impact_snapshots",
        scope=scope,
        where=(Equals("selectorDigest", digest),),
        order=NEWEST_SNAPSHOTS,
        limit=1,
        maximum=1,
    )


def policy_jobs(scope: Tenants, options: PolicyJobQueryOptions | None) -> Query:
    """Return the query of ``PolicyJobRepository.list``."""
    options = options_argument(options, PolicyJobQueryOptions)
    where: list[Condition] = []
    if options.statuses is not None:
        where.append(OneOf("status", member_texts(options.statuses, PolicyRunJobStatus, "statuses")))
    if options.policy_id is not None:
        where.append(Equals("policyId", id_argument(options.policy_id, "policy_id")))
    return build_query(
        "policy_jobs",
        scope=scope,
        where=where,
        order=(SortKey("createdAt", descending=True, time=True), SortKey("id")),
        limit=options.limit,
        maximum=200,
        page_token=options.page_token,
    )


def policy_jobs_of(scope: Tenants) -> Query:
    """Return the query behind ``PolicyJobRepository.count_by_status``."""
    return build_query("policy_jobs", scope=scope, where=(), order=(SortKey("id"),), limit=1, maximum=1)


def available_jobs(scope: Tenants, now: datetime, limit: int) -> Query:
    """Return the query behind ``PolicyJobRepository.lease_many``: what is due, in the order of leases."""
    where = (
        Equals("status", PolicyRunJobStatus.PENDING.value),
        AtMost("availableAt", now),
        # A job whose attempts cannot be counted on would end every step that is to lease it.
        Before("attemptCount", INT32_MAX),
    )
    found = build_query("policy_jobs", scope=scope, where=where, order=LEASE_ORDER, limit=limit, maximum=1000)
    # One broken job would keep every other one of its tenant from being leased.
    return replace(found, skips_undecodable=True)


def expired_leases(now: datetime, limit: int) -> Query:
    """Return the query behind ``PolicyJobRepository.release_expired``, over all tenants."""
    where = (
        Equals("status", PolicyRunJobStatus.DISPATCHING.value),
        AtMost("leaseExpiresAt", instant_argument(now, "now")),
    )
    return build_query(
        "policy_jobs", scope=ALL_TENANTS, where=where, order=LEASE_ENDS, limit=limit, maximum=1000
    )


def audit(scope: Tenants, options: AuditQueryOptions | None) -> Query:
    """Return the query of ``AuditRepository.list``."""
    options = options_argument(options, AuditQueryOptions)
    where: list[Condition] = []
    if options.category is not None:
        where.append(Equals("category", text_argument(options.category, "category").lower()))
    if options.schedule_id is not None:
        where.append(Equals("scheduleId", text_argument(options.schedule_id, "schedule_id")))
    if options.run_id is not None:
        where.append(Equals("runId", text_argument(options.run_id, "run_id")))
    where += _window("occurredAt", options.occurred_after, options.occurred_before, "occurred")
    return build_query(
        "audit",
        scope=scope,
        where=where,
        order=(SortKey("occurredAt", descending=True, time=True), SortKey("id")),
        limit=options.limit,
        maximum=500,
        page_token=options.page_token,
    )


def run_summaries(scope: Tenants, limit: int, page_token: str | None) -> Query:
    """Return the query of ``RunSummaryRepository.list``."""
    return build_query(
        "run_summaries",
        scope=scope,
        where=(),
        order=(SortKey("scheduleId"),),
        limit=limit,
        maximum=200,
        page_token=page_token,
    )


def workers(
    statuses: Collection[WorkerStatus] | None, tenant_id: str | None, limit: int, page_token: str | None
) -> Query:
    """Return the query of ``WorkerRepository.list``; the tenant is a filter, not a scope."""
    where: list[Condition] = []
    if statuses is not None:
        where.append(OneOf("status", member_texts(statuses, WorkerStatus, "statuses")))
    if tenant_id is not None:
        where.append(Equals("tenantId", tenant_argument(tenant_id)))
    return build_query(
        "workers",
        scope=ALL_TENANTS,
        where=where,
        order=SILENT_WORKERS,
        limit=limit,
        maximum=1000,
        page_token=page_token,
    )


def dead_workers(now: datetime, threshold: object, limit: int) -> Query:
    """Return the query of ``WorkerRepository.find_dead``."""
    silence = duration_argument(threshold, "threshold")
    if silence <= timedelta(0):
        raise ValidationError(f"Argument threshold should be longer than zero, not {safe_repr(threshold)}.")
    instant = instant_argument(now, "now")
    # No worker was silent since before the calendar began. In whole milliseconds as every stored instant; a
    # server that cuts off the rest would find fewer.
    silence = silence // MOMENT * MOMENT
    since = instant - silence if silence <= instant - EARLIEST else EARLIEST
    # A stopped worker is silent on purpose, and a dead one is known already.
    alive = OneOf("status", (WorkerStatus.ACTIVE.value, WorkerStatus.DRAINING.value))
    silent = Before("lastHeartbeatAt", since)
    return build_query(
        "workers", scope=ALL_TENANTS, where=(alive, silent), order=SILENT_WORKERS, limit=limit, maximum=1000
    )


def member_texts(values: Collection[E], enum: type[E], name: str) -> tuple[str, ...]:
    """Return the texts of members of an enum, sorted, or raise ``ValidationError`` naming the argument."""
    # Sorted, because a page token holds a print of the filter: the caller may name them in any order.
    return tuple(sorted({member.value for member in members_argument(values, enum, name)}))


def _window(field: str, after: datetime | None, before: datetime | None, name: str) -> list[Condition]:
    where: list[Condition] = []
    if after is not None:
        where.append(After(field, instant_argument(after, f"{name}_after")))
    if before is not None:
        where.append(Before(field, instant_argument(before, f"{name}_before")))
    return where

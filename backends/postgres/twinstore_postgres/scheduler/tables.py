"""The tables of the scheduler: columns in order, and how each model becomes a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter

from twinstore import jsontext
from twinstore.canonical import CanonicalJsonSerializer, content_digest
from twinstore.scheduler.audit import AuditActor, AuditRecord
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULER,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.scheduler.enums import RunState, RunTrigger, ScheduleMode
from twinstore.scheduler.impact_snapshots import ImpactSet
from twinstore.scheduler.run_summaries import RunSnapshot, RunSummary, RunSummaryCounters
from twinstore.scheduler.runs import DeltaSummary, Run, RunReason, RunStats
from twinstore.scheduler.schedules import Schedule, ScheduleLimits, ScheduleNotify, ScheduleOnlyIf
from twinstore.scheduler.selectors import Selector
from twinstore.scheduler.triggers import Trigger
from twinstore_postgres.codec import Column, Json, Row, Table, json_list, json_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog import Entity

__all__ = [
    "AUDIT_TABLE",
    "RUNS_TABLE",
    "SCHEDULES_TABLE",
    "SNAPSHOTS_TABLE",
    "SUMMARIES_TABLE",
    "TRIGGERS_TABLE",
    "table_of",
]

selector_json: Final = json_of(Selector)
only_if_json: Final = json_of(ScheduleOnlyIf)
notify_json: Final = json_of(ScheduleNotify)
limits_json: Final = json_of(ScheduleLimits)
stats_json: Final = json_of(RunStats)
reason_json: Final = json_of(RunReason)
deltas_json: Final = json_list(TypeAdapter(tuple[DeltaSummary, ...]))
actor_json: Final = json_of(AuditActor)
counters_json: Final = json_of(RunSummaryCounters)
snapshot_json: Final = json_of(RunSnapshot)
snapshots_json: Final = json_list(TypeAdapter(tuple[RunSnapshot, ...]))


def schedule_row(schedule: Schedule, storage: Mapping[str, object]) -> Row:
    """Return the values of a row of ``schedules``."""
    return (
        schedule.id,
        schedule.tenant_id,
        schedule.name,
        schedule.when_cron,
        schedule.schema_version,
        schedule.created_by,
        schedule.updated_by,
        schedule.enabled,
        schedule.timezone,
        schedule.mode.number,
        selector_json(schedule.selection),
        only_if_json(schedule.only_if),
        notify_json(schedule.notify),
        limits_json(schedule.limits),
        list(schedule.subscribers),
        schedule.created_at,
        schedule.updated_at,
        storage.get("deletedAt"),
        storage.get("deletedBy"),
    )


SCHEDULES_TABLE: Final = Table(
    entity=SCHEDULES,
    model=Schedule,
    columns=(
        Column("id", "text", "id"),
        Column("tenant_id", "text", "tenantId"),
        Column("name", "text", "name"),
        Column("when_cron", "text", "whenCron"),
        Column("schema_version", "text", "schemaVersion"),
        Column("created_by", "text", "createdBy"),
        Column("updated_by", "text", "updatedBy"),
        Column("enabled", "bool", "enabled"),
        Column("timezone", "text", "timezone"),
        Column("mode", "int2", "mode", ScheduleMode),
        Column("selection", "jsonb", "selection"),
        Column("only_if", "jsonb", "onlyIf"),
        Column("notify", "jsonb", "notify"),
        Column("limits", "jsonb", "limits"),
        Column("subscribers", "text[]", "subscribers"),
        Column("created_at", "timestamptz", "createdAt"),
        Column("updated_at", "timestamptz", "updatedAt"),
        Column("deleted_at", "timestamptz", "deletedAt"),
        Column("deleted_by", "text", "deletedBy"),
    ),
    key=("id",),
    tenant="tenant_id",
    encode=schedule_row,
    markers=2,
)


def trigger_row(trigger: Trigger, _storage: Mapping[str, object]) -> Row:
    """Return the values of a row of ``triggers``."""
    return (
        trigger.id,
        trigger.tenant_id,
        trigger.schedule_id,
        trigger.when_cron,
        trigger.timezone,
        trigger.enabled,
        trigger.next_fire_at,
        trigger.last_fire_at,
        trigger.last_run_id,
        trigger.fire_count,
        trigger.misfire_count,
        trigger.created_at,
        trigger.updated_at,
    )


TRIGGERS_TABLE: Final = Table(
    entity=TRIGGERS,
    model=Trigger,
    columns=(
        Column("id", "text", "id"),
        Column("tenant_id", "text", "tenantId"),
        Column("schedule_id", "text", "scheduleId"),
        Column("when_cron", "text", "whenCron"),
        Column("timezone", "text", "timezone"),
        Column("enabled", "bool", "enabled"),
        Column("next_fire_at", "timestamptz", "nextFireAt"),
        Column("last_fire_at", "timestamptz", "lastFireAt"),
        Column("last_run_id", "text", "lastRunId"),
        Column("fire_count", "int8", "fireCount"),
        Column("misfire_count", "int8", "misfireCount"),
        Column("created_at", "timestamptz", "createdAt"),
        Column("updated_at", "timestamptz", "updatedAt"),
    ),
    key=("id",),
    tenant="tenant_id",
    encode=trigger_row,
)


def run_row(run: Run, _storage: Mapping[str, object]) -> Row:
    """Return the values of a row of ``runs``."""
    return (
        run.id,
        run.tenant_id,
        run.schema_version,
        run.schedule_id,
        run.error,
        run.retry_of,
        run.trigger.number,
        run.state.number,
        stats_json(run.stats),
        None if run.reason is None else reason_json(run.reason),
        deltas_json(run.deltas),
        run.created_at,
        run.started_at,
        run.finished_at,
    )


RUNS_TABLE: Final = Table(
    entity=RUNS,
    model=Run,
    columns=(
        Column("id", "text", "id"),
        Column("tenant_id", "text", "tenantId"),
        Column("schema_version", "text", "schemaVersion"),
        Column("schedule_id", "text", "scheduleId"),
        Column("error", "text", "error"),
        Column("retry_of", "text", "retryOf"),
        Column("trigger", "int2", "trigger", RunTrigger),
        Column("state", "int2", "state", RunState),
        Column("stats", "jsonb", "stats"),
        Column("reason", "jsonb", "reason"),
        Column("deltas", "jsonb", "deltas"),
        Column("created_at", "timestamptz", "createdAt"),
        Column("started_at", "timestamptz", "startedAt"),
        Column("finished_at", "timestamptz", "finishedAt"),
    ),
    key=("id",),
    tenant="tenant_id",
    encode=run_row,
    versioned=True,
)


def snapshot_row(snapshot: ImpactSet, storage: Mapping[str, object]) -> Row:
    """Return the values of a row of ``impact_snapshots``."""
    content = CanonicalJsonSerializer.serialize(snapshot)
    return (
        storage["snapshotId"],
        storage["tenantId"],
        storage.get("runId"),
        storage["selectorDigest"],
        content_digest(content),
        Json(content),
        len(snapshot.images),
        snapshot.generated_at,
    )


# The payload is the model; the other columns are storage markers or derived from it.
SNAPSHOTS_TABLE: Final = Table(
    entity=IMPACT_SNAPSHOTS,
    model=ImpactSet,
    columns=(
        Column("snapshot_id", "text", "snapshotId"),
        Column("tenant_id", "text", "tenantId"),
        Column("run_id", "text", "runId"),
        Column("selector_digest", "text", "selectorDigest"),
        Column("content_digest", "text", None),
        Column("payload", "jsonb", None),
        Column("image_count", "int4", None),
        Column("generated_at", "timestamptz", "generatedAt"),
    ),
    key=("snapshot_id",),
    tenant="tenant_id",
    encode=snapshot_row,
    payload="payload",
)


def audit_row(record: AuditRecord, _storage: Mapping[str, object]) -> Row:
    """Return the values of a row of ``audit``."""
    return (
        record.id,
        record.tenant_id,
        record.category,
        record.action,
        record.occurred_at,
        actor_json(record.actor),
        record.entity_id,
        record.schedule_id,
        record.run_id,
        record.correlation_id,
        Json(jsontext.dumps(record.metadata)),
        record.message,
    )


AUDIT_TABLE: Final = Table(
    entity=AUDIT,
    model=AuditRecord,
    columns=(
        Column("id", "text", "id"),
        Column("tenant_id", "text", "tenantId"),
        Column("category", "text", "category"),
        Column("action", "text", "action"),
        Column("occurred_at", "timestamptz", "occurredAt"),
        Column("actor", "jsonb", "actor"),
        Column("entity_id", "text", "entityId"),
        Column("schedule_id", "text", "scheduleId"),
        Column("run_id", "text", "runId"),
        Column("correlation_id", "text", "correlationId"),
        Column("metadata", "jsonb", "metadata"),
        Column("message", "text", "message"),
    ),
    key=("id",),
    tenant="tenant_id",
    encode=audit_row,
)


def summary_row(summary: RunSummary, _storage: Mapping[str, object]) -> Row:
    """Return the values of a row of ``run_summaries``."""
    return (
        summary.tenant_id,
        summary.schedule_id,
        summary.updated_at,
        None if summary.last_run is None else snapshot_json(summary.last_run),
        snapshots_json(summary.recent),
        counters_json(summary.counters),
    )


SUMMARIES_TABLE: Final = Table(
    entity=RUN_SUMMARIES,
    model=RunSummary,
    columns=(
        Column("tenant_id", "text", "tenantId"),
        Column("schedule_id", "text", "scheduleId"),
        Column("updated_at", "timestamptz", "updatedAt"),
        Column("last_run", "jsonb", "lastRun"),
        Column("recent", "jsonb", "recent"),
        Column("counters", "jsonb", "counters"),
    ),
    key=("tenant_id", "schedule_id"),
    tenant="tenant_id",
    encode=summary_row,
    versioned=True,
)

TABLES: Final = {
    table.entity.name: table
    for table in (
        SCHEDULES_TABLE,
        TRIGGERS_TABLE,
        RUNS_TABLE,
        SNAPSHOTS_TABLE,
        AUDIT_TABLE,
        SUMMARIES_TABLE,
    )
}


def table_of(entity: Entity) -> Table[Any]:
    """Return the table of an entity; ``ValidationError`` names the known ones."""
    return TABLES[SCHEDULER.entity(entity.name).name]

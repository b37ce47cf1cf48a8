"""The entities of the scheduler, in the order in which they are copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from twinstore.catalog.conditions import Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.entity import (
    CopyPolicy,
    Derived,
    Entity,
    Layout,
    Marker,
    Module,
    Parent,
    Release,
    Retention,
)
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import int64, text
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel, content_digest
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.models.shapes import Kind
from twinstore.scheduler.audit import AuditRecord
from twinstore.scheduler.catalog_jobs import GRAPH_JOB_EVENTS, GRAPH_JOBS, POLICY_JOBS
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.scheduler.impact_snapshots import ImpactSet, derived_snapshot_key
from twinstore.scheduler.locks import LockInfo
from twinstore.scheduler.run_summaries import RunSummary
from twinstore.scheduler.runs import Run
from twinstore.scheduler.schedules import Schedule
from twinstore.scheduler.triggers import Trigger
from twinstore.scheduler.workers import Worker

__all__ = [
    "AUDIT",
    "EXECUTION_LOGS",
    "GRAPH_JOBS",
    "GRAPH_JOB_EVENTS",
    "IMPACT_SNAPSHOTS",
    "LOCKS",
    "POLICY_JOBS",
    "RUNS",
    "RUN_SUMMARIES",
    "SCHEDULER",
    "SCHEDULES",
    "TRIGGERS",
    "WORKERS",
]

MODULE: Final = "scheduler"
TABLES: Final = frozenset({StoreKind.TABLES})
DOCUMENTS: Final = frozenset({StoreKind.DOCUMENTS})
NOT_DELETED: Final = IsNull("deletedAt")
ENABLED: Final = Equals("enabled", value=True)

SCHEDULES: Final = Entity(
    name="schedules",
    singular="schedule",
    module=MODULE,
    model=Schedule,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="definitions",
    dated="updatedAt",
    filled=("tenantId", "name", "whenCron", "schemaVersion", "createdBy", "updatedBy"),
    storage=(
        Marker(name="deletedAt", kind=Kind.INSTANT, plain=True),
        Marker(name="deletedBy", plain=True),
    ),
    indexes=(
        Index(
            fields=("tenantId", "name"), name="tenant_name", unique=True, where=(NOT_DELETED,), noun="name"
        ),
        Index(fields=("tenantId", "enabled"), name="tenant_enabled", where=(NOT_DELETED,), stores=TABLES),
        # The customer fixed this index of MongoDB, which has no filter.
        Index(fields=("tenantId", "enabled"), name="tenant_enabled", stores=DOCUMENTS),
        Index(fields=("tenantId", "id"), name="active", where=(ENABLED, NOT_DELETED), stores=TABLES),
        Index(fields=("whenCron",), name="when_cron"),
        # Lists with the deleted ones: no other index by name holds them.
        Index(fields=("tenantId", "name", "id"), name="tenant_every_name"),
    ),
)
TRIGGERS: Final = Entity(
    name="triggers",
    singular="trigger",
    module=MODULE,
    model=Trigger,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="triggers",
    dated="updatedAt",
    parent=Parent(entity=SCHEDULES, field="scheduleId"),
    # Who fires it next, until when, and how often it was claimed; no index, so that a claim is a cheap write.
    storage=(
        Marker(name="claimedBy"),
        Marker(name="claimedUntil", kind=Kind.INSTANT),
        Marker(name="claimFence", kind=Kind.INTEGER),
    ),
    indexes=(
        Index(fields=("scheduleId",), name="schedule", unique=True),
        Index(
            fields=("nextFireAt", "tenantId", "id"),
            name="due",
            where=(ENABLED, IsPresent("nextFireAt")),
            stores=TABLES,
        ),
        Index(fields=("nextFireAt", "tenantId", "id"), name="due", where=(ENABLED,), stores=DOCUMENTS),
        # As lists show them on every driver: PostgreSQL would put absent instants last.
        Index(fields=("tenantId", "nextFireAt", "id"), name="tenant_next", nulls_first=True),
    ),
)
RUNS: Final = Entity(
    name="runs",
    singular="run",
    module=MODULE,
    model=Run,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="job_history",
    dated="createdAt",
    indexes=(
        Index(fields=("tenantId", "-createdAt", "id"), name="tenant_created"),
        Index(fields=("tenantId", "scheduleId", "-createdAt", "id"), name="tenant_schedule_created"),
        Index(fields=("state", "createdAt", "id"), name="state_created"),
        Index(
            fields=("tenantId", "createdAt", "id"),
            name="pending",
            where=(OneOf("state", ("planning", "queued")),),
            # By its custom a document store would name it as the first one.
            document_name="ix_pending_tenantId_createdAt__id",
        ),
        # For the purge, which removes the oldest first. The TTL of MongoDB needs an index of one field.
        Index(fields=("finishedAt", "id"), name="finished", where=(IsPresent("finishedAt"),), stores=TABLES),
        Index(
            fields=("finishedAt",),
            name="finished",
            expires=True,
            stores=DOCUMENTS,
            document_name="ttl_finishedAt",
        ),
    ),
    retention=Retention(field="finishedAt", option="run_retention_days"),
    versioned=True,
)
EXECUTION_LOGS: Final = Entity(
    name="execution_logs",
    singular="execution log entry",
    module=MODULE,
    model=ExecutionLogEntry,
    key_parts=(text("runId"), int64("sequence")),
    tenancy=Tenancy.required(),
    group="job_history",
    dated="loggedAt",
    parent=Parent(entity=RUNS, field="runId"),
    indexes=(
        Index(fields=("tenantId", "runId", "sequence"), name="tenant_run"),
        Index(fields=("loggedAt", "runId", "sequence"), name="logged", stores=TABLES),
        Index(
            fields=("loggedAt",),
            name="logged",
            expires=True,
            stores=DOCUMENTS,
            document_name="ttl_loggedAt",
        ),
    ),
    retention=Retention(field="loggedAt", option="run_retention_days"),
    append_only=True,
    sequence="sequence",
)


def content_digest_of(model: CanonicalModel, storage: Mapping[str, object]) -> str:
    """Return the digest of the whole model."""
    del storage
    return CanonicalJsonSerializer.digest(model)


def image_count_of(model: CanonicalModel, storage: Mapping[str, object]) -> int:
    """Return the number of images of a snapshot."""
    del storage
    return len(cast("ImpactSet", model).images)


IMPACT_SNAPSHOTS: Final = Entity(
    name="impact_snapshots",
    singular="impact snapshot",
    module=MODULE,
    model=ImpactSet,
    key_parts=(text("snapshotId"),),
    tenancy=Tenancy.required(),
    group="definitions",
    dated="generatedAt",
    layout=Layout.PAYLOAD,
    beside=("generatedAt",),
    storage=(
        Marker(name="snapshotId", required=True),
        Marker(name="tenantId", required=True),
        Marker(name="runId"),
        Marker(name="selectorDigest", required=True),
    ),
    derived=(
        Derived(name="imageCount", kind=Kind.INTEGER, value=image_count_of, bits=32),
        Derived(name="contentDigest", kind=Kind.TEXT, value=content_digest_of, of_content=content_digest),
    ),
    derived_key=derived_snapshot_key,
    indexes=(
        Index(fields=("tenantId", "selectorDigest", "-generatedAt", "snapshotId"), name="selector"),
        Index(fields=("tenantId", "runId", "-generatedAt", "snapshotId"), name="run"),
        Index(fields=("tenantId", "-generatedAt", "snapshotId"), name="tenant"),
        Index(fields=("generatedAt", "snapshotId"), name="generated", stores=TABLES),
        Index(fields=("generatedAt",), name="generated", expires=True, stores=DOCUMENTS),
    ),
    retention=Retention(field="generatedAt", option="impact_retention_days"),
)
AUDIT: Final = Entity(
    name="audit",
    singular="audit record",
    module=MODULE,
    model=AuditRecord,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="job_history",
    dated="occurredAt",
    indexes=(
        Index(fields=("tenantId", "-occurredAt", "id"), name="tenant_occurred"),
        Index(fields=("tenantId", "scheduleId", "-occurredAt", "id"), name="tenant_schedule"),
        Index(fields=("tenantId", "runId", "-occurredAt", "id"), name="tenant_run"),
        Index(fields=("tenantId", "category", "-occurredAt", "id"), name="tenant_category"),
    ),
    append_only=True,
)
RUN_SUMMARIES: Final = Entity(
    name="run_summaries",
    singular="run summary",
    module=MODULE,
    model=RunSummary,
    key_parts=(text("tenantId"), text("scheduleId")),
    tenancy=Tenancy.required(),
    group="metrics",
    dated="updatedAt",
    versioned=True,
)

WORKERS: Final = Entity(
    name="workers",
    singular="worker",
    module=MODULE,
    model=Worker,
    key_parts=(text("id"),),
    tenancy=Tenancy.optional(),
    group="workers",
    narrow=("processId", "maxConcurrentJobs", "currentJobs"),
    indexes=(
        Index(fields=("status", "lastHeartbeatAt", "id"), name="status_heartbeat"),
        Index(fields=("tenantId",), name="tenant", stores=DOCUMENTS),
        # Lists of the workers of one tenant.
        Index(fields=("tenantId", "lastHeartbeatAt", "id"), name="tenant_heartbeat"),
    ),
    versioned=True,
    copy_policy=CopyPolicy.LEFT_OUT,
)

# What a verification acquires on the target; it says nothing of any service.
SMOKE_TEST: Final = (SYSTEM_TENANT, "twinstore:smoke")
LOCKS: Final = Entity(
    name="locks",
    singular="lock",
    module=MODULE,
    model=LockInfo,
    key_parts=(text("tenantId"), text("lockKey")),
    tenancy=Tenancy.required(),
    group="leases",
    dated="acquiredAt",
    # No retention: a row that is removed would begin again with the first fence.
    indexes=(Index(fields=("expiresAt",), name="expires"),),
    copy_policy=CopyPolicy.RELEASED,
    release=Release(end="expiresAt", beginning="acquiredAt", fence="fence"),
    local_keys=(SMOKE_TEST,),
)

SCHEDULER: Final = Module(
    name=MODULE,
    entities=(
        SCHEDULES,
        TRIGGERS,
        RUNS,
        EXECUTION_LOGS,
        IMPACT_SNAPSHOTS,
        AUDIT,
        RUN_SUMMARIES,
        WORKERS,
        LOCKS,
        GRAPH_JOBS,
        GRAPH_JOB_EVENTS,
        POLICY_JOBS,
    ),
)

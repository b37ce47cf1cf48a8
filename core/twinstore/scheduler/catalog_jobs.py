"""The entities of the scheduler that are jobs: those of graphs with their events, and those of policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from twinstore.catalog.conditions import Equals, IsPresent
from twinstore.catalog.entity import Derived, Entity, Layout, Marker, Parent
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import digits, text
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalModel
from twinstore.models.shapes import Kind
from twinstore.scheduler.enums import GraphJobStatus, GraphJobType, PolicyRunJobStatus
from twinstore.scheduler.graph_jobs import GraphJob, GraphJobEvent
from twinstore.scheduler.policy_jobs import PolicyRunJob

MODULE: Final = "scheduler"
TABLES: Final = frozenset({StoreKind.TABLES})
DOCUMENTS: Final = frozenset({StoreKind.DOCUMENTS})


def priority_rank_of(model: CanonicalModel, storage: Mapping[str, object]) -> int:
    """Return the number of the priority of a policy job, by which it is leased."""
    del storage
    return cast("PolicyRunJob", model).priority.number


AVAILABLE: Final = Equals("status", PolicyRunJobStatus.PENDING.value)
POLICY_JOBS: Final = Entity(
    name="policy_jobs",
    singular="policy job",
    module=MODULE,
    model=PolicyRunJob,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="job_history",
    dated="updatedAt",
    layout=Layout.PAYLOAD,
    beside=(
        "id",
        "tenantId",
        "policyId",
        "policyVersion",
        "mode",
        "priority",
        "runId",
        "correlationId",
        "status",
        "attemptCount",
        "createdAt",
        "updatedAt",
        "availableAt",
        "leaseOwner",
        "leaseExpiresAt",
    ),
    narrow=("policyVersion", "attemptCount"),
    derived=(
        Derived(
            name="priorityRank", kind=Kind.INTEGER, value=priority_rank_of, bits=32, number_of="priority"
        ),
    ),
    indexes=(
        Index(
            fields=("tenantId", "runId"),
            name="tenant_run",
            unique=True,
            where=(IsPresent("runId"),),
            noun="run",
        ),
        Index(fields=("tenantId", "status", "-createdAt", "id"), name="tenant_status"),
        # Lists without a status or with several, and those of one policy, would sort otherwise.
        Index(fields=("tenantId", "-createdAt", "id"), name="tenant_created"),
        Index(fields=("tenantId", "policyId", "-createdAt", "id"), name="tenant_policy"),
        Index(
            fields=("-priorityRank", "availableAt", "createdAt", "id"), name="available", where=(AVAILABLE,)
        ),
        # For workers of one tenant: another one may have ten thousand jobs in front.
        Index(
            fields=("tenantId", "-priorityRank", "availableAt", "createdAt", "id"),
            name="tenant_available",
            where=(AVAILABLE,),
        ),
        Index(
            fields=("leaseExpiresAt",),
            name="lease",
            where=(Equals("status", PolicyRunJobStatus.DISPATCHING.value),),
        ),
    ),
    versioned=True,
)


def job_uuid_of(model: CanonicalModel, storage: Mapping[str, object]) -> str:
    """Return the digits of the id of a graph job."""
    del storage
    return cast("GraphJob", model).uuid


def job_type_of(model: CanonicalModel, storage: Mapping[str, object]) -> int:
    """Return the number of the type of a graph job."""
    del storage
    return cast("GraphJob", model).type.number


def event_job_of(model: CanonicalModel, storage: Mapping[str, object]) -> str:
    """Return the digits of the id of the job that an event is about."""
    del storage
    return cast("GraphJobEvent", model).payload.job.uuid


def event_status_of(model: CanonicalModel, storage: Mapping[str, object]) -> int:
    """Return the number of the status that an event reports."""
    del storage
    return cast("GraphJobEvent", model).payload.status.number


# Tables, columns and the indexes that say so are the customer's.
GRAPH_JOBS: Final = Entity(
    name="graph_jobs",
    singular="graph job",
    module=MODULE,
    model=GraphJob,
    key_parts=(digits("uuid"),),
    tenancy=Tenancy.required(),
    group="jobs",
    dated="updatedAt",
    layout=Layout.PAYLOAD,
    beside=("tenantId", "status", "createdAt", "correlationId"),
    columns={"uuid": "id"},
    fixed_table=True,
    storage=(Marker(name="updatedAt", kind=Kind.INSTANT, required=True),),
    derived=(
        Derived(name="type", kind=Kind.INTEGER, value=job_type_of, bits=16, most=len(GraphJobType) - 1),
        Derived(name="uuid", kind=Kind.HEX, value=job_uuid_of),
    ),
    indexes=(
        Index(fields=("tenantId", "status", "-createdAt"), name="tenant_status", stores=TABLES),
        Index(fields=("tenantId", "type", "status", "-createdAt"), name="tenant_type_status", stores=TABLES),
        Index(fields=("tenantId", "status", "-createdAt", "uuid"), name="tenant_status", stores=DOCUMENTS),
        Index(
            fields=("tenantId", "type", "status", "-createdAt", "uuid"),
            name="tenant_type_status",
            stores=DOCUMENTS,
        ),
        # Lists without a status: without these a tenant's jobs are all read and sorted for one page.
        Index(fields=("tenantId", "type", "-createdAt", "uuid"), name="tenant_type_created"),
        Index(fields=("tenantId", "-createdAt", "uuid"), name="tenant_created"),
    ),
    # An event is written in the same step as its job: in documents only a counted change detects that the job
    # was removed.
    versioned=True,
    own_id="id",
)
GRAPH_JOB_EVENTS: Final = Entity(
    name="graph_job_events",
    singular="graph job event",
    module=MODULE,
    model=GraphJobEvent,
    key_parts=(text("eventId"),),
    tenancy=Tenancy.required("tenant"),
    group="jobs",
    dated="ts",
    layout=Layout.PAYLOAD,
    beside=("tenant", "ts"),
    columns={"seq": "id", "jobUuid": "job_id", "tenant": "tenant_id", "ts": "created_at"},
    fixed_table=True,
    storage=(Marker(name="seq", kind=Kind.INTEGER, required=True, assigned=True),),
    derived=(
        Derived(name="jobUuid", kind=Kind.HEX, value=event_job_of),
        Derived(
            name="status",
            kind=Kind.INTEGER,
            value=event_status_of,
            bits=16,
            most=len(GraphJobStatus) - 1,
            stores=TABLES,
        ),
    ),
    indexes=(
        Index(fields=("jobUuid", "-ts"), name="job", stores=TABLES),
        Index(fields=("jobUuid", "-ts", "-seq"), name="job", stores=DOCUMENTS),
        Index(fields=("eventId",), name="event", unique=True, stores=TABLES),
        # In tables it is the primary key. A second row with one number would have no place in the order.
        Index(fields=("seq",), name="seq", unique=True, table_name="graph_job_events_pkey"),
    ),
    parent=Parent(entity=GRAPH_JOBS, field="jobUuid"),
)

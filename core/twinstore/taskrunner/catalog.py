"""The entities of the task runner, in the order in which they are copied."""

from __future__ import annotations

from typing import Final

from twinstore.catalog.conditions import IsNull, IsPresent
from twinstore.catalog.entity import Entity, Module, Parent, Retention
from twinstore.catalog.indexes import Index, StoreKind
from twinstore.catalog.keys import int64, text
from twinstore.catalog.tenancy import Tenancy
from twinstore.taskrunner.pack_artifacts import PackRunArtifact
from twinstore.taskrunner.pack_run_approvals import PackRunApproval
from twinstore.taskrunner.pack_run_logs import PackRunLogEntry
from twinstore.taskrunner.pack_runs import PackRunState

__all__ = ["PACK_ARTIFACTS", "PACK_RUNS", "PACK_RUN_APPROVALS", "PACK_RUN_LOGS", "TASKRUNNER"]

MODULE: Final = "taskrunner"
TABLES: Final = frozenset({StoreKind.TABLES})
DOCUMENTS: Final = frozenset({StoreKind.DOCUMENTS})

PACK_RUNS: Final = Entity(
    name="pack_runs",
    singular="pack run",
    module=MODULE,
    model=PackRunState,
    key_parts=(text("runId"),),
    tenancy=Tenancy.optional(),
    group="runs",
    dated="updatedAt",
    filled=("planHash",),
    indexes=(
        # The customer fixed these two of MongoDB, in this order.
        Index(fields=("-updatedAt",), name="newest", stores=DOCUMENTS),
        Index(
            fields=("tenantId", "-updatedAt"),
            name="tenant_newest",
            sparse_unless="tenancy_enforced",
            stores=DOCUMENTS,
        ),
        # Lists are in a total order, which the two above do not hold.
        Index(fields=("-updatedAt", "runId"), name="updated"),
        Index(fields=("tenantId", "-updatedAt", "runId"), name="tenant_updated", stores=DOCUMENTS),
        Index(
            fields=("tenantId", "-updatedAt", "runId"),
            name="tenant_updated",
            where=(IsPresent("tenantId"),),
            stores=TABLES,
        ),
        # The runs without tenant are a list of their own, which must not pass over those of all tenants.
        Index(
            fields=("-updatedAt", "runId"),
            name="no_tenant_updated",
            where=(IsNull("tenantId"),),
            stores=TABLES,
        ),
    ),
    versioned=True,
    collection_setting="RunsCollection",
)
PACK_RUN_LOGS: Final = Entity(
    name="pack_run_logs",
    singular="pack run log entry",
    module=MODULE,
    model=PackRunLogEntry,
    key_parts=(text("runId"), int64("sequence")),
    tenancy=Tenancy.through_parent(),
    group="logs",
    dated="timestamp",
    filled=("eventType",),
    parent=Parent(entity=PACK_RUNS, field="runId"),
    indexes=(
        Index(fields=("runId", "timestamp"), name="run_timestamp", stores=DOCUMENTS),
        Index(fields=("timestamp",), name="timestamp", expires=True, stores=DOCUMENTS),
        # For the window of a run, whose order is total, and for the purge, which removes the oldest first.
        Index(fields=("runId", "timestamp", "sequence"), name="run_timestamp", stores=TABLES),
        Index(fields=("runId", "timestamp", "sequence"), name="run_window", stores=DOCUMENTS),
        Index(fields=("timestamp", "runId", "sequence"), name="timestamp", stores=TABLES),
    ),
    retention=Retention(field="timestamp", option="log_retention_days"),
    append_only=True,
    sequence="sequence",
    generated_id=True,
    collection_setting="LogsCollection",
)
PACK_ARTIFACTS: Final = Entity(
    name="pack_artifacts",
    singular="pack artifact",
    module=MODULE,
    model=PackRunArtifact,
    key_parts=(text("runId"), text("name")),
    tenancy=Tenancy.through_parent(),
    group="artifacts",
    dated="capturedAt",
    filled=("type",),
    parent=Parent(entity=PACK_RUNS, field="runId"),
    indexes=(Index(fields=("runId",), name="run", stores=DOCUMENTS),),
    generated_id=True,
    collection_setting="ArtifactsCollection",
)
PACK_RUN_APPROVALS: Final = Entity(
    name="pack_run_approvals",
    singular="pack run approval",
    module=MODULE,
    model=PackRunApproval,
    key_parts=(text("runId"), text("approvalId")),
    tenancy=Tenancy.through_parent(),
    group="approvals",
    dated="requestedAt",
    parent=Parent(entity=PACK_RUNS, field="runId"),
    indexes=(Index(fields=("runId", "status"), name="run_status"),),
    collection_setting="ApprovalsCollection",
)

TASKRUNNER: Final = Module(
    name=MODULE, entities=(PACK_RUNS, PACK_RUN_LOGS, PACK_ARTIFACTS, PACK_RUN_APPROVALS)
)

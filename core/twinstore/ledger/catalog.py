"""The ledger of copies as a module: entities like any other, in a separate schema.

It lives in the target, because it changes in one transaction with the rows that are copied. It belongs to no
tenant.
"""

from __future__ import annotations

from typing import Final

from twinstore.catalog.entity import Entity, Module
from twinstore.catalog.indexes import Index
from twinstore.catalog.keys import int64, text
from twinstore.catalog.tenancy import Tenancy
from twinstore.ledger.models import ConflictLine, CopyJob, CopyRange, CopyWorker, QuarantineLine
from twinstore.plugins.module_spec import ModuleSpec

MODULE: Final = "twinstore"
GROUP: Final = "ledger"

JOBS: Final = Entity(
    name="jobs",
    singular="job",
    module=MODULE,
    model=CopyJob,
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group=GROUP,
    versioned=True,
    collection="twinstore_jobs",
)
WORKERS: Final = Entity(
    name="workers",
    singular="worker",
    module=MODULE,
    model=CopyWorker,
    key_parts=(text("jobId"), text("worker")),
    tenancy=Tenancy.none(),
    group=GROUP,
    versioned=True,
    collection="twinstore_workers",
)
RANGES: Final = Entity(
    name="ranges",
    singular="range",
    module=MODULE,
    model=CopyRange,
    key_parts=(text("jobId"), int64("number")),
    tenancy=Tenancy.none(),
    group=GROUP,
    indexes=(
        Index(fields=("jobId", "entity", "state", "number"), name="entity_state"),
        Index(fields=("jobId", "finishedAt", "number"), name="finished"),
    ),
    versioned=True,
    collection="twinstore_ranges",
)
QUARANTINE: Final = Entity(
    name="quarantine",
    singular="quarantined document",
    module=MODULE,
    model=QuarantineLine,
    key_parts=(text("jobId"), int64("number"), int64("line"), int64("part")),
    tenancy=Tenancy.none(),
    group=GROUP,
    collection="twinstore_quarantine",
)
CONFLICTS: Final = Entity(
    name="conflicts",
    singular="conflict",
    module=MODULE,
    model=ConflictLine,
    key_parts=(text("jobId"), int64("number"), int64("line")),
    tenancy=Tenancy.none(),
    group=GROUP,
    collection="twinstore_conflicts",
)

LEDGER: Final = Module(name=MODULE, entities=(JOBS, WORKERS, RANGES, QUARANTINE, CONFLICTS))
LEDGER_MODULE: Final[ModuleSpec[None]] = ModuleSpec(
    catalog=LEDGER, title="Ledger", package="twinstore.ledger"
)

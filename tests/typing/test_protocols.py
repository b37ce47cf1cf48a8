"""Every driver answers the Protocols as written: same names, order, kinds and defaults of parameters."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from twinstore import scheduler
from twinstore_memory.scheduler import audit as memory_audit
from twinstore_memory.scheduler import impact_snapshots as memory_snapshots
from twinstore_memory.scheduler import run_summaries as memory_summaries
from twinstore_memory.scheduler import runs as memory_runs
from twinstore_memory.scheduler import schedules as memory_schedules
from twinstore_memory.scheduler import triggers as memory_triggers
from twinstore_mongo.scheduler import audit as mongo_audit
from twinstore_mongo.scheduler import impact_snapshots as mongo_snapshots
from twinstore_mongo.scheduler import run_summaries as mongo_summaries
from twinstore_mongo.scheduler import runs as mongo_runs
from twinstore_mongo.scheduler import schedules as mongo_schedules
from twinstore_mongo.scheduler import triggers as mongo_triggers
from twinstore_postgres.scheduler import audit as postgres_audit
from twinstore_postgres.scheduler import impact_snapshots as postgres_snapshots
from twinstore_postgres.scheduler import run_summaries as postgres_summaries
from twinstore_postgres.scheduler import runs as postgres_runs
from twinstore_postgres.scheduler import schedules as postgres_schedules
from twinstore_postgres.scheduler import triggers as postgres_triggers

if TYPE_CHECKING:
    from twinstore.backend import ModuleBackend
    from twinstore.scheduler.storage import SchedulerRepositories
    from twinstore_memory.backend import MemoryBackend
    from twinstore_mongo.backend import MongoBackend
    from twinstore_postgres.backend import PostgresSchedulerBackend

    def the_backends_satisfy_their_protocol(
        memory: MemoryBackend, mongo: MongoBackend, postgres: PostgresSchedulerBackend
    ) -> tuple[ModuleBackend[SchedulerRepositories], ...]:
        """Hold for both type checkers; nothing of it runs."""
        return memory, mongo, postgres


PAIRS: list[tuple[type, type]] = [
    (scheduler.ScheduleRepository, memory_schedules.MemoryScheduleRepository),
    (scheduler.ScheduleRepository, mongo_schedules.MongoScheduleRepository),
    (scheduler.ScheduleRepository, postgres_schedules.PostgresScheduleRepository),
    (scheduler.TriggerRepository, memory_triggers.MemoryTriggerRepository),
    (scheduler.TriggerRepository, mongo_triggers.MongoTriggerRepository),
    (scheduler.TriggerRepository, postgres_triggers.PostgresTriggerRepository),
    (scheduler.RunRepository, memory_runs.MemoryRunRepository),
    (scheduler.RunRepository, mongo_runs.MongoRunRepository),
    (scheduler.RunRepository, postgres_runs.PostgresRunRepository),
    (scheduler.ImpactSnapshotRepository, memory_snapshots.MemoryImpactSnapshotRepository),
    (scheduler.ImpactSnapshotRepository, mongo_snapshots.MongoImpactSnapshotRepository),
    (scheduler.ImpactSnapshotRepository, postgres_snapshots.PostgresImpactSnapshotRepository),
    (scheduler.AuditRepository, memory_audit.MemoryAuditRepository),
    (scheduler.AuditRepository, mongo_audit.MongoAuditRepository),
    (scheduler.AuditRepository, postgres_audit.PostgresAuditRepository),
    (scheduler.RunSummaryRepository, memory_summaries.MemoryRunSummaryRepository),
    (scheduler.RunSummaryRepository, mongo_summaries.MongoRunSummaryRepository),
    (scheduler.RunSummaryRepository, postgres_summaries.PostgresRunSummaryRepository),
]


def methods_of(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]


@pytest.mark.parametrize(("protocol", "answer"), PAIRS, ids=lambda item: item.__name__)
def test_a_driver_has_the_signatures_of_the_protocol(protocol: type, answer: type) -> None:
    assert methods_of(protocol)
    for name in methods_of(protocol):
        wanted, given = (inspect.signature(getattr(owner, name)) for owner in (protocol, answer))
        shown = [
            [
                (item.name, item.kind, item.default, str(item.annotation))
                for item in signature.parameters.values()
            ]
            for signature in (wanted, given)
        ]
        assert shown[0] == shown[1], f"{answer.__name__}.{name}"

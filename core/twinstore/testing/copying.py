"""Copying one entity through the bulk ports, as small as it can be."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from twinstore.bulk import KeyRange, RangeTally
from twinstore.testing.bench import unique
from twinstore.testing.builders import at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.bulk import BulkPort, Claim, ImportOutcome, Key, Ledger, OnConflict, Record
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerStorage

__all__ = ["HOUR", "contents", "copied", "records_of", "take_over"]

HOUR: Final = timedelta(hours=1)
EVERYTHING: Final = KeyRange()


def records_of(bulk: BulkPort, entity: Entity, within: KeyRange, tenant_id: str) -> list[Record]:
    """Return the exported rows of a tenant."""
    batches = bulk.export(entity, within, tenant_id=tenant_id, batch_size=7)
    return [record for batch in batches for record in batch]


def contents(
    bulk: BulkPort, entity: Entity, tenant_id: str, within: KeyRange = EVERYTHING
) -> dict[Key | None, bytes]:
    """Return the scanned content of a tenant by key, in the order of the scan."""
    batches = bulk.scan(entity, within, tenant_id=tenant_id, batch_size=7)
    return {row.key: row.content for batch in batches for row in batch}


def take_over(ledger: Ledger, claim: Claim) -> None:
    """Take the lease away from whoever holds it."""
    ledger.acquire(claim.lease.job_id, "thief", HOUR, dead=claim.lease.holder)


def copied(
    source: SchedulerStorage,
    target: SchedulerStorage,
    entity: Entity,
    tenant_id: str,
    *,
    on_conflict: OnConflict = "fail",
    during: Callable[[Ledger, Claim], object] | None = None,
) -> ImportOutcome:
    """Copy the rows of a tenant as one range of a new job; ``during`` runs while the rows are read."""
    claim = claimed(target.bulk.ledger(), entity)

    def batches() -> Iterator[list[Record]]:
        yield from source.bulk.export(entity, claim.within, tenant_id=tenant_id, batch_size=5)
        if during is not None:
            during(target.bulk.ledger(), claim)

    with target.bulk.importing() as importer:
        return importer.import_range(entity, batches(), on_conflict=on_conflict, claim=claim, tally=tally_of)


def claimed(ledger: Ledger, entity: Entity) -> Claim:
    """Start a job with one range over everything and claim it."""
    job = ledger.start(unique("job"), {"module": "scheduler"}, at())
    lease = ledger.acquire(job.id, "copier", HOUR)
    ledger.plan(lease, entity.name, [EVERYTHING])
    (planned,) = ledger.ranges(job.id, entity.name)
    return ledger.claim(lease, planned.number)


def tally_of(outcome: ImportOutcome) -> RangeTally:
    """Return what the ledger stores beside a range."""
    return RangeTally(read=outcome.written, written=outcome.written, unchanged=outcome.unchanged)

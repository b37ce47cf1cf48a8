"""Copying one entity through the bulk ports and the ledger, as small as it can be."""

from __future__ import annotations

import time
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.catalog.keys import KeyRange
from twinstore.errors import LeaseLostError
from twinstore.ledger import Ledger, RangeTally
from twinstore.testing.instants import at
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from twinstore.bulk.port import BulkPort, BulkView, ImportOutcome, OnConflict, RangeWriter, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.ledger import Claim, Lease, RangeState
    from twinstore.testing.workspace import AnyStorage, Workspace

__all__ = ["HOUR", "contents", "copied", "ledger_of", "records_of", "take_over"]

T = TypeVar("T")

HOUR: Final = timedelta(hours=1)
EVERYTHING: Final = KeyRange()
TIMEOUT_SECONDS: Final = 60
TALLY: Final = RangeTally(read={"": 1, ":none": 2, "a.b": 3}, written={"a.b": 3})
COORDINATOR: Final = "coordinator"
WORKER: Final = "copier"


def ledger_of(storage: AnyStorage) -> Ledger:
    """Return the ledger in the store of a storage."""
    return Ledger(storage.bulk.access(), atomic=storage.capabilities.transactions)


def owner_in(entity: Entity, tenant_id: str) -> str | None:
    """Return the tenant by which the rows of an entity are chosen, ``None`` if they belong to no tenant."""
    return tenant_id if entity.is_owned else None


def records_of(bulk: BulkPort, entity: Entity, within: KeyRange, tenant_id: str) -> list[Record]:
    """Return the rows of a tenant as a copy reads them."""
    with bulk.view() as view:
        batches = view.records(entity, within, tenant_id=owner_in(entity, tenant_id), batch_size=7)
        return [record for batch in batches for record in batch]


def contents(
    bulk: BulkPort, entity: Entity, tenant_id: str, within: KeyRange = EVERYTHING
) -> dict[Key | None, bytes]:
    """Return the scanned content of a tenant by key, in the order of the scan."""
    with bulk.view() as view:
        batches = view.rows(entity, within, tenant_id=owner_in(entity, tenant_id), batch_size=7)
        return {row.key: row.content for batch in batches for row in batch}


def take_over(ledger: Ledger, claim: Claim) -> Claim:
    """Take a range away from its worker, as if that worker had died."""
    ledger.leave(claim.job_id, claim.worker)
    return taken(ledger, claim.job_id, claim.entity, worker="thief")


def nothing(ledger: Ledger, claim: Claim) -> None:
    """Do nothing."""
    del ledger, claim


def copied(
    source: AnyStorage,
    target: AnyStorage,
    entity: Entity,
    tenant_id: str,
    *,
    on_conflict: OnConflict = "fail",
    during: Callable[[Ledger, Claim], object] = nothing,
    before_commit: Callable[[Ledger, Claim], object] = nothing,
) -> ImportOutcome:
    """Copy the rows of a tenant as one range of a new job; ``during`` runs between reading and flushing."""
    ledger = ledger_of(target)
    claim = claimed(ledger, entity)
    check = partial(ledger.hold, claim=claim)
    with (
        source.bulk.view() as view,
        target.bulk.writer(entity, on_conflict=on_conflict, check=check) as writer,
    ):
        write_all(view, writer, claim, entity, tenant_id)
        during(ledger, claim)
        outcome = writer.flush()
        ledger.finish(writer.access, claim, tally_of(outcome))
        before_commit(ledger, claim)
        writer.commit()
    return outcome


def write_all(view: BulkView, writer: RangeWriter, claim: Claim, entity: Entity, tenant_id: str) -> None:
    """Write the rows of a tenant in a claimed range."""
    for batch in view.records(entity, claim.within, tenant_id=owner_in(entity, tenant_id), batch_size=5):
        writer.write(batch)


def started(ledger: Ledger, entity: Entity, ranges: Sequence[KeyRange] = (EVERYTHING,)) -> Lease:
    """Start a separate job with some ranges of one entity; return its lease."""
    job = ledger.start(unique("job"), {"module": entity.module}, at())
    lease = ledger.acquire(job.id, COORDINATOR, HOUR)
    ledger.plan(lease, entity.name, ranges)
    return lease


def claimed(ledger: Ledger, entity: Entity) -> Claim:
    """Start a job with one range over everything and claim it."""
    return taken(ledger, started(ledger, entity).job_id, entity.name)


def taken(ledger: Ledger, job_id: str, entity: str, *, worker: str = WORKER) -> Claim:
    """Take the next range of an entity, which must be there."""
    claim = ledger.take(job_id, worker, entity, HOUR)
    assert claim is not None, "there is nothing to take"
    return claim


def ranges_at(edges: Iterable[str]) -> list[KeyRange]:
    """Return ranges that meet at some keys and together cover every key."""
    keys = [(edge,) for edge in edges]
    return [KeyRange(*ends) for ends in zip([None, *keys], [*keys, None], strict=True)]


def entity_of(workspace: Workspace, claim: Claim) -> Entity:
    """Return the entity of a claimed range."""
    return next(entity for entity in workspace.storage.bulk.entities() if entity.name == claim.entity)


def finished(workspace: Workspace, claim: Claim, tally: RangeTally = TALLY) -> None:
    """Finish a claimed range without rows."""
    with workspace.storage.bulk.writer(entity_of(workspace, claim)) as writer:
        writer.flush()
        ledger_of(workspace.storage).finish(writer.access, claim, tally)
        writer.commit()


def check_owned(workspace: Workspace, claim: Claim) -> None:
    """Check inside a transaction that a range is still the claimant's."""
    with workspace.storage.bulk.writer(entity_of(workspace, claim)) as writer:
        writer.flush()
        ledger_of(workspace.storage).hold(writer.access, claim)


def states(ledger: Ledger, job_id: str) -> list[RangeState]:
    """Return the states of the ranges in order of number."""
    return [item.state for item in ledger.ranges(job_id)]


def in_the_end(action: Callable[[], T | None]) -> T:
    """Return what the server gives as soon as it lets a lease expire."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            found = action()
        except LeaseLostError:
            found = None
        if found is not None:
            return found
        assert time.monotonic() < deadline, "the lease never expired"


def tally_of(outcome: ImportOutcome) -> RangeTally:
    """Return what the ledger stores with a range."""
    return RangeTally(read=outcome.written, written=outcome.written, unchanged=outcome.unchanged)

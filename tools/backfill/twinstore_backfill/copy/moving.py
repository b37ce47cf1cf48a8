"""Rows that waited for a unique value which another range had to give up.

A range is a transaction of its own, so two rows of different ranges that swap their names refuse each other.
When all ranges of an entity have been copied, what was refused for a taken value is written together, and the
ranges are opened again: they find their rows as they should be.
"""

from __future__ import annotations

from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING

from twinstore.ledger.records import key_of_json
from twinstore.moving import HELD
from twinstore.releasing import copy_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.bulk import BulkPort, Record
    from twinstore.catalog import Entity, Key
    from twinstore.ledger import Lease, Ledger

__all__ = ["Moves", "settle_moves"]

log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Moves:
    """What became of the rows that waited: how many were written, and how many still wait."""

    settled: int = 0
    waiting: int = 0


def settle_moves(source: BulkPort, target: BulkPort, ledger: Ledger, lease: Lease, entity: Entity) -> Moves:
    """Write together what was refused for a taken value, and open the ranges of these rows again.

    Raises:
        ConcurrencyError: the transaction lost against another writer; nothing was written.
        LeaseLostError: the lease was taken; nothing was written.
    """
    waiting = dict(refused_rows(ledger, lease.job_id, entity)) if entity.uniques else {}
    if not waiting:
        return Moves()
    with source.view() as view, copy_writer(target, entity, on_conflict="overwrite") as writer:
        writer.write(sorted(view.records_of(entity, list(waiting)), key=in_order))
        rejected = {item.record.key for item in writer.flush().rejected}
        settled = {key: number for key, number in waiting.items() if key not in rejected}
        if settled:
            # In the transaction of the rows: a range that is open again is copied, whoever does it.
            ledger.open_in(writer.access, lease, sorted(set(settled.values())))
            writer.commit()
    log.info("%d rows of %s of %d got a value that is free now", len(settled), entity.name, len(waiting))
    return Moves(len(settled), len(waiting) - len(settled))


def refused_rows(ledger: Ledger, job_id: str, entity: Entity) -> Iterator[tuple[Key, int]]:
    """Yield the key and the range of each row that was refused for a taken value."""
    for line in ledger.quarantined(job_id, entity.name):
        key = key_of_json(line.key) if line.part == 0 else None
        if key is not None and line.reason.startswith(HELD):
            yield key, line.number


def in_order(record: Record) -> Key:
    """Return by what records are sorted; each has a key, by which it was looked for."""
    return record.key or ()

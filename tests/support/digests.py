"""Digests of ranges as they follow from the rows one by one: for stores that have none, and as an oracle."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING

import orjson

from twinstore.bulk.rows import (
    EVERY_RANGE,
    FOLDED,
    NO_ADDITIONAL_VALUES,
    Cell,
    Digestible,
    NoDigests,
    RangeDigests,
    content_without,
    has_marks,
)
from twinstore.catalog.keys import KeyRange
from twinstore_backfill.retention import is_expired
from twinstore_backfill.verify.set_digest import document_number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    import pytest

    from twinstore.bulk.port import BulkPort, BulkView
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key


def digests_of_rows(
    view: BulkView,
    entity: Entity,
    bounds: Sequence[Key],
    *,
    secret: bytes,
    within: KeyRange | None = None,
    folded: bool = False,
    tenant_id: str | None = None,
    cutoff: datetime | None = None,
    part: int = 0,
    parts: int = 1,
    of_source: bool = False,
    ignored: AbstractSet[str] = frozenset(),
    accepts: Callable[[bytes], bool] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> RangeDigests:
    """Return what :meth:`~twinstore.bulk.port.BulkView.digests` must; each part has every nth row."""
    found = RangeDigests(judged=accepts is not None)
    rows = (row for batch in view.rows(entity, within or KeyRange(), tenant_id=tenant_id) for row in batch)
    for number, row in enumerate(rows):
        if number % parts != part:
            continue
        if on_progress is not None:
            on_progress(1)
        found.rows += 1
        if row.key is None:
            found.unplaced += 1
            continue
        place = bisect_right(bounds, row.key)
        if content_without(row.content, ignored) != row.content:
            found.unproven.add(place)
        elif is_plain(entity, row, of_source=of_source) and (accepts is None or accepts(row.content)):
            due = is_expired(entity, row, cutoff)
            for at in ((place, FOLDED), (EVERY_RANGE, row.label)) if folded else ((place, row.label),):
                found.cells.setdefault(at, Cell()).merge(cell_of(row, secret, due=due))
                if row.rules and not due:
                    found.rules.setdefault(at, Counter())[tuple(row.rules)] += 1
        else:
            found.unproven.add(place)
    return found


def is_plain(entity: Entity, row: ScanRow, *, of_source: bool) -> bool:
    """Return whether a row is stored as a driver writes it, without additional values that are examined."""
    beside = row.beside != NO_ADDITIONAL_VALUES
    if of_source:
        looked_at = {*entity.beside, *(item.name for item in entity.derived)}
        beside = not looked_at.isdisjoint(orjson.loads(row.beside))
    return row.error is None and not beside and not has_marks(row.content)


def digestible(entity: Entity) -> Digestible | NoDigests:
    """Return whether no row of an entity has anything besides its content."""
    return NoDigests("rows have more") if entity.beside or entity.derived else Digestible.PREVALIDATED


def cell_of(row: ScanRow, secret: bytes, *, due: bool) -> Cell:
    """Return the digests of one row."""
    number = document_number(row.content)
    if due:
        return Cell(expired=1, largest=row.size)
    return Cell(1, 0, number, number, row.size, keyed_number(secret, row))


def keyed_number(secret: bytes, row: ScanRow) -> int:
    """Return what a row adds to the digest that proves its range."""
    key = sha256(secret + row.label.encode()).digest()[:16]
    return int.from_bytes(sha256(key + sha256(row.content).digest()).digest()[:16], "big")


def limit_digests(patch: pytest.MonkeyPatch, cells: int, ranges: int) -> None:
    """Let a verification have memory for some cells, and read the digests of some ranges at a time."""
    for name in ("MOST_CELLS", "MOST_UNFOLDED"):
        patch.setattr(f"twinstore_backfill.verify.partition.{name}", cells)
    patch.setattr("twinstore_backfill.verify.plan.RANGES_AT_ONCE", ranges)


def give_digests(patch: pytest.MonkeyPatch, port: type[BulkPort], view: type[BulkView]) -> None:
    """Let a driver return digests computed from its rows, for entities that store only their content."""
    patch.setattr(port, "digestible", lambda _, entity: digestible(entity))
    patch.setattr(view, "digests", digests_of_rows)

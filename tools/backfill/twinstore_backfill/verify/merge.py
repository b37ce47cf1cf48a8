"""Walking two sorted scans side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.errors import TwinstoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.bulk import KeyRange, ScanRow
    from twinstore.catalog import Entity
    from twinstore.keys import Key

__all__ = ["keyed", "merge"]

Pair = tuple["ScanRow | None", "ScanRow | None"]


def keyed(
    batches: Iterator[list[ScanRow]],
    entity: Entity,
    within: KeyRange,
    side: str,
    without_key: Callable[[ScanRow], None],
    *,
    repeated: Callable[[ScanRow], None] | None = None,
) -> Iterator[ScanRow]:
    """Yield the rows of a scan that have a key; hand the others over.

    Args:
        batches: the scan.
        entity: what is scanned.
        within: its range.
        side: source or target, for messages.
        without_key: takes a row without a key.
        repeated: takes a row whose key another row has had; ``None`` where a unique index makes that a fault.

    Raises:
        TwinstoreError: keys out of order or outside the range: what the scan left out cannot be told.
    """
    last: Key | None = None
    # Texts are compared by code point and numbers as numbers, so a part of another type has no place.
    types = tuple(int if part.type.is_number else str for part in entity.key_parts)
    for batch in batches:
        # Each row leaves the batch, and is forgotten before the next is read: it may be as large as any.
        batch.reverse()
        while batch:
            row = batch.pop()
            key = row.key
            if key is None:
                without_key(row)
                continue
            if tuple(map(type, key)) != types:
                raise _disorder(side, key, "of another type than its entity declares")
            if repeated is not None and key == last:
                repeated(row)
                continue
            if last is not None and key <= last:
                raise _disorder(side, key, "after a later or equal key")
            # Only the first can lie before the range, since the keys rise from there; the same for the last.
            if last is None and within.lower is not None and key < within.lower:
                raise _disorder(side, key, "before its range")
            last = key
            yield row
            del row
    if last is not None and within.upper is not None and last >= within.upper:
        raise _disorder(side, last, "beyond its range")


def _disorder(side: str, key: Key, where: str) -> TwinstoreError:
    return TwinstoreError(
        f"The scan of the {side} returned key {'/'.join(map(str, key))!r} {where}, so it cannot be trusted. "
        "This is a bug in the driver."
    )


def merge(source: Iterator[ScanRow], target: Iterator[ScanRow]) -> Iterator[Pair]:
    """Yield each key once: with both rows, or with the row of the side that has it."""
    left, right = next(source, None), next(target, None)
    while left is not None and right is not None:
        if left.key == right.key:
            yield left, right
            # Forgotten first, or two pairs would be in memory.
            left = right = None
            left, right = next(source, None), next(target, None)
        elif left.key is not None and right.key is not None and left.key < right.key:
            yield left, None
            left = None
            left = next(source, None)
        else:
            yield None, right
            right = None
            right = next(target, None)
    while left is not None:
        yield left, None
        left = None
        left = next(source, None)
    while right is not None:
        yield None, right
        right = None
        right = next(target, None)

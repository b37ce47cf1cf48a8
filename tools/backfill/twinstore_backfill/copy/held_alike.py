"""Rows that both stores hold alike, in a form that no copy writes: a copy leaves them, without a conflict.

The scans and rules of a verification decide, so that both count the same rows under the same equivalences.
Nothing else of a copy asks code of the verification, which would not find the faults of what it shares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import contextmanager
from dataclasses import replace
from itertools import compress
from typing import TYPE_CHECKING, Final

from twinstore.bulk.rows import NO_ADDITIONAL_VALUES, ScanRow
from twinstore.models import json_text
from twinstore_backfill.verify.expected import Expected, RowExpectation, additional_values_match
from twinstore_backfill.verify.rules import verifier_changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.bulk.port import BulkPort, BulkView, ImportOutcome, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.row import Row
    from twinstore_backfill.rules.model import DropRule, JobRules

# Rows of the source in memory. Each may be as large as a document may be; a file is read once for each group.
KEYS_AT_ONCE: Final = 10
MOST_KEYS: Final = 1000
MOST_BYTES: Final = 64 * 1024 * 1024


def kinds_alike(
    source: BulkView,
    target: BulkView,
    entity: Entity,
    keys: Sequence[Key],
    drops: Sequence[DropRule] = (),
) -> dict[Key, set[str]]:
    """Return by key what a copy would store otherwise in such a row; nothing for a real conflict."""
    found = dict(_kinds(source, target, RowExpectation(entity, drops), entity, keys))
    return {key: found.get(key, set()) for key in keys}


@contextmanager
def as_verified(source: BulkPort, view: BulkView, rules: JobRules) -> Iterator[BulkView]:
    """Yield a view of the source as a verification sees it under the rules; without rules the given one."""
    if not rules:
        yield view
        return
    with source.with_changes(verifier_changes(rules, source.entities())).view() as verified:
        yield verified


class EqualRows:
    """Which rows of a target are as a copy would store a record, by the judgement of a verification."""

    def __init__(self, entity: Entity) -> None:
        self._expectation = RowExpectation(entity)

    def holds(self, stored: ScanRow, record: Record) -> bool:
        """Whether a verification finds nothing different after the row of the target was left as it is."""
        wanted = ScanRow(record.key, record.owner, content_of(record))
        if stored.content == wanted.content and stored.beside == NO_ADDITIONAL_VALUES:
            return True
        expected = self._expectation.of_pair(wanted, stored)
        return (
            isinstance(expected, Expected)
            and expected.content == stored.content
            and additional_values_match(expected, stored)
        )


def content_of(row: Record | Row) -> bytes:
    """Return the content that a scan of the target would show for a row once it is written."""
    model = row.model
    return json_text.dumps_sorted({"doc": model.wire() if model else None, "storage": dict(row.storage)})


def settle_conflicts(
    outcome: ImportOutcome, kinds: Mapping[Key, AbstractSet[str]]
) -> tuple[ImportOutcome, Counter[str]]:
    """Return an outcome in which such rows are unchanged, and how many rows have each equivalence.

    Args:
        outcome: what the target answered.
        kinds: what :func:`kinds_alike` returned for its conflicts.
    """
    is_alike = [not item.overwritten and bool(kinds.get(item.key)) for item in outcome.conflicts]
    alike = list(compress(outcome.conflicts, is_alike))
    left = tuple(item for item, settled in zip(outcome.conflicts, is_alike, strict=True) if not settled)
    unchanged = Counter(outcome.unchanged) + Counter(item.label for item in alike)
    settled_outcome = replace(outcome, conflicts=left, unchanged=unchanged)
    return settled_outcome, Counter(kind for item in alike for kind in kinds[item.key])


def _kinds(
    source: BulkView, target: BulkView, expectation: RowExpectation, entity: Entity, keys: Sequence[Key]
) -> Iterator[tuple[Key, set[str]]]:
    """Yield the key of each such row, and what a copy would store otherwise."""
    for some, rows in _groups(source, entity, keys):
        for stored in target.rows_of(entity, some):
            kinds = [_kinds_of(expectation, row, stored) for row in rows.get(stored.key, ())]
            if stored.key is not None and len(kinds) == 1 and kinds[0]:
                yield stored.key, kinds[0]


def _groups(
    source: BulkView, entity: Entity, keys: Sequence[Key]
) -> Iterator[tuple[Sequence[Key], Mapping[Key | None, Sequence[ScanRow]]]]:
    """Yield keys with their source rows in groups, which grow while the rows are small."""
    start, size = 0, KEYS_AT_ONCE
    while some := keys[start : start + size]:
        # A source without our indexes may have several rows of one key.
        rows: defaultdict[Key | None, list[ScanRow]] = defaultdict(list)
        held = 0
        for row in source.rows_of(entity, some):
            rows[row.key].append(row)
            held += len(row.content)
            if held > MOST_BYTES and size > KEYS_AT_ONCE:
                break
        else:
            yield some, rows
            start, size = start + size, min(2 * size, MOST_KEYS)
            continue
        size = KEYS_AT_ONCE


def _kinds_of(expectation: RowExpectation, row: ScanRow, stored: ScanRow) -> set[str]:
    expected = expectation.of(row) if expectation.is_held_alike(row, stored) else None
    if not isinstance(expected, Expected) or not additional_values_match(expected, stored):
        return set()
    return {change.kind for change in expected.changes}

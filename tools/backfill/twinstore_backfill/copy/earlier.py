"""Rows that the target holds as earlier rules stored them, which alone are replaced when rules change.

A conflict stays one unless its row of the target, locked, is what earlier rules make of the source row.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from twinstore.access.protocol import Ref
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import DocumentDecodeError, DuplicateError, NotFoundError
from twinstore_backfill.copy.held_alike import content_of
from twinstore_backfill.copy.options import applied_rules
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.rules.model import FunctionRule, IdRule, JobRules, KeyRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from twinstore.access.protocol import Access, Rows, ServerClock
    from twinstore.bulk.port import BulkPort, Conflict, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

    # A row as earlier rules made it, and as the present ones do.
    Pair = tuple[Record, Record]

# Rows in memory and locked together; each may be as large as a document may be.
AT_ONCE: Final = 100


class EarlierFormsError(Exception):
    """A range is rolled back, because rows of the target may be as earlier rules stored them."""

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self.keys = keys


class EarlierForms:
    """The rows of a source under the rules that its job had before."""

    def __init__(self, port: BulkPort, settings: Mapping[str, str], rules: JobRules) -> None:
        """Take the source as it is stored, the settings of the job, and its present rules."""
        entities = port.entities()
        self._present = port.with_changes(copier_changes(rules.of_source, entities))
        self._earlier: dict[str, list[BulkPort]] = {}
        # Backwards the rules change what is written, and rows of the source have one form.
        for before in () if rules.reverse else reversed(applied_rules(settings)):
            found = [entity for entity in entities if is_replaceable(entity, before, rules)]
            if found:
                changed = port.with_changes(copier_changes(before, found, entities))
                for entity in found:
                    self._earlier.setdefault(entity.name, []).append(changed)

    def require_none(self, entity: Entity, conflicts: Iterable[Conflict]) -> None:
        """Refuse conflicts that earlier rules may be the cause of.

        Raises:
            EarlierFormsError: there are some.
        """
        if entity.name not in self._earlier:
            return
        if keys := sorted({item.key for item in conflicts if not item.overwritten}):
            raise EarlierFormsError(keys)

    def find(
        self, target: BulkPort, entity: Entity, keys: Sequence[Key], *, replacing: bool
    ) -> dict[Key | None, str]:
        """Return the keys of the rows of a target that are as earlier rules stored them, with their owners.

        With ``replacing`` these rows are replaced.
        """
        found: dict[Key | None, str] = {}
        access, take = target.access(), replaced if replacing else held
        for port in self._earlier.get(entity.name, ()):
            waiting = [key for key in keys if key not in found]
            for start in range(0, len(waiting), AT_ONCE):
                pairs = list(self._pairs(port, entity, waiting[start : start + AT_ONCE]))
                found |= {record.key: record.label for record in take(access, entity, pairs)}
        return found

    def _pairs(self, port: BulkPort, entity: Entity, keys: Sequence[Key]) -> Iterator[Pair]:
        before, after = (single_rows(item, entity, keys) for item in (port, self._present))
        return ((before[key], after[key]) for key in keys if key in before and key in after)


def is_replaceable(entity: Entity, before: JobRules, rules: JobRules) -> bool:
    """Whether rows of an entity that earlier rules stored may be found and replaced under other rules."""
    # What is only ever appended, or has a fence, is not replaced; under other keys there are other rows.
    if entity.append_only or entity.release is not None or keys_differ(before, rules, [entity]):
        return False
    # A function that was changed since cannot be called any more.
    functions = [
        {rule.sha256 for rule in item.deciding(entity) if isinstance(rule, FunctionRule)}
        for item in (before, rules)
    ]
    is_repeatable = functions[0] <= functions[1]
    return is_repeatable and before.digest(entity) != rules.digest(entity)


def keys_differ(before: JobRules, rules: JobRules, entities: Sequence[Entity]) -> bool:
    """Whether rules read some entities by other keys than earlier ones did."""
    # Without the other rules, of which an earlier function may be no more.
    keys = [tuple(rule for rule in item if isinstance(rule, KeyRule | IdRule)) for item in (before, rules)]
    sides = [copier_changes(JobRules(found), entities) for found in keys]
    return (sides[0].keys, sides[0].ids) != (sides[1].keys, sides[1].ids)


def single_rows(port: BulkPort, entity: Entity, keys: Sequence[Key]) -> dict[Key | None, Record]:
    """Return the rows that can be copied by key, without those of a key that several rows have."""
    with port.view() as view:
        found = [record for record in view.records_of(entity, keys) if record.model is not None]
    times = Counter(record.key for record in found)
    return {record.key: record for record in found if times[record.key] == 1}


def are_held(rows: Rows, pairs: Sequence[Pair]) -> list[bool]:
    """Return which rows are as the first of their pair."""
    return [
        row is not None and content_of(row) == content_of(before)
        for row, (before, _) in zip(rows, pairs, strict=True)
    ]


def held(access: Access, entity: Entity, pairs: Sequence[Pair]) -> list[Record]:
    """Return the second of each pair whose row is as the first."""
    try:
        rows = access.find(entity, ALL_TENANTS, [after.key or () for _, after in pairs]) if pairs else ()
    except DocumentDecodeError:
        return []
    return [after for is_held, (_, after) in zip(are_held(rows, pairs), pairs, strict=True) if is_held]


def replaced(access: Access, entity: Entity, pairs: Sequence[Pair]) -> list[Record]:
    """Replace the rows that are as the first of their pair; return those that were."""
    found: list[bool] = []

    def rule(rows: Rows, now: ServerClock) -> Rows:
        del now
        found[:] = are_held(rows, pairs)
        return tuple(
            Row(after.model, after.storage) if is_held and after.model is not None else None
            for is_held, (_, after) in zip(found, pairs, strict=True)
        )

    try:
        if pairs:
            access.change([Ref(entity, ALL_TENANTS, after.key or ()) for _, after in pairs], rule)
    except (DocumentDecodeError, DuplicateError, NotFoundError):
        # One of them cannot be read, or its new value belongs to another row: that one stays a conflict.
        alone = ([pair] for pair in pairs) if len(pairs) > 1 else ()
        return [record for pair in alone for record in replaced(access, entity, pair)]
    return [after for is_held, (_, after) in zip(found, pairs, strict=True) if is_held]

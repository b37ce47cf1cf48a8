"""One row on both sides, with what each holds where they differ: for a person at a terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from twinstore.catalog.tenancy import shown
from twinstore.errors import ValidationError
from twinstore.models import json_text
from twinstore_backfill.retention import cutoff
from twinstore_backfill.rules.model import NO_RULES, DropRule, JobRules
from twinstore_backfill.verify.expected import (
    MISSING,
    Expected,
    RowExpectation,
    differences,
    mismatched_values,
)
from twinstore_backfill.verify.ranges import FieldExclusion, RangeComparison, compare_keys
from twinstore_backfill.verify.rules import verifier_changes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.bulk.port import BulkPort
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_backfill.ignored import IgnoredPath
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.findings import RangeResult


@dataclass(frozen=True, slots=True)
class Place:
    """A place at which a row differs: what a copy stores there and what is stored, ``None`` where absent."""

    path: str
    source: object
    target: object


@dataclass(frozen=True, slots=True, kw_only=True)
class RowComparison:
    """The result of verifying one row, and its values.

    Attributes:
        verdict: ``equal``, ``expired`` or a kind of finding.
        source_tenant, target_tenant: the owner on each side, absent where the side has no such row.
        reason: why no copy accepts the row of the source.
        equivalences: the normalised values in it, by kind and path.
    """

    entity: str
    key: Key
    verdict: str
    source_tenant: str | None
    target_tenant: str | None
    reason: str | None
    equivalences: Sequence[str]
    places: Sequence[Place]


def compare_row(  # noqa: PLR0917  # both sides, the row, and how it is judged
    source: Store,
    target: Store,
    entity: Entity,
    key: Key,
    as_of: datetime,
    rules: JobRules = NO_RULES,
    ignored_fields: tuple[IgnoredPath, ...] = (),
) -> RowComparison:
    """Compare one row, without the unknown properties that a copy drops and the fields that are ignored.

    Raises:
        ValidationError: neither side has it.
    """
    source = source.changed(verifier_changes(rules, source.bulk.entities()))
    left, right = _row(source.bulk, entity, key), _row(target.bulk, entity, key)
    if left is None and right is None:
        text = "/".join(map(str, key))
        raise ValidationError(f"{entity.name} {text!r} was not found on either side.")
    limit = cutoff(entity, target.options, as_of)
    # With the code of a verification, so that the two never report different things.
    drops = tuple(rules.of(entity, DropRule))
    work = RangeComparison(
        source.bulk,
        target.bulk,
        entity,
        None,
        limit,
        drops=drops,
        ignored_fields=ignored_fields,
        rules=rules,
    )
    judged = compare_keys(work, [key])
    expectation = RowExpectation(entity, drops)
    expected = None
    if left is not None:
        expected = expectation.of(left) if right is None else expectation.of_pair(left, right)
    wanted = expected.content if isinstance(expected, Expected) else None if left is None else left.content
    places: list[Place] = []
    exclusion = FieldExclusion(entity, ignored_fields, expectation)
    if isinstance(expected, Expected) and right is not None and wanted != right.content:
        expected = exclusion.equal(expected, right) or expected
    if wanted is not None and right is not None:
        found = differences(
            *(json_text.loads(exclusion.compared(content)) for content in (wanted, right.content))
        )
        places = [Place(item.path, _value(item.source), _value(item.target)) for item in found]
        if isinstance(expected, Expected):
            stored = orjson.loads(right.beside)
            places += [
                Place(f"beside.{name}", expected.beside.get(name), stored.get(name))
                for name in mismatched_values(expected, right)
            ]
    changes = expected.changes if isinstance(expected, Expected) else ()
    return RowComparison(
        entity=entity.name,
        key=key,
        verdict=_verdict(judged),
        source_tenant=None if left is None else shown(left.label),
        target_tenant=None if right is None else shown(right.label),
        reason=None if expected is None or isinstance(expected, Expected) else expected.reason,
        equivalences=tuple(f"{change.path} ({change.kind})" for change in changes),
        places=tuple(places),
    )


def _row(port: BulkPort, entity: Entity, key: Key) -> ScanRow | None:
    with port.view() as view:
        return next(iter(view.rows_of(entity, [key])), None)


def _verdict(judged: RangeResult) -> str:
    kinds = [kind.value for kind, count in judged.findings.counts.items() if count]
    if kinds:
        return kinds[0]
    equal = any(tenant.counts["equal"] for tenant in judged.tenants.values())
    return "equal" if equal else "expired"


def _value(value: object) -> object:
    return None if value is MISSING else value

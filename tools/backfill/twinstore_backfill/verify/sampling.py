"""Comparing a sample: keys chosen by a seeded hash, the same share of attention for every tenant."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Final

from twinstore.catalog.tenancy import names_tenant
from twinstore.models.fields import SYSTEM_TENANT
from twinstore_backfill.verify.findings import RangeResult
from twinstore_backfill.verify.ranges import RowComparison

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from twinstore.bulk.port import BulkView
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore_backfill.verify.ranges import RangeComparison

# Rows of the target are fetched by key: this many at a time keep round trips few and statements short.
FETCHED: Final = 500
WHOLE: Final = 2**64
# Tenants whose lists are compared; those with the most rows are always among them.
LIST_TENANTS: Final = 200
LARGEST: Final = 20


def sample_rates(counts: Mapping[str, int], sample_size: int) -> dict[str, float]:
    """Return the share of each tenant's documents to compare; all give the same number, if they can."""
    quota = ceil(sample_size / max(len(counts), 1))
    return {tenant: min(1.0, quota / count) for tenant, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class TenantSelection:
    """The tenants whose lists are queried; ``note`` says how they were chosen, if not all were."""

    tenants: tuple[str, ...]
    note: str = ""


def rows_of_tenants(counted: Iterable[Mapping[str, tuple[int, int]]]) -> Counter[str]:
    """Return the rows of each tenant over all entities, on the side that has more of them."""
    rows = Counter[str]()
    for counts in counted:
        # Rows may belong to the system itself, which no list of a tenant shows.
        tenants = (label for label in counts if names_tenant(label) and label != SYSTEM_TENANT)
        rows.update({label: max(counts[label]) for label in tenants})
    return rows


def tenants_for_lists(
    rows: Mapping[str, int], seed: int, *, most: int | None = None, largest: int | None = None
) -> TenantSelection:
    """Return the tenants whose lists are queried: all, or of very many the largest and a seeded choice.

    Every document is compared, independent of this choice. The lists of one tenant take a dozen queries on
    each side, and with thousands of tenants they would take longer than everything else.

    Args:
        rows: the rows of each tenant.
        seed: the same one chooses the same tenants.
        most: how many are chosen; default: :data:`LIST_TENANTS`.
        largest: how many of them are those with the most rows; default: :data:`LARGEST`.
    """
    most = LIST_TENANTS if most is None else most
    if len(rows) <= most:
        return TenantSelection(tuple(sorted(rows)))
    # By name where two have as many rows, so that nothing depends on the order in which they were counted.
    first = sorted(rows, key=lambda tenant: (-rows[tenant], tenant))[
        : LARGEST if largest is None else largest
    ]
    others = sorted(rows.keys() - set(first), key=lambda tenant: hashed(str(seed), tenant))
    chosen = sorted([*first, *others[: most - len(first)]])
    return TenantSelection(tuple(chosen), f", of {len(chosen):,} of {len(rows):,} tenants (seed {seed})")


def compare_sample(
    work: RangeComparison, within: KeyRange, rates: Mapping[str, float], seed: int
) -> RangeResult:
    """Compare the chosen documents of a range; rows that only the target has are not looked for."""
    comparison = RowComparison(work, RangeResult(work.entity.name, work.tenant, within))
    with work.source.view() as left, work.target.view() as right:
        rows = comparison.source_rows(left, within)
        # Every document goes through the model: one that cannot be decoded changes what the counts must be.
        chosen = (
            row
            for row in rows
            if not comparison.expired(row, "source")
            and (is_sampled(row, work.entity, rates, seed) or not comparison.decodable(row))
        )
        while some := list(islice(chosen, FETCHED)):
            comparison.pairs(_paired(some, right, work.entity))
        if work.cutoff is not None:
            for batch in work.rows(right, within):
                for row in batch:
                    comparison.expired(row, "target")
    comparison.settle()
    return comparison.result


def is_sampled(row: ScanRow, entity: Entity, rates: Mapping[str, float], seed: int) -> bool:
    """Return whether a row belongs to the sample; only seed, entity and key decide."""
    place = hashed(str(seed), entity.name, *map(str, row.key or ()))
    # A tenant that the counts do not know appeared meanwhile and is compared in full.
    return place < rates.get(row.label, 1.0) * WHOLE


def hashed(*parts: str) -> int:
    """Return a number below :data:`WHOLE` that depends on texts alone."""
    # A hash and not a random number: the same seed chooses the same rows in any order and any process.
    text = "\n".join(parts).encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(text).digest()[:8], "big")


def _paired(
    rows: list[ScanRow], target: BulkView, entity: Entity
) -> Iterator[tuple[ScanRow | None, ScanRow | None]]:
    keys: list[Key] = [row.key for row in rows if row.key is not None]
    found = {row.key: row for row in target.rows_of(entity, keys)}
    return ((row, found.get(row.key)) for row in rows)

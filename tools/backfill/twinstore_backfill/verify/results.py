"""What comparing ranges of rows amounts to."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twinstore_backfill.verify.digests import Digest
from twinstore_backfill.verify.findings import Findings

if TYPE_CHECKING:
    from twinstore.bulk import KeyRange

__all__ = ["RangeResult", "Shares", "TenantResult"]


@dataclass(slots=True)
class TenantResult:
    """What a range, or an entity, amounts to for one tenant."""

    source: Digest = field(default_factory=Digest)
    target: Digest = field(default_factory=Digest)
    counts: Counter[str] = field(default_factory=Counter[str])
    equivalences: Counter[str] = field(default_factory=Counter[str])

    @property
    def seen(self) -> tuple[int, int]:
        """How many rows were read on each side."""
        counts = self.counts
        source = self.source.count + counts["expired_source"] + counts["quarantined"]
        return source, self.target.count + counts["expired_target"]

    def merge(self, other: TenantResult) -> None:
        """Add another part."""
        self.source.merge(other.source)
        self.target.merge(other.target)
        self.counts.update(other.counts)
        self.equivalences.update(other.equivalences)


@dataclass(slots=True)
class Shares:
    """How much was proved by digests, and how much row by row.

    Attributes:
        proved: ranges that digests proved.
        compared: ranges that were compared row by row.
        rows: rows of the source in the former.
        expired: those beside them that retention removes.
    """

    proved: int = 0
    compared: int = 0
    rows: int = 0
    expired: int = 0

    def merge(self, other: Shares) -> None:
        """Add another part."""
        self.proved += other.proved
        self.compared += other.compared
        self.rows += other.rows
        self.expired += other.expired


@dataclass(slots=True)
class RangeResult:
    """What comparing one range found; ``largest`` is the size of its largest document in bytes."""

    entity: str
    tenant: str | None
    within: KeyRange
    tenants: defaultdict[str, TenantResult] = field(default_factory=lambda: defaultdict(TenantResult))
    findings: Findings = field(default_factory=Findings)
    largest: int = 0
    shares: Shares = field(default_factory=Shares)

    def outcomes(self) -> Counter[str]:
        """Return what became of its rows, for whoever hears of the progress."""
        return sum((part.counts for part in self.tenants.values()), Counter(ranges=1))

    def merge(self, other: RangeResult) -> None:
        """Add the range that follows."""
        for tenant, result in other.tenants.items():
            self.tenants[tenant].merge(result)
        self.findings.merge(other.findings)
        self.largest = max(self.largest, other.largest)
        self.shares.merge(other.shares)

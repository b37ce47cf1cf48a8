"""Turning what was found into the parts of the report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from twinstore.bulk import KeyRange
from twinstore_backfill.report.model import (
    Counts,
    Differing,
    DifferingList,
    EntityReport,
    Equivalence,
    FindingGroup,
    KeyList,
    Named,
    RangeReport,
    SideDigest,
    TenantReport,
)
from twinstore_backfill.verify.checks import worst
from twinstore_backfill.verify.digests import Digest
from twinstore_backfill.verify.ranges import RangeResult, TenantResult
from twinstore_backfill.verify.removals import counted_rows, sampled_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from twinstore.catalog import Entity
    from twinstore_backfill.report.model import Result
    from twinstore_backfill.verify.ranges import CappedList, RowDifference, RowName
    from twinstore_backfill.verify.removals import Pair

__all__ = ["EntityFindings", "equivalences", "groups"]


class EntityFindings:
    """Collects the ranges of one entity in order."""

    def __init__(self, entity: Entity, counted: Mapping[str, tuple[int, int]]) -> None:
        """Take the entity and, by label of the owner, the rows that each side counts."""
        self.entity = entity
        self._counted = counted
        self._whole = RangeResult(entity.name, None, KeyRange())
        self._ranges: list[RangeReport] = []

    def add(self, result: RangeResult) -> None:
        """Add the range that follows."""
        self._ranges.append(_range_report(result))
        self._whole.merge(result)

    def settle(self, recount: Callable[[], Mapping[str, Pair]], *, sampled: bool) -> None:
        """Count again where retention may have removed rows since they were counted."""
        adjusted = self._sampled_rows if sampled else self._counted_rows
        if any(adjusted(tenant, before, (0, 0)) != before for tenant, before in self._counted.items()):
            after = recount()
            self._counted = {
                tenant: adjusted(tenant, before, after.get(tenant, (0, 0)))
                for tenant, before in self._counted.items()
            }

    def _counted_rows(self, tenant: str, before: Pair, after: Pair) -> Pair:
        found = self._whole.tenants.get(tenant, TenantResult())
        read = (
            found.source.count + found.counts["expired_source"] + found.counts["quarantined"],
            found.target.count + found.counts["expired_target"],
        )
        return counted_rows(before, after, read)

    def _sampled_rows(self, tenant: str, before: Pair, after: Pair) -> Pair:
        counts = self._whole.tenants.get(tenant, TenantResult()).counts
        apart = counts["expired_source"] + counts["quarantined"] - counts["expired_target"]
        return sampled_rows(before, after, apart)

    @property
    def equivalences(self) -> Counter[str]:
        """How many documents needed each equivalence."""
        return sum((tenant.equivalences for tenant in self._whole.tenants.values()), Counter[str]())

    def report(self) -> EntityReport:
        """Return what the report says of the entity."""
        found = self._whole
        tenants = dict(found.tenants)
        totals = Counts(**sum((tenant.counts for tenant in tenants.values()), Counter[str]()))
        return EntityReport(
            entity=self.entity.name,
            group=self.entity.group,
            result=_result(totals),
            counts=totals,
            tenants=tuple(
                self._tenant(name, tenants.get(name, TenantResult()))
                # A tenant may be counted on a side without a row being seen, or the other way round; both are
                # named.
                for name in sorted(self._counted.keys() | tenants.keys())
            ),
            ranges=tuple(self._ranges),
            missing=_keys(found.missing),
            extra=_keys(found.extra),
            different=_differing(found.different),
            unproved=_differing(found.unproved),
            undecodable=_keys(found.undecodable),
            quarantined=_keys(found.quarantined),
        )

    def _tenant(self, name: str, result: TenantResult) -> TenantReport:
        source, target = self._counted.get(name, (0, 0))
        return TenantReport(
            tenant=name,
            stored_source=source,
            stored_target=target,
            source=_digest(result.source),
            target=_digest(result.target),
            counts=Counts(**result.counts),
        )


def groups(entities: Sequence[EntityReport]) -> tuple[FindingGroup, ...]:
    """Return the logical groups with what their entities amount to."""
    names = dict.fromkeys(entity.group for entity in entities)
    return tuple(
        FindingGroup(
            name=name,
            entities=tuple(entity.entity for entity in entities if entity.group == name),
            result=worst(entity.result for entity in entities if entity.group == name),
        )
        for name in names
    )


def equivalences(found: Counter[str]) -> tuple[Equivalence, ...]:
    """Return the equivalences that were needed, by name."""
    return tuple(Equivalence(name=name, documents=count) for name, count in sorted(found.items()))


def _result(counts: Counts) -> Result:
    if counts.missing or counts.extra or counts.different or counts.undecodable:
        return "fail"
    return "inconclusive" if counts.quarantined or counts.unproved else "pass"


def _range_report(result: RangeResult) -> RangeReport:
    source, target = Digest(), Digest()
    for part in result.tenants.values():
        source.merge(part.source)
        target.merge(part.target)
    return RangeReport(
        tenant=result.tenant,
        lower=result.within.lower,
        upper=result.within.upper,
        source=_digest(source),
        target=_digest(target),
        equal=source == target,
    )


def _digest(digest: Digest) -> SideDigest:
    return SideDigest(count=digest.count, xor=f"{digest.xor:032x}", sum=f"{digest.sum:032x}")


def _keys(found: CappedList[RowName]) -> KeyList:
    return KeyList(
        count=found.count, shown=tuple(Named(key=item.key, tenant=item.tenant) for item in found.items)
    )


def _differing(found: CappedList[RowDifference]) -> DifferingList:
    shown = tuple(
        Differing(
            key=item.key,
            tenant=item.tenant,
            source_digest=item.source_digest,
            target_digest=item.target_digest,
            paths=item.paths,
            path_count=item.path_count,
        )
        for item in found.items
    )
    return DifferingList(count=found.count, shown=shown)

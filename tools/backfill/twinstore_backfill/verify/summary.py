"""Turning what was found into the parts of the report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from twinstore.catalog.keys import KeyRange
from twinstore_backfill.report.model import (
    Counts,
    Differing,
    DifferingList,
    EntityReport,
    Equivalence,
    FieldReport,
    FindingGroup,
    KeyList,
    Named,
    RangeReports,
    SideDigest,
    TenantReport,
)
from twinstore_backfill.verify.checks import worst
from twinstore_backfill.verify.expected import IGNORED
from twinstore_backfill.verify.findings import FindingKind, RangeResult, TenantResult, total
from twinstore_backfill.verify.ranges import counted_rows, sampled_rows
from twinstore_backfill.verify.set_digest import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.reasons import Reasons
    from twinstore_backfill.verify.findings import Findings
    from twinstore_backfill.verify.ranges import RowCounts

# A report should open in an editor.
FIELDS_SHOWN: Final = 100


class EntityFindings:
    """Collects the ranges of one entity in order."""

    def __init__(
        self,
        entity: Entity,
        counted: Mapping[str, tuple[int, int]] | None = None,
        *,
        source_is_read: bool = False,
    ) -> None:
        """Take the entity and, by label of the owner, the rows that each side counts.

        If only single rows are compared, nothing else is counted, and there are no ranges. If rules move rows
        between tenants, the rows of the source count as they were read.
        """
        self.entity = entity
        self._source_is_read = source_is_read
        self._counted = counted
        self._whole = RangeResult(entity.name, None, KeyRange())
        self._ranges = RangeReports()

    def add(self, result: RangeResult) -> None:
        """Add the range that follows, or rows of those before."""
        if self._counted is not None:
            for within, digest in result.proved:
                self._ranges.append(_range_report(result.tenant, within, digest, digest))
            if result.is_range:
                self._ranges.append(_range_report(result.tenant, result.within, *_sides(result)))
        self._whole.merge(result)

    def settle(self, recount: Callable[[], Mapping[str, RowCounts]], *, sampled: bool) -> None:
        """Count again where retention may have removed rows since they were counted."""
        adjusted = self._sampled_rows if sampled else self._counted_rows
        counted = self._counted or {}
        if any(adjusted(tenant, before, (0, 0)) != before for tenant, before in counted.items()):
            after = recount()
            self._counted = {
                tenant: adjusted(tenant, before, after.get(tenant, (0, 0)))
                for tenant, before in counted.items()
            }

    def _counted_rows(self, tenant: str, before: RowCounts, after: RowCounts) -> RowCounts:
        return counted_rows(before, after, self._whole.tenants.get(tenant, TenantResult()).seen)

    def _sampled_rows(self, tenant: str, before: RowCounts, after: RowCounts) -> RowCounts:
        counts = self._whole.tenants.get(tenant, TenantResult()).counts
        surplus = counts["expired_source"] + counts["quarantined"] - counts["expired_target"]
        return sampled_rows(before, after, surplus)

    @property
    def equivalences(self) -> Counter[str]:
        """How many documents needed each equivalence."""
        return total(tenant.equivalences for tenant in self._whole.tenants.values())

    @property
    def reasons(self) -> Reasons:
        """Why documents are not proved."""
        return self._whole.findings.reasons

    @property
    def ignored(self) -> int:
        """How many documents have properties that were ignored."""
        return self.equivalences[IGNORED]

    @property
    def rules(self) -> Counter[int]:
        """How many rows each rule changed."""
        return total(tenant.rules for tenant in self._whole.tenants.values())

    @property
    def accepted(self) -> Counter[int]:
        """How many documents each acceptance of the job has met, by its number."""
        return total(tenant.accepted for tenant in self._whole.tenants.values())

    def report(self, of_quarantine: AbstractSet[int] = frozenset()) -> EntityReport:
        """Return what the report says of the entity; the acceptances of quarantined rows are given."""
        found = self._whole
        tenants = dict(found.tenants)
        for tenant in tenants.values():
            tenant.counts["quarantined_approved"] = sum(tenant.accepted[item] for item in of_quarantine)
        totals = Counts(**total(tenant.counts for tenant in tenants.values()))
        return EntityReport(
            entity=self.entity.name,
            group=self.entity.group,
            result=totals.result,
            counts=totals,
            tenants=tuple(
                self._tenant(name, tenants.get(name, TenantResult()))
                # A tenant may be counted on a side without a row being seen, or the other way round; both are
                # named.
                for name in sorted({*(self._counted or ()), *tenants})
            ),
            ranges=self._ranges,
            missing=_keys(found.findings, FindingKind.MISSING),
            extra=_keys(found.findings, FindingKind.EXTRA),
            different=_differing(found.findings, FindingKind.DIFFERENT),
            stale=_differing(found.findings, FindingKind.STALE),
            unproved=_differing(found.findings, FindingKind.UNPROVED),
            undecodable=_keys(found.findings, FindingKind.UNDECODABLE),
            quarantined=_keys(found.findings, FindingKind.QUARANTINED),
            fields=_fields(found.findings),
        )

    def _tenant(self, name: str, result: TenantResult) -> TenantReport:
        source, target = result.seen if self._counted is None else self._counted.get(name, (0, 0))
        if self._source_is_read:
            source, _ = result.seen
        digest = _digest(result.source)
        return TenantReport(
            tenant=name,
            stored_source=source,
            stored_target=target,
            source=digest,
            target=digest if result.target == result.source else _digest(result.target),
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


def _sides(result: RangeResult) -> tuple[Digest, Digest]:
    """Return the digests of both sides of a range."""
    source, target = Digest(), Digest()
    source.merge(result.source)
    target.merge(result.target)
    for part in result.tenants.values():
        source.merge(part.source)
        target.merge(part.target)
    return source, target


def _range_report(tenant: str | None, within: KeyRange, source: Digest, target: Digest) -> dict[str, object]:
    """Return the fields of a range of the report."""
    return {
        "tenant": tenant,
        "lower": within.lower,
        "upper": within.upper,
        "source": _digest_fields(source),
        "target": _digest_fields(target),
        "equal": source == target,
    }


def _digest_fields(digest: Digest) -> dict[str, object]:
    return {"count": digest.count, "xor": f"{digest.xor:032x}", "sum": f"{digest.sum:032x}"}


def _digest(digest: Digest) -> SideDigest:
    return SideDigest(count=digest.count, xor=f"{digest.xor:032x}", sum=f"{digest.sum:032x}")


def _keys(found: Findings, kind: FindingKind) -> KeyList:
    shown = tuple(
        Named(key=item.named, tenant=item.tenant, reason=item.reason, cause=item.cause)
        for item in found.of(kind)
    )
    return KeyList(count=found.counts[kind], shown=shown)


def _differing(found: Findings, kind: FindingKind) -> DifferingList:
    shown = tuple(
        Differing(
            key=item.key or (),
            tenant=item.tenant,
            source_digest=item.source_digest or "",
            target_digest=item.target_digest or "",
            paths=item.paths,
            path_count=item.path_count,
            reason=item.reason,
        )
        for item in found.of(kind)
    )
    return DifferingList(count=found.counts[kind], shown=shown)


def _fields(found: Findings) -> tuple[FieldReport, ...]:
    """Return the fields that differ most often, those with equal numbers by name."""
    order = sorted(found.fields.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        FieldReport(kind=kind.value, path=path, documents=count)
        for (kind, path), count in order[:FIELDS_SHOWN]
    )

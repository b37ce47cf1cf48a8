"""The rows that a comparison names: every one as a line, the first ones in the report, all of them counted.

The way of one:

    row -> RowFinding -> its line (differences.ndjson), the first of its kind, the fields it differs in
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, Final, Self, TypeVar

from twinstore.errors import ConfigurationError, MigrationError
from twinstore_backfill.reasons import Reasons
from twinstore_backfill.stores import has_ledger
from twinstore_backfill.verify.set_digest import Digest, document_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.ledger import CopyJob
    from twinstore_backfill.stores import Store

# Enough to see the pattern; the lines hold every row.
LISTED: Final = 100
PATHS: Final = 20
# Names of a free map are chosen by users and may be of any length.
LONGEST_PATH: Final = 200
# A broken mapping differs in few fields; more than this is free maps, whose names are not summed up.
FIELDS: Final = 1000
# The first path of a row of the target that the decoder of the service refuses.
UNREADABLE_TARGET: Final = "doc (cannot be decoded in target)"
INDEX: Final = re.compile(r"\[\d+\]")
# At the top a name is that of a field, whatever it is made of.
QUOTED: Final = re.compile(r'(?<!^doc)\["(?:[^"\\]|\\.)*"\]')


T = TypeVar("T")


class FindingKind(StrEnum):
    """The kind of a finding about a row.

    ``stale`` is a row of the target under the key of a source row that no copy accepts; ``unproved`` is one
    that is equal after normalising values that keys, filters or orders use.
    """

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    STALE = "stale"
    UNPROVED = "unproved"
    UNDECODABLE = "undecodable"
    QUARANTINED = "quarantined"


# Of which a row has one reason; of the others each place that differs is one.
OF_ROW: Final = frozenset(FindingKind) - {FindingKind.DIFFERENT, FindingKind.UNPROVED}
SIDES: Final = {FindingKind.MISSING: "in source only", FindingKind.EXTRA: "in target only"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFinding:
    """One row that is worth naming; never any of its values.

    Attributes:
        key: ``None`` where what is stored is not a key of the entity.
        stored_key: what is stored in its place, if the store can say so.
        tenant: the label of its owner.
        paths: the first places at which the two sides differ, each with the values described in words.
        path_count: how many places there are.
        source_digest, target_digest: of what is expected and of what is stored, where the side has the row.
        reason: why the row cannot be read.
        cause: the same by name.
    """

    kind: FindingKind
    tenant: str
    key: Key | None
    paths: tuple[str, ...] = ()
    path_count: int = 0
    source_digest: str | None = None
    target_digest: str | None = None
    reason: str | None = None
    cause: str | None = None
    stored_key: str | None = None

    @property
    def named(self) -> Key | str | None:
        """The key, or what is stored in its place."""
        return self.stored_key if self.key is None else self.key

    def line(self, entity: str) -> bytes:
        """Return the finding as a line of JSON in ASCII, which holds every key."""
        values = {"entity": entity, **asdict(self), "key": self.named}
        del values["stored_key"]
        return f"{json.dumps(values, separators=(',', ':'))}\n".encode()

    @classmethod
    def of_line(cls, line: bytes) -> Self:
        """Return the finding of which :meth:`line` made a line."""
        values = json.loads(line)
        del values["entity"]
        named, kind, paths = values.pop("key"), FindingKind(values.pop("kind")), tuple(values.pop("paths"))
        stored = named if isinstance(named, str) else None
        key = tuple(named) if isinstance(named, list) else None
        return cls(kind=kind, paths=paths, key=key, stored_key=stored, **values)


def shown_paths(paths: Sequence[str]) -> tuple[str, ...]:
    """Return as much of the paths as a finding holds."""
    return tuple(path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}…" for path in paths[:PATHS])


def field_of(path: str) -> str:
    """Return the field of a path: the same for every item of a list and for every name of a free map."""
    return QUOTED.sub("[*]", INDEX.sub("[]", path))


@dataclass(slots=True)
class Findings:
    """The findings of a range, or of an entity, in order of the keys.

    Attributes:
        first: the first ones of each kind.
        counts: how many there are of each kind.
        fields: by kind and field, in how many rows it differs.
        reasons: how many rows there are for each reason, and of what differs for each field.
        lines: every finding, as a line.
    """

    first: dict[FindingKind, list[RowFinding]] = field(default_factory=dict[FindingKind, list[RowFinding]])
    counts: Counter[FindingKind] = field(default_factory=Counter[FindingKind])
    fields: Counter[tuple[FindingKind, str]] = field(default_factory=Counter[tuple[FindingKind, str]])
    reasons: Reasons = field(default_factory=Reasons)
    lines: list[bytes] = field(default_factory=list[bytes])

    def add(self, entity: str, finding: RowFinding) -> None:
        """Take a finding of an entity."""
        self.counts[finding.kind] += 1
        first = self.first.setdefault(finding.kind, [])
        if len(first) < LISTED:
            first.append(finding)
        names = sorted({field_of(path) for path in finding.paths})
        self._count_fields((finding.kind, name) for name in names)
        for reason in [finding.reason or SIDES.get(finding.kind, "")] if finding.kind in OF_ROW else names:
            self.reasons.add(entity, finding.kind.value, reason, finding.named)
        self.lines.append(finding.line(entity))

    def merge(self, other: Findings) -> None:
        """Add later results in order; the lines stay with the object that wrote them."""
        self.counts.update(other.counts)
        self.reasons.merge(other.reasons)
        for kind, found in other.first.items():
            first = self.first.setdefault(kind, [])
            first.extend(found[: LISTED - len(first)])
        for name, count in other.fields.items():
            self._count_fields([name], count)

    def of(self, kind: FindingKind) -> Sequence[RowFinding]:
        """Return the first findings of a kind."""
        return self.first.get(kind, ())

    def _count_fields(self, names: Iterable[tuple[FindingKind, str]], count: int = 1) -> None:
        for name in names:
            if name in self.fields or len(self.fields) < FIELDS:
                self.fields[name] += count


def compared(  # noqa: PLR0917  # both sides, and what was found of them
    kind: FindingKind,
    source: ScanRow,
    wanted: bytes,
    target: ScanRow,
    paths: Sequence[str],
    reason: str | None = None,
) -> RowFinding:
    """Return the finding of a row that both sides have."""
    return RowFinding(
        kind=kind,
        key=source.key,
        tenant=source.label,
        paths=shown_paths(paths),
        path_count=len(paths),
        source_digest=document_digest(wanted),
        target_digest=document_digest(target.content),
        reason=reason,
    )


def total(counters: Iterable[Counter[T]]) -> Counter[T]:
    """Return the sum of counters, without names that are counted nowhere."""
    found = Counter[T]()
    for counter in counters:
        if counter:
            found.update(counter)
    return +found


@dataclass(slots=True)
class TenantResult:
    """The totals of a range, or an entity, for one tenant.

    Attributes:
        rules: how many rows each rule changed, by its number.
        accepted: how many rows each acceptance of the job has met, by its number.
    """

    source: Digest = field(default_factory=Digest)
    target: Digest = field(default_factory=Digest)
    counts: Counter[str] = field(default_factory=Counter[str])
    equivalences: Counter[str] = field(default_factory=Counter[str])
    rules: Counter[int] = field(default_factory=Counter[int])
    accepted: Counter[int] = field(default_factory=Counter[int])

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
        self.rules.update(other.rules)
        self.accepted.update(other.accepted)


@dataclass(slots=True)
class Shares:
    """How much was proved by digests, and how much row by row.

    Attributes:
        proved: ranges that digests proved.
        compared: ranges that were compared row by row.
        rows: rows of the source in the former.
        expired: additional rows that retention removes.
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
    """What comparing one range found.

    Attributes:
        entity, tenant, within: the range.
        tenants: the totals by label of the owner.
        findings: the rows that are named.
        source, target: the digests of its rows that another result counts by owner.
        proved: ranges before this one that digests prove, each with those of its rows.
        is_range: whether a report has it as a range; if not, it counts such rows.
        findings: the rows that are named.
        largest: the size of its largest document in bytes.
        shares: how it was compared.
    """

    entity: str
    tenant: str | None
    within: KeyRange
    source: Digest = field(default_factory=Digest)
    target: Digest = field(default_factory=Digest)
    proved: list[tuple[KeyRange, Digest]] = field(default_factory=list)
    is_range: bool = True
    tenants: defaultdict[str, TenantResult] = field(default_factory=lambda: defaultdict(TenantResult))
    findings: Findings = field(default_factory=Findings)
    largest: int = 0
    shares: Shares = field(default_factory=Shares)

    @property
    def rows(self) -> int:
        """How many rows of the source were compared."""
        return sum(part.source.count for part in self.tenants.values())

    def outcomes(self) -> Counter[str]:
        """Return the outcomes of its rows, for the progress; each row has one."""
        found = total(part.counts for part in self.tenants.values())
        found["ranges"] = len(self.proved) + self.is_range
        del found["equal_approved"]
        return found

    def merge(self, other: RangeResult) -> None:
        """Add the range that follows."""
        for tenant, result in other.tenants.items():
            if self.tenants.setdefault(tenant, result) is not result:
                self.tenants[tenant].merge(result)
        self.findings.merge(other.findings)
        self.largest = max(self.largest, other.largest)
        self.shares.merge(other.shares)


# Which rows the copies into a target have in quarantine, so that their absence there is known and no loss.
#
# Most such rows are recognized from the source alone: no copy accepts them. Others were refused only by the
# target, because a unique value was taken or their parent was missing; only the ledger of the copy has those.


log = getLogger(__name__)


class QuarantineLookup:
    """Queries the ledger of the target; it is read when the first row is missing there."""

    def __init__(self, source: Store, target: Store) -> None:
        self._source, self._target = source, target

    def __call__(self, entity: Entity, keys: Sequence[Key]) -> Mapping[Key, str]:
        """Return by key why a copy has the rows of some keys of the source in quarantine."""
        found: dict[Key, str] = {}
        for job in self._jobs:
            found |= self._target.ledger.quarantined_reasons(job, entity.name, keys)
        return found

    @cached_property
    def _jobs(self) -> tuple[str, ...]:
        """The copies of this source into this target."""
        # 0.1.0 identified stores by their place.
        names = {self._source.bulk.identity, self._source.bulk.place}
        return tuple(job.id for job in copies_into(self._target) if job.settings.get("source") in names)


def copies_into(target: Store) -> Iterable[CopyJob]:
    """Return the copies into a target; none where its ledger cannot be read."""
    try:
        if not has_ledger(target):
            return ()
    # A role that may read the rows need not have rights on the ledger; then the rows count as missing.
    except (ConfigurationError, MigrationError) as error:
        log.warning("the ledger of copies in the target cannot be read: %s", error)
        return ()
    return target.ledger.jobs()


def none_quarantined(entity: Entity, keys: Sequence[Key]) -> Mapping[Key, str]:
    """Return nothing, for a comparison of which no copy is known."""
    del entity, keys
    return {}

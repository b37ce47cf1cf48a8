"""The rows that a comparison names: every one as a line, the first ones in the report, all of them counted.

The way of one:

    row -> RowFinding -> its line (differences.ndjson), the first of its kind, the fields it differs in
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from twinstore_backfill.verify.digests import document_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from twinstore.bulk import ScanRow
    from twinstore.keys import Key

__all__ = [
    "FINDING_KINDS",
    "UNREADABLE_TARGET",
    "FindingKind",
    "Findings",
    "RowFinding",
    "compared",
    "field_of",
    "shown_paths",
]

# Enough to see the pattern; the lines hold every row.
LISTED: Final = 100
PATHS: Final = 20
# Names of a free map are chosen by users and may be of any length.
LONGEST_PATH: Final = 200
# A broken mapping differs in few fields; more than this is free maps, whose names nobody sums up.
FIELDS: Final = 1000
# The first path of a row of the target that the decoder of the service refuses.
UNREADABLE_TARGET: Final = "doc (cannot be decoded in target)"
INDEX: Final = re.compile(r"\[\d+\]")
QUOTED: Final = re.compile(r'\["(?:[^"\\]|\\.)*"\]')


class FindingKind(StrEnum):
    """What is to be said of a row.

    ``stale`` is a row of the target under the key of a source row that no copy takes; ``unproved`` one that
    is equal once what keys, filters or orders look at is normalised.
    """

    MISSING = "missing"
    EXTRA = "extra"
    DIFFERENT = "different"
    STALE = "stale"
    UNPROVED = "unproved"
    UNDECODABLE = "undecodable"
    QUARANTINED = "quarantined"


FINDING_KINDS: Final = tuple(FindingKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFinding:
    """One row that is worth naming; never any of its values.

    Attributes:
        key: ``None`` where what is stored is not a key of the entity.
        tenant: the label of its owner.
        paths: the first places at which the two sides differ, each with what is there in words.
        path_count: how many places there are.
        source_digest, target_digest: of what is expected and of what is stored, where the side has the row.
        reason: why the row cannot be read.
    """

    kind: FindingKind
    tenant: str
    key: Key | None
    paths: tuple[str, ...] = ()
    path_count: int = 0
    source_digest: str | None = None
    target_digest: str | None = None
    reason: str | None = None

    def line(self, entity: str) -> bytes:
        """Return the finding as a line of JSON in ASCII, which holds every key."""
        values = {"entity": entity, **asdict(self)}
        return f"{json.dumps(values, separators=(',', ':'))}\n".encode()


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
        lines: every finding, as a line.
    """

    first: dict[FindingKind, list[RowFinding]] = field(default_factory=dict[FindingKind, list[RowFinding]])
    counts: Counter[FindingKind] = field(default_factory=Counter[FindingKind])
    fields: Counter[tuple[FindingKind, str]] = field(default_factory=Counter[tuple[FindingKind, str]])
    lines: list[bytes] = field(default_factory=list[bytes])

    def add(self, entity: str, finding: RowFinding) -> None:
        """Take a finding of an entity."""
        self.counts[finding.kind] += 1
        first = self.first.setdefault(finding.kind, [])
        if len(first) < LISTED:
            first.append(finding)
        self._count_fields((finding.kind, name) for name in {field_of(path) for path in finding.paths})
        self.lines.append(finding.line(entity))

    def merge(self, other: Findings) -> None:
        """Add what comes later in order; the lines stay with whoever wrote them down."""
        self.counts.update(other.counts)
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

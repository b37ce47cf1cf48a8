"""The rows that a verification names, as every rendering lists them: what many have in common comes first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from twinstore_backfill.report.texts import LONGEST_SENTENCE, clipped, key_text, tenant_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.keys import Key
    from twinstore_backfill.report.model import Counts, Differing, EntityReport, Named

__all__ = ["ALL_ROWS", "KINDS", "KindList", "Listed", "lists_of", "more_rows", "named_counts", "summary_rows"]

# In the order in which people ask for it.
KINDS: Final = ("missing", "extra", "different", "stale", "unproved", "undecodable", "quarantined")
ALL_ROWS: Final = "differences.ndjson"
MEANINGS: Final[Mapping[str, str]] = {
    "missing": "in source only",
    "extra": "in target only",
    "undecodable": "cannot be decoded on either side",
    "quarantined": "in source, cannot be decoded; not in target",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """One row. ``owner`` is the label of its tenant, ``where`` is for people."""

    named: Key | None
    owner: str
    where: str

    @property
    def key(self) -> str:
        """Its key for people."""
        return key_text(self.named)

    @property
    def tenant(self) -> str:
        """Its tenant for people."""
        return tenant_text(self.owner)


@dataclass(frozen=True, slots=True)
class KindList:
    """The first rows of one kind, and how many there are."""

    kind: str
    count: int
    rows: tuple[Listed, ...]


def lists_of(entity: EntityReport) -> Iterator[KindList]:
    """Yield what an entity has of each kind, in order."""
    plain = {
        "missing": entity.missing,
        "extra": entity.extra,
        "undecodable": entity.undecodable,
        "quarantined": entity.quarantined,
    }
    differing = {"different": entity.different, "stale": entity.stale, "unproved": entity.unproved}
    for kind in KINDS:
        if kind in plain:
            rows = tuple(_named(kind, item) for item in plain[kind].shown)
            count = plain[kind].count
        else:
            rows = tuple(_differing(kind, item) for item in differing[kind].shown)
            count = differing[kind].count
        if count:
            yield KindList(kind, count, rows)


def summary_rows(entity: EntityReport) -> list[tuple[str, str, int]]:
    """Return kind, place and number of documents: a thousand that differ in one field are one row."""
    rows: list[tuple[str, str, int]] = []
    for listed in lists_of(entity):
        kind = listed.kind
        fields = [(kind, item.path, item.documents) for item in entity.fields if item.kind == kind]
        rows += fields or [(kind, where, count) for where, count in _reasons(listed).items()]
    return rows


def _reasons(listed: KindList) -> Mapping[str, int]:
    """Return how many rows there are for each reason, where all of them are listed."""
    if len(listed.rows) < listed.count:
        return {MEANINGS.get(listed.kind, ""): listed.count}
    return Counter(row.where for row in listed.rows)


def named_counts(counts: Counts) -> str:
    """Return how many documents there are of each kind, without those of which there is none."""
    numbers: dict[str, int] = counts.model_dump(include=set(KINDS))
    return ", ".join(f"{numbers[kind]:,} {kind}" for kind in KINDS if numbers[kind])


def more_rows(count: int, shown: Sequence[object]) -> str:
    """Say how many rows are not listed and where they are; nothing where all are."""
    left = count - len(shown)
    return f"… and {left:,} more: see {ALL_ROWS}." if left > 0 else ""


def _named(kind: str, item: Named) -> Listed:
    meaning = MEANINGS[kind]
    said = meaning if item.reason is None else f"{meaning}: {item.reason}"
    return Listed(item.key, item.tenant, clipped(said, LONGEST_SENTENCE))


def _differing(kind: str, item: Differing) -> Listed:
    where = _paths(item)
    if kind == "stale":
        why = "cannot be copied" if item.reason is None else f"cannot be copied ({item.reason})"
        where = f"of no copy: its source {why}; {where}"
    elif kind == "unproved":
        where = f"equal once normalised: {where}"
    return Listed(item.key, item.tenant, clipped(where, LONGEST_SENTENCE))


def _paths(item: Differing) -> str:
    """Return the paths at which a document differs."""
    more = item.path_count - len(item.paths)
    return ", ".join(map(clipped, item.paths)) + (f" and {more} more" if more > 0 else "")

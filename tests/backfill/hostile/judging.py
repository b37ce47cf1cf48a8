"""Judging a copy and a verification of hostile rows: none is lost, none stops it, every byte comes back."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.backfill.toolkit import Pair
    from twinstore_backfill.copy.report import CopyResult
    from twinstore_backfill.report.model import ParityReport

__all__ = ["Figures", "judge", "quarantine_lines"]

WRONG: Final = ("missing", "extra", "different", "stale", "undecodable")
OUTCOMES: Final = ("written", "unchanged", "conflicts", "quarantined", "expired")
# Rules of the models without a name; nobody could tell that nothing is lost.
UNNAMED: Final = frozenset({"normalised", "key_collision"})
# What belongs to one row in a reason: what stands in quotes, and numbers.
OWN: Final = re.compile(r"'(?:[^']*)'|\d+")
SHOWN: Final = 40


@dataclass(slots=True)
class Figures:
    """What became of hostile rows.

    Attributes:
        tried: rows in the source.
        copied: rows that the verification found as a copy stores them.
        normalised: of these, by kind, rows that the source holds in another form; a row may be of many kinds.
        quarantined: rows that were kept back, by reason.
    """

    tried: int = 0
    copied: int = 0
    normalised: Counter[str] = field(default_factory=Counter[str])
    quarantined: Counter[str] = field(default_factory=Counter[str])

    def text(self) -> str:
        """Return the figures for people."""
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.normalised.items()))
        reasons = [f"  {count:9,} {reason}" for reason, count in self.quarantined.most_common(SHOWN)]
        head = (
            f"tried {self.tried:,}; copied {self.copied:,}, of these normalised: {kinds or 'none'}; "
            f"quarantined {self.quarantined.total():,}"
        )
        return "\n".join((head, f"quarantined, {len(self.quarantined)} reasons:", *reasons))


def judge(pair: Pair, stored: Mapping[str, Counter[bytes]], range_size: int) -> Figures:
    """Copy and verify, and check what became of every row.

    Args:
        pair: the open stores.
        stored: the bytes of every row of the source, by entity.
        range_size: rows of one range.
    """
    figures = Figures(tried=sum(rows.total() for rows in stored.values()))
    result = pair.copy(range_size=range_size)
    report = pair.verify(range_size=range_size)
    judge_copy(result, stored)
    lines = list(quarantine_lines(pair.directory / "quarantine.ndjson"))
    assert len(lines) == result.totals.all()["quarantined"]
    for name, rows in stored.items():
        kept = Counter(line.original for line in lines if line.entity == name)
        assert kept <= rows, f"{name}: bytes in quarantine that no row of the source has"
    figures.quarantined.update(OWN.sub("…", line.reason) for line in lines)
    judge_report(report, result)
    figures.copied = report.documents_equal + sum(entity.counts.unproved for entity in report.entities)
    figures.normalised.update({item.name: item.documents for item in report.equivalences})
    assert figures.copied + figures.quarantined.total() == figures.tried, figures.text()
    return figures


def judge_copy(result: CopyResult, stored: Mapping[str, Counter[bytes]]) -> None:
    """Check that the copy ended, and accounts for every row."""
    assert result.complete, result.failed.shown
    assert result.exit in {Exit.OK, Exit.INCONCLUSIVE}
    for name, rows in stored.items():
        totals = result.totals.of(name)
        assert totals["read"] == sum(totals[outcome] for outcome in OUTCOMES) == rows.total(), name


def judge_report(report: ParityReport, result: CopyResult) -> None:
    """Check that the verification agrees with the copy, row by row, and with the target."""
    for entity in report.entities:
        counts = entity.counts.model_dump()
        wrong = {name: (counts[name], getattr(entity, name).shown[:5]) for name in WRONG if counts[name]}
        assert not wrong, (entity.entity, wrong)
        totals = result.totals.of(entity.entity)
        assert counts["quarantined"] == totals["quarantined"], entity.entity
        assert counts["equal"] + counts["unproved"] == totals["written"], entity.entity
    found = unnamed(report)
    assert not found, found
    assert report.verdict in {"PASS", "INCONCLUSIVE"}, report.reasons
    assert (report.verdict == "PASS") <= (result.totals.all()["quarantined"] == 0)


def unnamed(report: ParityReport) -> dict[str, list[str]]:
    """Return the kinds of normalising that have no name, with the first places where they were needed."""
    kinds = UNNAMED & {item.name for item in report.equivalences}
    rows = [row for entity in report.entities for row in entity.unproved.shown]
    return {kind: [path for row in rows for path in row.paths if f"({kind})" in path] for kind in kinds}


@dataclass(frozen=True, slots=True)
class KeptLine:
    """One line of the quarantine, with the bytes that it gives back."""

    entity: str
    reason: str
    original: bytes


def quarantine_lines(path: Path) -> Iterator[KeptLine]:
    """Yield the lines of a file."""
    with path.open("rb") as file:
        for line in map(json.loads, file):
            raw: dict[str, Any] = json.loads(line["raw"])
            content = base64.b64decode(raw["bson"] if "bson" in raw else raw["row"])
            yield KeptLine(line["entity"], line["reason"], content)

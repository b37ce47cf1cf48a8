"""Judging a copy and a verification of hostile rows: nothing is lost, nothing stops, every byte comes back."""

from __future__ import annotations

import base64
import json
from collections import Counter
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.backfill.toolkit import Pair
    from twinstore_backfill.report.model import ParityReport

__all__ = ["Figures", "judge", "quarantine_lines"]


@dataclass(slots=True)
class Figures:
    """What became of hostile rows."""

    tried: int = 0
    exact: int = 0
    normalised: Counter[str] = field(default_factory=Counter[str])
    quarantined: Counter[str] = field(default_factory=Counter[str])
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def add(self, other: Figures) -> None:
        """Add those of another batch."""
        self.tried += other.tried
        self.exact += other.exact
        self.normalised += other.normalised
        self.quarantined += other.quarantined
        for name, seconds in other.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0) + seconds

    def text(self) -> str:
        """Return the figures for people."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.normalised.items()))
        reasons = "\n".join(f"  {count:7} {reason}" for reason, count in self.quarantined.most_common(40))
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return (
            f"tried {self.tried}, copied exactly {self.exact}, normalised: {kinds or 'none'}; quarantined "
            f"{self.quarantined.total()}, lost 0, stopped 0; {times}; quarantined by reason:\n{reasons}"
        )


def judge(pair: Pair, stored: Mapping[str, Counter[bytes]], **options: object) -> Figures:
    """Copy and verify; ``stored`` has the bytes of every row of the source by entity."""
    figures = Figures(tried=sum(rows.total() for rows in stored.values()))
    started = monotonic()
    result = pair.copy(**options)
    figures.seconds["copy"] = monotonic() - started
    assert result.complete, result.failed.shown
    assert result.exit in {Exit.OK, Exit.INCONCLUSIVE}
    totals = result.totals.all()
    read = {name: result.totals.of(name)["read"] for name in stored}
    wanted = {name: rows.total() for name, rows in stored.items()}
    assert read == wanted, (read, wanted)
    parts = ("written", "unchanged", "conflicts", "quarantined", "expired")
    assert totals["read"] == sum(totals[part] for part in parts) == figures.tried, totals
    lines = list(quarantine_lines(pair.directory / "quarantine.ndjson"))
    assert len(lines) == totals["quarantined"]
    for name, rows in stored.items():
        kept = Counter(line.original for line in lines if line.entity == name)
        assert kept <= rows, f"{name}: lines whose bytes no row has"
    figures.quarantined.update(general(line.reason) for line in lines)
    print(figures.text())
    started = monotonic()
    report = pair.verify(**options)
    figures.seconds["verify"] = monotonic() - started
    _judge_report(report, totals, figures)
    return figures


def _judge_report(report: ParityReport, totals: Counter[str], figures: Figures) -> None:
    counts = sum((Counter(entity.counts.model_dump()) for entity in report.entities), Counter[str]())
    wrong = {name: counts[name] for name in ("missing", "extra", "different", "undecodable") if counts[name]}
    assert not wrong, (
        wrong,
        [
            (e.entity, e.missing.shown[:5], e.extra.shown[:5], e.different.shown[:5], e.undecodable.shown[:5])
            for e in report.entities
        ],
    )
    assert report.verdict in {"PASS", "INCONCLUSIVE"}, report.reasons
    assert counts["quarantined"] == totals["quarantined"], (counts, totals)
    assert (report.verdict == "PASS") <= (totals["quarantined"] == 0)
    for e in report.entities:
        for d in e.unproved.shown:
            for path in d.paths:
                if "(normalised" in path or "collision" in path or "(case" in path:
                    print("UNNAMED", e.entity, path)
    figures.normalised.update({item.name: item.documents for item in report.equivalences})
    # A document may need several equivalences, so those that need none are counted by the entities.
    figures.exact = counts["equal"] + counts["unproved"]


@dataclass(frozen=True, slots=True)
class KeptLine:
    """One line of the quarantine."""

    entity: str
    reason: str
    original: bytes


def quarantine_lines(path: Path) -> Iterator[KeptLine]:
    """Yield the lines of a file, each with the bytes that it gives back."""
    with path.open("rb") as file:
        for line in map(json.loads, file):
            raw: dict[str, Any] = json.loads(line["raw"])
            yield KeptLine(
                line["entity"], line["reason"], base64.b64decode(raw.get("bson") or raw.get("row") or "")
            )


def general(reason: str) -> str:
    """Return a reason without what belongs to one row."""
    return reason

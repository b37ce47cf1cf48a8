"""How much is open from report to report: each keeps the numbers of the earlier ones of its directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.errors import ValidationError
from twinstore_backfill.report.model import ParityReport, TrendPoint, report_without_ranges
from twinstore_backfill.report.texts import shares_of

if TYPE_CHECKING:
    from pathlib import Path

# As many as fit on a screen.
MOST: Final = 20


def trend_point(report: ParityReport) -> TrendPoint:
    """Return what later reports of the same directory show of a report."""
    return TrendPoint(generated_at=report.envelope.generated_at, verdict=report.verdict, **shares_of(report))


def earlier_report(path: Path) -> ParityReport | None:
    """Return the report that a file holds, without its ranges; ``None`` if it cannot be read."""
    try:
        return report_without_ranges(path)
    except (OSError, ValidationError):
        # Of another format, or written by another program: the trend begins with this run.
        return None


def with_trend(report: ParityReport, earlier: ParityReport | None) -> ParityReport:
    """Return a report with the numbers of an earlier one, and of those before it, if it is about the same."""
    if earlier is None or _subject(earlier) != _subject(report):
        return report
    trend = (*earlier.envelope.trend, trend_point(earlier))[-MOST:]
    envelope = report.envelope.model_copy(update={"trend": trend})
    return report.model_copy(update={"envelope": envelope})


def _subject(report: ParityReport) -> tuple[object, ...]:
    sides = (report.source.identity, report.target.identity)
    return (report.module, report.mode, *sides, report.entities_asked, report.tenants_asked, report.subset)

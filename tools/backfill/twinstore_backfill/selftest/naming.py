"""What a verification named, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore_backfill.selftest.judging import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore_backfill.report.model import ParityReport

__all__ = ["lines_of"]


def lines_of(report: ParityReport) -> Iterator[Line]:
    """Yield every row that a verification named."""
    for entity in report.entities:
        for kind in ("missing", "extra", "undecodable", "quarantined"):
            for item in getattr(entity, kind).shown:
                yield Line(entity.entity, item.key, kind)
        for kind in ("different", "unproved"):
            for item in getattr(entity, kind).shown:
                yield Line(entity.entity, item.key, kind, item.paths)

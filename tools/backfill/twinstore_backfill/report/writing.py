"""Writing a parity report in every format."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

from twinstore_backfill.files import json_text, require_writable, write_whole
from twinstore_backfill.report.html import html
from twinstore_backfill.report.junit import junit
from twinstore_backfill.report.markdown import markdown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from twinstore_backfill.report.model import ParityReport

__all__ = ["ReportFormat", "clear_reports", "render", "write_reports"]


class ReportFormat(StrEnum):
    """How a report is rendered."""

    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"


SUFFIXES: Final[Mapping[ReportFormat, str]] = {
    ReportFormat.JSON: "json",
    ReportFormat.JUNIT: "xml",
    ReportFormat.MARKDOWN: "md",
    ReportFormat.HTML: "html",
}


def render(report: ParityReport, output: ReportFormat) -> bytes:
    """Return the report in one format."""
    match output:
        case ReportFormat.JSON:
            return json_text(report.model_dump(mode="json"))
        case ReportFormat.JUNIT:
            return junit(report)
        case ReportFormat.MARKDOWN:
            return markdown(report).encode()
        case ReportFormat.HTML:
            return html(report).encode()
    assert_never(output)


def clear_reports(directory: Path) -> None:
    """Remove the reports of an earlier run, which must not be taken for those of a run that fails.

    Raises:
        ConfigurationError: nothing can be written to the directory.
    """
    require_writable(directory)
    for suffix in SUFFIXES.values():
        (directory / f"parity-report.{suffix}").unlink(missing_ok=True)


def write_reports(report: ParityReport, directory: Path) -> None:
    """Write ``parity-report.json``, ``.xml``, ``.md`` and ``.html``."""
    for output, suffix in SUFFIXES.items():
        write_whole(directory / f"parity-report.{suffix}", render(report, output))

"""Writing a parity report in every format."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, assert_never

from twinstore.errors import TwinstoreError
from twinstore_backfill.files import json_text, write_whole
from twinstore_backfill.report.html import html
from twinstore_backfill.report.junit import junit
from twinstore_backfill.report.markdown import markdown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from twinstore_backfill.report.model import ParityReport

__all__ = ["REPORT_FILES", "ReportError", "ReportFormat", "render", "write_reports"]


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
REPORT_FILES: Final = tuple(f"parity-report.{suffix}" for suffix in SUFFIXES.values())


class ReportError(TwinstoreError):
    """A report could not be written."""

    code: ClassVar[str] = "report_failed"


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


def write_reports(report: ParityReport, directory: Path) -> None:
    """Write ``parity-report.json``, ``.xml``, ``.md`` and ``.html``.

    Raises:
        ReportError: the directory is full, or takes no file any more.
    """
    try:
        for output, suffix in SUFFIXES.items():
            write_whole(directory / f"parity-report.{suffix}", render(report, output))
    except OSError as error:
        raise ReportError(
            f"The reports could not be written to {directory}: {error.strerror}. Make room, and verify again."
        ) from error

"""Writing a parity report in every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Final, assert_never

from twinstore_backfill.files import json_text, line_writer, require_writable, write_whole
from twinstore_backfill.report.html import html
from twinstore_backfill.report.junit import junit
from twinstore_backfill.report.markdown import markdown

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from twinstore_backfill.report.model import ParityReport

__all__ = ["DIFFERENCES", "ReportFormat", "clear_reports", "render", "reports_in", "write_reports"]


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


DIFFERENCES: Final = "differences.ndjson"
Lines = Callable[[Iterable[bytes]], object]


@contextmanager
def reports_in(directory: Path | None) -> Iterator[Lines]:
    """Take the findings of a run as lines of ``differences.ndjson``; a run that fails leaves no file.

    Before the run the reports of an earlier one are removed, so that they are not taken for its own.

    Raises:
        ConfigurationError: nothing can be written to the directory.
    """
    if directory is None:
        yield list
        return
    clear_reports(directory)
    with line_writer(directory / DIFFERENCES) as write:
        yield write


def clear_reports(directory: Path) -> None:
    """Remove the reports of an earlier run, which must not be taken for those of a run that fails.

    Raises:
        ConfigurationError: nothing can be written to the directory.
    """
    require_writable(directory)
    for name in (*(f"parity-report.{suffix}" for suffix in SUFFIXES.values()), DIFFERENCES):
        (directory / name).unlink(missing_ok=True)


def write_reports(report: ParityReport, directory: Path) -> None:
    """Write ``parity-report.json``, ``.xml``, ``.md`` and ``.html``."""
    for output, suffix in SUFFIXES.items():
        write_whole(directory / f"parity-report.{suffix}", render(report, output))

"""Writing a parity report in every format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, assert_never

from twinstore.errors import TwinstoreError
from twinstore_backfill.process.files import json_text, line_writer, write_atomic, write_failure
from twinstore_backfill.report.failures import Failure, junit_failure, report_failures
from twinstore_backfill.report.html import html, html_failure
from twinstore_backfill.report.junit import junit
from twinstore_backfill.report.markdown import markdown, markdown_failure
from twinstore_backfill.report.model import Places

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from twinstore_backfill.report.model import ParityReport


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
# Before a range in JSON.
RANGE_INDENT: Final = b"\n" + 8 * b" "
DIFFERENCES: Final = "differences.ndjson"
REPORT_FILES: Final = (*(f"parity-report.{suffix}" for suffix in SUFFIXES.values()), DIFFERENCES)
Lines = Callable[[Iterable[bytes]], object]


class ReportError(TwinstoreError):
    """A report could not be written."""

    code: ClassVar[str] = "report_failed"


def render(report: ParityReport, output: ReportFormat) -> bytes:
    """Return the report in one format."""
    match output:
        case ReportFormat.JSON:
            return b"".join(json_pieces(report))
        case ReportFormat.JUNIT:
            return junit(report)
        case ReportFormat.MARKDOWN:
            return markdown(report).encode()
        case ReportFormat.HTML:
            return html(report).encode()
    assert_never(output)


def json_pieces(report: ParityReport) -> Iterator[bytes]:
    """Yield the report as JSON without ever having all of its ranges in memory."""
    places = Places()
    text = json_text(report.model_dump(mode="json", context=places))
    first, *others = text.split(f'"{places.name}"'.encode())
    yield first
    for ranges, after in zip(places.ranges, others, strict=True):
        before = b"["
        for item in ranges.texts():
            yield before + RANGE_INDENT + item.replace(b"\n", RANGE_INDENT)
            before = b","
        yield RANGE_INDENT[:-2] + b"]"
        yield after


@contextmanager
def report_directory(directory: Path | None) -> Iterator[None]:
    """Let the reports in a directory agree with how a verification ends, whatever happens meanwhile.

    Reports of an earlier run are removed first. If there is no verdict, all formats but JSON say why.

    Raises:
        ConfigurationError: nothing can be written to the directory.
    """
    with report_failures(directory, REPORT_FILES, _failure_files):
        yield


def _failure_files(failure: Failure) -> dict[str, bytes]:
    contents = {
        ReportFormat.JUNIT: junit_failure("twinstore.verify", failure),
        ReportFormat.MARKDOWN: markdown_failure(failure).encode(),
        ReportFormat.HTML: html_failure(failure).encode(),
    }
    return {f"parity-report.{SUFFIXES[output]}": content for output, content in contents.items()}


@contextmanager
def reports_in(directory: Path | None) -> Iterator[Lines]:
    """Take the findings of a run as lines of ``differences.ndjson``; a run that fails leaves no such file.

    Raises:
        ConfigurationError: nothing can be written to the directory.
        ReportError: the directory is full.
    """
    if directory is None:
        yield list
        return
    with report_directory(directory), _written(directory), line_writer(directory / DIFFERENCES) as write:
        yield write


def write_reports(report: ParityReport, directory: Path) -> None:
    """Write ``parity-report.json``, ``.xml``, ``.md`` and ``.html``.

    Raises:
        ReportError: the directory is full, or takes no file any more.
    """
    with _written(directory):
        for output, suffix in SUFFIXES.items():
            pieces = json_pieces(report) if output is ReportFormat.JSON else [render(report, output)]
            write_atomic(directory / f"parity-report.{suffix}", pieces)


@contextmanager
def _written(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # A part of the reports would pass for all of them.
        with suppress(OSError):
            for name in REPORT_FILES:
                (directory / name).unlink(missing_ok=True)
        raise ReportError(write_failure(directory, error)) from error

"""``twinstore backfill report``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from twinstore.errors import ValidationError
from twinstore_backfill.cli.output import emit, emit_text
from twinstore_backfill.cli.params import Format
from twinstore_backfill.cli.verifying import report_texts
from twinstore_backfill.report.model import parse_report
from twinstore_backfill.report.writing import REPORT_FILES, ReportFormat, render

__all__ = ["report"]


class Shown(StrEnum):
    """How a report is printed: as the command that made it does, or as one of its files."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    MARKDOWN = "markdown"
    HTML = "html"


def report(
    file: Annotated[
        Path, typer.Option("--in", help="A parity-report.json, or the --out directory of a verification.")
    ] = Path("report"),
    output: Annotated[Shown, typer.Option("--format", help="What to print.")] = Shown.MARKDOWN,
) -> None:
    """Print a parity report in another format."""
    path = file / REPORT_FILES[0] if file.is_dir() else file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error.strerror}. Name a report with --in.") from error
    found = parse_report(content, str(path))
    if output is Shown.TEXT:
        emit(Format.TEXT, None, *report_texts(found, None))
    else:
        emit_text(render(found, ReportFormat(output.value)).decode())

"""``twinstore backfill report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinstore.errors import ValidationError
from twinstore_backfill.cli.output import emit_text
from twinstore_backfill.report.model import parse_report
from twinstore_backfill.report.writing import ReportFormat, render

__all__ = ["report"]


def report(
    file: Annotated[Path, typer.Option("--in", help="A parity-report.json.")] = Path("parity-report.json"),
    output: Annotated[ReportFormat, typer.Option("--format", help="What to print.")] = ReportFormat.MARKDOWN,
) -> None:
    """Print a parity report in another format."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ValidationError(f"{file} cannot be read: {error.strerror}. Name a report with --in.") from error
    emit_text(render(parse_report(content, str(file)), output).decode())

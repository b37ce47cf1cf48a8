"""``twinstore backfill work``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from twinstore_backfill.cli.options import Execute, OutputOptions, Sides
from twinstore_backfill.cli.output import emit
from twinstore_backfill.process.stopping import stop_on_signals
from twinstore_backfill.report.texts import number_of
from twinstore_backfill.rules.model import NO_RULES

if TYPE_CHECKING:
    from twinstore_backfill.copy.workers import WorkReport


def work(
    *,
    sides: Sides,
    job: Annotated[
        str | None,
        typer.Option("--job", help="The job. Default: the only one between the two that is not complete."),
    ] = None,
    slots: Annotated[int, typer.Option("--slots", help="Ranges copied at the same time.")] = 4,
    drain: Annotated[
        bool, typer.Option("--drain", help="End when no range is free, without waiting for those of others.")
    ] = False,
    execute: Execute = False,
    shown: OutputOptions,
) -> None:
    """Join a copy that another process began. Without --execute it only says which.

    It ends when no range is left. At SIGTERM it gives its ranges back.
    """
    with stop_on_signals() as stop:
        migration = sides.migration(NO_RULES)
        with shown.progress("work") as progress:
            run = migration.work(
                job, slots=slots, drain=drain, execute=execute, cancel=stop, progress=progress
            )
            report = run.result()
        emit(shown.output, report.document(), *_texts(report))
    raise typer.Exit(report.exit_code)


def _texts(report: WorkReport) -> Iterator[str]:
    if not report.executed:
        yield f"It would join {report.job}. Add --execute to copy."
        return
    yield f"{report.job}: {number_of(report.rows, 'row')} read here."
    if report.failed:
        yield f"Ranges that could not be copied here: {report.failed:,}; the log has the reasons."
    if report.stopped:
        yield f"The job was stopped: {report.stopped}."

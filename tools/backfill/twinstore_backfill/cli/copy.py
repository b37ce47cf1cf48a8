"""``twinstore backfill copy``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twinstore.errors import ValidationError
from twinstore_backfill.cli.options import (
    AsOf,
    EngineUrl,
    Execute,
    ForConflicts,
    Format,
    IgnoreUnknown,
    Jobs,
    MaxRate,
    OnFinish,
    OutputFormat,
    OutputOptions,
    RowOptions,
    Sides,
    TargetSide,
    Title,
    instant_option,
    rules_option,
)
from twinstore_backfill.cli.output import emit
from twinstore_backfill.outcome import on_finish
from twinstore_backfill.process.stopping import stop_on_signals

CopyOut = Annotated[Path | None, typer.Option("--out", help="Directory for report and quarantine.")]
DeleteExtra = Annotated[
    bool,
    typer.Option(
        "--delete-extra",
        help="Then compare both sides and remove the rows that only the target has; without --execute only "
        "count them.",
    ),
]


def copy(
    *,
    sides: Sides,
    rows: RowOptions,
    jobs: Jobs = 2,
    max_rate: MaxRate = None,
    on_conflict: ForConflicts = "fail",
    max_conflicts: Annotated[
        int, typer.Option("--max-conflicts", help="Stop after the range with more conflicts than this.")
    ] = 0,
    max_quarantine: Annotated[
        int | None,
        typer.Option(
            "--max-quarantine", help="Stop after the range with more quarantined documents than this."
        ),
    ] = None,
    as_of: AsOf = None,
    range_size: Annotated[
        int,
        typer.Option(
            "--range-size",
            help="Rows per range, which is the unit of commit and of resuming. Beyond 10,000,000 rows of an "
            "entity: the least; then a range has the rows of 15 seconds, at most 100,000.",
        ),
    ] = 10_000,
    out: CopyOut = None,
    execute: Execute = False,
    extra: DeleteExtra = False,
    ignore_unknown: IgnoreUnknown = None,
    title: Title = "",
    engine: EngineUrl = None,
    finish: OnFinish = None,
    shown: OutputOptions,
) -> None:
    """Copy a module from one store to another. Without --execute nothing is written.

    Run the same command again after any interruption: finished ranges are not copied twice.
    """
    from twinstore_backfill.cli.copying import run_and_show
    from twinstore_backfill.copy.options import DEFAULT_OUT, CopyOptions
    from twinstore_backfill.migration import copy_directory

    # From here on, so that the report agrees with the exit code at every moment.
    saved = out or (DEFAULT_OUT if execute else None)
    with copy_directory(saved), stop_on_signals() as stop:
        on_finish(finish, out or DEFAULT_OUT)
        migration = sides.migration(rules_option(sides.context, ignore_unknown), title)
        options = CopyOptions(
            entities=rows.entity or (),
            tenants=rows.tenant or (),
            jobs=jobs,
            max_rate=max_rate,
            on_conflict=on_conflict,
            max_conflicts=max_conflicts,
            max_quarantine=max_quarantine,
            as_of=instant_option(as_of, "--as-of"),
            range_size=range_size,
            execute=execute,
            out=out,
            subset=rows.subset,
            engine=engine,
        )
        code = run_and_show(migration, options, shown.output, stop, shown.progress("copy"), extra=extra)
    raise typer.Exit(code)


Job = Annotated[
    str | None, typer.Option("--job", help="The job. Default: the only one that is not complete.")
]


def pause(
    side: TargetSide,
    job: Job = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Pause a running copy after its ranges in progress."""
    from twinstore_backfill.cli.copying import change_job, show_job

    changed = change_job(side, job, lambda ledger, found: ledger.pause(found))
    show_job(output, changed)


def resume(
    side: TargetSide,
    job: Job = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Resume a paused copy."""
    from twinstore_backfill.cli.copying import change_job, show_job

    changed = change_job(side, job, lambda ledger, found: ledger.unpause(found))
    show_job(output, changed)


def rate(
    limit: Annotated[
        str, typer.Argument(help="Maximum number of documents read per second, or none for no limit.")
    ],
    side: TargetSide,
    job: Job = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Change the rate limit of a running copy. Takes effect with the next range."""
    from twinstore_backfill.cli.copying import change_job, rate_argument, show_job

    number = rate_argument(limit)
    changed = change_job(side, job, lambda ledger, found: ledger.set_rate(found, number))
    show_job(output, changed)


def plan(
    *,
    sides: Sides,
    rows: RowOptions,
    as_of: AsOf = None,
    range_size: Annotated[int, typer.Option("--range-size", help="Rows per range.")] = 10_000,
    full: Annotated[bool, typer.Option("--full", help="Read every document, not a sample.")] = False,
    ignore_unknown: IgnoreUnknown = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show what a copy would do, refuse or change, and why. Writes nothing."""
    from twinstore_backfill.cli.copying import plan_texts
    from twinstore_backfill.copy.options import CopyOptions

    migration = sides.migration(rules_option(sides.context, ignore_unknown))
    options = CopyOptions(
        entities=rows.entity or (),
        tenants=rows.tenant or (),
        as_of=instant_option(as_of, "--as-of"),
        range_size=range_size,
        subset=rows.subset,
    )
    report = migration.plan(options, full=full).result()
    emit(output, report.model_dump(mode="json"), *plan_texts(report))


def status(
    *,
    side: TargetSide,
    job: Annotated[str | None, typer.Option("--job", help="Only the job with this id.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Directory for quarantine and conflicts.",
        ),
    ] = None,
    watching: Annotated[
        bool, typer.Option("--watch", help="Show one job each second until it ends.")
    ] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show the progress of the copies into a target, and their workers."""
    from twinstore_backfill.cli.copying import status_texts
    from twinstore_backfill.copy.status import status_document
    from twinstore_backfill.report.failures import report_failures

    if watching:
        from twinstore_backfill.cli.watching import watch

        if out is not None or output is Format.JSON:
            raise ValidationError("--watch shows text on a terminal; leave --out and --format json out.")
        with side.opened() as store, stop_on_signals() as stop:
            watch(store, job, stop)
        stop.raise_if_interrupted("The job goes on.")
        return
    # Before the store is opened, so that a directory that cannot be written to costs no connection.
    with report_failures(out), side.opened() as store:
        document = status_document(store, job, out)
    emit(output, document, *status_texts(document))

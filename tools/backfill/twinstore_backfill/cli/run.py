"""``twinstore backfill run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from twinstore_backfill.cli.backfill import use_job_file
from twinstore_backfill.cli.options import (
    AsOf,
    Execute,
    ForConflicts,
    Ignored,
    Jobs,
    MaxRate,
    OnFinish,
    OutputOptions,
    RowOptions,
    Sides,
    Title,
    instant_option,
)
from twinstore_backfill.outcome import on_finish
from twinstore_backfill.process.stopping import stop_on_signals


def _read_job_file(context: typer.Context, given: Path | None) -> Path | None:
    """Read the job file before the options, whose values it may have."""
    group: Any = context.parent  # Typer's copy of click is private
    if given is not None:
        if group.params.get("job_file") is not None:
            raise typer.BadParameter("given here and with --job-file; give one of them.")
        use_job_file(group, given)
        context.default_map = (group.default_map or {}).get("run")
    return given


JobFile = Annotated[
    Path | None,
    typer.Argument(
        is_eager=True,
        callback=_read_job_file,
        help="TOML file with options and rules, as --job-file of backfill takes it.",
    ),
]


def run(
    *,
    job_file: JobFile = None,
    sides: Sides,
    rows: RowOptions,
    jobs: Jobs = 2,
    max_rate: MaxRate = None,
    on_conflict: ForConflicts = "fail",
    accept_rows: Annotated[
        bool,
        typer.Option("--accept-rows", help="Accept rows in the target that this job did not copy."),
    ] = False,
    as_of: AsOf = None,
    reports: Annotated[Path, typer.Option("--reports", help="Directory for all reports.")] = Path("reports"),
    execute: Execute = False,
    ignored: Ignored,
    title: Title = "",
    finish: OnFinish = None,
    shown: OutputOptions,
) -> None:
    """Plan, dry run, copy and verify; stop at what a person must decide.

    Without --execute it ends after the dry run. A stop has code 6 and prints what to type. After a stop or an
    interruption, run the same command again: finished ranges are not copied twice.
    """
    from twinstore_backfill.cli.deciding import CommandLines, show_steps
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.steps import Steps
    from twinstore_backfill.verify.options import VerifyOptions

    instant = instant_option(as_of, "--as-of")
    with stop_on_signals() as stop:
        on_finish(finish, reports)
        migration = sides.migration(ignored.rules(sides.context), title)
        copy = CopyOptions(
            entities=rows.entity or (),
            tenants=rows.tenant or (),
            jobs=jobs,
            max_rate=max_rate,
            on_conflict=on_conflict,
            as_of=instant,
            execute=execute,
            out=reports,
            subset=rows.subset,
        )
        verify = VerifyOptions(
            entities=copy.entities,
            tenants=copy.tenants,
            as_of=instant,
            ignored_fields=ignored.fields(sides.context),
            subset=copy.subset,
        )
        steps = Steps(
            migration=migration,
            copy=copy,
            verify=verify,
            reports=reports,
            accept_rows=accept_rows,
            stop=stop,
            progress=shown.progress,
        )
        code = show_steps(steps, CommandLines(sides, migration.module, job_file), shown.output)
    raise typer.Exit(code)

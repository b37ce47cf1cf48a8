"""``twinstore backfill verify``."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from twinstore.errors import ValidationError
from twinstore_backfill.cli.options import (
    AsOf,
    Format,
    Ignored,
    OnFinish,
    OutputFormat,
    OutputOptions,
    RowOptions,
    Sides,
    Title,
    instant_option,
)
from twinstore_backfill.cli.output import emit
from twinstore_backfill.cli.streams import emit_text
from twinstore_backfill.outcome import Exit, on_finish
from twinstore_backfill.process.stopping import stop_on_signals

RequireReady = Annotated[
    bool,
    typer.Option(
        "--require-cutover-ready",
        help="Exit with 3 instead of 0 unless it is safe to cut over now.",
    ),
]

RequireNoExceptions = Annotated[
    bool,
    typer.Option(
        "--require-no-exceptions",
        help="Exit with 3 instead of 0 if the verdict rests on anything that the job file accepts.",
    ),
]

StartClean = Annotated[
    bool,
    typer.Option(
        "--start-clean",
        help="Approve a start without the old data (--from none): the target must be empty.",
    ),
]

Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue the interrupted verification that --out keeps. Only if nothing was written to either "
        "side since.",
    ),
]
GroupsFile = Annotated[
    Path | None,
    typer.Option(
        "--groups",
        help="Mapping file (JSON, YAML or TOML) of the groups in the report: group, collection, table.",
    ),
]
Benchmark = Annotated[
    bool, typer.Option("--benchmark", help="Also measure how long each side takes for the lists.")
]
MaxRatio = Annotated[
    float | None,
    typer.Option(
        "--max-ratio",
        help="With --benchmark: fail if a list takes more than this many times as long on the target.",
    ),
]


Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="URL",
        help="Lends the processes: processes://8, dask://host:8786. Default: --jobs.",
    ),
]


def verify(
    *,
    sides: Sides,
    rows: RowOptions,
    mode: Annotated[
        Literal["full", "sample"], typer.Option("--mode", help="Every document, or a sample.")
    ] = "full",
    seed: Annotated[int, typer.Option("--seed", help="Seed that chooses the sample.")] = 0,
    sample_size: Annotated[int, typer.Option("--sample-size", help="Documents to sample per entity.")] = 1000,
    as_of: AsOf = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Processes, and readers of a side.")] = 1,
    engine: Engine = None,
    range_size: Annotated[int, typer.Option("--range-size", help="Documents per range.")] = 10_000,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Directory for the reports."),
    ] = None,
    resume: Resume = False,
    start_clean: StartClean = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why a clean start is acceptable.")] = None,
    approved_by: Annotated[str | None, typer.Option("--approved-by", help="Who decided it.")] = None,
    require_cutover_ready: RequireReady = False,
    require_no_exceptions: RequireNoExceptions = False,
    groups: GroupsFile = None,
    benchmark: Benchmark = False,
    max_ratio: MaxRatio = None,
    ignored: Ignored,
    title: Title = "",
    finish: OnFinish = None,
    shown: OutputOptions,
) -> None:
    """Prove that two stores hold the same. Stop writers first.

    Writes only a test lock, to the target.
    """
    from twinstore_backfill.cli.verifying import approval_option, require_source, show
    from twinstore_backfill.report.trend import earlier_report
    from twinstore_backfill.report.writing import REPORT_FILES, report_directory
    from twinstore_backfill.verify.checks import read_groups
    from twinstore_backfill.verify.options import VerifyOptions

    # From here on, so that the files of --out agree with the exit code at every moment.
    earlier = None if out is None else earlier_report(out / REPORT_FILES[0])
    with report_directory(out), stop_on_signals() as stop:
        on_finish(finish, out)
        approval = approval_option(reason, approved_by, start_clean=start_clean)
        if approval is None:
            require_source(sides.source)
        migration = sides.migration(ignored.rules(sides.context), title, with_source=approval is None)
        options = VerifyOptions(
            entities=rows.entity or (),
            tenants=rows.tenant or (),
            mode=mode,
            seed=seed,
            sample_size=sample_size,
            as_of=instant_option(as_of, "--as-of"),
            jobs=jobs,
            engine=engine,
            range_size=range_size,
            approval=approval,
            require_ready=require_cutover_ready,
            require_no_exceptions=require_no_exceptions,
            benchmark=benchmark,
            max_ratio=max_ratio,
            groups=read_groups(groups, migration.module) if groups is not None else {},
            ignored_fields=ignored.fields(sides.context),
            subset=rows.subset,
            resume=resume,
        )
        with shown.progress("verify") as progress:
            run = migration.verify(options, out=out, earlier=earlier, cancel=stop, progress=progress)
            report = run.result()
        show(report, out, shown.output)
    raise typer.Exit(report.exit_code)


KeyOption = Annotated[
    list[str],
    typer.Option("--key", help="Key of the row; for a key of several parts once for each, in their order."),
]
ShowValues = Annotated[
    bool, typer.Option("--show-values", help="Print stored values. They may contain customer data.")
]


def diff(
    *,
    sides: Sides,
    entity: Annotated[str, typer.Option("--entity", help="Entity of the row.")],
    key: KeyOption,
    as_of: AsOf = None,
    show_values: ShowValues = False,
    ignored: Ignored,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare one row as a verification does, and show where it differs."""
    from twinstore_backfill.cli.verifying import CODES, key_option, row_document, row_texts
    from twinstore_backfill.ignored import check_ignored_fields, of_entity
    from twinstore_backfill.retention import resolve_as_of
    from twinstore_backfill.rules import job_rules
    from twinstore_backfill.stores import preflight, select_entities
    from twinstore_backfill.verify.one_row import compare_row

    migration = sides.migration(ignored.rules(sides.context))
    requested_as_of = instant_option(as_of, "--as-of")
    with migration.opened() as (left, right):
        (chosen,) = select_entities(left.bulk, [entity])
        instant = resolve_as_of(left.bulk, requested_as_of)
        rules = job_rules(migration.rules, left)
        row = key_option(chosen, key)
        fields = ignored.fields(sides.context)
        check_ignored_fields(fields, left.bulk.entities())
        how = rules, of_entity(fields, chosen)
        found = preflight(partial(compare_row, left, right, chosen, row, instant, *how))
    emit(output, row_document(found, show_values=show_values), *row_texts(found, show_values=show_values))
    raise typer.Exit(CODES.get(found.verdict, Exit.DIFFERENT))


class ReportOutput(StrEnum):
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
    output: Annotated[ReportOutput, typer.Option("--format", help="What to print.")] = ReportOutput.MARKDOWN,
) -> None:
    """Print a parity report in another format."""
    from twinstore_backfill.cli.verifying import report_texts
    from twinstore_backfill.report.model import parse_report
    from twinstore_backfill.report.writing import REPORT_FILES, ReportFormat, render

    path = file / REPORT_FILES[0] if file.is_dir() else file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValidationError(f"{path} cannot be read: {error.strerror}. Name a report with --in.") from error
    found = parse_report(content, str(path))
    if output is ReportOutput.TEXT:
        emit(Format.TEXT, None, *report_texts(found, None))
    else:
        emit_text(render(found, ReportFormat(output.value)).decode())

"""``twinstore backfill recheck`` and ``repair``: what people do with a list of differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from twinstore.catalog import Entity
from twinstore_backfill.cli.groups import Sides, spread
from twinstore_backfill.cli.output import emit
from twinstore_backfill.cli.params import (
    AsOf,
    Format,
    IgnoreUnknown,
    OnFinish,
    OnlyEntities,
    OutputFormat,
    ignored_option,
    instant_option,
)
from twinstore_backfill.cli.parts import IgnoreField, ignored_fields_option
from twinstore_backfill.cli.telling import MetricsPort, ProgressForm, ProgressOption, Telling
from twinstore_backfill.cli.verifying import conclude, report_texts, switch_of
from twinstore_backfill.copy.options import refuse_same_store
from twinstore_backfill.copy.retention import instant_of_judgement
from twinstore_backfill.finishing import on_finish
from twinstore_backfill.ignoring import check_ignored
from twinstore_backfill.ignoring_fields import check_ignored_fields
from twinstore_backfill.outcome import Exit
from twinstore_backfill.repair.engine import Repair, Repaired
from twinstore_backfill.repair.named import NamedRows, named_rows, require_same_stores
from twinstore_backfill.report.model import ParityReport
from twinstore_backfill.report.writing import report_directory, reports_in, write_reports
from twinstore_backfill.stopping import stop_on_signals
from twinstore_backfill.stores import prepare_target, select_entities
from twinstore_backfill.verify.engine import run_verify
from twinstore_backfill.verify.options import VerifyOptions

__all__ = ["recheck", "repair"]

DifferencesIn = Annotated[
    Path, typer.Option("--in", help="A differences.ndjson, or the --out directory of a verification.")
]
ReportOut = Annotated[Path | None, typer.Option("--out", help="Directory for the report of the recheck.")]
DeleteExtra = Annotated[
    bool, typer.Option("--delete-extra", help="Also remove the rows that the source does not have.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Write; without it, only count.")]


@spread
def recheck(  # noqa: PLR0917  # the options of a command
    sides: Sides,
    given: DifferencesIn = Path("report"),
    entity: OnlyEntities = None,
    as_of: AsOf = None,
    out: ReportOut = None,
    ignore_unknown: IgnoreUnknown = None,
    ignore_field: IgnoreField = None,
    finish: OnFinish = None,
    progress_form: ProgressOption = ProgressForm.BAR,
    metrics_port: MetricsPort = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare again only the rows that a verification named. It never proves more than these rows."""
    with report_directory(_apart(out, given)), stop_on_signals() as stop:
        on_finish(finish, out)
        name = sides.name
        options = VerifyOptions(
            entities=entity or (),
            as_of=instant_option(as_of, "--as-of"),
            switch=switch_of(sides.common.settings(), name),
            ignored=ignored_option(sides.context, ignore_unknown),
            ignored_fields=ignored_fields_option(sides.context, ignore_field),
        )
        told = Telling("recheck", progress_form, metrics_port)
        with (
            sides.opened(name) as (left, right),
            told.progress() as progress,
            # Read before the reports of this run take its place.
            named_rows(given, select_entities(left.bulk, ())) as rows,
        ):
            require_same_stores(given, left, right)
            with reports_in(out) as write:
                report = run_verify(left, right, replace(options, only=rows), progress, stop, write)
        conclude(report, out, output)
    raise typer.Exit(report.exit_code)


def _apart(out: Path | None, given: Path) -> Path | None:
    """Return the directory of the report, ``None`` where it holds the list that is read first.

    What is needed to try again must not be lost because a server is away.
    """
    folder = given if given.is_dir() else given.parent
    return None if out is not None and out.resolve() == folder.resolve() else out


@spread
def repair(  # noqa: PLR0917  # the options of a command
    sides: Sides,
    given: DifferencesIn = Path("report"),
    entity: OnlyEntities = None,
    as_of: AsOf = None,
    out: ReportOut = None,
    delete_extra: DeleteExtra = False,  # noqa: FBT002  # Typer makes a flag of it
    execute: Execute = False,  # noqa: FBT002  # the same
    ignore_unknown: IgnoreUnknown = None,
    ignore_field: IgnoreField = None,
    finish: OnFinish = None,
    progress_form: ProgressOption = ProgressForm.BAR,
    metrics_port: MetricsPort = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Copy the rows that a verification named once more, and compare exactly these again.

    Rows that only the target has are removed with --delete-extra. Without --execute nothing is written.
    """
    with report_directory(_apart(out, given) if execute else None), stop_on_signals() as stop:
        on_finish(finish, out)
        name = sides.name
        options = VerifyOptions(
            entities=entity or (),
            as_of=instant_option(as_of, "--as-of"),
            switch=switch_of(sides.common.settings(), name),
            ignored=ignored_option(sides.context, ignore_unknown),
            ignored_fields=ignored_fields_option(sides.context, ignore_field),
        )
        told = Telling("repair", progress_form, metrics_port)
        with sides.opened(name) as (left, right), told.progress() as progress:
            entities = select_entities(left.bulk, options.entities)
            refuse_same_store(left.bulk, right.bulk)
            check_ignored(options.ignored, left.bulk.entities())
            check_ignored_fields(options.ignored_fields, left.bulk.entities())
            with named_rows(given, select_entities(left.bulk, ())) as rows:
                require_same_stores(given, left, right)
                if not execute:
                    code = _dry(rows, entities, output, delete_extra=delete_extra)
                else:
                    prepare_target(right)
                    instant = instant_of_judgement(left.bulk, options.as_of)
                    done = Repair(left, right, instant, stop, options.ignored).run(
                        entities, rows, remove=delete_extra
                    )
                    with reports_in(out) as write:
                        report = run_verify(left, right, replace(options, only=rows), progress, stop, write)
                    code = _repaired(done, report, out, output)
    raise typer.Exit(code)


def _repaired(done: Repaired, report: ParityReport, out: Path | None, output: Format) -> int:
    """Write and print the report of a repair and return its exit code."""
    if out is not None:
        write_reports(report, out)
    document = {"repaired": done.document(), "recheck": report.model_dump(mode="json")}
    emit(output, document, *_done_texts(done), *report_texts(report, out), kept=out)
    return report.exit_code


def _dry(rows: NamedRows, entities: Sequence[Entity], output: Format, *, delete_extra: bool) -> int:
    """Say what would be done; anything to do is pending work."""
    names = [entity.name for entity in entities]
    counts = {
        "copy": {name: rows.to_copy[name] for name in names if rows.to_copy[name]},
        "remove": {name: rows.to_remove[name] for name in names if rows.to_remove[name]},
        "without_key": {name: rows.keyless[name] for name in names if rows.keyless[name]},
    }
    emit(output, {**counts, "delete_extra": delete_extra}, *_dry_texts(counts, delete_extra=delete_extra))
    return Exit.DIFFERENT if any(counts.values()) else Exit.OK


def _dry_texts(counts: Mapping[str, Mapping[str, int]], *, delete_extra: bool) -> Iterator[str]:
    condition = "" if delete_extra else ", with --delete-extra only"
    yield from (f"{name}: {count:,} to copy again." for name, count in counts["copy"].items())
    yield from (f"{name}: {count:,} to remove{condition}." for name, count in counts["remove"].items())
    for name, count in counts["without_key"].items():
        yield f"{name}: {count:,} without a usable key, which nothing finds again; mend them by hand."
    yield "This was a dry run; nothing was written. Add --execute to repair."


def _done_texts(done: Repaired) -> Iterator[str]:
    yield from (f"{word}: {count.total():,}" for word, count in done.counts().items() if count.total())
    yield from (f"- {reason}" for reason in done.reasons)

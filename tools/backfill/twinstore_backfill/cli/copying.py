"""``twinstore backfill copy``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from twinstore_backfill.allocating import batches_kept
from twinstore_backfill.cli.groups import RowOptions, Sides, spread
from twinstore_backfill.cli.output import emit, left_out_texts, table
from twinstore_backfill.cli.params import (
    AsOf,
    Format,
    IgnoreUnknown,
    OnFinish,
    OutputFormat,
    ignored_option,
    instant_option,
)
from twinstore_backfill.cli.telling import MetricsPort, ProgressForm, ProgressOption, Telling
from twinstore_backfill.copy.engine import DEFAULT_OUT, run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.quarantine import CONFLICTS, QUARANTINE
from twinstore_backfill.copy.reporting import REPORT_FILE, CopyResult, failure_document, report_document
from twinstore_backfill.files import json_text, naming, write_whole
from twinstore_backfill.finishing import on_finish
from twinstore_backfill.outcome import Exit
from twinstore_backfill.repair.extra import ExtraRows, delete_extra
from twinstore_backfill.report.failing import Failure, failures_reported
from twinstore_backfill.stopping import StopSwitch, stop_on_signals
from twinstore_backfill.stores import Store, is_migrated
from twinstore_backfill.subset import described

__all__ = ["copied", "copy", "copy_directory"]

COLUMNS = ("read", "written", "unchanged", "conflicts", "quarantined", "expired")
# As many as fit on a screen; the report lists more.
NAMED = 10
DRY_COLUMNS = ("read", "would write", *COLUMNS[2:])


Execute = Annotated[bool, typer.Option("--execute", help="Write; without it, only read and compare.")]


DeleteExtra = Annotated[
    bool,
    typer.Option(
        "--delete-extra",
        help="Then compare both sides and remove the rows that only the target has; without --execute only "
        "count them.",
    ),
]


class ConflictOption(StrEnum):
    """What to do with a row that the target has with other content."""

    FAIL = "fail"
    OVERWRITE = "overwrite"


@spread
def copy(  # noqa: PLR0917  # the options of a command
    sides: Sides,
    rows: RowOptions,
    jobs: Annotated[
        int, typer.Option("--jobs", help="Ranges copied at the same time; a process for each eight.")
    ] = 2,
    max_rate: Annotated[
        float | None, typer.Option("--max-rate", help="Maximum number of documents read per second.")
    ] = None,
    on_conflict: Annotated[
        ConflictOption,
        typer.Option(
            "--on-conflict", help="What to do with rows that the target has with different content."
        ),
    ] = ConflictOption.FAIL,
    max_conflicts: Annotated[
        int, typer.Option("--max-conflicts", help="Stop after more conflicts than this.")
    ] = 0,
    max_quarantine: Annotated[
        int | None, typer.Option("--max-quarantine", help="Stop after more quarantined documents than this.")
    ] = None,
    as_of: AsOf = None,
    range_size: Annotated[
        int, typer.Option("--range-size", help="Rows per range, which is the unit of commit and of resuming.")
    ] = 10_000,
    out: Annotated[
        Path | None, typer.Option("--out", help="Directory for the report, the quarantine and the conflicts.")
    ] = None,
    execute: Execute = False,  # noqa: FBT002  # Typer makes a flag of it
    extra: DeleteExtra = False,  # noqa: FBT002  # the same
    ignore_unknown: IgnoreUnknown = None,
    finish: OnFinish = None,
    progress_form: ProgressOption = ProgressForm.BAR,
    metrics_port: MetricsPort = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Copy a module from one store to another. Without --execute nothing is written.

    Run the same command again after any interruption: finished ranges are not copied twice.
    """
    # From here on, so that the report agrees with the exit code at every moment.
    with copy_directory(out, execute=execute), stop_on_signals() as stop:
        on_finish(finish, out or DEFAULT_OUT)
        name = sides.name
        options = CopyOptions(
            entities=rows.entity or (),
            tenants=rows.tenant or (),
            jobs=jobs,
            max_rate=max_rate,
            on_conflict=on_conflict.value,
            max_conflicts=max_conflicts,
            max_quarantine=max_quarantine,
            as_of=instant_option(as_of, "--as-of"),
            range_size=range_size,
            execute=execute,
            out=out,
            ignored=ignored_option(sides.context, ignore_unknown),
            subset=rows.subset,
        )
        told = Telling("copy", progress_form, metrics_port)
        code = copied(sides.opened(name), options, output, stop, told, extra=extra)
    raise typer.Exit(code)


@contextmanager
def copy_directory(out: Path | None, *, execute: bool) -> Iterator[None]:
    """Let the report in a directory agree with how a copy ends, whatever happens meanwhile.

    That of an earlier run is removed first. Where there is no result, the report says why.
    """
    with failures_reported(out or (DEFAULT_OUT if execute else None), (REPORT_FILE,), _failure_file):
        yield


def _failure_file(failure: Failure) -> tuple[str, bytes]:
    return REPORT_FILE, json_text(failure_document(failure))


def copied(
    sides: AbstractContextManager[tuple[Store, Store]],
    options: CopyOptions,
    output: Format,
    stop: StopSwitch,
    told: Telling,
    *,
    extra: bool = False,
) -> int:
    """Copy, with ``extra`` remove what only the target has, print the report, and return the exit code."""
    removal: ExtraRows | None = None
    kept = options.out or (DEFAULT_OUT if options.execute else None)
    with naming(kept), sides as (left, right), told.progress() as progress:
        with batches_kept():
            result = run_copy(left, right, options, progress, stop)
        # While the stores are open: it asks them for their identity and version.
        document = report_document(result)
        # A copy that was stopped leaves its own work for the next run.
        if extra and result.complete and is_migrated(right):
            removal = delete_extra(left, right, options, result.as_of, progress, stop)
            document |= {"extra": removal.document(), "exit_code": int(result.exit or removal.exit)}
            if kept is not None:
                write_whole(kept / REPORT_FILE, json_text(document))
    texts = [*_texts(result, options.out or DEFAULT_OUT), *_extra_texts(removal, executed=options.execute)]
    emit(output, document, *texts, kept=kept)
    return int(result.exit or (Exit.OK if removal is None else removal.exit))


def _extra_texts(removal: ExtraRows | None, *, executed: bool) -> Iterator[str]:
    if removal is None:
        return
    for name, count in removal.found.items():
        done = f"removed: {removal.removed.get(name, 0):,}" if executed else "to be removed with --execute"
        yield f"Rows of {name} that only the target has: {count:,}; {done}."
    yield from (f"- {reason}." for reason in removal.reasons)
    if removal.keyless:
        yield f"Rows without a usable key that only the target has: {removal.keyless:,}; remove them by hand."
    if removal.recheck is not None:
        yield f"These rows compared again: {removal.recheck.verdict}."


def _texts(result: CopyResult, out: Path) -> Iterator[RenderableType]:
    rows = []
    for entity in result.entities:
        counts = result.totals.of(entity.name)
        rows.append((entity.name, *(counts[name] for name in COLUMNS)))
    columns = COLUMNS if result.executed else DRY_COLUMNS
    yield from (f"Warning: {text}" for text in result.warnings)
    yield table(("entity", *columns), rows)
    yield from left_out_texts(result.left_out)
    if result.fast_path is not None:
        yield str(result.fast_path)
    totals = result.totals.all()
    if result.subset is not None:
        yield f"Only a part was meant: {described(result.subset)}. Nothing is said of other rows."
    if result.stopped:
        yield f"Stopped: {result.stopped}. Resolve them, then run the same command again."
    if result.failed.count:
        yield f"Ranges that could not be copied: {result.failed.count:,}. The same command tries them again."
        yield from map(_failure, result.failed.shown[:NAMED])
    if totals["conflicts"]:
        where = _see(result, out / CONFLICTS)
        yield f"Rows that the target has with different content: {totals['conflicts']:,}{where}."
    if totals["quarantined"]:
        where = _see(result, out / QUARANTINE)
        yield f"Documents that cannot be moved: {totals['quarantined']:,}{where}."
    if not result.executed:
        yield "This was a dry run; nothing was written. Add --execute to copy."


def _failure(item: Mapping[str, object]) -> str:
    return f"- {item['entity']}, range {item['range']}: {item['reason'] or 'see the log of the other worker'}"


def _see(result: CopyResult, path: Path) -> str:
    return f"; see {path}" if result.executed else ""

"""``twinstore backfill recheck`` and ``repair``: what people do with a list of differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from twinstore_backfill.cli.options import (
    AsOf,
    Execute,
    Format,
    Ignored,
    OneStore,
    OnFinish,
    OnlyEntities,
    OutputFormat,
    OutputOptions,
    Sides,
    instant_option,
)
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.outcome import on_finish
from twinstore_backfill.process.stopping import stop_on_signals

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.repair.engine import RepairReport
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.options import VerifyOptions


DifferencesIn = Annotated[
    Path, typer.Option("--in", help="A differences.ndjson, or the --out directory of a verification.")
]
ReportOut = Annotated[Path | None, typer.Option("--out", help="Directory for the report of the recheck.")]
DeleteExtra = Annotated[
    bool, typer.Option("--delete-extra", help="Also remove the rows that the source does not have.")
]


@dataclass(frozen=True)
class DifferencesOptions:
    """The rows that a verification named, and where the report on them goes."""

    given: DifferencesIn = Path("report")
    entity: OnlyEntities = None
    as_of: AsOf = None
    out: ReportOut = None


def _options(sides: Sides, differences: DifferencesOptions, ignored: Ignored) -> VerifyOptions:
    from twinstore_backfill.verify.options import VerifyOptions

    return VerifyOptions(
        entities=differences.entity or (),
        as_of=instant_option(differences.as_of, "--as-of"),
        ignored_fields=ignored.fields(sides.context),
    )


def recheck(
    *,
    sides: Sides,
    differences: DifferencesOptions,
    ignored: Ignored,
    finish: OnFinish = None,
    shown: OutputOptions,
) -> None:
    """Compare only the rows that a verification reported.

    Proves nothing about other rows.
    """
    from twinstore_backfill.cli.verifying import show
    from twinstore_backfill.migration import directory_to_clear
    from twinstore_backfill.report.writing import report_directory

    given, out = differences.given, differences.out
    with report_directory(directory_to_clear(out, given)), stop_on_signals() as stop:
        on_finish(finish, out)
        migration = sides.migration(ignored.rules(sides.context))
        options = _options(sides, differences, ignored)
        with shown.progress("recheck") as progress:
            run = migration.verify(options, out=out, differences=given, cancel=stop, progress=progress)
            report = run.result()
        show(report, out, shown.output)
    raise typer.Exit(report.exit_code)


def repair(
    *,
    sides: Sides,
    differences: DifferencesOptions,
    delete_extra: DeleteExtra = False,
    execute: Execute = False,
    ignored: Ignored,
    finish: OnFinish = None,
    shown: OutputOptions,
) -> None:
    """Copy the rows that a verification reported again, and compare them.

    Rows that only the target has are removed with --delete-extra. Without --execute nothing is written.
    """
    from twinstore_backfill.migration import directory_to_clear
    from twinstore_backfill.report.writing import report_directory

    given, out = differences.given, differences.out
    with (
        report_directory(directory_to_clear(out, given) if execute else None),
        stop_on_signals() as stop,
    ):
        on_finish(finish, out)
        migration = sides.migration(ignored.rules(sides.context))
        options = _options(sides, differences, ignored)
        with shown.progress("repair") as progress:
            report = migration.repair(
                given,
                options,
                execute=execute,
                delete_extra=delete_extra,
                out=out,
                cancel=stop,
                progress=progress,
            ).result()
        emit(shown.output, report.document(), *_repair_texts(report, out), saved=out if execute else None)
    raise typer.Exit(report.exit_code)


def _repair_texts(report: RepairReport, out: Path | None) -> Iterator[RenderableType]:
    from twinstore_backfill.cli.verifying import report_texts

    if report.recheck is None:
        yield from _dry_texts(report)
        return
    for word, found in report.repaired.items():
        if count := sum(found.values()):
            yield f"{word}: {count:,}"
    yield from (f"- {reason}" for reason in report.reasons)
    yield from report_texts(report.recheck, out)


def _dry_texts(report: RepairReport) -> Iterator[str]:
    condition = "" if report.delete_extra else ", with --delete-extra only"
    yield from (f"{name}: {count:,} to copy again." for name, count in report.to_copy.items())
    yield from (f"{name}: {count:,} to remove{condition}." for name, count in report.to_remove.items())
    for name, count in report.without_key.items():
        yield f"{name}: {count:,} without a usable key, which cannot be found again; repair them by hand."
    yield "This was a dry run; nothing was written. Add --execute to repair."


# Each batch is a separate transaction, so that writers of the service wait for one batch at most.
BATCH: Final = 1000


def purge(
    *,
    one: OneStore,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", help="Remove rows that ended at this instant or earlier. Default: by retention."
        ),
    ] = None,
    tenant: Annotated[str | None, typer.Option("--tenant", help="Only this tenant.")] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Remove; without it, only count.")] = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Remove by hand what has outlived its retention, such as finished runs."""
    from twinstore.access.scope import tenant_argument
    from twinstore_backfill.stores import preflight

    limit = instant_option(before, "--before")
    wanted = tenant_argument(tenant) if tenant is not None else None
    with one.opened() as store:
        preflight(store.storage.check_ready)
        found = [_purge(store, entity, limit, wanted, execute=execute) for entity in _entities(store)]
    verb = "removed" if execute else "would be removed"
    rows = [(item["entity"], item["before"] or "never removed", item["rows"]) for item in found]
    emit(
        output,
        {"executed": execute, "tenant": wanted, "entities": found},
        table(("entity", "up to", f"rows {verb}"), rows),
        *([] if execute else ["Nothing was changed. Add --execute to remove them."]),
    )


def _entities(store: Store) -> list[Entity]:
    return [entity for entity in store.bulk.entities() if entity.retention is not None]


def _purge(
    store: Store, entity: Entity, limit: datetime | None, tenant: str | None, *, execute: bool
) -> dict[str, object]:
    from twinstore.models import json_text
    from twinstore_backfill.retention import cutoff

    # By the clock of the store: with one of ours that is ahead, rows would be removed too early.
    before = limit or cutoff(entity, store.options, store.bulk.now())
    rows = 0
    if before is not None:
        rows = (_remove_expired if execute else _count_expired)(store, entity, before, tenant)
    return {
        "entity": entity.name,
        "before": json_text.format_timestamp(before) if before else None,
        "rows": rows,
    }


def _remove_expired(store: Store, entity: Entity, before: datetime, tenant: str | None) -> int:
    """Remove what is due in batches; return how many rows of the entity went."""
    from twinstore.access.query import expired_query
    from twinstore.catalog.tenancy import ALL_TENANTS, Tenant

    access = store.bulk.access()
    query = expired_query(entity, ALL_TENANTS if tenant is None else Tenant(tenant), before, BATCH)
    removed = 0
    while batch := access.remove(entity, query):
        removed += batch
    return removed


def _count_expired(store: Store, entity: Entity, before: datetime, tenant: str | None) -> int:
    from twinstore.catalog.keys import KeyRange
    from twinstore_backfill.retention import is_expired

    with store.bulk.view() as view:
        batches = view.rows(entity, KeyRange(), tenant_id=tenant)
        # By the scan of a comparison, which needs no model: a row that cannot be decoded is due all the same.
        return sum(is_expired(entity, row, before) for batch in batches for row in batch)

"""``twinstore backfill recheck`` and ``repair``: what people do with a list of differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from twinstore_backfill.cli.options import (
    AsOf,
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
from twinstore_backfill.outcome import Exit, on_finish
from twinstore_backfill.process.stopping import stop_on_signals

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.repair.engine import RepairResult, ReportedRows
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.options import VerifyOptions


DifferencesIn = Annotated[
    Path, typer.Option("--in", help="A differences.ndjson, or the --out directory of a verification.")
]
ReportOut = Annotated[Path | None, typer.Option("--out", help="Directory for the report of the recheck.")]
DeleteExtra = Annotated[
    bool, typer.Option("--delete-extra", help="Also remove the rows that the source does not have.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Write; without it, only count.")]


@dataclass(frozen=True)
class DifferencesOptions:
    """The rows that a verification named, and where the report on them goes."""

    given: DifferencesIn = Path("report")
    entity: OnlyEntities = None
    as_of: AsOf = None
    out: ReportOut = None

    def directory_to_clear(self) -> Path | None:
        """Return the directory of the report, ``None`` if it holds the list that is read first.

        The list that a retry needs must not be lost because a server is down.
        """
        folder = self.given if self.given.is_dir() else self.given.parent
        return None if self.out is not None and self.out.resolve() == folder.resolve() else self.out


def _options(module: str, sides: Sides, differences: DifferencesOptions, ignored: Ignored) -> VerifyOptions:
    from twinstore_backfill.cli.verifying import switch_of
    from twinstore_backfill.verify.options import VerifyOptions

    return VerifyOptions(
        entities=differences.entity or (),
        as_of=instant_option(differences.as_of, "--as-of"),
        switch=switch_of(sides.common.settings(), module),
        rules=ignored.rules(sides.context),
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
    from twinstore_backfill.cli.verifying import conclude
    from twinstore_backfill.repair.engine import read_reported_rows, require_same_stores
    from twinstore_backfill.report.writing import report_directory, reports_in
    from twinstore_backfill.stores import select_entities
    from twinstore_backfill.verify.engine import run_verify

    with report_directory(differences.directory_to_clear()), stop_on_signals() as stop:
        on_finish(finish, differences.out)
        name = sides.name
        options = _options(name, sides, differences, ignored)
        with (
            sides.opened(name) as (left, right),
            shown.progress("recheck") as progress,
            # Read before the reports of this run take its place.
            read_reported_rows(differences.given, select_entities(left.bulk, ())) as rows,
        ):
            require_same_stores(differences.given, left, right)
            with reports_in(differences.out) as write:
                report = run_verify(left, right, replace(options, only=rows), progress, stop, write)
        conclude(report, differences.out, shown.output)
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
    from twinstore_backfill.ignored import check_ignored_fields
    from twinstore_backfill.repair.engine import Repair, read_reported_rows, require_same_stores
    from twinstore_backfill.report.writing import report_directory, reports_in
    from twinstore_backfill.retention import resolve_as_of
    from twinstore_backfill.rules import check_job
    from twinstore_backfill.stores import prepare_target, refuse_same_store, select_entities
    from twinstore_backfill.verify.engine import run_verify

    with report_directory(differences.directory_to_clear() if execute else None), stop_on_signals() as stop:
        on_finish(finish, differences.out)
        name = sides.name
        options = _options(name, sides, differences, ignored)
        with sides.opened(name) as (left, right), shown.progress("repair") as progress:
            entities = select_entities(left.bulk, options.entities)
            refuse_same_store(left.bulk, right.bulk)
            check_job(options.rules, left.bulk.entities())
            check_ignored_fields(options.ignored_fields, left.bulk.entities())
            with read_reported_rows(differences.given, select_entities(left.bulk, ())) as rows:
                require_same_stores(differences.given, left, right)
                if not execute:
                    code = _report_dry_run(rows, entities, shown.output, delete_extra=delete_extra)
                else:
                    prepare_target(right)
                    instant = resolve_as_of(left.bulk, options.as_of)
                    done = Repair(left, right, instant, stop, options.rules).run(
                        entities, rows, remove=delete_extra
                    )
                    with reports_in(differences.out) as write:
                        report = run_verify(left, right, replace(options, only=rows), progress, stop, write)
                    code = _report_repair(done, report, differences.out, shown.output)
    raise typer.Exit(code)


def _report_repair(done: RepairResult, report: ParityReport, out: Path | None, output: Format) -> int:
    from twinstore_backfill.cli.verifying import report_texts
    from twinstore_backfill.report.writing import write_reports

    if out is not None:
        write_reports(report, out)
    document = {"repaired": done.document(), "recheck": report.model_dump(mode="json")}
    emit(output, document, *_done_texts(done), *report_texts(report, out), saved=out)
    return report.exit_code


def _report_dry_run(
    rows: ReportedRows, entities: Sequence[Entity], output: Format, *, delete_extra: bool
) -> int:
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
        yield f"{name}: {count:,} without a usable key, which cannot be found again; repair them by hand."
    yield "This was a dry run; nothing was written. Add --execute to repair."


def _done_texts(done: RepairResult) -> Iterator[str]:
    yield from (f"{word}: {count.total():,}" for word, count in done.counts().items() if count.total())
    yield from (f"- {reason}" for reason in done.reasons)


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

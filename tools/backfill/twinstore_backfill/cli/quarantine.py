"""``twinstore backfill quarantine``: the documents of a copy that could not be moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from twinstore.errors import ConfigurationError, ValidationError
from twinstore_backfill.cli.copy import CopyOut
from twinstore_backfill.cli.invocation import CommandGroup
from twinstore_backfill.cli.options import (
    AsOf,
    Execute,
    Format,
    IgnoreUnknown,
    OnlyEntities,
    OutputFormat,
    OutputOptions,
    RowOptions,
    Sides,
    TargetSide,
    instant_option,
    rules_option,
)
from twinstore_backfill.cli.output import cause_texts, emit
from twinstore_backfill.cli.verify import KeyOption, ShowValues
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.files import wrap_write_errors, write_lines
from twinstore_backfill.process.stopping import stop_on_signals

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinstore.ledger import CopyJob
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.report.model import CauseReport
    from twinstore_backfill.stores import Store


app = typer.Typer(
    cls=CommandGroup, help="Show documents that could not be copied, and retry them.", no_args_is_help=True
)

JobId = Annotated[str | None, typer.Option("--job", help="Job of the copy. Default: the latest.")]
OneEntity = Annotated[str, typer.Option("--entity", help="Entity of the document.")]
# As many as fit on a screen; `export` writes all.
NAMED = 20
Entry = dict[str, Any]


@contextmanager
def opened(side: TargetSide, job: str | None) -> Iterator[tuple[Store, CopyJob]]:
    """Open a target and find the job in its ledger."""
    from twinstore_backfill.copy.status import latest_job

    with side.opened() as store:
        yield store, latest_job(store, job)


@app.command("list")
def list_(
    side: TargetSide,
    job: JobId = None,
    entity: OnlyEntities = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Count the documents by entity and reason, and name the first ones; their content is not shown."""
    from twinstore_backfill.copy.quarantine import count_line, quarantined
    from twinstore_backfill.reasons import Reasons

    reasons = Reasons()
    first: list[Entry] = []
    with opened(side, job) as (store, found):
        for entry in quarantined(store.ledger, found, content=False):
            if entity and entry["entity"] not in entity:
                continue
            count_line(reasons, entry)
            if len(first) < NAMED:
                first.append({name: entry[name] for name in ("entity", "key", "tenant", "reason")})
        causes = reasons.reports(store.bulk.entities())
    document = {
        "job": found.id,
        "count": sum(item.documents for item in causes),
        "reasons": [item.model_dump(mode="json") for item in causes],
        "shown": first,
    }
    emit(output, document, *_list_texts(document, causes))


def _list_texts(document: Entry, causes: Sequence[CauseReport]) -> Iterator[RenderableType]:
    from twinstore.catalog.tenancy import shown

    if not document["count"]:
        yield "The quarantine is empty."
        return
    yield from cause_texts(causes, "--format json")
    for item in document["shown"]:
        yield f"{item['entity']} {_key_text(item['key'])}, tenant {shown(item['tenant'])}: {item['reason']}"
    more = document["count"] - len(document["shown"])
    if more:
        yield f"… and {more:,} more; `twinstore backfill quarantine export` writes all of them."


@app.command()
def show(
    *,
    side: TargetSide,
    entity: OneEntity,
    key: KeyOption,
    job: JobId = None,
    show_values: ShowValues = False,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show why one document could not be moved."""
    from twinstore_backfill.cli.verifying import key_option
    from twinstore_backfill.copy.quarantine import quarantined
    from twinstore_backfill.stores import select_entities

    with opened(side, job) as (store, found):
        (chosen,) = select_entities(store.bulk, [entity])
        wanted = [entity, list(key_option(chosen, key))]
        entries = [
            {**item, "raw": item["raw"] if show_values else None}
            for item in quarantined(store.ledger, found)
            if [item["entity"], _as_list(item["key"])] == wanted
        ]
    if not entries:
        raise ValidationError(
            f"The quarantine of job {found.id} has no document of {entity} with this key; "
            "`twinstore backfill quarantine list` names them."
        )
    emit(output, {"job": found.id, "documents": entries}, *_show_texts(entries))


def _show_texts(entries: list[Entry]) -> Iterator[str]:
    from twinstore.catalog.tenancy import shown

    for item in entries:
        yield f"{item['entity']} {_key_text(item['key'])}, tenant {shown(item['tenant'])}"
        yield f"reason: {item['reason']}"
        if item["raw"] is not None:
            yield str(item["raw"])


@app.command()
def export(
    side: TargetSide,
    out: Annotated[Path, typer.Option("--out", help="File to write, one document per line.")],
    job: JobId = None,
    entity: OnlyEntities = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Write every document with its reason and its original bytes to a file that only its owner may read."""
    from twinstore_backfill.copy.quarantine import quarantine_lines, quarantined

    with wrap_write_errors(out):
        if out.is_dir():
            raise ConfigurationError(f"{out} of --out is a directory; name the file to write.")
    with opened(side, job) as (store, found):
        entries = quarantined(store.ledger, found, content=False)
        count = sum(1 for entry in entries if not entity or entry["entity"] in entity)
        with wrap_write_errors(out):
            write_lines(out, quarantine_lines(store.ledger, found, entities=entity or ()))
    emit(output, {"job": found.id, "documents": count, "file": str(out)}, f"{count:,} written to {out}.")


@app.command()
def retry(
    *,
    sides: Sides,
    rows: RowOptions,
    as_of: AsOf = None,
    ignore_unknown: IgnoreUnknown = None,
    out: CopyOut = None,
    execute: Execute = False,
    shown: OutputOptions,
) -> None:
    """Copy the ranges with quarantined documents again, after these were repaired at the source.

    Give the same options as for the copy, such as --entity and --as-of: they are part of the job.
    """
    from twinstore_backfill.cli.copying import run_and_show
    from twinstore_backfill.copy.options import DEFAULT_OUT, CopyOptions
    from twinstore_backfill.migration import copy_directory

    # The report of an earlier copy stays where nothing is copied.
    with copy_directory((out or DEFAULT_OUT) if execute else None), stop_on_signals() as stop:
        migration = sides.migration(rules_option(sides.context, ignore_unknown))
        options = CopyOptions(
            entities=rows.entity or (),
            tenants=rows.tenant or (),
            as_of=instant_option(as_of, "--as-of"),
            execute=True,
            out=out,
            rules=migration.rules,
            subset=rows.subset,
            retry_quarantine=True,
        )
        code = (
            run_and_show(migration, options, shown.output, stop, shown.progress("quarantine retry"))
            if execute
            else _report_pending(migration.opened(), options, shown.output)
        )
    raise typer.Exit(code)


def _report_pending(
    sides: AbstractContextManager[tuple[Store, Store]], options: CopyOptions, output: Format
) -> Exit:
    """Say how many documents would be tried again; any is pending work."""
    from twinstore_backfill.copy.engine import known_job, present_job_id
    from twinstore_backfill.copy.quarantine import quarantined
    from twinstore_backfill.stores import select_entities

    with sides as (left, right):
        entities = select_entities(left.bulk, options.entities)
        options.subset.check(entities)
        found = known_job(right, present_job_id(left, right, options, entities))
        waiting = sum(1 for _ in quarantined(right.ledger, found, content=False))
    text = f"To be tried again: {waiting:,}. This was a dry run; nothing was written. Add --execute to copy."
    emit(output, {"job": found.id, "documents": waiting, "executed": False}, text)
    return Exit.DIFFERENT if waiting else Exit.OK


def _as_list(key: object) -> object:
    return list(key) if isinstance(key, tuple) else key


def _key_text(key: Sequence[object] | str | None) -> str:
    if isinstance(key, str):
        return key
    return "(no usable key)" if key is None else "/".join(map(str, key))

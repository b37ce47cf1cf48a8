"""``twinstore backfill plan`` and ``status``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from twinstore_backfill.cli.groups import RowOptions, Sides, TargetSide, spread
from twinstore_backfill.cli.output import emit, left_out_texts, table
from twinstore_backfill.cli.params import (
    AsOf,
    Format,
    IgnoreUnknown,
    OutputFormat,
    ignored_option,
    instant_option,
)
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.overview import plan_document, status_document
from twinstore_backfill.report.failing import failures_reported
from twinstore_backfill.report.texts import number_of
from twinstore_backfill.subset import described

__all__ = ["plan", "status"]

Document = dict[str, Any]
STATUS_COLUMNS = ("entity", "finished", "copying", "pending", "failed", "read", "written", "quarantined")


@spread
def plan(  # noqa: PLR0917  # the options of a command
    sides: Sides,
    rows: RowOptions,
    as_of: AsOf = None,
    range_size: Annotated[int, typer.Option("--range-size", help="Rows per range.")] = 10_000,
    ignore_unknown: IgnoreUnknown = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show what a copy would do: entities, ranges, what the target holds, what is pending. Writes nothing."""
    name = sides.name
    options = CopyOptions(
        entities=rows.entity or (),
        tenants=rows.tenant or (),
        as_of=instant_option(as_of, "--as-of"),
        range_size=range_size,
        ignored=ignored_option(sides.context, ignore_unknown),
        subset=rows.subset,
    )
    with sides.opened(name) as (left, right):
        document = plan_document(left, right, options)
    emit(output, document, *_plan_texts(document))


def _plan_texts(document: Document) -> Iterator[RenderableType]:
    rows = [
        (item["entity"], item["rows"], len(item["tenants"]), item["ranges"], item["rows_in_target"])
        for item in document["entities"]
    ]
    yield f"From {document['source']['place']}"
    yield f"to   {document['target']['place']}"
    yield table(("entity", "rows", "tenants", "ranges", "in target"), rows)
    yield from left_out_texts(document["left_out"])
    if document["subset"] is not None:
        yield f"Only a part is meant: {described(document['subset'])}."
    yield from (f"Warning: {text}" for text in document["warnings"])
    if document["unknown"]:
        yield "Documents with these unknown properties go to quarantine, unless you drop the property with"
        yield from (f"  --ignore-unknown {shlex.quote(path)}" for path in document["unknown"])
    pending = document["pending_migrations"]
    yield f"Pending migrations of the target: {', '.join(pending) or 'none'}."
    if document["effects"]:
        yield "A copy is refused until `twinstore migrate run` on the target has your consent to"
        yield from (f"  {item['text']}: {item['option']}" for item in document["effects"])
    estimate = document["estimate"]
    if not document["rows"]:
        yield "The source has no rows to copy."
        return
    yield (
        f"{number_of(document['rows'], 'row')}; about {estimate['seconds']:,} s at "
        f"{estimate['documents_per_second']:,} documents per second: {estimate['basis']}. A trial run into a "
        "scratch database tells how long it takes with your target."
    )


@spread
def status(
    side: TargetSide,
    job: Annotated[str | None, typer.Option("--job", help="Only the job with this id.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the quarantine and the conflicts of the job (default: the latest) to this directory.",
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show how far the copies into a target are, and who works on them."""
    # Before the store is opened, so that a directory that cannot be written to costs no connection.
    with failures_reported(out), side.opened() as store:
        document = status_document(store, job, out)
    emit(output, document, *_status_texts(document))


def _status_texts(document: Document) -> Iterator[RenderableType]:
    if not document["jobs"]:
        yield f"No copy into {document['target']['place']} was started."
    for job in document["jobs"]:
        yield f"{job['id']}: {job['state']}, generation {job['generation']}, started {job['started_at']}"
        yield f"  from {job['settings'].get('source_place') or job['settings'].get('source')}"
        yield from _narrowed_texts(job["settings"])
        yield f"  lease: {_lease(job['lease'])}"
        if job["paused"]:
            yield "  paused: `twinstore backfill resume` lets it go on"
        if job["max_rate"] is not None:
            yield f"  at most {job['max_rate']:,} documents per second"
        if job["stopped"] is not None:
            yield f"  stopped: {job['stopped']}"
        rows = [
            (
                item["entity"],
                item["ranges"]["live"],
                item["ranges"]["copying"],
                item["ranges"]["pending"],
                item["ranges"]["failed"],
                item.get("read", 0),
                item.get("written", 0),
                item.get("quarantined", 0),
            )
            for item in job["entities"]
        ]
        yield table(STATUS_COLUMNS, rows)


def _narrowed_texts(settings: Mapping[str, str]) -> Iterator[str]:
    """Say what a job left out, so that nobody takes a complete one for a copy of everything."""
    if tenants := json.loads(settings.get("tenants") or "[]"):
        named = (json.dumps(tenant, ensure_ascii=False) for tenant in tenants)
        yield f"  these tenants only: {', '.join(named)}"
    if part := settings.get("subset"):
        yield f"  a part only: {described(json.loads(part))}"
    if dropped := json.loads(settings.get("ignore_unknown") or "[]"):
        yield f"  without what stands at: {', '.join(dropped)}"


def _lease(lease: Document | None) -> str:
    if lease is None:
        return "not held"
    return f"held by {lease['holder']} until {lease['expires_at']}"

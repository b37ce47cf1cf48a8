"""``twinstore migrate``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from twinstore import jsontext
from twinstore.migrations import MigrationState, MigrationStatus
from twinstore_backfill.cli.output import emit, emit_text, table
from twinstore_backfill.cli.params import Backend, Common, Format, ModuleName, OutputFormat, common
from twinstore_backfill.outcome import Exit
from twinstore_backfill.stores import Store, open_store

__all__ = ["app"]

app = typer.Typer(help="Look after the schema of a module.", no_args_is_help=True)

Category = Annotated[str | None, typer.Option("--category", help="Only migrations of this category.")]


class RunnableCategory(StrEnum):
    """How much `migrate run` applies."""

    SCHEMA = "schema"
    RELEASE = "release"


RunCategory = Annotated[
    RunnableCategory,
    typer.Option("--category", help="release: also what only an operator asks for, after the schema."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]


@contextmanager
def opened(options: Common, module: str, backend: str | None) -> Iterator[Store]:
    """Open the module on the named driver, or on the one of the settings."""
    settings = options.settings()
    with open_store(module, backend or settings.backend_name(module), settings) as store:
        yield store


@app.command()
def status(
    context: typer.Context,
    module: ModuleName,
    backend: Backend = None,
    category: Category = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List shipped and applied migrations; exit 1 while any is pending, changed or missing."""
    with opened(common(context), module, backend) as store:
        found = _chosen(store, category)
        emit(output, {"migrations": [_described(item) for item in found]}, _listing(found))
    if any(item.state is not MigrationState.APPLIED for item in found):
        raise typer.Exit(Exit.DIFFERENT)


@app.command()
def plan(
    context: typer.Context,
    module: ModuleName,
    backend: Backend = None,
    category: Category = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List what `migrate run` would apply; writes nothing."""
    with opened(common(context), module, backend) as store:
        _emit_plan(store, category, output)


@app.command()
def run(  # noqa: PLR0917  # the options of a command
    context: typer.Context,
    module: ModuleName,
    backend: Backend = None,
    category: RunCategory = RunnableCategory.SCHEMA,
    dry_run: DryRun = False,  # noqa: FBT002  # Typer makes a flag of it
    output: OutputFormat = Format.TEXT,
) -> None:
    """Apply what is pending and bring indexes in line; safe to repeat and from several places at once."""
    release = category is RunnableCategory.RELEASE
    with opened(common(context), module, backend) as store:
        if dry_run:
            _emit_plan(store, None if release else category.value, output)
            return
        report = store.storage.initializer.ensure_migrations(release=release)
        lines = [
            *(f"applied {name}" for name in report.applied),
            *(f"changed {change}" for change in report.changes),
            *(f"unknown, left alone: {name}" for name in report.unknown),
        ]
        emit(output, asdict(report), *(lines or ["Everything is applied already."]))


@app.command()
def verify(
    context: typer.Context, module: ModuleName, backend: Backend = None, output: OutputFormat = Format.TEXT
) -> None:
    """Compare the real schema with the wanted one; exit 1 when they differ."""
    with opened(common(context), module, backend) as store:
        found = store.storage.initializer.verify()
        emit(output, {"differences": list(found)}, *(found or ["The schema is as it should be."]))
    if found:
        raise typer.Exit(Exit.DIFFERENT)


@app.command()
def export(
    context: typer.Context, module: ModuleName, backend: Backend = None, output: OutputFormat = Format.TEXT
) -> None:
    """Print the migrations as SQL or as a shell script, for an administrator."""
    with opened(common(context), module, backend) as store:
        text = store.storage.initializer.export()
    if output is Format.JSON:
        emit(output, {"script": text})
    else:
        emit_text(text)


def _chosen(store: Store, category: str | None) -> list[MigrationStatus]:
    found = store.storage.initializer.status()
    return [item for item in found if category is None or item.category == category]


def _emit_plan(store: Store, category: str | None, output: Format) -> None:
    pending = [item for item in _chosen(store, category) if item.state is MigrationState.PENDING]
    texts = [_listing(pending)] if pending else ["Nothing is pending."]
    emit(output, {"pending": [_described(item) for item in pending]}, *texts)


def _described(item: MigrationStatus) -> dict[str, object]:
    applied = jsontext.format_timestamp(item.applied_at) if item.applied_at else None
    return {**asdict(item), "applied_at": applied}


def _listing(found: list[MigrationStatus]) -> Table:
    rows = [
        (
            item.name,
            item.category,
            item.state.value,
            jsontext.format_timestamp(item.applied_at) if item.applied_at else "-",
        )
        for item in found
    ]
    return table(("migration", "category", "state", "applied at"), rows)

"""``twinstore migrate``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from twinstore.errors import ConfigurationError, EffectKind, ValidationError
from twinstore_backfill.cli.invocation import CommandGroup
from twinstore_backfill.cli.options import Format, OneStore, OutputFormat
from twinstore_backfill.cli.output import Rows, emit, table
from twinstore_backfill.cli.streams import emit_text
from twinstore_backfill.outcome import Exit, effect_document

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinstore.errors import Effect
    from twinstore.migrations.migration import Consent, MigrationStatus
    from twinstore.migrations.revert import Reversal
    from twinstore_backfill.stores import Store


app = typer.Typer(
    cls=CommandGroup, help="Create, upgrade and check the schema of a module.", no_args_is_help=True
)

Category = Annotated[str | None, typer.Option("--category", help="Only migrations of this category.")]


class RunnableCategory(StrEnum):
    """How much `migrate run` applies."""

    SCHEMA = "schema"
    RELEASE = "release"


RunCategory = Annotated[
    RunnableCategory,
    typer.Option("--category", help="release: also the steps for operators."),
]
SqlOption = Annotated[
    bool,
    typer.Option("--sql", help="Print the statements of what is pending: SQL, or a script for mongosh."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]
AcceptTtl = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-ttl",
        metavar="NAME=ROWS",
        help="Accept that the server removes so many rows.",
    ),
]
AcceptValidator = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-validator",
        metavar="NAME[=ROWS]",
        help="Accept that the server refuses the next write of rows.",
    ),
]
AcceptDrop = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-drop",
        metavar="NAME=ROWS",
        help="Number of rows of this table or collection that exist elsewhere and may be dropped; "
        "repeatable.",
    ),
]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Drop; without it, only count.")]
Migration = Annotated[str, typer.Argument(metavar="MIGRATION", help="Its name, or its number, such as 014.")]
Partitions = Annotated[
    list[str] | None,
    typer.Option(
        "--partitions",
        metavar="TABLE=COUNT",
        help="Create this table of PostgreSQL in so many partitions, by the hash of its key; repeatable.",
    ),
]
AcceptRls = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-rls",
        metavar="NAME[=ROWS]",
        help="Accept that the server hides rows from clients without a tenant.",
    ),
]


@app.command()
def status(
    one: OneStore,
    category: Category = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """List shipped and applied migrations; exit 1 while any is pending, changed or missing."""
    from twinstore.migrations.migration import MigrationState

    with one.opened() as store:
        found = _chosen(store, category)
        emit(output, {"migrations": [_described(item) for item in found]}, _listing(found))
    if any(item.state is not MigrationState.APPLIED for item in found):
        raise typer.Exit(Exit.DIFFERENT)


@app.command()
def plan(
    one: OneStore,
    category: Category = None,
    sql: SqlOption = False,  # noqa: FBT002  # Typer makes a flag of it
    output: OutputFormat = Format.TEXT,
) -> None:
    """List what `migrate run` would apply, and what of it needs consent; writes nothing.

    With --sql print the statements instead, as `migrate export` does for all migrations.
    """
    with one.opened() as store:
        if sql:
            pending = [item.name for item in _pending(store, category)]
            _emit_script(output, store.storage.initializer.export(pending) if pending else "")
        else:
            _emit_plan(store, category, output)


@app.command()
def run(  # noqa: PLR0917  # the options of a command
    one: OneStore,
    category: RunCategory = RunnableCategory.SCHEMA,
    accept_ttl: AcceptTtl = None,
    accept_validator: AcceptValidator = None,
    accept_rls: AcceptRls = None,
    dry_run: DryRunOption = False,  # noqa: FBT002  # Typer makes a flag of it
    output: OutputFormat = Format.TEXT,
) -> None:
    """Apply what is pending and bring indexes in line; safe to repeat and from several places at once.

    Where the server would remove, refuse or hide rows that are there, nothing of that is done, and the
    command ends with code 6 and the numbers until each is accepted.
    """
    release = category is RunnableCategory.RELEASE
    accepted = {
        EffectKind.TTL: accept_ttl,
        EffectKind.VALIDATOR: accept_validator,
        EffectKind.RLS: accept_rls,
    }
    consents = consent_options(accepted)
    with one.opened() as store:
        if dry_run:
            # A release applies the schema too, so its plan shows every category.
            _emit_plan(store, None if release else category.value, output)
            return
        report = store.storage.initializer.ensure_migrations(release=release, accept=consents)
        lines = [
            *(f"applied {name}" for name in report.applied),
            *(f"changed {change}" for change in report.changes),
            *(f"unknown, left alone: {name}" for name in report.unknown),
        ]
        emit(output, asdict(report), *(lines or ["Everything is already applied."]))


@app.command()
def verify(
    one: OneStore,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Compare the real schema with the wanted one; exit 1 when they differ.

    What is there in addition and changes no answer and no write, such as an index for speed, is a note.
    """
    with one.opened() as store:
        found = store.storage.initializer.verify(additions=False)
        everything = store.storage.initializer.verify()
        notes = [item for item in everything if item not in found]
        lines = [*(found or ["The schema is as it should be."]), *(f"Note: {item}" for item in notes)]
        emit(output, {"differences": list(found), "notes": notes}, *lines)
    if found:
        raise typer.Exit(Exit.DIFFERENT)


@app.command()
def revert(
    one: OneStore,
    migration: Migration,
    accept_drop: AcceptDrop = None,
    execute: ExecuteOption = False,  # noqa: FBT002  # Typer makes a flag of it
    output: OutputFormat = Format.TEXT,
) -> None:
    """Take a migration back: drop what it made, and its row of the ledger; without --execute only say what.

    Only a migration for which the module ships a way back. Where tables or collections hold rows, nothing is
    dropped, and the command ends with code 6 and the numbers until each is accepted.
    """
    from twinstore.migrations.revert import RevertsMigrations

    consents = consent_options({EffectKind.DROP: accept_drop})
    with one.opened() as store:
        initializer = store.storage.initializer
        if not isinstance(initializer, RevertsMigrations):
            raise ConfigurationError(f"{store.backend} cannot take migrations back.")
        act = partial(initializer.revert, accept=consents) if execute else initializer.reversal
        found = act(migration)
        emit(output, reversal_document(found), *reversal_lines(found))


@app.command()
def export(
    one: OneStore,
    partitions: Partitions = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Print the migrations as SQL or as a shell script, for an administrator."""
    from twinstore.migrations.migration import ExportsPartitions

    counts = dict(map(partition_option, partitions or ()))
    with one.opened() as store:
        initializer = store.storage.initializer
        if not counts:
            _emit_script(output, initializer.export())
        elif isinstance(initializer, ExportsPartitions):
            _emit_script(output, initializer.export_partitioned(counts))
        else:
            raise ConfigurationError(f"{store.backend} has no partitions; leave --partitions out.")


def partition_option(text: str) -> tuple[str, int]:
    """Return the table of an option and the number of its partitions.

    Raises:
        ValidationError: it has not the form TABLE=COUNT.
    """
    table, _, count = text.partition("=")
    if not (table and count.isascii() and count.isdigit()):
        raise ValidationError(f"--partitions expects TABLE=COUNT, such as runs=16, got {text}.")
    return table, int(count)


def _emit_script(output: Format, text: str) -> None:
    if output is Format.JSON:
        emit(output, {"script": text})
    else:
        emit_text(text)


def _pending(store: Store, category: str | None) -> list[MigrationStatus]:
    from twinstore.migrations.migration import MigrationState

    return [item for item in _chosen(store, category) if item.state is MigrationState.PENDING]


def _chosen(store: Store, category: str | None) -> list[MigrationStatus]:
    found = store.storage.initializer.status()
    return [item for item in found if category is None or item.category == category]


def _emit_plan(store: Store, category: str | None, output: Format) -> None:
    pending = _pending(store, category)
    effects = store.storage.initializer.effects(release=category == RunnableCategory.RELEASE)
    texts: list[RenderableType] = [_listing(pending) if pending else "Nothing is pending."]
    if effects:
        texts += ["Consent is needed, because the server would", consents_table(effects)]
    document = {
        "pending": [_described(item) for item in pending],
        "effects": [effect_document(item) for item in effects],
    }
    emit(output, document, *texts)


def consent_options(accepted: Mapping[EffectKind, list[str] | None]) -> set[Consent]:
    """Return the consents of some options."""
    return {consent_option(kind, text) for kind, texts in accepted.items() for text in texts or ()}


def consent_option(kind: EffectKind, text: str) -> Consent:
    """Return the consent of an option.

    Raises:
        ValidationError: it has not the form NAME=ROWS, or leaves the number out where it is needed.
    """
    from twinstore.migrations.migration import Consent

    name, _, number = text.partition("=")
    # "runs=" is a mistake, not a consent to any number of rows.
    if not name or ("=" in text and not number.isdecimal()):
        raise ValidationError(f"--accept-{kind} {text!r} should be NAME=ROWS, such as runs=500.")
    return Consent(kind, name, int(number) if number else None)


def _described(item: MigrationStatus) -> dict[str, object]:
    from twinstore.models import json_text

    applied = json_text.format_timestamp(item.applied_at) if item.applied_at else None
    return {**asdict(item), "applied_at": applied}


def _listing(found: list[MigrationStatus]) -> Rows:
    from twinstore.models import json_text

    rows = [
        (
            item.name,
            item.category,
            item.state.value,
            json_text.format_timestamp(item.applied_at) if item.applied_at else "-",
        )
        for item in found
    ]
    return table(("migration", "category", "state", "applied at"), rows)


def consents_table(effects: tuple[Effect, ...]) -> Rows:
    """Return each effect with the option that agrees to it."""
    return table(("do this", "option"), [(item.text, item.option) for item in effects])


def reversal_document(found: Reversal) -> dict[str, object]:
    """Return what a program reads of a migration that is taken back."""
    effects = [effect_document(item) for item in found.effects]
    return {
        "migration": found.migration,
        "applied": found.applied,
        "rows": dict(found.rows),
        "effects": effects,
        "done": found.done,
    }


def reversal_lines(found: Reversal) -> list[RenderableType]:
    """Return what a person reads of it."""
    if not found.applied:
        return [f"{found.migration} is not applied; there is nothing to take back."]
    word = "dropped" if found.done else "would drop"
    lines: list[RenderableType] = [f"{word} {name} with {rows:,} rows" for name, rows in found.rows.items()]
    if found.done:
        return [*lines, f"{found.migration} is taken back."]
    if found.effects:
        lines += [
            "Consent is needed with --execute, once these rows are kept elsewhere:",
            consents_table(found.effects),
        ]
    return [*lines, "Nothing was changed; --execute does it."]

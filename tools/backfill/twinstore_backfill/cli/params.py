"""The options that several commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from twinstore.errors import ValidationError
from twinstore_backfill.cli.invocation import CommonOptions, common
from twinstore_backfill.cli.suggesting import drivers, entities, modules
from twinstore_backfill.secrets import REDACTOR

if TYPE_CHECKING:
    from twinstore.config import Settings
    from twinstore_backfill.ignoring import IgnoredPath

__all__ = [
    "AsOf",
    "Backend",
    "CommonOptions",
    "Format",
    "FromBackend",
    "IgnoreUnknown",
    "ModuleName",
    "OnFinish",
    "OnlyEntities",
    "OnlyTenants",
    "OutputFormat",
    "SourceConfig",
    "TargetConfig",
    "ToBackend",
    "common",
    "ignored_option",
    "instant_option",
    "remembered",
    "side_settings",
]


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


OutputFormat = Annotated[Format, typer.Option("--format", help="Output format.")]
ModuleName = Annotated[
    str | None,
    typer.Option(
        "--module",
        help="Module. Default: the only one that the settings name.",
        autocompletion=modules,
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend", help="Driver instead of the one that the settings name.", autocompletion=drivers
    ),
]
FromBackend = Annotated[
    str, typer.Option("--from", help="Driver of the source, for example Mongo.", autocompletion=drivers)
]
ToBackend = Annotated[
    str, typer.Option("--to", help="Driver of the target, for example Postgres.", autocompletion=drivers)
]
SourceConfig = Annotated[
    Path | None, typer.Option("--source-config", help="Settings file of the source instead of --config.")
]
TargetConfig = Annotated[
    Path | None, typer.Option("--target-config", help="Settings file of the target instead of --config.")
]
OnlyEntities = Annotated[
    list[str] | None,
    typer.Option("--entity", help="Only this entity; repeatable.", autocompletion=entities),
]
OnlyTenants = Annotated[list[str] | None, typer.Option("--tenant", help="Only this tenant; repeatable.")]
AsOf = Annotated[
    str | None,
    typer.Option(
        "--as-of",
        help="Instant for judging retention, such as 2025-10-26T14:05:00+00:00. Default: the start.",
    ),
]


IgnoreUnknown = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-unknown",
        metavar="ENTITY.PATH",
        help="Drop this unknown property of the source, such as runs.legacy, or *.__v for all entities; "
        "repeatable. Without a reason in a job file the proof stays open.",
    ),
]
OnFinish = Annotated[
    str | None,
    typer.Option(
        "--on-finish",
        metavar="COMMAND",
        help="Run this command at the end, without a shell; TWINSTORE_EXIT_CODE tells it the outcome.",
    ),
]


def ignored_option(context: typer.Context, texts: Sequence[str] | None) -> tuple[IgnoredPath, ...]:
    """Return the unknown properties to drop: those of the option and those of the job file."""
    from twinstore_backfill.ignoring import ignored_paths  # noqa: PLC0415  # help needs no models

    return ignored_paths(texts or (), common(context).reasons)


def side_settings(options: CommonOptions, file: Path | None) -> Settings:
    """Return the settings of one side: its own file, or those of the command."""
    return options.settings(file)


def remembered(settings: Settings) -> Settings:
    """Return the settings after their secrets are known to whoever prints."""
    # Before anything can fail with these settings and say so.
    REDACTOR.learn(settings)
    return settings


def instant_option(text: str | None, name: str) -> datetime | None:
    """Return the instant of an option.

    Raises:
        ValidationError: it is not an instant.
    """
    if text is None:
        return None
    from twinstore.fields import parse_timestamp  # noqa: PLC0415  # the same

    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise ValidationError(f"{name} {text!r}: {error}.") from None

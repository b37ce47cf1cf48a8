"""The options that several commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from twinstore.config import CONFIG_VARIABLE, Settings, load_settings
from twinstore.errors import ValidationError
from twinstore.fields import parse_timestamp
from twinstore_backfill.ignoring import IgnoredPath, ignored_paths
from twinstore_backfill.secrets import REDACTOR

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

NO_FILE: Final = f"No settings file was named: {CONFIG_VARIABLE} and --config are unset."


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """The options in front of the command.

    Attributes:
        config: settings file.
        debug: whether the log and the traceback of a failure are shown.
        env_file: environment file.
        secrets_dir: directory of secret files.
        reasons: of a job file, by path of an ignored property, why it may be lost.
        field_reasons: of a job file, by path of a field that is not compared, why that is right.
    """

    config: Path | None = None
    debug: bool = False
    env_file: Path | None = None
    secrets_dir: Path | None = None
    reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    field_reasons: Mapping[str, str] = field(default_factory=dict[str, str])

    def settings(self, file: Path | None = None) -> Settings:
        """Return the settings of the command, or those with another settings file."""
        found = load_settings(file or self.config, env_file=self.env_file, secrets_dir=self.secrets_dir)
        return remembered(replace(found, note=NO_FILE) if found.note else found)


OutputFormat = Annotated[Format, typer.Option("--format", help="Output format.")]
ModuleName = Annotated[
    str | None, typer.Option("--module", help="Module. Default: the only one that the settings name.")
]
Backend = Annotated[
    str | None, typer.Option("--backend", help="Driver instead of the one that the settings name.")
]
FromBackend = Annotated[str, typer.Option("--from", help="Driver of the source, for example Mongo.")]
ToBackend = Annotated[str, typer.Option("--to", help="Driver of the target, for example Postgres.")]
SourceConfig = Annotated[
    Path | None, typer.Option("--source-config", help="Settings file of the source instead of --config.")
]
TargetConfig = Annotated[
    Path | None, typer.Option("--target-config", help="Settings file of the target instead of --config.")
]
OnlyEntities = Annotated[list[str] | None, typer.Option("--entity", help="Only this entity; repeatable.")]
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
        help="Drop this unknown property of the source, such as runs.legacy; repeatable. Without a reason in "
        "a job file the proof stays open.",
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
    return ignored_paths(texts or (), common(context).reasons)


def common(context: typer.Context) -> CommonOptions:
    """Return the options in front of the command."""
    found = context.find_object(CommonOptions)
    return found or CommonOptions()


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
    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise ValidationError(f"{name} {text!r}: {error}.") from None

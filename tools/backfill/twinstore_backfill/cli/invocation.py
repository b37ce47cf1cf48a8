"""The options that every command takes, at any position, and what was read of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from twinstore_backfill.process.messages import LogFormat, Messages, set_messages
from twinstore_backfill.process.secrets import REDACTOR
from twinstore_backfill.rules.model import NO_RULES, JobRules

if TYPE_CHECKING:
    from twinstore.config import Settings

# In addition to --format; the option decides the form of the result.
OUTPUT: Final = "output"
MIN_FRAME_WIDTH: Final = 60
# Shown by --help-all only: what few migrations need, most of it better said in a job file.
ADVANCED: Final = "Advanced"
ADVANCED_OPTIONS: Final = """
--source-config --target-config --key-from --key-to --since --until --as-of --seed --sample-size --range-size
--max-conflicts --max-quarantine --delete-extra --start-clean --reason --approved-by --require-cutover-ready
--require-no-exceptions --groups --benchmark --max-ratio --ignore-unknown --ignore-field --title --on-finish
--progress --metrics-port --thorough --accept-rows --resume --engine
"""


class LogLevel(StrEnum):
    """The lowest level of the log that is shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(slots=True)
class CommonOptions:
    """The values of the options that every command has; they are kept as they are read.

    Attributes:
        json: whether the result is wanted as JSON.
        complete: whether the options of the command itself have been read; until then no value is final.
        rules: of a job file, what changes on the way and what is accepted.
        field_reasons: of a job file, by path of a field that is not compared, why that is right.
        command_line_names: the names of the paths that the command line gives.
    """

    config: Path | None = None
    debug: bool = False
    quiet: bool = False
    log_level: LogLevel | None = None
    log_format: LogFormat = LogFormat.TEXT
    json: bool = False
    complete: bool = False
    env_file: Path | None = None
    secrets_dir: Path | None = None
    rules: JobRules = NO_RULES
    field_reasons: Mapping[str, str] = field(default_factory=dict[str, str])
    command_line_names: set[str] = field(default_factory=set[str])

    def settings(self, file: Path | None = None) -> Settings:
        """Return the settings of the command, or those with another settings file."""
        from twinstore.config import CONFIG_VARIABLE, load_settings

        found = load_settings(file or self.config, env_file=self.env_file, secrets_dir=self.secrets_dir)
        note = f"No settings file was named: {CONFIG_VARIABLE} and --config are unset."
        return register_secrets(replace(found, note=note) if found.note else found)

    @property
    def messages(self) -> Messages:
        """The form and level of the messages of the process."""
        usual = logging.ERROR if self.quiet else logging.WARNING
        level = getattr(logging, self.log_level.name) if self.log_level else usual
        level = logging.DEBUG if self.debug and not self.log_level else level
        return Messages(level, self.log_format, self.quiet)


def common(context: typer.Context) -> CommonOptions:
    """Return the options that every command takes."""
    return context.find_root().ensure_object(CommonOptions)


def _store_path_once(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401  # of any option
    """Keep a path that is given once, at whatever position: the last of several would win in silence."""
    common_options, name = common(context), param.name or ""
    source = context.get_parameter_source(name)
    is_from_command_line = source is not None and source.name == "COMMANDLINE"
    if len(value or ()) > 1 or (is_from_command_line and name in common_options.command_line_names):
        raise typer.BadParameter("given more than once, and only one would be read; give it once.")
    # A job file says what is not given here.
    if value and (is_from_command_line or name not in common_options.command_line_names):
        _store_option(context, param, value[0])
    if is_from_command_line:
        common_options.command_line_names.add(name)
    return value


def _store_option(context: typer.Context, param: typer.CallbackParam, value: Any) -> Any:  # noqa: ANN401  # of any option
    # Options that are not given here may have been given in front of the command.
    if value is not None and value is not False and param.name:
        common_options = common(context)
        setattr(common_options, param.name, value)
        set_messages(common_options.messages)
    return value


def _show_all(context: typer.Context, value: bool) -> None:  # noqa: FBT001  # as Typer calls it
    if value:
        context.meta[ADVANCED] = True
        typer.echo(context.get_help())
        raise typer.Exit


# An option whose value its callback remembers.
_common_option = partial(typer.Option, callback=_store_option, expose_value=False)


def options(
    *,
    config: Annotated[
        list[Path] | None,
        _common_option(
            "--config",
            help="Settings file (JSON, YAML or TOML). Default: TWINSTORE_CONFIG.",
            callback=_store_path_once,
        ),
    ] = None,
    env_file: Annotated[
        list[Path] | None,
        _common_option(
            "--env-file",
            help="File of lines NAME=value. Default: TWINSTORE_ENV_FILE.",
            callback=_store_path_once,
        ),
    ] = None,
    secrets_dir: Annotated[
        list[Path] | None,
        _common_option(
            "--secrets-dir",
            help="Directory with a file for each secret. Default: TWINSTORE_SECRETS_DIR.",
            callback=_store_path_once,
        ),
    ] = None,
    debug: Annotated[bool, _common_option("--debug", help="Show log and traceback of a failure.")] = False,
    quiet: Annotated[
        bool, _common_option("--quiet", "-q", help="Show no progress and no messages but errors.")
    ] = False,
    log_level: Annotated[
        LogLevel | None,
        _common_option(
            "--log-level",
            metavar="LEVEL",
            help="Lowest level of the log on stderr: debug, info, warning or error. Default: warning.",
        ),
    ] = None,
    log_format: Annotated[
        LogFormat | None,
        _common_option(
            "--log-format",
            metavar="text|json",
            help="Lines of log, progress and errors on stderr: text, or a JSON object each. Default: text.",
        ),
    ] = None,
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all",
            help="Show every option and exit.",
            is_eager=True,
            expose_value=False,
            callback=_show_all,
        ),
    ] = False,
) -> None:
    """Declare the options; the callback of each keeps its value, at any position."""


@cache
def common_parameters(*, shown: bool = False) -> tuple[Any, ...]:
    """Return them as parameters for a command; only the help of the program itself shows them.

    They have no type, because Typer's copy of click is private.
    """
    single: typer.Typer = typer.Typer(add_completion=False)
    single.command()(options)
    made: list[Any] = [item for item in typer.main.get_command(single).params if item.name != "help"]
    for item in made:
        item.hidden = not shown or item.name == "help_all"
    return tuple(made)


def is_narrow_terminal() -> bool:
    """Return whether the frames of rich would leave no room for the names of options."""
    return get_terminal_size().columns < MIN_FRAME_WIDTH


def without_flag_values(parameters: list[Any]) -> list[Any]:
    """Return parameters whose flags have no value in a help; from Typer 0.29 on it would be ``<bool>``."""
    for item in parameters:
        if getattr(item, "is_flag", False) and item.metavar is None:
            item.metavar = ""
    return parameters


class CommandGroup(TyperGroup):
    """A group of commands."""

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        return without_flag_values(super().get_params(ctx))


class LeafCommand(TyperCommand):
    """A command that does something."""

    def __init__(self, *given: Any, **named: Any) -> None:  # noqa: ANN401  # whatever this version of Typer gives
        super().__init__(*given, **named)
        # Typer's copy of click, whose classes have these attributes, is private.
        self._advanced: list[Any] = [item for item in self.params if item.opts[0] in ADVANCED_OPTIONS.split()]
        for item in self._advanced:
            item.rich_help_panel = ADVANCED
        self.params.extend(common_parameters())

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        return without_flag_values(super().get_params(ctx))

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        if is_narrow_terminal():
            self.rich_markup_mode = None
        for item in self._advanced:
            item.hidden = ADVANCED not in ctx.meta
        # Each is a paragraph, or it would be run into the one before it.
        more = [f"More options: {ctx.command_path} --help-all"] if self._advanced else []
        self.epilog = "\n\n".join(("Examples:", *examples(ctx.command_path.partition(" ")[2]), *more))
        super().format_help(ctx, formatter)

    @override
    def make_context(self, *given: Any, **named: Any) -> Any:
        context = super().make_context(*given, **named)
        common_options: CommonOptions = context.find_root().ensure_object(CommonOptions)
        common_options.complete = True
        common_options.json = context.params.get(OUTPUT) == "json"
        return context


# What to type, for the help of each command and its section in the documentation.
EXAMPLES: Final = """
init
init --module library --from-url env:SOURCE_URL --to-url env:TARGET_URL --to-owner-url env:OWNER_URL
backfill run migration.toml
backfill run migration.toml --execute
backfill plan --from Mongo --to Postgres
backfill plan --from-url mongodb://db/legacy --to-url env:TARGET_URL --module library
backfill copy --from Mongo --to Postgres
backfill copy --from Mongo --to Postgres --max-rate 500 --execute
backfill --job-file migration.toml copy --execute
backfill copy --from Mongo --to Postgres --engine processes://8 --execute
backfill work --from Mongo --to Postgres --slots 4 --execute
backfill verify --from Mongo --to Postgres --out report
backfill verify --from Mongo --to Postgres --mode sample --format json
backfill diff --from Mongo --to Postgres --entity runs --key run-7
backfill recheck --from Mongo --to Postgres --in report
backfill repair --from Mongo --to Postgres --in report
backfill repair --from Mongo --to Postgres --in report --execute
backfill quarantine list --to Postgres
backfill quarantine show --to Postgres --entity runs --key run-7
backfill quarantine export --to Postgres --out held
backfill quarantine retry --from Mongo --to Postgres --execute
backfill status --to Postgres
backfill status --to Postgres --watch
backfill serve --to Postgres
backfill serve --to Postgres --reports report
backfill report --in report --format markdown
backfill selftest --from Mongo --to Postgres --sample 20
backfill pause --to Postgres
backfill resume --to Postgres
backfill rate 200 --to Postgres
backfill rate none --to Postgres
migrate status
migrate plan --backend Postgres
migrate run
migrate run --backend Mongo --accept-ttl runs=500
migrate verify
migrate revert 016_add_list_indexes.sql
migrate export --backend Postgres
config show
config show --config staging.json
config check
backends
doctor
smoke
smoke --backend Postgres --timeout 30
purge
purge --tenant acme --execute
demo
up
up --only postgres --data-dir /tmp/trial
down
dev new module notes --entity note
dev migration library
dev schema library
dev aio library
dev sql
"""
JOB_FILE_OF_EXAMPLES: Final = " --job-file migration.toml"


def examples(command: str) -> list[str]:
    """Return what to type for a command, such as ``migrate run``."""
    lines = (line for line in EXAMPLES.splitlines() if line)
    found = (line for line in lines if f"{line.replace(JOB_FILE_OF_EXAMPLES, '')} ".startswith(f"{command} "))
    return [f"twinstore {line}" for line in found]


def register_secrets(settings: Settings) -> Settings:
    """Return the settings after registering their secrets for redaction in all output."""
    # Before anything can fail with these settings and say so.
    REDACTOR.learn(settings)
    return settings

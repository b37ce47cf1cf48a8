"""The options that several commands share, and what they mean."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import StrEnum
from functools import wraps
from importlib.metadata import entry_points
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_type_hints

import typer

from twinstore.errors import ConfigurationError, ValidationError
from twinstore_backfill.cli.invocation import CommonOptions, common

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.config import Settings
    from twinstore_backfill.ignored import IgnoredPath
    from twinstore_backfill.migration import Migration
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.rules.model import JobRules
    from twinstore_backfill.stores import Store
    from twinstore_backfill.subset import Subset

# What a shell offers as the value of an option: installed names, mostly without importing their modules.


DRIVERS: Final = "twinstore.backends"
MODULES: Final = "twinstore.modules"


def modules(incomplete: str) -> list[str]:
    """Return the installed modules that begin so."""
    return _with_prefix(incomplete, (found.name for found in entry_points(group=MODULES)))


def drivers(incomplete: str) -> list[str]:
    """Return the installed drivers that begin so, in the spelling of the documents."""
    names = (found.name for found in entry_points(group=DRIVERS))
    return _with_prefix(incomplete, (name.capitalize() if name.islower() else name for name in names))


def entities(context: typer.Context, incomplete: str) -> list[str]:
    """Return the entities that begin so: those of the module that is named before, or of all."""
    from twinstore.errors import TwinstoreError
    from twinstore.plugins.modules import built_modules, module_spec

    given = context.params.get("module")
    try:
        specs = [module_spec(name) for name in ([given] if given else built_modules())]
    except TwinstoreError:
        # A shell has nowhere to say it; the command will.
        return []
    return _with_prefix(incomplete, (entity.name for spec in specs for entity in spec.catalog.entities))


def _with_prefix(incomplete: str, names: Iterable[str]) -> list[str]:
    # Names compare without case, but a shell drops what does not begin as it was typed.
    spelled = {name.lower() if incomplete.islower() else name for name in names}
    return sorted(name for name in spelled if name.startswith(incomplete))


class Format(StrEnum):
    """How a command prints its result."""

    TEXT = "text"
    JSON = "json"


OutputFormat = Annotated[Format, typer.Option("--format", help="Output format.")]
ModuleName = Annotated[
    str | None,
    typer.Option(
        "--module",
        metavar="NAME",
        help="Default: the only one in settings.",
        autocompletion=modules,
    ),
]
Backend = Annotated[
    str | None,
    typer.Option(
        "--backend", metavar="DRIVER", help="Instead of that in the settings.", autocompletion=drivers
    ),
]
FromBackend = Annotated[
    str | None,
    typer.Option("--from", metavar="DRIVER", help="Source, such as Mongo.", autocompletion=drivers),
]
ToBackend = Annotated[
    str | None,
    typer.Option("--to", metavar="DRIVER", help="Target, such as Postgres.", autocompletion=drivers),
]
# One that holds a password is refused, because every user of the machine can list the arguments of a process.
FromUrl = Annotated[
    str | None, typer.Option("--from-url", metavar="URL", help="Or its URL, env:NAME or file:PATH.")
]
ToUrl = Annotated[
    str | None, typer.Option("--to-url", metavar="URL", help="Or its URL, env:NAME or file:PATH.")
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="URL of the server, or env:NAME or file:PATH."),
]
SourceConfig = Annotated[
    Path | None, typer.Option("--source-config", help="Settings file of the source, instead of --config.")
]
TargetConfig = Annotated[
    Path | None, typer.Option("--target-config", help="Settings file of the target, instead of --config.")
]
OnlyEntities = Annotated[
    list[str] | None,
    typer.Option("--entity", metavar="NAME", help="Only this entity; repeatable.", autocompletion=entities),
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
Jobs = Annotated[int, typer.Option("--jobs", help="Ranges copied at a time.")]
EngineUrl = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="URL",
        help="Who lends processes instead of --jobs: processes://8, dask://host:8786, ray://auto, or "
        "workers:// if you start `twinstore backfill work` yourself.",
    ),
]
MaxRate = Annotated[
    float | None,
    typer.Option("--max-rate", metavar="NUMBER", help="Documents copied per second, at most."),
]
ForConflicts = Annotated[
    Literal["fail", "overwrite"],
    typer.Option("--on-conflict", help="For rows that differ in the target."),
]
Execute = Annotated[bool, typer.Option("--execute", help="Write. Default: a dry run.")]
Title = Annotated[
    str, typer.Option("--title", help="Name of the migration, the first words of every report for people.")
]

OnFinish = Annotated[
    str | None,
    typer.Option(
        "--on-finish",
        metavar="COMMAND",
        help="Command to run at the end, without a shell; it finds the exit code in TWINSTORE_EXIT_CODE.",
    ),
]


def rules_option(context: typer.Context, texts: Sequence[str] | None) -> JobRules:
    """Return the rules of the job file with the unknown properties to drop of the option."""
    from twinstore_backfill.rules.reading import with_options

    return with_options(common(context).rules, texts or ())


def instant_option(text: str | None, name: str) -> datetime | None:
    """Return the instant of an option.

    Raises:
        ValidationError: it is not an instant.
    """
    if text is None:
        return None
    from twinstore.models.fields import parse_timestamp

    try:
        return parse_timestamp(text)
    except ValueError as error:
        raise ValidationError(f"{name} {text!r}: {error}.") from None


IgnoreField = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore-field",
        metavar="ENTITY.PATH",
        help="Ignore this field, such as runs.stats.queued (repeatable). The best verdict is then PARTIAL.",
    ),
]


# Groups of options that several commands share: a command takes each as one parameter.


@dataclass(frozen=True)
class Ignored:
    """What a comparison ignores."""

    ignore_unknown: IgnoreUnknown = None
    ignore_field: IgnoreField = None

    def rules(self, context: typer.Context) -> JobRules:
        """Return the rules of the job."""
        return rules_option(context, self.ignore_unknown)

    def fields(self, context: typer.Context) -> tuple[IgnoredPath, ...]:
        """Return the fields that are not compared: those of the option and those of the job file."""
        from twinstore_backfill.ignored import ignored_fields

        return ignored_fields(self.ignore_field or (), common(context).field_reasons)


KeyFrom = Annotated[
    list[str] | None,
    typer.Option(
        "--key-from",
        metavar="KEY",
        help="Only rows from this key on, of one --entity; for a key of several parts once for each, or for "
        "the first ones.",
    ),
]
KeyTo = Annotated[
    list[str] | None,
    typer.Option("--key-to", metavar="KEY", help="Only rows before this key; given as --key-from."),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="INSTANT",
        help="Only rows last changed (or made, where no change is noted) at this instant or later.",
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="INSTANT", help="Only rows dated before this instant.")
]


@dataclass(frozen=True)
class Place:
    """Where one store is, as options say it.

    Attributes:
        common: the options that every command takes.
        option: the one that names the driver, for messages.
        driver, url, file: what was given.
    """

    common: CommonOptions
    option: str
    driver: str | None
    url: str | None
    file: Path | None = None

    def settings(self) -> Settings:
        """Return what the settings of this side say, without its URL."""
        return self.common.settings(self.file)

    def resolved(self, module: str) -> tuple[str, Settings]:
        """Return the driver and the settings to open a module with.

        Raises:
            ConfigurationError: the URL holds a password, or has not the scheme of a driver.
            ValidationError: driver and URL contradict each other.
        """
        settings = self.settings()
        if self.url is None:
            return self.driver or settings.backend_name(module), settings
        from twinstore_backfill.stores import url_settings

        name, settings = url_settings(_without_password(self.url), module, settings)
        if self.driver is not None and self.driver.casefold() != name.casefold():
            raise ValidationError(f"{self.option} {self.driver} contradicts the URL, which is of {name}.")
        return name, settings

    @contextmanager
    def opened(self, module: str, *, read_only: bool = False) -> Iterator[Store]:
        """Open the module there."""
        from twinstore_backfill.stores import open_store

        driver, settings = self.resolved(module)
        with open_store(module, driver, settings, read_only=read_only) as store:
            yield store


def _without_password(url: str) -> str:
    """Return a URL that anybody may see.

    Raises:
        ConfigurationError: it holds a secret.
    """
    from twinstore.runtime.secrets import mask_secret_url

    if mask_secret_url(url) != url:
        raise ConfigurationError(
            "The URL holds a password, and every user of this machine can see the arguments of a process; "
            "give env:NAME or file:PATH of a variable or a file that holds the URL."
        )
    return url


@dataclass(frozen=True)
class OneStore:
    """The store of a command that works on one."""

    context: typer.Context
    module: ModuleName = None
    backend: Backend = None
    url: Url = None

    def resolved(self) -> tuple[str, Place]:
        """Return the module, and where it is: where the options say, or else the settings."""
        from twinstore_backfill.stores import resolve_module

        place = Place(common(self.context), "--backend", self.backend, self.url)
        return resolve_module(self.module, place.settings()), place

    @contextmanager
    def opened(self) -> Iterator[Store]:
        """Open the module."""
        name, place = self.resolved()
        with place.opened(name) as store:
            yield store


@dataclass(frozen=True)
class TargetSide:
    """The target of copies, for commands that read their ledger."""

    context: typer.Context
    target: ToBackend = None
    to_url: ToUrl = None
    module: ModuleName = None
    target_config: TargetConfig = None

    def __post_init__(self) -> None:
        """Refuse a side that nothing names."""
        _require(self.context, "--to", self.target, self.to_url)

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[Store]:
        """Open it."""
        from twinstore_backfill.stores import resolve_module

        place = Place(common(self.context), "--to", self.target, self.to_url, self.target_config)
        with place.opened(resolve_module(self.module, place.settings()), read_only=read_only) as store:
            yield store


def _require(context: typer.Context, option: str, driver: str | None, url: str | None) -> None:
    if driver is None and url is None:
        context.fail(f"Missing option '{option}' or '{option}-url'")


@dataclass(frozen=True)
class Sides:
    """Source and target of a command."""

    context: typer.Context
    source: FromBackend = None
    from_url: FromUrl = None
    target: ToBackend = None
    to_url: ToUrl = None
    module: ModuleName = None
    source_config: SourceConfig = None
    target_config: TargetConfig = None

    def __post_init__(self) -> None:
        """Refuse a side that nothing names."""
        _require(self.context, "--from", self.source, self.from_url)
        _require(self.context, "--to", self.target, self.to_url)

    @property
    def common(self) -> CommonOptions:
        """The options that every command takes."""
        return common(self.context)

    @property
    def left(self) -> Place:
        """Where the source is."""
        return Place(self.common, "--from", self.source, self.from_url, self.source_config)

    @property
    def right(self) -> Place:
        """Where the target is."""
        return Place(self.common, "--to", self.target, self.to_url, self.target_config)

    def migration(self, rules: JobRules, title: str = "", *, with_source: bool = True) -> Migration:
        """Return what the command works on; without its source not even the settings of that are read."""
        from twinstore_backfill.migration import Migration, Side
        from twinstore_backfill.stores import resolve_module

        places = [*([self.left] if with_source else []), self.right]
        name = resolve_module(self.module, *(place.settings() for place in places if self.module is None))
        sides = [Side(*place.resolved(name)) for place in places]
        source = sides[0] if with_source else Side(self.source or self.left.resolved(name)[0])
        return Migration(source, sides[-1], name, rules, title=title, settings=self.common.settings())


@dataclass(frozen=True)
class RowOptions:
    """Which rows a command means."""

    entity: OnlyEntities = None
    tenant: OnlyTenants = None
    key_from: KeyFrom = None
    key_to: KeyTo = None
    since: Since = None
    until: Until = None

    @property
    def subset(self) -> Subset:
        """The part of the rows that the options mean.

        Raises:
            ValidationError: an instant is invalid, or the bounds leave nothing between them.
        """
        from twinstore_backfill.subset import Subset

        return Subset(
            key_from=tuple(self.key_from or ()),
            key_to=tuple(self.key_to or ()),
            since=instant_option(self.since, "--since"),
            until=instant_option(self.until, "--until"),
        )


ADDRESS: Final = re.compile(r"(?:(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:\[\]]+):)?(?P<port>[0-9]{1,5})")
HIGHEST_PORT: Final = 65_535


class ProgressForm(StrEnum):
    """In which form progress is shown on stderr."""

    BAR = "bar"
    JSON = "json"
    NONE = "none"


ProgressOption = Annotated[
    ProgressForm,
    typer.Option(
        "--progress",
        help="Progress on stderr: a bar (plain lines if stderr is not a terminal), lines of JSON, or none.",
    ),
]
MetricsPort = Annotated[
    str | None,
    typer.Option(
        "--metrics-port",
        metavar="[HOST:]PORT",
        help="Serve Prometheus metrics of the progress on this port while the command runs. Host: 127.0.0.1.",
    ),
]


@dataclass(frozen=True)
class OutputOptions:
    """The last options of a command that shows its progress."""

    progress_form: ProgressOption = ProgressForm.BAR
    metrics_port: MetricsPort = None
    output: OutputFormat = Format.TEXT

    def __post_init__(self) -> None:
        """Refuse an invalid address, before any store is opened."""
        if self.metrics_port is not None:
            _host_and_port(self.metrics_port)

    @contextmanager
    def progress(self, command: str) -> Iterator[Progress]:
        """Yield the object that reports the progress of a command, in a form and to clients at an address.

        Raises:
            ConfigurationError: the address cannot be listened on, or the library for it is missing.
        """
        from twinstore_backfill.progress.bars import progress_on
        from twinstore_backfill.progress.record import (
            CombinedProgress,
            JsonProgress,
            RecordedProgress,
            SilentProgress,
        )

        with ExitStack() as stack:
            shown: Progress = SilentProgress()
            if self.progress_form is ProgressForm.JSON:
                shown = JsonProgress(sys.stderr, command)
            if self.metrics_port is not None:
                from twinstore_backfill.progress.prometheus import ProgressCollector, serve_metrics

                recorded = shown if isinstance(shown, RecordedProgress) else RecordedProgress()
                collector = ProgressCollector(command, recorded)
                stack.enter_context(serve_metrics(*_host_and_port(self.metrics_port), collector))
                shown = recorded
            if self.progress_form is ProgressForm.BAR:
                bar = stack.enter_context(progress_on())
                shown = bar if isinstance(shown, SilentProgress) else CombinedProgress(bar, shown)
            yield shown


def _host_and_port(address: str) -> tuple[str, int]:
    """Return where to listen.

    Raises:
        ValidationError: it is not an address.
    """
    found = ADDRESS.fullmatch(address)
    port = int(found["port"]) if found else 0
    if found is None or not 1 <= port <= HIGHEST_PORT:
        raise ValidationError(
            f"--metrics-port {address!r} should be a port from 1 to {HIGHEST_PORT}, or host and port such as "
            "0.0.0.0:9464."
        )
    return (found["host"] or "127.0.0.1").strip("[]"), port


def expand_option_groups(command: Callable[..., object]) -> Callable[..., object]:
    """Return a command that takes the options of its groups one by one, those without a default first."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    if not groups:
        return command

    @wraps(command)
    def wrapper(**given: object) -> None:
        groups_given = {
            name: kind(**{item.name: given.pop(item.name) for item in fields(kind)})
            for name, kind in groups.items()
        }
        command(**groups_given, **given)

    parameters = [
        option
        for name in signature(command).parameters
        for option in (_options(groups[name]) if name in groups else _options(command, name))
    ]
    parameters.sort(key=lambda item: item.default is not Parameter.empty)
    # What Typer reads the options from.
    made: Any = wrapper
    made.__signature__ = Signature(parameters)
    made.__annotations__ = {item.name: item.annotation for item in parameters}
    # What is unwrapped would show the groups.
    del made.__wrapped__
    return wrapper


def _options(owner: Callable[..., object], *names: str) -> Iterator[Parameter]:
    """Yield some parameters of a command, or all of a group, with types in place of their names."""
    hints = get_type_hints(owner, include_extras=True)
    for name, item in signature(owner).parameters.items():
        if name in names or not names:
            yield item.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)

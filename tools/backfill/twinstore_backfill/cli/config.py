"""``twinstore config``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import typer

from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore_backfill.cli.invocation import CommandGroup, CommonOptions, common
from twinstore_backfill.cli.options import Format, OneStore, OutputFormat
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.version import version_lines
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from rich.console import RenderableType

    from twinstore.config import Settings
    from twinstore.fast.library import FastPath
    from twinstore.migrations.migration import SessionDefaults


VARIABLE: Final = "environment variable "
WORDS: Final[Mapping[object, str]] = {True: "yes", False: "no", None: "no separate limit"}

app = typer.Typer(cls=CommandGroup, help="Show the settings, or check that they work.", no_args_is_help=True)


@app.command()
def show(context: typer.Context, output: OutputFormat = Format.TEXT) -> None:
    """Print every setting with its default and its source, without secrets, and check the values."""
    settings = common(context).settings()
    described, problems = settings.describe(), settings.problems()
    rows = [(key, _text(entry["value"]), _source(key, entry["source"])) for key, entry in described.items()]
    emit(
        output,
        {"settings": described, "problems": problems},
        table(("setting", "value", "source"), rows),
        *([settings.note] if settings.note else []),
    )
    if problems and output is Format.JSON:
        raise typer.Exit(Exit.USAGE)
    if problems:
        raise ConfigurationError(" ".join(problems))


@app.command()
def check(
    one: OneStore,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Connect, check server, roles and schema, and print what the driver can do there."""
    from twinstore_backfill.stores import preflight

    with one.opened() as store:
        capabilities = asdict(store.storage.capabilities)
        preflight(store.storage.check_ready)
        # A copy into this store connects with the owner role too, where the driver has one.
        preflight(store.storage.initializer.status)
        document = {"module": store.module, "ready": True, **store.described(), "capabilities": capabilities}
        emit(
            output,
            document,
            f"{store.module} on {store.bulk.place}: ready.",
            table(("capability", "value"), list(_capability_rows(capabilities))),
            *([f"For a capability that it lacks: {remedy}"] if (remedy := capabilities["remedy"]) else []),
        )


def _capability_rows(capabilities: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in capabilities.items():
        if name != "remedy" and value != "":
            plain = isinstance(value, bool) or value is None
            yield name.replace("_", " "), WORDS[value] if plain else str(value)


def _source(key: str, source: object) -> str:
    """Return where a value came from; a variable that is the key itself need not be repeated."""
    text = str(source)
    variable = text.removeprefix(VARIABLE).replace("__", ":")
    return VARIABLE.split(" ", maxsplit=1)[0] if variable.casefold() == key.casefold() else text


def _text(value: object) -> str:
    """Return a value as a settings file spells it."""
    if value is None or value == {}:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)


def backends(output: OutputFormat = Format.TEXT) -> None:
    """List the installed drivers, without importing their client libraries."""
    from twinstore.plugins.drivers import list_backends

    found = list_backends()
    rows = [
        (info.name, info.distribution, info.version, info.state, ", ".join(info.modules) or "-")
        for info in found
    ]
    problems = [f"{info.name}: {info.detail}" for info in found if info.detail]
    emit(
        output,
        {"backends": [asdict(info) for info in found]},
        table(("driver", "distribution", "version", "state", "modules"), rows),
        *problems,
    )


@dataclass(frozen=True, slots=True)
class ProgramState:
    """Whether the rows of an entity can go the fast path at all, and if not, why."""

    module: str
    entity: str
    fast: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The settings with which sessions of the database of some modules begin."""

    modules: tuple[str, ...]
    backend: str
    defaults: SessionDefaults


def doctor(context: typer.Context, output: OutputFormat = Format.TEXT) -> None:
    """Show what is installed, the fast path, and what databases give sessions.

    Where the installed release of a client library lacks what a driver uses of it, that is listed, too.

    It connects to each PostgreSQL that the settings name, as the owner role. A setting of database, role or
    server that switches protection off ends the command with 1. A database that does not answer is listed as
    unknown, and so is what the role may not read.
    """
    from twinstore.fast.library import fast_path

    found, states = fast_path(), program_states()
    databases = database_states(common(context))
    document = {
        "versions": list(version_lines()),
        "fast_path": {"state": "native" if found.is_on else "off", "reason": found.reason},
        "entities": [asdict(state) for state in states],
        "databases": [asdict(state) for state in databases],
    }
    emit(output, document, *_texts(found, states), *_database_texts(databases))
    if any(state.defaults.unsafe for state in databases):
        raise typer.Exit(Exit.DIFFERENT)


def program_states() -> list[ProgramState]:
    """Return the state of every entity of the installed modules, in the order of their catalogs."""
    from twinstore.fast.program import program_of
    from twinstore.plugins.modules import complete_modules

    return [
        _state(module.name, entity.name, program_of(entity))
        for module in complete_modules()
        for entity in module.catalog.entities
    ]


def database_states(options: CommonOptions) -> list[DatabaseState]:
    """Return what the databases of the settings give sessions; modules with the same are listed together."""
    found: dict[tuple[str, SessionDefaults], list[str]] = {}
    settings = options.settings()
    for module in settings.named_modules():
        for backend in settings.drivers_of(module):
            if (defaults := _defaults(module, backend, settings)) is not None:
                found.setdefault((backend, defaults), []).append(module)
    return [DatabaseState(tuple(modules), *key) for key, modules in found.items()]


def _defaults(module: str, backend: str, settings: Settings) -> SessionDefaults | None:
    """Return what a database gives sessions, ``None`` for a driver without such settings."""
    from twinstore.migrations.migration import ReportsDefaults, SessionDefaults
    from twinstore.storage.open import open_module

    try:
        with open_module(module, backend, settings) as storage:
            initializer = storage.initializer
            return initializer.session_defaults() if isinstance(initializer, ReportsDefaults) else None
    except TwinstoreError as error:
        return SessionDefaults(unknown=(f"Unknown: {error.message}",))


def _state(module: str, entity: str, program: object) -> ProgramState:
    from twinstore.fast.program import NoProgram

    if isinstance(program, NoProgram):
        return ProgramState(module, entity, fast=False, reason=program.reason)
    return ProgramState(module, entity, fast=True)


def _texts(found: FastPath, states: Sequence[ProgramState]) -> Iterator[RenderableType]:
    yield from version_lines()
    yield f"fast path: {found}"
    if not found.is_on:
        yield "Copies and verifications work without it, and give the same results, slower."
    exact = [state for state in states if not state.fast]
    yield f"Entities whose rows can take it: {len(states) - len(exact)} of {len(states)}."
    if exact:
        rows = [(state.entity, state.module, state.reason) for state in exact]
        yield table(("entity", "module", "why its rows never take it"), rows)


def _database_texts(databases: Sequence[DatabaseState]) -> Iterator[RenderableType]:
    for state in databases:
        defaults = state.defaults
        yield f"{state.backend} of {', '.join(state.modules)}:"
        yield from (*defaults.unsafe, *defaults.unknown, *defaults.client, *defaults.remarks)
        if not (defaults.unsafe or defaults.unknown):
            yield "No session begins with an unsafe setting."
        if defaults.allowed:
            yield f"Settings that change no result, and are allowed: {', '.join(defaults.allowed)}."

"""``twinstore doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer
from rich.console import RenderableType

from twinstore.errors import TwinstoreError
from twinstore.fast.native import FastPath, fast_path
from twinstore.fast.program import NoProgram, program_of
from twinstore.migrations import ReportsDefaults, SessionDefaults
from twinstore.modules import complete_modules
from twinstore.storage import open_module
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.params import CommonOptions, Format, OutputFormat, common
from twinstore_backfill.cli.version import version_lines
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from twinstore.config import Settings

__all__ = ["DatabaseState", "ProgramState", "doctor", "program_states"]


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
    """List what is installed, whether the fast path is on, and settings that databases give sessions.

    Where the installed release of a client library lacks what a driver uses of it, that is listed, too.

    It connects to each PostgreSQL that the settings name, as the owner role. A setting of database, role or
    server that switches protection off ends the command with 1. A database that does not answer is listed as
    unknown, and so is what the role may not read.
    """
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
    try:
        with open_module(module, backend, settings) as storage:
            initializer = storage.initializer
            return initializer.session_defaults() if isinstance(initializer, ReportsDefaults) else None
    except TwinstoreError as error:
        return SessionDefaults(unknown=(f"Unknown: {error.message}",))


def _state(module: str, entity: str, program: object) -> ProgramState:
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
        yield from (*defaults.unsafe, *defaults.unknown, *defaults.client)
        if not (defaults.unsafe or defaults.unknown):
            yield "No session begins with an unsafe setting."
        if defaults.allowed:
            yield f"Settings that change no result, and are allowed: {', '.join(defaults.allowed)}."

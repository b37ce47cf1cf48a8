"""``twinstore doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.console import RenderableType

from twinstore.fast.native import FastPath, fast_path
from twinstore.fast.program import NoProgram, program_of
from twinstore.modules import complete_modules
from twinstore_backfill.cli.output import emit, table
from twinstore_backfill.cli.params import Format, OutputFormat
from twinstore_backfill.cli.version import version_lines

__all__ = ["ProgramState", "doctor", "program_states"]


@dataclass(frozen=True, slots=True)
class ProgramState:
    """Whether the rows of an entity can go the fast path at all, and if not, why."""

    module: str
    entity: str
    fast: bool
    reason: str = ""


def doctor(output: OutputFormat = Format.TEXT) -> None:
    """Say what is installed, whether the fast path is on, and which entities never take it."""
    found, states = fast_path(), program_states()
    document = {
        "versions": list(version_lines()),
        "fast_path": {"state": "native" if found.is_on else "off", "reason": found.reason},
        "entities": [asdict(state) for state in states],
    }
    emit(output, document, *_texts(found, states))


def program_states() -> list[ProgramState]:
    """Return the state of every entity of the installed modules, in the order of their catalogs."""
    return [
        _state(module.name, entity.name, program_of(entity))
        for module in complete_modules()
        for entity in module.catalog.entities
    ]


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

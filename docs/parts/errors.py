"""Errors and exit codes."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Final

import twinstore_backfill
import twinstore_embedded
from docs.parts.tables import NONE, code, codes, plain, table
from twinstore import errors
from twinstore.errors import TwinstoreError
from twinstore_backfill.outcome import Exit, InterruptedRunError, exit_code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

__all__ = ["core_errors", "error_table", "exit_table", "tool_error_table", "tool_errors"]

MEANINGS: Final = {
    Exit.OK: "Done, or equal.",
    Exit.DIFFERENT: "Differences, conflicts or pending work.",
    Exit.USAGE: "A wrong command line or wrong settings. Nothing was written.",
    Exit.INCONCLUSIVE: "No difference was seen, but something was quarantined, sampled or skipped.",
    Exit.FAILED: "A failure while running. The state is saved; the same command resumes.",
    Exit.GATE_REFUSED: "A gate was refused. Reserved: no command of this version ends with it.",
    Exit.PREFLIGHT_REFUSED: "A store is not ready, consent is missing, or `backfill run` needs a decision.",
    Exit.LEASE_HELD: "Another worker holds the lease of the job, or took it over.",
    Exit.INTERRUPTED: "Interrupted by SIGINT (Ctrl-C). The state is saved; the same command resumes.",
    Exit.TERMINATED: "Interrupted by SIGTERM. The state is saved; the same command resumes.",
}


def core_errors() -> tuple[type[TwinstoreError], ...]:
    """Return the errors of the library, parents before children."""
    return tuple(_errors_in(errors))


def tool_errors() -> tuple[type[TwinstoreError], ...]:
    """Return the errors that only tools raise, by name."""
    found: set[type[TwinstoreError]] = set()
    for package in (twinstore_backfill, twinstore_embedded):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                found |= set(_errors_in(import_module(module.name)))
    return tuple(sorted(found, key=lambda kind: kind.__name__))


def _errors_in(module: ModuleType) -> Iterator[type[TwinstoreError]]:
    for item in vars(module).values():
        if inspect.isclass(item) and issubclass(item, TwinstoreError) and item.__module__ == module.__name__:
            yield item


def error_table() -> str:
    """Return the tree of errors as a table."""
    head = ("Class", "Parent", "`code`", "HTTP", "Repeat?", "Means")
    return table(head, (_row(kind) for kind in core_errors()))


def tool_error_table() -> str:
    """Return the errors that only tools raise."""
    head = ("Class", "Parent", "`code`", "Means")
    rows = ((code(kind.__name__), _parent(kind), code(kind.code), _meaning(kind)) for kind in tool_errors())
    return table(head, rows)


def exit_table() -> str:
    """Return the exit codes with the errors that lead to them."""
    head = ("Code", "Means", "Errors")
    return table(
        head, ((code(int(item)), MEANINGS[item], codes(_ending_with(item)) or NONE) for item in Exit)
    )


def _row(kind: type[TwinstoreError]) -> tuple[str, ...]:
    repeat = "yes" if kind.retryable else "no"
    name = code(kind.__name__)
    return (name, _parent(kind), code(kind.code), str(kind.http_status), repeat, _meaning(kind))


def _parent(kind: type[TwinstoreError]) -> str:
    return code(kind.__bases__[0].__name__)


def _meaning(kind: type[TwinstoreError]) -> str:
    return plain(errors.first_line(kind.__doc__))


def _ending_with(item: Exit) -> Iterator[str]:
    """Yield the errors that end a command with this code; the interruption carries its own."""
    for kind in (*core_errors(), *tool_errors()):
        if kind is InterruptedRunError:
            if item in {Exit.INTERRUPTED, Exit.TERMINATED}:
                yield kind.__name__
        elif exit_code(kind.__new__(kind)) == item:
            yield kind.__name__

"""Running the command line: every failure becomes one line and the right exit code."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

import typer

from twinstore.errors import TwinstoreError
from twinstore_backfill import process, stopping
from twinstore_backfill.allocating import give_memory_back
from twinstore_backfill.cli.app import app
from twinstore_backfill.cli.output import OutputError, emit_json, say
from twinstore_backfill.finishing import finish
from twinstore_backfill.outcome import Exit, effect_document, effects_of, exit_code
from twinstore_backfill.secrets import REDACTOR, log_to_stderr
from twinstore_backfill.uncaught import log_uncaught

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main", "own_process"]

# Typer brings its own copy of click in some versions and uses the installed one in others.
USAGE_ERROR: Final = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
FINE: Final = 0
NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, then what --on-finish asks for, and return the exit code of the former."""
    give_memory_back()
    code = _main(list(sys.argv[1:] if arguments is None else arguments))
    process.keep_outcome()
    problem = finish(code)
    if problem is not None:
        say(f"warning: {problem}\n")
    return code


def _main(given: list[str]) -> int:
    # Looked for by hand, because the log must be set up before Typer reads the options.
    log_to_stderr(logging.DEBUG if "--debug" in given else logging.WARNING)
    try:
        # Not standalone: Typer would print its own errors and end the process.
        code: object = app(args=given, prog_name="twinstore", standalone_mode=False)
    except TwinstoreError as error:
        effects = [effect_document(item) for item in effects_of(error)]
        more = {"effects": effects} if effects else {}
        _show(given, error.message, error.code, exit_code(error), more)
        return exit_code(error)
    except typer.Abort:
        return _interrupted(given)
    # SystemExit too: Typer ends the process so when a connection breaks in the middle of a write.
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the last line of defence: no traceback
        return _unexpected(given, error)
    if code is None:
        return FINE
    if code == Exit.INTERRUPTED:
        # What Typer makes of a KeyboardInterrupt; a command that stops at a safe point has its own error.
        return _interrupted(given)
    return code if isinstance(code, int) else Exit.FAILED


def own_process() -> None:
    """Prepare a process that runs one command and nothing else."""
    process.signals_to_python()
    log_uncaught()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal or a log in a narrow encoding shows a code instead of ending the command.
            stream.reconfigure(errors="backslashreplace")
    stopping.at_the_end(process.keep_outcome)


def _interrupted(given: list[str]) -> int:
    _show(given, "Interrupted.", "interrupted", Exit.INTERRUPTED)
    return Exit.INTERRUPTED


def _unexpected(given: list[str], error: BaseException) -> int:
    if isinstance(error, USAGE_ERROR):
        return _usage(given, error)
    hint = "" if "--debug" in given else " Run it again with `twinstore --debug …` to see where."
    first = (str(error).splitlines() or [""])[0].rstrip(".?! ")
    _show(given, f"unexpected {type(error).__name__}: {first}.{hint}", "unexpected", Exit.FAILED)
    return Exit.FAILED


def _usage(given: list[str], error: BaseException) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        say(f"{error}\n")
        return Exit.USAGE
    text = cast("typer.BadParameter", error).format_message()
    _show(given, f"{text} See `twinstore --help`.", "usage", Exit.USAGE)
    return Exit.USAGE


def _show(
    given: list[str], message: str, code: str, exit_with: int, more: Mapping[str, object] = NOTHING
) -> None:
    """Print a failure: an object on stdout where JSON was asked for, else one line on stderr."""
    # One line, whatever the text of a server holds, so that logs and scripts can rely on it.
    line = " ".join(REDACTOR.clean(message).split())
    if "--debug" in given:
        say(REDACTOR.clean(traceback.format_exc()))
    if not _wants_json(given):
        say(f"error: {line}\n")
        return
    problem = {"error": {"code": code, "message": line, "exit_code": int(exit_with), **more}}
    # The command fails already; that nobody can read why changes no exit code.
    with suppress(OutputError):
        emit_json(problem)


def _wants_json(given: list[str]) -> bool:
    return "--format=json" in given or ("--format", "json") in list(pairwise(given))

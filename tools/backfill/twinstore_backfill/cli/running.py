"""Running the command line: every failure becomes one line and the right exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from io import TextIOWrapper
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import typer

from twinstore.errors import TwinstoreError
from twinstore_backfill.cli.app import app
from twinstore_backfill.cli.invocation import CommonOptions
from twinstore_backfill.cli.streams import OutputError, discard, emit_json, is_stdout_closed, stdout_error
from twinstore_backfill.outcome import Exit, effect_document, effects_of, exit_code, finish
from twinstore_backfill.process import process, stopping
from twinstore_backfill.process.files import REFUSED, FileError, write_failure
from twinstore_backfill.process.memory import limit_cached_memory
from twinstore_backfill.process.messages import (
    LogFormat,
    Messages,
    install_exception_hooks,
    json_line,
    message_settings,
    set_messages,
    warn,
    write_stderr,
)
from twinstore_backfill.process.secrets import REDACTOR

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM: Final = "twinstore"
# A shell sets it to ask for the possible words at the cursor.
COMPLETION: Final = "_TWINSTORE_COMPLETE"
SUCCESS: Final = 0
NO_DETAILS: Final[Mapping[str, object]] = MappingProxyType({})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, then what --on-finish asks for, and return the exit code of the former."""
    if arguments is None and COMPLETION in os.environ:
        return _complete()
    limit_cached_memory()
    code = _main(list(sys.argv[1:] if arguments is None else arguments))
    process.disarm_signals()
    problem = finish(code)
    if problem is not None:
        warn(problem)
    return code


def _complete() -> int:
    """Answer a shell in the words of its protocol, which Typer knows."""
    try:
        app(args=[], prog_name=PROGRAM)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else SUCCESS
    except Exception:  # noqa: BLE001  # nothing to offer; a traceback would appear in the user's line
        return Exit.DIFFERENT
    return SUCCESS


def _main(given: list[str]) -> int:
    common_options = CommonOptions()
    set_messages(Messages(format=_log_format_of(given)))
    failure_reporter = FailureReporter(given, common_options)
    command = typer.main.get_command(app)
    try:
        # Not by calling the application: Typer would print its own errors and end the process.
        with command.make_context(PROGRAM, list(given), obj=common_options) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except TwinstoreError as error:
        return failure_reporter.known(error)
    # A command that stops at a safe point has its own error.
    except (typer.Abort, KeyboardInterrupt) as error:
        return failure_reporter.interrupted(error)
    # SystemExit too: libraries end the process so.
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the last line of defence: no traceback
        # Of a command that has not begun: it shows its help, and what reads a file names it.
        if (
            isinstance(error, OSError)
            and error.filename is None
            and not (common_options.complete or is_stdout_closed())
        ):
            discard()
            return failure_reporter.known(stdout_error(error))
        # Help, or a script for a shell, that is not read to its end; rich ends the process then.
        unread = isinstance(error, SystemExit) and not common_options.complete
        if not unread and not (isinstance(error, BrokenPipeError) and is_stdout_closed()):
            return failure_reporter.unknown(error)
        discard()
    return SUCCESS


def prepare_process() -> None:
    """Prepare a process that runs one command and nothing else."""
    process.raise_on_signals()
    install_exception_hooks()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal or a log in a narrow encoding shows a code instead of ending the command.
            stream.reconfigure(errors="backslashreplace")
    stopping.set_final_handlers(process.disarm_signals)


def _log_format_of(given: list[str]) -> LogFormat:
    """Return the form of the failure of a command whose options cannot be read."""
    return LogFormat.JSON if process.wants(given, "--log-format", "json") else LogFormat.TEXT


class FailureReporter:
    """Makes of each failure one line and an exit code."""

    def __init__(self, given: list[str], common_options: CommonOptions) -> None:
        self._given = given
        self._options = common_options

    def known(self, error: TwinstoreError) -> int:
        """Show an error that says itself what to do."""
        effects = [effect_document(item) for item in effects_of(error)]
        code = exit_code(error)
        self._show(error.message, error.code, code, {"effects": effects} if effects else {})
        return code

    def interrupted(self, error: BaseException) -> int:
        """Show that a signal ended the command."""
        name, code = "SIGINT", Exit.INTERRUPTED
        if isinstance(error, process.Terminated):
            name, code = "SIGTERM", Exit.TERMINATED
        self._show(f"Interrupted by {name}.", "interrupted", code, trace=False)
        return code

    def unknown(self, error: BaseException) -> int:
        """Show what was not meant to happen, and a mistake in the use of a command."""
        if isinstance(error, typer.TyperException):
            return self._usage(error)
        # Of a command that has no directory for its files: a temporary one.
        if isinstance(error, OSError) and error.errno in REFUSED:
            return self.known(FileError(write_failure(None, error)))
        hint = "" if self._debug else " Run it again with --debug to see where."
        first = (str(error).splitlines() or [""])[0].rstrip(".?! ")
        self._show(f"unexpected {type(error).__name__}: {first}.{hint}", "unexpected", Exit.FAILED)
        return Exit.FAILED

    def _usage(self, error: typer.TyperException) -> int:
        if type(error).__name__ == "NoArgsIsHelpError":
            write_stderr(f"{error}\n")
            return Exit.USAGE
        text = error.format_message()
        context = getattr(error, "ctx", None)
        command = PROGRAM if context is None else context.command_path
        self._show(f"{text.rstrip('. ')}. See `{command} --help`.", "usage", Exit.USAGE, trace=False)
        return Exit.USAGE

    @property
    def _debug(self) -> bool:
        # Of a command whose own options were not reached, because an argument before them is wrong.
        return self._options.debug or (not self._options.complete and "--debug" in self._given)

    @property
    def _json(self) -> bool:
        return (
            self._options.json if self._options.complete else process.wants(self._given, "--format", "json")
        )

    def _show(
        self,
        message: str,
        code: str,
        exit_with: int,
        more: Mapping[str, object] = NO_DETAILS,
        *,
        trace: bool = True,
    ) -> None:
        """Print a failure: an object on stdout if JSON was requested, else one line on stderr."""
        # One line, whatever the text of a server holds, so that logs and scripts can rely on it.
        line = " ".join(REDACTOR.clean(message).split())
        shown = REDACTOR.clean(traceback.format_exc()) if trace and self._debug else ""
        if message_settings().format is LogFormat.JSON:
            fields = {"code": code, "exit_code": int(exit_with), **({"traceback": shown} if shown else {})}
            write_stderr(json_line("ERROR", PROGRAM, line, fields) + "\n")
        else:
            write_stderr(shown)
            # If stdout cannot be written to, this is the only place left.
            if not self._json or code == OutputError.code:
                write_stderr(f"error: {line}\n")
        if self._json:
            problem = {"error": {"code": code, "message": line, "exit_code": int(exit_with), **more}}
            # The command fails already; a report that cannot be written there does not change the exit code.
            with suppress(OutputError):
                emit_json(problem)

"""What a process of the command line does before and after its command, so that it always ends in order.

It imports as little as possible: until the signals are in hand, Ctrl-C would show a traceback.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STANDARD_STREAMS = 3
# These start and stop servers and clean up behind them, for which an exception is raised.
CLEANS_UP = frozenset({"demo", "down", "up"})
# By command the files of --out that say how it ended; those of an earlier run say nothing of this one.
REPORTS = {
    "copy": ("backfill-report.json",),
    "verify": (
        "parity-report.json",
        "parity-report.xml",
        "parity-report.md",
        "parity-report.html",
        "differences.ndjson",
    ),
}

# More than the imports of a command make, none of which is garbage. By default Python would visit them all a
# hundred times.
OBJECTS_OF_IMPORTS = 500_000

# Whether the process runs one command and nothing else.
_is_dedicated = False


def begin() -> None:
    """Take signals and standard streams in hand; called once, first of all."""
    global _is_dedicated  # noqa: PLW0603  # of the process, as its signals are
    _is_dedicated = True
    gc.set_threshold(OBJECTS_OF_IMPORTS)
    for number in SIGNALS:
        # Ignored for us by the process that started this one, as a shell does for a background job.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end_at_once)
    _fill_closed_streams()


def raise_on_signals() -> None:
    """Let a command that cleans up do so when it is interrupted; called when every module is imported."""
    if CLEANS_UP.intersection(sys.argv[1:]) and signal.getsignal(signal.SIGINT) is _end_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _terminate)


class Terminated(KeyboardInterrupt):
    """SIGTERM for a command that cleans up, as Ctrl-C is for it."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def disarm_signals() -> None:
    """Let signals change nothing any more: the outcome is final, and the exit code must not contradict it.

    They are not ignored: the command of --on-finish would inherit that, and could not be interrupted.
    """
    if _is_dedicated:
        for number in SIGNALS:
            signal.signal(number, _ignore_signal)


def end() -> None:
    """Ignore signals while Python ends, where a handler may be gone already."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Or Python would search all modules for garbage, which takes a quarter of a second.
    gc.freeze()


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the command has ended."""


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    """End the process: whatever runs now holds nothing that a killed process would lose.

    Nothing is raised, because an exception in the middle of an import or of a clean-up shows up anywhere.
    """
    given = sys.argv[1:]
    _remove_reports(given)
    name, code = signal.Signals(number).name, 128 + number
    text, stream = f"error: Interrupted by {name}.\n", 2
    if wants(given, "--log-format", "json"):
        text = _log_line(f"Interrupted by {name}.", code)
    if wants(given, "--format", "json"):
        stream = 1
        text = (
            '{\n  "error": {\n    "code": "interrupted",\n'
            f'    "message": "Interrupted by {name}.",\n    "exit_code": {code}\n  }}\n}}\n'
        )
    with suppress(OSError):
        # Not print, which refuses to write while it is writing.
        os.write(stream, text.encode())
    os._exit(code)


def _log_line(message: str, code: int) -> str:
    now = time.time()
    instant = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    return (
        f'{{"time":"{instant}.{int(now % 1 * 1000):03}Z","level":"error","logger":"twinstore",'
        f'"message":"{message}","code":"interrupted","exit_code":{code}}}\n'
    )


def _remove_reports(given: list[str]) -> None:
    """Remove the reports of an earlier run, as the command does first of all once it is imported."""
    command = _command_of(given)
    named = [value for option, value in pairwise(given) if option == "--out"]
    named += [word.removeprefix("--out=") for word in given if word.startswith("--out=")]
    for path in (os.path.join(out, name) for out in named for name in REPORTS.get(command, ())):  # noqa: PTH118  # pathlib is not imported yet
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108  # the same


def _command_of(given: list[str]) -> str:
    """Return the command of a backfill, empty for any other."""
    after = given[given.index("backfill") + 1 :] if "backfill" in given else []
    if after[:1] == ["--job-file"]:
        after = after[2:]
    return next(iter(after), "")


def wants(given: list[str], option: str, value: str) -> bool:
    """Return whether an option has a value, if the options cannot be parsed, or not yet."""
    return f"{option}={value}" in given or (option, value) in list(pairwise(given))


def _fill_closed_streams() -> None:
    """Open streams that the starting process has closed, or a connection would take their numbers."""
    while (handle := os.open(os.devnull, os.O_RDWR)) < STANDARD_STREAMS:
        pass
    os.close(handle)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))

"""Finding, running and ending the processes of the servers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from twinstore.errors import ConfigurationError
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from twinstore_embedded.accounts import Account

_logger = logging.getLogger("twinstore.embedded")

LOG_LINES = 12
KILL_SECONDS = 10.0
DYING_SECONDS = 10.0


@dataclass(frozen=True)
class CompletedCommand:
    """The end of a command: its exit code and what it printed."""

    code: int
    output: str


def run(
    command: Sequence[str | Path], *, account: Account | None, cwd: Path, text: str = ""
) -> CompletedCommand:
    """Run a command to its end as the given account, with ``text`` as its input.

    Raises:
        ConfigurationError: the program cannot be executed at all.
    """
    # A file and not a pipe: the server that a command leaves behind would keep the pipe open.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            done = subprocess.run(  # noqa: S603  # our own argument list, no shell
                [str(part) for part in command],
                cwd=cwd,
                env=_environment(),
                input=text,
                text=True,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                user=account.uid if account else None,
                group=account.gid if account else None,
                # None of root's groups either, or the server could read what only root should.
                extra_groups=[] if account else None,
            )
        except OSError as error:
            who = account.name if account else "this user"
            message = (
                f"{command[0]} cannot be run as {who}: {error.strerror}. Make it readable and executable."
            )
            raise ConfigurationError(message) from error
        output.seek(0)
        return CompletedCommand(done.returncode, output.read())


def _environment() -> dict[str, str]:
    # Neither PGPORT, PGDATA and the like nor a translated message may change what a server does or says.
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def read_pid(path: Path) -> int | None:
    """Return the number in the first line of a pid file; ``None`` without one."""
    try:
        first = path.read_text("utf-8", errors="replace").partition("\n")[0].strip()
    except FileNotFoundError:
        return None
    return int(first) if first.isdecimal() else None


def is_alive(pid: int) -> bool:
    """Return whether a process runs; one that waits to be reaped does not.

    The first thread of a dying process is a zombie already while the others still hold ports and files.
    """
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1)
    except psutil.NoSuchProcess:
        return False


def find_server(pid_file: Path, data: Path) -> int | None:
    """Return the pid of the live server of a data directory; wait for the end of one that is dying.

    A pid file outlives a crash and its number may belong to another process by now, so the command
    line has to name the data directory too.
    """
    pid = read_pid(pid_file)
    if pid is None or not is_alive(pid):
        return None
    arguments = _arguments(pid)
    # It is dying and may still hold the port and the lock of its data.
    if not arguments:
        wait_until(lambda: not is_alive(pid), DYING_SECONDS)
    return pid if str(data) in arguments else None


def _arguments(pid: int) -> list[str]:
    """Return the command line, which is the first thing that a dying process loses."""
    try:
        return list(psutil.Process(pid).cmdline())
    except psutil.AccessDenied:
        return ["(another user)"]
    except psutil.NoSuchProcess:
        return []


def end(pid: int, stop_signal: signal.Signals, *, timeout: float) -> None:
    """Ask a process to stop, wait until it is gone, and kill it when it does not go."""
    # No such process: it has ended by itself, which is what was wanted.
    with suppress(ProcessLookupError):
        os.kill(pid, stop_signal)
        if wait_until(lambda: not is_alive(pid), timeout):
            return
        _logger.warning("process %d did not stop within %g s and is killed", pid, timeout)
        os.kill(pid, signal.SIGKILL)
        if not wait_until(lambda: not is_alive(pid), KILL_SECONDS):
            _logger.warning("process %d is still there %g s after it was killed", pid, KILL_SECONDS)


def log_tail(log: Path) -> str:
    """Return the last lines of a server log, for an error message."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return "(no log)"
    return "\n".join(lines[-LOG_LINES:]) or "(empty log)"


def rotate_log(log: Path) -> None:
    """Keep the log of one earlier run, which may explain a crash."""
    if log.exists():
        log.replace(log.with_name(f"{log.name}.1"))

"""A terminal for a test: a shell that is typed into, and what it printed."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

import psutil

from tests.installed import identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.installed import Account

__all__ = ["Terminal"]

ENDED: Final = re.compile(r"\x1e(\d+)\n")


class Terminal:
    """A shell of its own. What runs in it can be interrupted, as Ctrl-C does."""

    def __init__(self, folder: Path, environment: Mapping[str, str], account: Account | None) -> None:
        self._printed, self._over = "", False
        self._news = Condition()
        self._shell = subprocess.Popen(
            ["/bin/bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **identity(account),
        )
        self._reader = Thread(target=self._read, name="terminal")
        self._reader.start()
        # Each command in a group of processes of its own, so that it can be interrupted alone.
        self.type("set -m")
        self.ended(120)

    def _read(self) -> None:
        assert self._shell.stdout is not None
        descriptor = self._shell.stdout.fileno()
        pending = b""
        while chunk := os.read(descriptor, 1 << 16):
            pending += chunk
            whole, newline, pending = pending.rpartition(b"\n")
            with self._news:
                self._printed += (whole + newline).decode()
                self._news.notify_all()
        with self._news:
            self._printed += pending.decode()
            self._over = True
            self._news.notify_all()

    def type(self, line: str) -> None:
        """Type a line, as one command."""
        assert self._shell.stdin is not None
        # The shell says when the command is over, and with which code; the next one still sees it as $?.
        after = r"__code=$?; printf '\x1e%s\n' $__code; (exit $__code)"
        self._shell.stdin.write(f"eval {shlex.quote(line)}; {after}\n".encode())
        self._shell.stdin.flush()

    def printed(self, wanted: re.Pattern[str], seconds: float) -> str | None:
        """Wait until the running command has printed this; return what else it printed when it has not."""
        with self._news:
            self._wait(lambda: bool(wanted.match(self._printed) or ENDED.search(self._printed)), seconds)
            match = wanted.match(self._printed)
            if match is None:
                return self._printed
            self._printed = self._printed[match.end() :]
            return None

    def ended(self, seconds: float) -> tuple[str, int]:
        """Wait for the end of the running command; return what it printed and its code."""
        with self._news:
            done = self._wait(lambda: ENDED.search(self._printed) is not None, seconds)
            match = ENDED.search(self._printed)
            assert done, f"no end within {seconds:.0f} s:\n{self._printed}"
            assert match is not None
            output = self._printed[: match.start()]
            self._printed = self._printed[match.end() :]
            return output, int(match[1])

    def _wait(self, happened: Callable[[], bool], seconds: float) -> bool:
        end = monotonic() + seconds
        while not (done := happened()) and not self._over and monotonic() < end:
            self._news.wait(end - monotonic())
        return done

    @property
    def pid(self) -> int:
        """The shell itself."""
        return self._shell.pid

    def interrupt(self) -> None:
        """Send what Ctrl-C sends to the command that runs."""
        for child in psutil.Process(self._shell.pid).children():
            # One that has just ended needs no interruption.
            with suppress(ProcessLookupError):
                os.killpg(os.getpgid(child.pid), signal.SIGINT)

    def close(self) -> None:
        """End the shell and whatever still runs in it."""
        processes = psutil.Process(self._shell.pid).children(recursive=True)
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.kill()
        self._shell.wait()
        self._reader.join(30)
        assert self._shell.stdout is not None
        self._shell.stdout.close()

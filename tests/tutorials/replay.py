"""Replays a tutorial: types what the page says, in an empty folder, and compares what is printed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from tests.installed import Account, identity
from tests.ports import kept_port
from tests.tutorials.script import Command, File, Interrupt, Step, pattern, steps
from tests.tutorials.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PORT", "Replay", "open_folder"]

# The pages serve there; a replay takes a port that nobody else has.
PORT: Final = "8000"
# What an installation needs to reach its index.
PASSED_ON: Final = ("PIP_", "SSL_", "REQUESTS_CA", "http_proxy", "https_proxy", "no_proxy")
LOOK_AT_CODE: Final = "echo $?"
# Of what ends or is printed by itself, on a machine that is busy.
PATIENCE_SECONDS: Final = 180.0


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a user who has just logged in."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    path = f"{home}/bin:/usr/local/bin:/usr/bin:/bin"
    return {**passed, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "100"}


@contextmanager
def open_folder(who: Account | None) -> Iterator[Path]:
    """Make an empty folder of a user; end what runs below it, and remove it."""
    folder = Path(tempfile.mkdtemp(prefix="twinstore-path-"))
    if who is not None:
        os.chown(folder, who.uid, who.gid)
    try:
        yield folder
    finally:
        for process in running_in(folder):
            process.kill()
        shutil.rmtree(folder)


def running_in(folder: Path) -> list[psutil.Process]:
    """Return the processes that work in a folder or below it."""
    found = []
    for process in psutil.process_iter():
        # Any of them may end meanwhile.
        with suppress(psutil.Error):
            places = [process.cwd(), *process.cmdline()]
            if any(str(folder) in place for place in places) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@dataclass(frozen=True, slots=True)
class Replay:
    """How a page is replayed.

    Attributes:
        folder: where it begins, empty.
        who: the user.
        python: what ``python3`` is.
        instead: lines that are typed in place of others, such as another source of the installation.
    """

    folder: Path
    who: Account | None
    python: str
    instead: Mapping[str, str]

    def run(self, page: Path) -> None:
        """Do what the page says, and fail where something else comes of it."""
        with kept_port() as port:
            self._run(steps(page), str(port))

    def _run(self, script: list[Step], port: str) -> None:
        terminals = dict[str, Terminal]()
        home = self.folder / "home"
        work = self.folder / "work"
        for made in (home, work):
            subprocess.run(["/bin/mkdir", made], check=True, **identity(self.who))
        try:
            for step, after in zip(script, [*script[1:], None], strict=True):
                if isinstance(step, File):
                    self._write(work / step.name, step.body.replace(PORT, port))
                    continue
                if step.terminal not in terminals:
                    terminals[step.terminal] = Terminal(work, environment(home), self.who)
                    terminals[step.terminal].type(f'python3() {{ {self.python} "$@"; }}')
                    terminals[step.terminal].ended(PATIENCE_SECONDS)
                self._do(step, after, terminals[step.terminal], port)
            shells = {terminal.pid for terminal in terminals.values()}
            left = [process for process in running_in(work) if process.pid not in shells]
            # What watches a server ends a moment after it.
            _, left = psutil.wait_procs(left, timeout=PATIENCE_SECONDS)
            assert [process.pid for process in left] == [], f"the page leaves something running: {left}"
        finally:
            for terminal in terminals.values():
                terminal.close()

    def _write(self, path: Path, body: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, "utf-8")
        if self.who is not None:
            os.chown(path, self.who.uid, self.who.gid)

    def _do(self, step: Step, after: Step | None, terminal: Terminal, port: str) -> None:
        if isinstance(step, Interrupt):
            terminal.interrupt()
            return
        assert not isinstance(step, File)
        wanted = pattern(step.output.replace(PORT, port))
        seconds = PATIENCE_SECONDS
        if isinstance(step, Command):
            line = self.instead.get(step.line, step.line)
            seconds = 600.0 if line.startswith("pip install") else seconds
            terminal.type(line.replace(PORT, port))
            ends = not step.stays
        else:
            ends = step.ends
        if not ends:
            other = terminal.printed(wanted, seconds)
            assert other is None, f"{step.place}: wanted\n{step.output}\nand got\n{other}"
            return
        output, code = terminal.ended(seconds)
        output += "" if output.endswith("\n") or not output else "\n"
        assert wanted.fullmatch(output), f"{step.place}: wanted\n{step.output}\nand got\n{output}"
        looks = isinstance(after, Command) and after.line == LOOK_AT_CODE and after.terminal == step.terminal
        assert looks or code in {0, *((130,) if not isinstance(step, Command) else ())}, (
            f"{step.place}: code {code} and the page does not look at it\n{output}"
        )

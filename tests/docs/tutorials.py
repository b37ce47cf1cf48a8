"""Replays a tutorial: types the commands of the page in an empty folder and compares what is printed.

The commands run as a normal user. If the tests run as root, that user is ``nobody``, who needs a Python of
the same version in ``/usr/bin``. In a block ``console``, ``$ `` begins a command and the lines after it are
its output, ``…`` marks text that varies, ``^C`` interrupts, ``terminal=2`` types elsewhere, and an exit code
other than 0 must be shown with ``echo $?``. ``file=NAME`` writes a file. With ``--long`` everything is
installed again, from the wheel and from a clone.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

import psutil

from tests.docs.pages import Block, blocks
from tests.support.distributions import Account, identity
from tests.support.servers import kept_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

PROMPT: Final = "$ "
INTERRUPT: Final = "^C"
VARIES: Final = "…"
FIRST: Final = "1"


@dataclass(frozen=True, slots=True)
class File:
    """A file that the page shows whole."""

    place: str
    name: str
    body: str


@dataclass(frozen=True, slots=True)
class Command:
    """A line that is typed. One that ``stays`` is not waited for: a later block goes on with it."""

    place: str
    terminal: str
    line: str
    output: str
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C for the command that runs in a terminal."""

    place: str
    terminal: str


@dataclass(frozen=True, slots=True)
class More:
    """What that command prints on; ``ends`` when it is over then."""

    place: str
    terminal: str
    output: str
    ends: bool = True


Step = File | Command | Interrupt | More


@dataclass(slots=True)
class Reader:
    """Collects the steps of a page; the last command of each terminal may turn out to stay."""

    found: list[Step] = field(default_factory=list)

    def read(self, block: Block) -> None:
        terminal = next((note[9:] for note in block.notes if note.startswith("terminal=")), FIRST)
        chunk = list[str]()
        for line in block.body.splitlines():
            if line.startswith((PROMPT, INTERRUPT)) and chunk:
                self.add(block.place, terminal, chunk)
                chunk = []
            chunk.append(line)
        self.add(block.place, terminal, chunk)

    def add(self, place: str, terminal: str, chunk: list[str]) -> None:
        """Add a command with its output, or what goes on with the last one."""
        first, *rest = chunk
        if first.startswith(PROMPT):
            output = "".join(f"{line}\n" for line in rest)
            self.found.append(Command(place, terminal, first.removeprefix(PROMPT), output))
            return
        self.let_stay(terminal)
        if first.startswith(INTERRUPT):
            self.found.append(Interrupt(place, terminal))
            chunk = [first.removeprefix(INTERRUPT), *rest]
        self.found.append(More(place, terminal, "".join(f"{line}\n" for line in chunk if line)))

    def let_stay(self, terminal: str) -> None:
        """Remember that what was printed last is not the end of its command."""
        for index in reversed(range(len(self.found))):
            step = self.found[index]
            if isinstance(step, Command) and step.terminal == terminal:
                self.found[index] = Command(step.place, terminal, step.line, step.output, stays=True)
                return
            if isinstance(step, More) and step.terminal == terminal:
                self.found[index] = More(step.place, terminal, step.output, ends=False)
                return
        message = f"nothing runs in terminal {terminal}"
        raise AssertionError(message)


def steps(page: Path) -> list[Step]:
    """Return the steps of a page in its order."""
    return list(_steps(page))


def _steps(page: Path) -> Iterator[Step]:
    reader = Reader()
    for block in blocks(page):
        if block.file is not None:
            reader.found.append(File(block.place, block.file, block.body))
        elif block.language == "console":
            reader.read(block)
    return iter(reader.found)


def pattern(output: str) -> re.Pattern[str]:
    """Return what an output must match."""
    lines = output.splitlines()
    return re.compile("".join(_line(line) for line in lines))


def _line(line: str) -> str:
    if line.strip() == VARIES:
        return r"(?:[^\n]*\n)*?"
    return "[^\n]*?".join(map(re.escape, line.rstrip().split(VARIES))) + r"[ ]*\n"


ENDED: Final = re.compile(r"\x1e(\d+)\n")


class Terminal:
    """A separate shell. A command that runs in it can be interrupted, as with Ctrl-C."""

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
        # Each command runs in a separate process group, so that it can be interrupted alone.
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


# The pages serve there; a replay uses a free port.
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

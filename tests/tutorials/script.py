"""Reads a tutorial as a script: the files that it shows, and what is typed into which terminal.

A block ``console`` is typed; ``terminal=NAME`` says where, without it into the first one. A line that starts
with ``$ `` is a command, the lines below it are what it prints. A block that starts with output goes on with
the command that still runs there; ``^C`` ends it, once everything above has been printed. ``…`` stands for
what varies: within a line for any text, alone for any number of lines.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.docs.pages import Block, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Command", "File", "Interrupt", "More", "Step", "pattern", "steps"]

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

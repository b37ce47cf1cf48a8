"""How a command ends: exit codes, and the errors that only tools know."""

from __future__ import annotations

import os
import shlex
import subprocess
from enum import IntEnum
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, ClassVar, Final

from twinstore.errors import (
    ConfigurationError,
    ConsentRequiredError,
    DocumentDecodeError,
    LeaseLostError,
    NotFoundError,
    TwinstoreError,
    UnsupportedCapabilityError,
    ValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable
    from pathlib import Path

    from twinstore.errors import Effect


class Exit(IntEnum):
    """The exit codes of every command."""

    OK = 0
    DIFFERENT = 1
    USAGE = 2
    INCONCLUSIVE = 3
    FAILED = 4
    GATE_REFUSED = 5
    PREFLIGHT_REFUSED = 6
    LEASE_HELD = 7
    INTERRUPTED = 130
    TERMINATED = 143


class PreflightError(TwinstoreError):
    """A store is not ready for this command; nothing was changed."""

    code: ClassVar[str] = "preflight_refused"


class UnknownJobError(NotFoundError):
    """The ledger has no job of that name; nothing was changed."""


class InterruptedRunError(TwinstoreError):
    """The command was interrupted at a safe point."""

    code: ClassVar[str] = "interrupted"

    def __init__(self, message: str, signal_number: int) -> None:
        """Take the message and the signal that requested it."""
        super().__init__(message)
        self.signal_number = signal_number


# The first match wins, so children come before their parents.
CODES: Final[Mapping[type[TwinstoreError], Exit]] = {
    PreflightError: Exit.PREFLIGHT_REFUSED,
    ConsentRequiredError: Exit.PREFLIGHT_REFUSED,
    UnsupportedCapabilityError: Exit.PREFLIGHT_REFUSED,
    LeaseLostError: Exit.LEASE_HELD,
    ConfigurationError: Exit.USAGE,
    UnknownJobError: Exit.USAGE,
    DocumentDecodeError: Exit.FAILED,
    ValidationError: Exit.USAGE,
}


def exit_code(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, InterruptedRunError):
        return 128 + error.signal_number
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), Exit.FAILED)


def effect_document(effect: Effect) -> dict[str, object]:
    """Return what a program reads of something that needs consent."""
    return {
        "kind": effect.kind.value,
        "name": effect.name,
        "rows": effect.rows,
        "more": effect.more,
        "text": effect.text,
        "option": effect.option,
    }


def effects_of(error: BaseException | None) -> tuple[Effect, ...]:
    """Return what an error, or its cause, asks consent for."""
    # The preflight says it in its own words; what asks for consent is its cause.
    if isinstance(error, PreflightError):
        error = error.__cause__
    return error.effects if isinstance(error, ConsentRequiredError) else ()


# A command of the user that runs when one of ours has ended. It changes no exit code.


EXIT_CODE: Final = "TWINSTORE_EXIT_CODE"
OUT: Final = "TWINSTORE_OUT"


class Finisher:
    """The command to run, once, when the process knows how its own command ended."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._out: Path | None = None

    def take(self, command: str | None, out: Path | None) -> None:
        """Take the command of an option.

        Raises:
            ValidationError: it has no words, or its quotes do not end.
        """
        if command is None:
            return
        try:
            self._words = shlex.split(command)
        except ValueError as error:
            raise ValidationError(f"--on-finish {command!r}: {error}.") from None
        if not self._words:
            raise ValidationError("--on-finish names no command; give one, or leave it out.")
        self._out = out

    def run(self, code: int) -> str | None:
        """Run the command, if there is one; return the message if it fails."""
        words, self._words = self._words, []
        if not words:
            return None
        # Without a shell: the command of a job file is started exactly as it is written.
        environment = {**os.environ, EXIT_CODE: str(int(code)), OUT: str(self._out or "")}
        try:
            # To stderr, because stdout holds the result.
            done = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=2, check=False)  # noqa: S603  # the user's own command
        except OSError as error:
            return f"the command of --on-finish could not be started: {words[0]}: {error.strerror}"
        if done.returncode == 0:
            return None
        return f"the command of --on-finish ended with code {done.returncode}"


_finisher: Final = Finisher()
on_finish = _finisher.take
finish = _finisher.run


TOOL_NAME: Final = "twinstore"
PACKAGES: Final = ("twinstore", "twinstore_backfill")


@cache
def tool_identity() -> dict[str, str]:
    """Return name, version and checksum; the checksum covers every Python file of core and this tool."""
    return {"name": TOOL_NAME, "version": version(TOOL_NAME), "checksum": _checksum()}


def _checksum() -> str:
    digest = sha256()
    for package in PACKAGES:
        for name, file in sorted(_sources(files(package), package)):
            content = file.read_bytes()
            # With name and length, so that text moved from one file to the next changes the checksum.
            digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return f"sha256:{digest.hexdigest()}"


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        name = f"{prefix}/{item.name}"
        if item.is_dir():
            yield from _sources(item, name)
        elif item.name.endswith(".py"):
            yield name, item

"""A command of the user that runs when one of ours has ended. It changes no exit code."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Final

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Finisher", "finish", "on_finish"]

EXIT_CODE: Final = "TWINSTORE_EXIT_CODE"
OUT: Final = "TWINSTORE_OUT"


class Finisher:
    """What is to run, once, when the process knows how its command ended."""

    def __init__(self) -> None:
        """Begin with nothing to run."""
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
        """Run the command, if there is one; return what is to be said when it fails."""
        words, self._words = self._words, []
        if not words:
            return None
        # Without a shell: what a job file says is started as it stands.
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

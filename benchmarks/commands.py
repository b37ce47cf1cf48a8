"""Runs commands of ``twinstore`` in one process, so that short ones are measured without its start.

``python -m benchmarks.commands`` reads the arguments of each as a line of JSON and answers with a line.
"""

from __future__ import annotations

import io
import json
import resource
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Commands", "main"]

PROGRAM: Final = (sys.executable, "-m", "benchmarks.commands")


class Commands:
    """A process that runs commands on request."""

    def __enter__(self) -> Self:
        """Start it."""
        self._process = subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        with self._process:
            if self._process.stdin is not None:
                self._process.stdin.close()

    def run(self, arguments: Sequence[str], *, expected: int = 0) -> float:
        """Run a command and return the processor time of the process and its children.

        Raises:
            RuntimeError: its exit code is another one.
        """
        given, answers = self._process.stdin, self._process.stdout
        if given is None or answers is None:
            raise RuntimeError("the process of the commands was not started")
        given.write(f"{json.dumps(list(arguments))}\n")
        given.flush()
        answer = json.loads(answers.readline() or '{"code": -1, "said": "it ended", "seconds": 0}')
        if answer["code"] != expected:
            raise RuntimeError(
                f"twinstore {' '.join(arguments)} ended with {answer['code']}:\n{answer['said']}"
            )
        return float(answer["seconds"])


def main() -> None:
    """Run the commands that come in, until no more come."""
    from twinstore_backfill.cli import main as command_line  # noqa: PLC0415  # children import this module, too

    answers = sys.stdout
    for line in sys.stdin:
        used, output = processor_seconds(), io.StringIO()
        with redirect_stdout(output), redirect_stderr(output):
            code = command_line(json.loads(line))
        result = {"code": code, "said": output.getvalue()[-2000:], "seconds": processor_seconds() - used}
        answers.write(f"{json.dumps(result)}\n")
        answers.flush()


def processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    parts = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(part.ru_utime + part.ru_stime for part in parts)


if __name__ == "__main__":
    main()

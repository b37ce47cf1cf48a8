"""The intentions of processes and the answers to them, line by line, whatever happens to the processes.

A lane is a thread or a task. Its writes are noted in parts, each of which is stored or not: ``run
<id>``, ``line <run> <message>``, and ``count <run>`` of a counter.
"""

from __future__ import annotations

import itertools
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.support.outages import append_line, opened, whole_lines
from twinstore.errors import ConcurrencyError, Outcome, TwinstoreError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@dataclass(slots=True)
class Call:
    """A call that has begun; whether it was confirmed."""

    of: str
    confirmed: bool = False


@dataclass(slots=True)
class Notes:
    """The notes of one lane.

    Attributes:
        journal: the journal of all processes.
        lane: the unique name of the lane.
    """

    journal: Journal
    lane: str
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def token(self) -> str:
        """Return a unique text."""
        return f"{self.lane}/{next(self._numbers)}"

    @contextmanager
    def call(self, kind: str, tenant: str, parts: Sequence[str] = ()) -> Iterator[Call]:
        """Note what the block intends, and how it ends; what it may raise is noted and goes no further."""
        call, began = Call(self.token()), time.monotonic_ns()
        self.journal.add("write", kind=kind, tenant=tenant, parts=list(parts), of=call.of, lane=self.lane)
        try:
            yield call
        except Exception as error:  # noqa: BLE001  # no matter whose, it is judged
            self._failed(call, kind, error, began)
        else:
            call.confirmed = True
            self.journal.add("written", of=call.of, lane=self.lane)

    @contextmanager
    def reading(self, kind: str, tenant: str) -> Iterator[None]:
        """Note how the reads in the block end."""
        began = time.monotonic_ns()
        try:
            yield
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(None, kind, error, began)
        else:
            self.journal.add("seen", kind=kind, tenant=tenant, lane=self.lane)

    def wrong(self, during: str, error: str) -> None:
        """Note what must not happen."""
        self.journal.add("error", during=f"{during} of {self.lane}", error=error)

    def _failed(self, call: Call | None, kind: str, error: BaseException, began: int) -> None:
        of = {} if call is None else {"of": call.of}
        details = f"{type(error).__name__}: {error}"
        if isinstance(error, TimeoutError):
            self.journal.add("given up", during=kind, outcome=Outcome.UNKNOWN.value, **of, lane=self.lane)
        elif isinstance(error, ConcurrencyError):
            # Another client was first; that can happen without any server being down.
            self.journal.add("raced", during=kind, outcome=Outcome.NOT_APPLIED.value, **of, lane=self.lane)
        elif isinstance(error, TwinstoreError) and error.retryable:
            outcome = error.outcome if isinstance(error, UnavailableError) else Outcome.NOT_APPLIED
            refused = {"during": kind, "error": details, "outcome": outcome.value, "began": began}
            self.journal.add("refused", **refused, **of, lane=self.lane)
        else:
            self.wrong(kind, details)


Line = dict[str, Any]
"""``at``: monotonic nanoseconds; ``by``: the process; ``what``; and what belongs to it."""


class Journal:
    """A file that all processes append to."""

    def __init__(self, path: Path) -> None:
        self._file = opened(path)

    def add(self, what: str, **details: object) -> int:
        """Append one line, which the system keeps whatever becomes of the process; return its instant."""
        at = time.monotonic_ns()
        append_line(self._file, {"at": at, "by": os.getpid(), "what": what, **details})
        return at

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_journal(path: Path) -> list[Line]:
    """Return the lines in the order of their instants.

    One that a killed worker has not ended says as little as one that it has not begun.

    Raises:
        ValueError: more lines are broken than workers were killed.
    """
    lines, torn = whole_lines(path)
    kills = sum(line["what"] == "killed" for line in lines)
    if torn > kills:
        raise ValueError(f"{torn} lines of the journal are broken, but {kills} workers were killed.")
    return sorted(lines, key=lambda line: (line["at"], line["by"]))

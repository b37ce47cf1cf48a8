"""Progress in numbers: as lines on stderr, for people or of JSON, and for whoever asks a running command."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final

from typing_extensions import override

from twinstore.jsontext import format_timestamp
from twinstore_backfill.messages import LogFormat, chosen, json_line
from twinstore_backfill.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

__all__ = ["FORMAT", "JsonProgress", "LineProgress", "PartState", "RecordedProgress", "SharedProgress"]

FORMAT: Final = "twinstore.progress@1"
LOGGER: Final = "twinstore.progress"


@dataclass(frozen=True, slots=True)
class PartState:
    """How far one part is.

    Attributes:
        part: an entity, or what a comparison is at: ``documents`` of all entities, ``lists`` or ``checks``.
        done, total: rows, of lists the tenants; the total was counted before and is about right.
        rate: rows per second of this run; ``None`` before there is any.
        eta: seconds that are left at this rate.
        elapsed: seconds since the part began.
        outcomes: what became of the rows of finished ranges, and under ``ranges`` how many these are.
    """

    part: str
    done: int
    total: int
    rate: float | None
    eta: float | None
    elapsed: float
    finished: bool
    outcomes: Mapping[str, int]

    def document(self) -> dict[str, object]:
        """Return it as a line of progress has it."""
        return {
            "part": self.part,
            "state": "finished" if self.finished else "running",
            "done": self.done,
            "total": self.total,
            "rate": None if self.rate is None else round(self.rate, 1),
            "eta_seconds": None if self.eta is None else round(self.eta, 1),
            "elapsed_seconds": round(self.elapsed, 3),
            "outcomes": dict(sorted(self.outcomes.items())),
        }


@dataclass(slots=True)
class Part:
    """What is counted of one part; ``before`` was done by an earlier run."""

    total: int
    before: int
    done: int
    started: float
    ended: float | None = None
    outcomes: Counter[str] = field(default_factory=Counter[str])

    def state(self, name: str, now: float) -> PartState:
        """Return how far it is."""
        elapsed = (now if self.ended is None else self.ended) - self.started
        new, more = self.done - self.before, max(self.total - self.done, 0)
        rate = new / elapsed if new > 0 and elapsed > 0 else None
        left = 0.0 if self.ended is not None else None if rate is None else more / rate
        return PartState(
            name, self.done, self.total, rate, left, elapsed, self.ended is not None, self.outcomes.copy()
        )


class RecordedProgress(Progress):
    """Counts the progress of each part. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """Take a clock of seconds."""
        self._clock = clock
        self._lock = Lock()
        self._parts: dict[str, Part] = {}

    def states(self) -> tuple[PartState, ...]:
        """Return how far each part is, in the order in which they began."""
        with self._lock:
            now = self._clock()
            return tuple(part.state(name, now) for name, part in self._parts.items())

    def state(self, name: str) -> PartState:
        """Return how far one part is."""
        with self._lock:
            return self._parts[name].state(name, self._clock())

    @override
    def start(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part."""
        with self._lock:
            self._parts[name] = Part(total, done, done, self._clock())

    @override
    def advance(self, name: str, count: int) -> None:
        """Count rows."""
        with self._lock:
            self._parts[name].done += count

    @override
    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        """Count what became of rows."""
        with self._lock:
            self._parts[name].outcomes.update(outcomes)

    @override
    def finish(self, name: str) -> None:
        """End a part; it may hold fewer rows than were counted before."""
        with self._lock:
            part = self._parts[name]
            part.total, part.ended = part.done, self._clock()


class WrittenProgress(RecordedProgress):
    """Writes a line of each part at most every so many seconds."""

    between: ClassVar[float]

    def __init__(self, stream: TextIO, clock: Callable[[], float] = monotonic) -> None:
        """Take the stream, and a clock of seconds."""
        super().__init__(clock)
        self._stream = stream
        self._said: dict[str, float] = {}
        # Lines of several threads must not lie within each other, nor a later one before an earlier.
        self._writing = Lock()

    @override
    def start(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part."""
        super().start(name, total, done)
        self._said[name] = self._clock()

    @override
    def advance(self, name: str, count: int) -> None:
        """Count rows, and write a line when the last one is old."""
        super().advance(name, count)
        if self._clock() - self._said[name] >= self.between:
            self._write(name)

    def _write(self, name: str, *, is_last: bool = False) -> None:
        with self._writing:
            self._said[name] = self._clock()
            state = self.state(name)
            line = self._line(replace(state, eta=None) if is_last else state)
            # A log that is full or closed must not end the work.
            with suppress(OSError, ValueError):
                self._stream.write(f"{line}\n")
                self._stream.flush()

    def _line(self, state: PartState) -> str:
        raise NotImplementedError


class LineProgress(WrittenProgress):
    """Writes lines for people."""

    between = 5.0

    @override
    def finish(self, name: str) -> None:
        """Write the last line of the part, unless it is empty."""
        state = self.state(name)
        if state.total or state.done:
            self._write(name, is_last=True)
        super().finish(name)

    @override
    def _line(self, state: PartState) -> str:
        rate = state.rate or 0.0
        remaining = f", about {state.eta:.0f} s left" if state.eta else ""
        text = f"{state.part}: {state.done:,} of {state.total:,}, {rate:,.0f}/s{remaining}"
        if chosen().format is not LogFormat.JSON:
            return text
        counts = {
            "part": state.part,
            "done": state.done,
            "total": state.total,
            "per_second": round(rate),
        }
        return json_line("INFO", LOGGER, text, counts)


class JsonProgress(WrittenProgress):
    """Writes a line of JSON when a part begins, each second while it runs, and when it ends."""

    between = 1.0

    def __init__(self, stream: TextIO, command: str, clock: Callable[[], float] = monotonic) -> None:
        """Take the stream, the command that runs, and a clock of seconds."""
        super().__init__(stream, clock)
        self._command = command

    @override
    def start(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part."""
        super().start(name, total, done)
        self._write(name)

    @override
    def finish(self, name: str) -> None:
        """End a part."""
        super().finish(name)
        self._write(name)

    @override
    def _line(self, state: PartState) -> str:
        line = {"format": FORMAT, "time": format_timestamp(datetime.now(UTC)), "command": self._command}
        return json.dumps({**line, **state.document()})


class SharedProgress(Progress):
    """Forwards to several."""

    def __init__(self, *others: Progress) -> None:
        """Take who is told."""
        self._others = others

    @override
    def start(self, name: str, total: int, done: int = 0) -> None:
        """Begin a part."""
        for other in self._others:
            other.start(name, total, done)

    @override
    def advance(self, name: str, count: int) -> None:
        """Count rows."""
        for other in self._others:
            other.advance(name, count)

    @override
    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        """Count what became of rows."""
        for other in self._others:
            other.count(name, outcomes)

    @override
    def finish(self, name: str) -> None:
        """End a part."""
        for other in self._others:
            other.finish(name)

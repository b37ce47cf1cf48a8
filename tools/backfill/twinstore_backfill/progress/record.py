"""The progress of a run: counted, and written as lines for people or programs."""

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

from twinstore.models.json_text import format_timestamp
from twinstore_backfill.process.messages import LogFormat, json_line, message_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO


class Progress:
    """Hears what was done; may be called from several threads, which may work on several parts at a time."""

    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        """Begin a part of ``total`` documents, of which an earlier run left ``done`` finished.

        ``estimated`` says that nobody has counted them, because there are many.
        """

    def advance(self, name: str, count: int) -> None:
        """Count documents of a part that has begun; a negative count takes back what came to nothing."""

    def finish(self, name: str) -> None:
        """End a part of which everything is done; one that is stopped or has failed is not finished."""

    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        """Count the outcomes of documents of a part, range by range."""


class SilentProgress(Progress):
    """Says nothing."""


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
        estimated: whether the total was not counted, because there are many.
    """

    part: str
    done: int
    total: int
    rate: float | None
    eta: float | None
    elapsed: float
    finished: bool
    outcomes: Mapping[str, int]
    estimated: bool = False

    def document(self) -> dict[str, object]:
        """Return it as a line of progress has it."""
        return {
            "part": self.part,
            "state": "finished" if self.finished else "running",
            "done": self.done,
            "total": self.total,
            "estimated": self.estimated,
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
    estimated: bool = False
    outcomes: Counter[str] = field(default_factory=Counter[str])

    def state(self, name: str, now: float) -> PartState:
        """Return how far it is."""
        elapsed = (now if self.ended is None else self.ended) - self.started
        new, more = self.done - self.before, max(self.total - self.done, 0)
        rate = new / elapsed if new > 0 and elapsed > 0 else None
        left = 0.0 if self.ended is not None else None if rate is None else more / rate
        return PartState(
            name,
            self.done,
            self.total,
            rate,
            left,
            elapsed,
            self.ended is not None,
            self.outcomes.copy(),
            self.estimated and self.ended is None,
        )


class RecordedProgress(Progress):
    """Counts the progress of each part. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
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
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        with self._lock:
            self._parts[name] = Part(total, done, done, self._clock(), estimated=estimated)

    @override
    def advance(self, name: str, count: int) -> None:
        with self._lock:
            self._parts[name].done += count

    @override
    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        with self._lock:
            self._parts[name].outcomes.update(outcomes)

    @override
    def finish(self, name: str) -> None:
        """End a part; it may hold fewer rows than were counted before."""
        with self._lock:
            part = self._parts[name]
            part.total, part.ended = part.done, self._clock()


class StreamProgress(RecordedProgress):
    """Writes a line of each part, with a minimum number of seconds between them."""

    interval: ClassVar[float]

    def __init__(self, stream: TextIO, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(clock)
        self._stream = stream
        self._written_at: dict[str, float] = {}
        # Lines of several threads must not lie within each other, nor a later one before an earlier.
        self._writing = Lock()

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        super().start(name, total, done, estimated=estimated)
        self._written_at[name] = self._clock()

    @override
    def advance(self, name: str, count: int) -> None:
        """Count rows, and write a line when the last one is old."""
        super().advance(name, count)
        if self._clock() - self._written_at[name] >= self.interval:
            self._write(name)

    def _write(self, name: str, *, is_last: bool = False) -> None:
        with self._writing:
            self._written_at[name] = self._clock()
            state = self.state(name)
            line = self._line(replace(state, eta=None) if is_last else state)
            # A log that is full or closed must not end the work.
            with suppress(OSError, ValueError):
                self._stream.write(f"{line}\n")
                self._stream.flush()

    def _line(self, state: PartState) -> str:
        raise NotImplementedError


class LineProgress(StreamProgress):
    """Writes lines for people."""

    interval = 5.0

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
        total = f"{'~' if state.estimated else ''}{state.total:,}"
        text = f"{state.part}: {state.done:,} of {total}, {rate:,.0f}/s{remaining}"
        if message_settings().format is not LogFormat.JSON:
            return text
        counts = {
            "part": state.part,
            "done": state.done,
            "total": state.total,
            "per_second": round(rate),
        }
        return json_line("INFO", LOGGER, text, counts)


class JsonProgress(StreamProgress):
    """Writes a line of JSON when a part begins, each second while it runs, and when it ends."""

    interval = 1.0

    def __init__(self, stream: TextIO, command: str, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(stream, clock)
        self._command = command

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        super().start(name, total, done, estimated=estimated)
        self._write(name)

    @override
    def finish(self, name: str) -> None:
        super().finish(name)
        self._write(name)

    @override
    def _line(self, state: PartState) -> str:
        line = {"format": FORMAT, "time": format_timestamp(datetime.now(UTC)), "command": self._command}
        return json.dumps({**line, **state.document()})


class CombinedProgress(Progress):
    """Forwards to several."""

    def __init__(self, *others: Progress) -> None:
        self._others = others

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        for other in self._others:
            other.start(name, total, done, estimated=estimated)

    @override
    def advance(self, name: str, count: int) -> None:
        for other in self._others:
            other.advance(name, count)

    @override
    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        for other in self._others:
            other.count(name, outcomes)

    @override
    def finish(self, name: str) -> None:
        for other in self._others:
            other.finish(name)

"""What bulk ports are made of: the counts of a writer, and the one stream of a view."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.bulk.port import Conflict, ImportOutcome, Rejected
from twinstore.errors import TransactionAbortedError, ValidationError
from twinstore.runtime.forks import ProcessGuard, guard_stream

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

T = TypeVar("T")

VIEW: Final = "This view"


@dataclass(slots=True)
class WriteCounts:
    """What has become of the records of a range so far."""

    written: Counter[str] = field(default_factory=Counter[str])
    unchanged: Counter[str] = field(default_factory=Counter[str])
    conflicts: list[Conflict] = field(default_factory=list[Conflict])
    rejected: list[Rejected] = field(default_factory=list[Rejected])
    removed: int = 0

    def take_rejected(self) -> Sequence[Rejected]:
        """Return what was refused since the last call, and forget it."""
        taken, self.rejected = self.rejected, []
        return taken

    def outcome(self) -> ImportOutcome:
        """Return the outcome; owners without rows are omitted."""
        return ImportOutcome(
            written=dict(+self.written),
            unchanged=dict(+self.unchanged),
            conflicts=tuple(self.conflicts),
            rejected=tuple(self.rejected),
            removed=self.removed,
        )


class OneStream:
    """The one stream of a view: a connection of PostgreSQL has one answer at a time, so all drivers do."""

    def __init__(self, driver: str) -> None:
        self._driver = driver
        self._process = ProcessGuard()
        self._stream: Generator[object] | None = None
        self._closed = False

    def read(self, stream: Generator[T]) -> Iterator[T]:
        """Yield what a stream yields, the only one that is open."""
        self._begin(stream)
        try:
            yield from guard_stream(stream, VIEW)
        finally:
            stream.close()
            self._stream = None

    def close(self) -> None:
        """End the stream that is open; no other one can begin."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()

    def _begin(self, stream: Generator[object]) -> None:
        self._process.check(VIEW)
        if self._closed:
            raise TransactionAbortedError("This view has ended; open a new one.", driver=self._driver)
        if self._stream is not None:
            raise ValidationError(
                "This view is reading a list already; read it to its end or close it before you begin the "
                "next one, or open another view.",
                driver=self._driver,
            )
        self._stream = stream

"""What calls were answered while a server came and went, and what must therefore be stored.

Each call that writes has a token. An answer is a fact; an error says what is known of the write, and is held
to it: ``not_applied`` means that the token is not there, ``unknown`` that it is there once or not at all.
"""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConcurrencyError, LeaseLostError, LockTimeoutError, Outcome, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Call", "Ledger"]

# What a call may be answered while its server comes and goes. All of them are mapped and, but for the lost
# lease, retryable: the lock is gone with its connection, which no repetition brings back.
EXPECTED: Final = (UnavailableError, ConcurrencyError, LockTimeoutError, LeaseLostError)
# The limit of a call is 30 s; here no call has a reason to reach it.
LONGEST_SECONDS: Final = 25.0


@dataclass(frozen=True, slots=True)
class Call:
    """One call: when it ended, how long it took, its token, and the error it was answered with."""

    kind: str
    token: str
    ended: float
    seconds: float
    error: BaseException | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What is known of the write; ``None`` when it was confirmed."""
        if self.error is None:
            return None
        return self.error.outcome if isinstance(self.error, UnavailableError) else Outcome.NOT_APPLIED

    def __str__(self) -> str:
        """Name the call and its error."""
        said = "" if self.error is None else f": {type(self.error).__name__}: {self.error}"
        return f"{self.kind} {self.token} ({self.seconds:.1f} s){said}"


@dataclass(slots=True)
class Ledger:
    """All calls in the order of their ends."""

    calls: list[Call] = field(default_factory=list[Call])
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @contextmanager
    def noted(self, kind: str, token: str) -> Iterator[None]:
        """Note how the call in the block ends; whatever it raises is judged later."""
        begun = time.monotonic()
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:  # noqa: BLE001  # as said
            error = raised
        ended = time.monotonic()
        with self._changed:
            self.calls.append(Call(kind, token, ended, ended - begun, error))
            self._changed.notify_all()

    def await_answers(self, kinds: set[str], since: float, seconds: float) -> list[str]:
        """Wait until one call of each kind has succeeded since an instant; tell of the others."""

        def missing() -> set[str]:
            calls = itertools.takewhile(lambda call: call.ended >= since, reversed(self.calls))
            return kinds - {call.kind for call in calls if call.error is None}

        with self._changed:
            self._changed.wait_for(lambda: not missing(), seconds)
            last = {call.kind: call for call in self.calls}
            return [str(last.get(kind, kind)) for kind in sorted(missing())]

    def await_refusals(self, number: int, seconds: float) -> bool:
        """Wait until so many calls were refused; return whether they were."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.refused()) >= number, seconds)

    def confirmed(self, token: str) -> bool:
        """Whether a call with this token succeeded."""
        return any(call.token == token and call.error is None for call in reversed(self.calls))

    def foreign(self) -> list[str]:
        """Return the calls that ended in what is no error of this library, or in one of the wrong class."""
        return [
            str(call)
            for call in self.calls
            if call.error is not None and not isinstance(call.error, EXPECTED)
        ]

    def slow(self) -> list[str]:
        """Return the calls that took longer than any outage here."""
        return [str(call) for call in self.calls if call.seconds > LONGEST_SECONDS]

    def contradictions(self, stored: Mapping[str, Callable[[str], int]]) -> list[str]:
        """Return the tokens that are stored otherwise than their call was answered.

        Args:
            stored: by kind, what tells how often a token is stored: 0, 1, or another number where it is
                there in part or more than once.
        """
        wanted = {None: {1}, Outcome.NOT_APPLIED: {0}, Outcome.UNKNOWN: {0, 1}}
        found: list[str] = []
        for call in self.calls:
            if call.kind in stored:
                times = stored[call.kind](call.token)
                if times not in wanted[call.outcome]:
                    found.append(f"{call} is stored {times} times")
        return found

    def refused(self) -> list[Call]:
        """Return the calls that could not use the server."""
        return [call for call in self.calls if isinstance(call.error, UnavailableError)]

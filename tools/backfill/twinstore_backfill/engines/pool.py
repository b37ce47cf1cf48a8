"""The processes that an engine lends: calls go there while there is room, and again where they were lost.

An engine that has forgotten us is opened again. After a failure nothing is sent for a while, and one that has
done no good for five minutes ends the command.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore_backfill.engines.processes import Processes
from twinstore_backfill.engines.workers import Workers

if TYPE_CHECKING:
    from twinstore_backfill.engines import Engine

log = getLogger(__name__)
T = TypeVar("T")
FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 30.0
# What has done no good for so long ends the command.
PATIENCE_SECONDS: Final = 300.0
# A call that has run for so long does not fail, whatever others do: without a server it fails sooner.
BUSY_SECONDS: Final = 240.0
# One that has not come back by then is sent once more: an engine may never have run it.
LOST_SECONDS: Final = 900.0
# How often a call is sent again whose process was lost: it may be the call that kills it.
MOST_LOSSES: Final = 3
# How often the engine is asked for its slots.
LOOK_SECONDS: Final = 1.0
# How often a thread that waits for a call looks after all of them.
TICK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Refused:
    """What a call returns in a process that cannot do this work."""

    host: str
    reason: str


class CancelledByEngine(Exception):  # noqa: N818  # it is what a future says that has no error
    """The engine has cancelled a call."""


@dataclass(slots=True, eq=False)
class Call:
    """A function that some process runs, or is to run.

    Attributes:
        result: what its sender waits for.
        future: the last attempt, ``None`` if it has to be sent.
        since: the time of the last attempt.
        losses: how many processes were lost with it.
        refusals: how many processes could not do it.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    result: Future[Any] = field(default_factory=Future[Any])
    future: Future[Any] | None = None
    since: float = 0.0
    losses: int = 0
    refusals: int = 0


class Pool(AbstractContextManager["Pool"]):
    """Sends calls to an engine.

    A thread that waits for a call also looks after the others; no thread does only that. No lock that a
    callback of the engine needs is held over a call to the engine.

    Attributes:
        is_local: whether the processes are children of this one.
        lends: whether the engine runs anything at all.
        slots: how many calls run at the same time; 0 until ``tend``.
    """

    def __init__(
        self, lend: Callable[[], Engine] | None, name: str, *, per_slot: int = 1, lost: str | None = None
    ) -> None:
        """Open the engine.

        Args:
            lend: opens it, again after it was lost; without one there are no slots.
            name: that of the engine in messages.
            per_slot: how many calls run or wait for each slot.
            lost: the error of a call whose process was lost too often; ``None``: a call that was lost or
                refused is not sent again, and its result is cancelled.

        Raises:
            ConfigurationError: it cannot be reached.
        """
        self._lend, self._name, self._per_slot, self._lost = lend, name, per_slot, lost
        self._engine = None if lend is None else lend()
        self._is_closed = lend is None
        self.is_local = isinstance(self._engine, Processes)
        self.lends = not isinstance(self._engine, Workers)
        self.slots = 0
        # Held over calls to the engine.
        self._engine_lock = Lock()
        # Held for moments, also by callbacks.
        self._changed = Condition()
        self._calls: set[Call] = set()
        self._look_at, self._rest_until = 0.0, 0.0
        self._failures = 0
        self._bad_since: float | None = None
        self._problem = ""
        self._said: set[str] = set()

    @override
    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is still run, and close the engine."""
        with self._engine_lock:
            engine, self._engine, self._is_closed = self._engine, None, True
        if engine is not None:
            with suppress(Exception):
                engine.close()

    def send(self, function: Callable[..., T | Refused], *arguments: object) -> Future[T] | None:
        """Have a process run a function; ``None`` if there is no room for it.

        Raises:
            TwinstoreError: the engine has not done anything for a long time.
        """
        self.tend()
        call = Call(function, arguments)
        with self._changed:
            if not self._has_room:
                return None
            self._calls.add(call)
        with self._engine_lock:
            self._start(call)
        return call.result

    def result_of(self, future: Future[T], check: Callable[[], object]) -> T:
        """Wait for a result; ``check`` may end that."""
        while not future.done():
            check()
            self.tend()
            wait([future], TICK_SECONDS)
        return future.result()

    def wait_for_room(self) -> None:
        """Wait a moment, but no longer than until a call is done."""
        with self._changed:
            if not self._has_room:
                self._changed.wait(TICK_SECONDS)

    def tend(self) -> None:
        """Ask for the slots, open an engine again that has forgotten us, and send again what is due.

        Raises:
            TwinstoreError: the engine has not done anything for a long time.
        """
        # Another thread that waits does it.
        if not self._engine_lock.acquire(blocking=False):
            return
        try:
            if self._is_closed:
                return
            now = monotonic()
            if now >= max(self._look_at, self._rest_until):
                self._look(now)
            with self._changed:
                due = [call for call in self._calls if call.future is None or now > call.since + LOST_SECONDS]
            for call in due if now >= self._rest_until else ():
                self._start(call)
        finally:
            self._engine_lock.release()
        self._refuse_to_wait(now)

    def recover(self) -> None:
        """Forget what has failed, because work was done since."""
        self._failures, self._rest_until, self._bad_since = 0, 0.0, None

    @property
    def _has_room(self) -> bool:
        return monotonic() >= self._rest_until and len(self._calls) < self.slots * self._per_slot

    def _look(self, now: float) -> None:
        """Ask for the slots; what cannot say how many it has is opened again."""
        self._look_at = now + LOOK_SECONDS
        try:
            if self._engine is None and self._lend is not None:
                self._engine = self._lend()
            self.slots = 0 if self._engine is None else self._engine.slots()
        except Exception as error:  # noqa: BLE001  # of any client library
            self._lose_engine(error)
            return
        if not self.slots and self.lends:
            self._note("it has no slots")
            self._say("%s has no slots now: waiting for its workers", self._name)
        elif not self._failures:
            self._bad_since = None

    def _start(self, call: Call) -> None:
        """Send a call, or again; the engine lock is held."""
        if self._engine is None or call.result.done():
            return
        # An engine may give a refused call to the same free worker for ever; of several one goes elsewhere.
        copies = 1 + min(call.refusals, self.slots)
        try:
            futures = [self._engine.submit(call.function, *call.arguments) for _ in range(copies)]
        except Exception as error:  # noqa: BLE001  # of any client library
            self._lose_engine(error)
            return
        with self._changed:
            call.future, call.since = futures[-1], monotonic()
        for future in futures:
            future.add_done_callback(partial(self._ended, call))

    def _lose_engine(self, error: BaseException) -> None:
        """Close an engine that has forgotten us; what it has may run or not."""
        log.debug("the engine is opened again", exc_info=error)
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(Exception):
                engine.close()
        self.slots = 0
        with self._changed:
            self._rest(said(error))
            for call in list(self._calls):
                call.future = None
                self._give_up(call)

    def _ended(self, call: Call, future: Future[Any]) -> None:
        """Take an outcome, in any thread; one that comes late or twice changes nothing."""
        error = CancelledByEngine() if future.cancelled() else future.exception()
        outcome = None if error is not None else future.result()
        with self._changed:
            if call not in self._calls:
                return
            if error is None and not isinstance(outcome, Refused):
                self._calls.discard(call)
                call.result.set_result(outcome)
                self.recover()
            elif call.future is future:
                call.future = None
                self._note_failure(call, outcome, error)
                self._give_up(call)
            self._changed.notify_all()

    def _note_failure(self, call: Call, refused: Refused | None, error: BaseException | None) -> None:
        if refused is not None:
            call.refusals += 1
            self._rest(refused.reason)
            self._say("a worker on %s cannot take part: %s", refused.host, refused.reason)
        elif isinstance(error, CancelledByEngine):
            self._rest("it has cancelled the calls")
        elif error is not None:
            call.losses += 1
            self._rest(said(error))
            if not self._is_closed:
                log.warning("a worker process was lost, others go on: %s", said(error))
        # An engine that is asked at once says whether it has lost the process, or us.
        self._look_at = 0.0

    def _give_up(self, call: Call) -> None:
        """End a call that is not sent again."""
        if self._lost is None:
            self._calls.discard(call)
            call.result.cancel()
        elif call.losses > MOST_LOSSES:
            self._calls.discard(call)
            call.result.set_exception(TwinstoreError(self._lost))

    def _say(self, text: str, *about: str) -> None:
        """Say something once, however many workers it is true of."""
        if text % about not in self._said:
            self._said.add(text % about)
            log.warning(text, *about)

    def _note(self, problem: str) -> None:
        self._problem = problem
        self._bad_since = self._bad_since or monotonic()

    def _rest(self, problem: str) -> None:
        """Send nothing for a while."""
        self._note(problem)
        self._failures += 1
        self._rest_until = monotonic() + delay(self._failures)

    def _refuse_to_wait(self, now: float) -> None:
        bad_since = self._bad_since
        if bad_since is None or now - bad_since < PATIENCE_SECONDS:
            return
        with self._changed:
            sent = [call.since for call in self._calls if call.future is not None]
        if self.slots and any(now - since > BUSY_SECONDS for since in sent):
            self._bad_since = None
            return
        raise TwinstoreError(
            f"{self._name} has not done any work for {PATIENCE_SECONDS / 60:.0f} minutes: "
            f"{self._problem.rstrip('.')}. Run the same command again when it does."
        )


def delay(failures: int) -> float:
    """Return how many seconds to wait after so many failures: 0.2, 1, 2, 4 and so on."""
    return FIRST_DELAY if failures <= 1 else min(2.0 ** min(failures - 2, 10), LONGEST_DELAY)


def said(error: BaseException) -> str:
    """Return what a message may say of an error: an unexpected one may quote anything."""
    return error.message if isinstance(error, TwinstoreError) else type(error).__name__

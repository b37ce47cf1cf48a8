"""Slices: what an engine runs is a worker that claims ranges for some seconds, never one range.

coordinator: keeps as many slices in flight as the engine has slots, until the ledger has no range left
engine:      may run a slice never, late, or twice; a slice that runs again claims other ranges
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from logging import getLogger
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from typing_extensions import override

from twinstore.errors import (
    ConfigurationError,
    MigrationError,
    TwinstoreError,
    UnsupportedCapabilityError,
)
from twinstore.fast.library import fast_path
from twinstore_backfill.copy.ranges import Share
from twinstore_backfill.copy.workers import Worker
from twinstore_backfill.engines import PATIENCE_SECONDS, delay
from twinstore_backfill.engines.processes import Processes
from twinstore_backfill.engines.sites import opened
from twinstore_backfill.engines.workers import Workers
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.process.children import stop_with_parent
from twinstore_backfill.process.memory import cache_batch_memory
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.rules.functions import UnrepeatableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from twinstore_backfill.copy.worker import CopyContext
    from twinstore_backfill.engines import Engine
    from twinstore_backfill.engines.sites import Specs, Ticket

log = getLogger(__name__)

SLICE_SECONDS: Final = 20.0
# Between two looks at the engine.
TURN_SECONDS: Final = 0.2
SLOTS_SECONDS: Final = 1.0
# A slice that has not come back by then is taken for one that never runs.
LOST_SECONDS: Final = 600.0


# The coordinator raises these.
FAILS_ANYWHERE: Final = (
    ConfigurationError,
    MigrationError,
    PreflightError,
    UnrepeatableError,
    UnsupportedCapabilityError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """What a slice says; it is news, and may be lost.

    Attributes:
        rows, packed: how many rows of ranges were read, and how many of them packed.
        slow: why the fast path is off there; empty if it is on.
        failures: by number of range, why it could not be copied.
        refused: why nothing could be copied from there.
        error: what would fail anywhere.
    """

    rows: int = 0
    packed: int = 0
    slow: str = ""
    failures: Mapping[int, str] = field(default_factory=dict[int, str])
    refused: str = ""
    error: Exception | None = None


def run_slice(
    ticket: Ticket, seconds: float = SLICE_SECONDS, threads: int = 1, specs: Specs | None = None
) -> SliceResult:
    """Copy ranges of a job for some seconds; the range in hand then is finished.

    Args:
        ticket: names the stores and the job. Nothing in it is secret.
        seconds: for how long ranges are claimed.
        threads: how many ranges are copied at the same time.
        specs: how the parent of this process has opened the stores; by default the settings here say it.

    Raises:
        TwinstoreError: a store is away; another slice may have more luck.
    """
    stop = stop_with_parent(StopSwitch())
    try:
        with opened(ticket, specs) as sides:
            source, target = sides
            # First: another target has no such job.
            ticket.check(source, target, source.bulk.entities())
            job = target.ledger.find(ticket.job)
            if job is None:
                return SliceResult()
            share = Share(until=monotonic() + seconds)
            return _copied(Worker(sides, job, stop, share), threads)
    except (ConfigurationError, PreflightError) as error:
        return SliceResult(refused=error.message)


def _copied(worker: Worker, threads: int) -> SliceResult:
    context = worker.context
    found: Exception | None = None
    try:
        with cache_batch_memory():
            worker.run(threads)
    except FAILS_ANYWHERE as error:
        found = picklable(error)
    except Exception as error:
        # Here alone, as far as is known: the disk of this host may be full.
        log.debug("a slice failed", exc_info=error)
        raise picklable(error) from None
    return SliceResult(
        rows=context.share.rows,
        packed=context.share.packed,
        slow="" if fast_path().is_on else fast_path().reason,
        failures=context.failures,
        error=found,
    )


def picklable(error: Exception) -> Exception:
    """Return an error as another process can read it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # what was written here
    except Exception:  # noqa: BLE001  # whatever a class of errors does
        return TwinstoreError(f"A process of the copy failed: unexpected {type(error).__name__}.")
    return error


class InFlight(NamedTuple):
    """A slice that an engine has, and when it counts as lost."""

    future: Future[SliceResult]
    until: float


class Slices(AbstractContextManager["Slices"]):
    """Keeps the slots of an engine busy with slices of a job, until the block ends."""

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        ticket: Ticket,
        context: CopyContext,
        *,
        threads: int = 1,
        specs: Specs | None = None,
    ) -> None:
        """Take the engine, the job, and what the coordinator of it shares with its threads.

        Args:
            open_engine: opens the engine, again after it was lost.
            ticket: names the job.
            context: is stopped if slices find what would fail anywhere.
            threads: of each slice.
            specs: goes to child processes of this one, and to nobody else.
        """
        self.error: Exception | None = None
        self._open, self._ticket, self._context = open_engine, ticket, context
        self._threads, self._specs = threads, specs
        self._engine: Engine | None = None
        self._running: list[InFlight] = []
        self._slots, self._slots_until = 0, 0.0
        self._failures, self._first_failure, self._not_before = 0, 0.0, 0.0
        self._said: set[str] = set()
        self._over = Event()
        self._thread = Thread(target=self._keep, name="slices", daemon=True)

    @override
    def __enter__(self) -> Self:
        self._thread.start()
        return self

    @override
    def __exit__(self, *_: object) -> None:
        """End all slices at the next safe point; what they copied is in the ledger."""
        self._over.set()
        self._thread.join()
        self._close()
        for item in self._running:
            if item.future.done() and not item.future.cancelled() and item.future.exception() is None:
                self._hear(item.future.result())

    def recover(self) -> None:
        """Forget the slices that failed, because ranges were finished since."""
        self._failures = 0

    def _keep(self) -> None:
        while not self._over.wait(TURN_SECONDS):
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  # whatever an engine does
                # It has forgotten us, or is away: what it had in flight may run or not.
                self._running.clear()
                self._close()
                self._failed(error)

    def _turn(self) -> None:
        for item in [item for item in self._running if item.future.done() or monotonic() > item.until]:
            self._running.remove(item)
            self._take(item.future)
        if monotonic() < self._not_before or self._context.stop.requested:
            return
        engine = self._engine = self._engine or self._open()
        if monotonic() >= self._slots_until:
            self._slots, self._slots_until = engine.slots(), monotonic() + SLOTS_SECONDS
        if not self._slots and not isinstance(engine, Workers):
            self._say("the engine has no slots now: %s", "waiting for its workers")
        # Only through a pipe on this host.
        specs = self._specs if isinstance(engine, Processes) else None
        while len(self._running) < self._slots:
            future = engine.submit(run_slice, self._ticket, SLICE_SECONDS, self._threads, specs)
            self._running.append(InFlight(future, monotonic() + LOST_SECONDS))

    def _take(self, future: Future[SliceResult]) -> None:
        if not future.done():
            future.cancel()
            self._failed(TimeoutError())
        elif future.cancelled():
            self._failed(TimeoutError())
        elif (error := future.exception()) is not None:
            self._failed(error)
        elif (result := future.result()).refused:
            self._refused(result.refused)
        else:
            self.recover()
            self._hear(result)

    def _hear(self, result: SliceResult) -> None:
        self._context.failures.update(result.failures)
        self._context.share.add(result.rows, result.packed)
        if result.error is not None:
            self._end_with(result.error)
        if result.slow and fast_path().is_on:
            self._say("a worker copies without the fast path: %s", result.slow)
        # One that found nothing to do would only find that again.
        if not result.rows:
            self._not_before = monotonic() + SLOTS_SECONDS
        self._context.queue.notify_changed()

    def _failed(self, error: BaseException) -> None:
        said = error.message if isinstance(error, TwinstoreError) else type(error).__name__
        log.warning("a process of the copy was lost, others go on: %s", said)
        self._pause(f"Every slice fails; the last one: {said}")

    def _refused(self, reason: str) -> None:
        self._say("a worker cannot take part: %s", reason)
        self._pause(f"No worker can take part; the last one: {reason}")

    def _say(self, text: str, reason: str) -> None:
        """Say something once, however many workers it is true of."""
        if reason not in self._said:
            self._said.add(reason)
            log.warning(text, reason)

    def _pause(self, reason: str) -> None:
        now = monotonic()
        if not self._failures:
            self._first_failure = now
        self._failures += 1
        self._not_before = now + delay(self._failures)
        if now - self._first_failure > PATIENCE_SECONDS:
            self._end_with(TwinstoreError(f"{reason.rstrip('.')}. What is finished is saved."))

    def _end_with(self, error: Exception) -> None:
        self.error = self.error or error
        self._context.stop.request()

    def _close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(Exception):
                engine.close()

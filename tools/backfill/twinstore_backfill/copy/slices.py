"""Slices: what an engine runs is a worker that claims ranges for some seconds, never one range.

coordinator: keeps as many slices in flight as the engine has slots, until the ledger has no range left
engine:      may run a slice never, late, or twice; a slice that runs again claims other ranges
"""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from logging import getLogger
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

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
from twinstore_backfill.engines.pool import Refused
from twinstore_backfill.engines.sites import opened
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.process.children import stop_with_parent
from twinstore_backfill.process.memory import cache_batch_memory
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.rules.functions import UnrepeatableError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from twinstore_backfill.copy.worker import CopyContext
    from twinstore_backfill.engines.pool import Pool
    from twinstore_backfill.engines.sites import Specs, Ticket

log = getLogger(__name__)

SLICE_SECONDS: Final = 20.0
# Between two looks at the engine.
TURN_SECONDS: Final = 0.2
IDLE_SECONDS: Final = 1.0

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
        error: what would fail anywhere.
    """

    rows: int = 0
    packed: int = 0
    slow: str = ""
    failures: Mapping[int, str] = field(default_factory=dict[int, str])
    error: Exception | None = None


def run_slice(
    ticket: Ticket, seconds: float = SLICE_SECONDS, threads: int = 1, specs: Specs | None = None
) -> SliceResult | Refused:
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
        return Refused(socket.gethostname(), error.message)


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


class Slices(AbstractContextManager["Slices"]):
    """Keeps the slots of an engine busy with slices of a job, until the block ends."""

    def __init__(
        self,
        pool: Pool,
        ticket: Ticket,
        context: CopyContext,
        *,
        threads: int = 1,
        specs: Specs | None = None,
    ) -> None:
        """Take the engine, the job, and what the coordinator of it shares with its threads.

        Args:
            pool: the processes; it is closed at the end.
            ticket: names the job.
            context: is stopped if slices find what would fail anywhere.
            threads: of each slice.
            specs: goes to child processes of this one, and to nobody else.
        """
        self.error: Exception | None = None
        self._pool, self._context = pool, context
        # Through a pipe on this host only.
        self._arguments = ticket, SLICE_SECONDS, threads, specs if pool.is_local else None
        self._running: list[Future[SliceResult]] = []
        self._not_before = 0.0
        self._slow: set[str] = set()
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
        self._pool.close()
        self._hear()

    def recover(self) -> None:
        """Forget the slices that failed, because ranges were finished since."""
        self._pool.recover()

    def _keep(self) -> None:
        try:
            while not self._over.wait(TURN_SECONDS):
                self._turn()
        except Exception as error:  # noqa: BLE001  # raised by the coordinator, which waits for ranges
            self._end_with(error)

    def _turn(self) -> None:
        self._hear()
        if monotonic() < self._not_before or self._context.stop.requested:
            return
        self._pool.tend()
        for _ in range(self._pool.slots - len(self._running)):
            future = self._pool.send(run_slice, *self._arguments)
            if future is None:
                return
            self._running.append(future)

    def _hear(self) -> None:
        """Take in what slices say that have ended; one that was lost says nothing."""
        for future in [future for future in self._running if future.done()]:
            self._running.remove(future)
            if not future.cancelled():
                self._take(future.result())

    def _take(self, result: SliceResult) -> None:
        self._context.failures.update(result.failures)
        self._context.share.add(result.rows, result.packed)
        if result.error is not None:
            self._end_with(result.error)
        if result.slow and fast_path().is_on and result.slow not in self._slow:
            self._slow.add(result.slow)
            log.warning("a worker copies without the fast path: %s", result.slow)
        # One that found nothing to do would only find that again.
        if not result.rows:
            self._not_before = monotonic() + IDLE_SECONDS
        self._context.queue.notify_changed()

    def _end_with(self, error: Exception) -> None:
        self.error = self.error or error
        self._context.stop.request()

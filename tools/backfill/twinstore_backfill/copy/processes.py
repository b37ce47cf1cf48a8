"""Copying with several processes: beyond eight threads the lock of one process holds them up.

    this process: the lease, the plan, the limits, the progress, and some of the threads
    each helper:  the other threads, as a worker of its own in the ledger; tells what it does through a pipe

Ranges are handed out by the ledger and committed by their fences, as between any two workers. Only this
process writes what the lease is needed for.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from contextlib import AbstractContextManager
from logging import getLogger
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore_backfill.children import signals_of_parent
from twinstore_backfill.copy.helping import (
    Advanced,
    Assignment,
    Begun,
    Changed,
    Echo,
    Ended,
    Finished,
    Stop,
    Tallied,
    help_to_copy,
)
from twinstore_backfill.messages import chosen

if TYPE_CHECKING:
    from twinstore.ledger import CopyJob
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.copy.worker import CopyContext
    from twinstore_backfill.stores import Store

__all__ = ["Team", "threads_of_processes"]

log = getLogger(__name__)

THREADS_PER_PROCESS: Final = 8
# How often whoever listens to a helper looks whether a stop was asked for.
LOOK_SECONDS: Final = 0.2
# What a helper has told is waited for this long before an entity counts as finished.
DRAIN_SECONDS: Final = 10.0


def threads_of_processes(source: Store, target: Store, options: CopyOptions, threads: int) -> list[int]:
    """Return how many threads each process of a copy has, the present one first.

    One alone where a store lives in it, and where rows may be overwritten: values that are unique may then
    move between ranges, which is settled before the rows that refer to them, by whoever holds the lease.
    """
    alone = source.spec is None or target.spec is None or options.on_conflict == "overwrite"
    processes = 1 if alone else -(-threads // THREADS_PER_PROCESS)
    return [threads // processes + (number < threads % processes) for number in range(processes)]


class Team(AbstractContextManager["Team"]):
    """The helpers of one copy, as its process sees them."""

    def __init__(self, context: CopyContext) -> None:
        """Take what the threads of this process share."""
        self._context = context
        self._helpers: list[Helper] = []

    def start(
        self, source: Store, target: Store, options: CopyOptions, job: CopyJob, threads: list[int]
    ) -> None:
        """Start a helper for each number of threads but the first, which are those of this process."""
        own, *others = threads
        if not others or source.spec is None or target.spec is None:
            return
        self._context.limiter.set_share(own / sum(threads))
        for number in others:
            # Their rows are heard of before this process comes to them.
            for entity in self._context.entities.values():
                self._context.queue.say_begun(entity)
            assignment = Assignment(
                source=source.spec,
                target=target.spec,
                job_id=job.id,
                entities=tuple(self._context.entities),
                options=options,
                threads=number,
                share=number / sum(threads),
                messages=chosen(),
            )
            self._helpers.append(Helper(self._context, assignment))

    def drain(self) -> None:
        """Wait until everything has been heard that helpers told before."""
        for helper in self._helpers:
            helper.drain()

    def join(self) -> None:
        """Wait for the end of all helpers.

        Raises:
            Exception: what ended one of them; it has stopped the others.
        """
        for helper in self._helpers:
            helper.join()
        for helper in self._helpers:
            if helper.error is not None:
                raise helper.error

    @override
    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Wait for the end of all helpers, which a failure stops."""
        if kind is not None:
            self._context.stop.request()
        for helper in self._helpers:
            helper.join()


class Helper:
    """One other process, and the thread that listens to it."""

    def __init__(self, context: CopyContext, assignment: Assignment) -> None:
        """Start both."""
        self.error: Exception | None = None
        self._context = context
        # Rows of ranges that are not live yet, which nobody takes back when the process is killed.
        self._open = Counter[str]()
        self._begun = self._ended = False
        self._heard = Event()
        self._echoes = 0
        self._connection, other = multiprocessing.Pipe()
        # "spawn": a forked child would share the connections of this process.
        self._process = multiprocessing.get_context("spawn").Process(
            target=help_to_copy, args=(other, assignment), name="copy", daemon=True
        )
        with signals_of_parent():
            self._process.start()
        # Or its end would not be noticed.
        other.close()
        self._thread = Thread(target=self._listen, name="copy-helper", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Wait until everything has been heard that the process told before."""
        self._heard.clear()
        self._echoes += 1
        # One that is still starting has told nothing.
        if self._begun and not self._ended and self._send(Echo(self._echoes)):
            self._heard.wait(DRAIN_SECONDS)

    def join(self) -> None:
        """Wait for the end of the process."""
        # It may be waiting for what happens here.
        self._send(Changed())
        self._thread.join()
        self._process.join()
        self._connection.close()

    def _send(self, message: object) -> bool:
        try:
            self._connection.send(message)
        except OSError:
            return False
        return True

    def _listen(self) -> None:
        try:
            self._hear()
        except (EOFError, OSError):
            log.warning("a process of the copy was killed; its ranges are copied by the others")
            for entity, count in self._open.items():
                self._context.progress.advance(entity, -count)
        except Exception as error:  # noqa: BLE001  # a thread that ends in silence would leave the copy waiting
            self.error = error
            self._context.stop.request()
        finally:
            self._ended = True
            self._heard.set()
            self._context.queue.returned()

    def _hear(self) -> None:
        stopped = False
        while True:
            if self._context.stop.requested and not stopped:
                stopped = self._send(Stop())
            if not self._connection.poll(LOOK_SECONDS):
                continue
            message: object = self._connection.recv()
            self._take(message)
            if isinstance(message, Ended):
                return

    def _take(self, message: object) -> None:
        context = self._context
        match message:
            case Advanced(entity, count):
                self._open[entity] += count
                context.progress.advance(entity, count)
            case Finished(entity, outcomes):
                self._open[entity] -= outcomes.get("read", 0)
                context.progress.count(entity, outcomes)
                context.queue.returned()
            case Tallied(tally, waiting):
                context.limits.add(tally, waiting)
            case Begun():
                self._begun = True
            case Echo(number) if number == self._echoes:
                self._heard.set()
            case Ended(failures, rows, packed, error):
                context.failures.update(failures)
                context.share.add(rows, packed)
                if error is not None:
                    self.error = error
                    context.stop.request()
            case _:
                pass

"""Copying with several processes: beyond eight threads the interpreter lock of one process is the limit.

    this process: the lease, the plan, the limits, the progress, and some of the threads
    each helper:  the other threads, as a separate worker in the ledger; reports its work through a pipe

The ledger assigns ranges and their fences decide about commits, as between any two workers. Only this
process does the writes that need the lease.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections import Counter
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from logging import getLogger
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore_backfill.copy.control import Control, Limits, RateLimiter
from twinstore_backfill.copy.description import options_of
from twinstore_backfill.copy.earlier import EarlierForms
from twinstore_backfill.copy.lease import ConflictRetry, worker_id
from twinstore_backfill.copy.ranges import RangeQueue
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.copy.rules import backward_changes
from twinstore_backfill.copy.worker import CopyContext, copy_ranges
from twinstore_backfill.process.children import begin_child, block_signals
from twinstore_backfill.process.memory import cache_batch_memory, tuned_gc
from twinstore_backfill.process.messages import message_settings
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import Progress
from twinstore_backfill.retention import expiry_test

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from datetime import timedelta
    from multiprocessing.connection import Connection

    from twinstore.ledger import CopyJob, Ledger
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.process.messages import Messages
    from twinstore_backfill.stores import Store, StoreSpec

log = getLogger(__name__)

THREADS_PER_PROCESS: Final = 8
# How often the listener of a helper checks whether a stop was requested.
POLL_SECONDS: Final = 0.2
# How long to wait for the reports of a helper before an entity counts as finished.
DRAIN_SECONDS: Final = 10.0
# Of helpers that were killed, in a minute.
MOST_REPLACED: Final = 5
MINUTE: Final = 60.0


def threads_of_processes(source: Store, target: Store, options: CopyOptions, threads: int) -> list[int]:
    """Return how many threads each process of a copy has, the present one first.

    There is only one process if a store lives in it, or if rows may be overwritten: unique values may then
    move between ranges, and the holder of the lease settles that before the rows that refer to them.
    """
    alone = source.spec is None or target.spec is None or options.on_conflict == "overwrite"
    processes = 1 if alone else -(-threads // THREADS_PER_PROCESS)
    return [threads // processes + (number < threads % processes) for number in range(processes)]


class HelperPool(AbstractContextManager["HelperPool"]):
    """The helpers of one copy, as its process sees them."""

    def __init__(self, context: CopyContext) -> None:
        self._context = context
        self._helpers: list[HelperProcess] = []
        # When helpers were replaced, by the monotonic clock.
        self._replaced: list[float] = []

    def start(self, source: Store, target: Store, job: CopyJob, threads: list[int]) -> None:
        """Start a helper for each number of threads but the first, which are those of this process."""
        _, *others = threads
        if not others or source.spec is None or target.spec is None:
            return
        for number in others:
            # Their rows are heard of before this process comes to them.
            for entity in self._context.entities.values():
                self._context.queue.begin_entity(entity)
            assignment = Assignment(
                source=source.spec,
                target=target.spec,
                job_id=job.id,
                threads=number,
                messages=message_settings(),
            )
            self._begin(assignment)

    def _begin(self, assignment: Assignment) -> None:
        self._helpers.append(HelperProcess(self._context, assignment, partial(self._replace, assignment)))

    def _replace(self, assignment: Assignment) -> bool:
        """Start a helper in place of one that was killed, unless too many were; return whether it did."""
        now = monotonic()
        self._replaced = [*(moment for moment in self._replaced if now - moment < MINUTE), now]
        if len(self._replaced) > MOST_REPLACED or self._context.stop.requested:
            return False
        self._begin(assignment)
        return True

    def drain(self) -> None:
        """Wait until everything has been received that helpers reported before."""
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


class HelperProcess:
    """One other process, and the thread that listens to it."""

    def __init__(self, context: CopyContext, assignment: Assignment, replace: Callable[[], bool]) -> None:
        """Start it; ``replace`` starts another one if it is killed, and returns whether it did."""
        self.error: Exception | None = None
        self._context = context
        self._replace = replace
        # Rows of ranges that are not live yet; a killed process cannot subtract them itself.
        self._open = Counter[str]()
        self._begun = self._ended = False
        self._drained = Event()
        self._echoes = 0
        self._connection, other = multiprocessing.Pipe()
        # "spawn": a forked child would share the connections of this process.
        self._process = multiprocessing.get_context("spawn").Process(
            target=run_helper, args=(other, assignment), name="copy", daemon=True
        )
        with block_signals():
            self._process.start()
        # Or its end would not be noticed.
        other.close()
        self._thread = Thread(target=self._listen, name="copy-helper", daemon=True)
        self._thread.start()

    def drain(self) -> None:
        """Wait until everything has been received that the process reported before."""
        self._drained.clear()
        self._echoes += 1
        # A process that is still starting has reported nothing.
        if self._begun and not self._ended and self._send(Echo(self._echoes)):
            self._drained.wait(DRAIN_SECONDS)

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
            self._receive()
        except (EOFError, OSError):
            for entity, count in self._open.items():
                self._context.progress.advance(entity, -count)
            after = "another takes its place" if self._replace() else "its ranges are copied by the others"
            log.warning("a process of the copy was killed; %s", after)
        except Exception as error:  # noqa: BLE001  # a thread that ends in silence would leave the copy waiting
            self.error = error
            self._context.stop.request()
        finally:
            self._ended = True
            self._drained.set()
            self._context.queue.notify_changed()

    def _receive(self) -> None:
        stopped = False
        while True:
            if self._context.stop.requested and not stopped:
                stopped = self._send(Stop())
            if not self._connection.poll(POLL_SECONDS):
                continue
            message: object = self._connection.recv()
            self._handle(message)
            if isinstance(message, Ended):
                return

    def _handle(self, message: object) -> None:
        context = self._context
        match message:
            case Advanced(entity, count):
                self._open[entity] += count
                context.progress.advance(entity, count)
            case Finished(entity, outcomes):
                self._open[entity] -= outcomes.get("read", 0)
                context.progress.count(entity, outcomes)
                context.queue.notify_changed()
            case Begun():
                self._begun = True
            case Echo(number) if number == self._echoes:
                self._drained.set()
            case Ended(failures, rows, packed, error):
                context.failures.update(failures)
                context.share.add(rows, packed)
                if error is not None:
                    self.error = error
                    context.stop.request()
            case _:
                pass


# The work of a helper process: it copies ranges and reports to its parent through a pipe.


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The order that a helper gets when it starts."""

    source: StoreSpec
    target: StoreSpec
    job_id: str
    threads: int
    messages: Messages


@dataclass(frozen=True, slots=True)
class Begun:
    """The first word of a helper: from here on it obeys."""


@dataclass(frozen=True, slots=True)
class Advanced:
    """Rows of an entity were copied, or taken back."""

    entity: str
    count: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A range is live."""

    entity: str
    outcomes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Echo:
    """Comes back when everything before it has been reported."""

    number: int


@dataclass(frozen=True, slots=True)
class Stop:
    """A stop was requested."""


@dataclass(frozen=True, slots=True)
class Changed:
    """A range was finished or opened elsewhere."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The last word of a helper."""

    failures: Mapping[int, str] = field(default_factory=dict[int, str])
    rows: int = 0
    packed: int = 0
    error: Exception | None = None


class ParentConnection:
    """Sends the reports of a helper to its parent, from several threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, Lock()

    def send(self, message: object) -> None:
        """Send a report; if the parent has ended, this process ends by itself."""
        with self._lock, suppress(OSError):
            self._connection.send(message)

    def receive(self, stop: StopSwitch, changed: Callable[[], None]) -> None:
        """Do what the parent says, until it says nothing any more."""
        with suppress(EOFError, OSError):
            while True:
                message: object = self._connection.recv()
                if isinstance(message, Stop):
                    stop.request()
                elif isinstance(message, Changed):
                    changed()
                else:
                    self.send(message)


class RemoteProgress(Progress):
    """Progress that the parent shows; it begins and ends the parts itself."""

    def __init__(self, parent: ParentConnection) -> None:
        self._parent = parent

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        """Leave it to the parent."""

    @override
    def advance(self, name: str, count: int) -> None:
        self._parent.send(Advanced(name, count))

    @override
    def finish(self, name: str) -> None:
        """Leave it to the parent."""

    @override
    def count(self, name: str, outcomes: Mapping[str, int]) -> None:
        self._parent.send(Finished(name, dict(outcomes)))


def run_helper(connection: Connection, assignment: Assignment) -> None:
    """Copy ranges of a job until none is left or the parent says stop: all that a helper does."""
    begin_child(assignment.messages)
    parent = ParentConnection(connection)
    try:
        with (
            assignment.source.open() as source,
            assignment.target.open() as target,
            tuned_gc(),
            cache_batch_memory(),
        ):
            parent.send(copy_as_helper(source, target, assignment, parent))
    except Exception as error:  # the parent raises it
        log.debug("a helper failed", exc_info=error)
        parent.send(Ended(error=picklable(error)))


def copy_as_helper(source: Store, target: Store, assignment: Assignment, parent: ParentConnection) -> Ended:
    """Copy ranges; return the final message."""
    job = target.ledger.find(assignment.job_id)
    if job is None:
        raise LookupError(assignment.job_id)
    options, stop, worker = options_of(job, source, target), StopSwitch(), worker_id()
    target = target.changed(backward_changes(options.rules, source.bulk.entities()))
    ledger = target.ledger
    rate = None if job.max_rate is None else float(job.max_rate)
    limiter = RateLimiter(rate, stop, workers=lambda: ledger.living(job.id, worker))
    conflict_retry = ConflictRetry(stop)
    entities = [entity for entity in source.bulk.entities() if entity.name in options.entities]
    queue = RangeQueue(
        ledger,
        job.id,
        worker,
        entities,
        lease=options.lease,
        stop=stop,
        conflict_retry=conflict_retry,
        control=Control(limiter, job),
        begin=lambda _: None,
        settle=lambda _: False,
        end=lambda _: None,
    )
    context = CopyContext(
        source=SourceRows(source.bulk, options),
        earlier=EarlierForms(source.bulk, job.settings, options.rules),
        target=target.bulk,
        ledger=ledger,
        queue=queue,
        limits=Limits(ledger, job.id, options, stop),
        limiter=limiter,
        conflict_retry=conflict_retry,
        stop=stop,
        progress=RemoteProgress(parent),
        entities={entity.name: entity for entity in entities},
        expired={entity.name: expiry_test(entity, target.options, job.as_of) for entity in entities},
        on_conflict=options.on_conflict,
    )
    Thread(target=parent.receive, args=(stop, queue.notify_changed), daemon=True).start()
    parent.send(Begun())
    with heartbeat(ledger, job, worker, options.lease):
        copy_ranges(context, assignment.threads)
    return Ended(context.failures, context.share.rows, context.share.packed)


@contextmanager
def heartbeat(ledger: Ledger, job: CopyJob, worker: str, duration: timedelta) -> Generator[None]:
    """Say every third of the lease that a worker lives; its ranges are free at the end."""
    ended = Event()

    def heartbeat() -> None:
        while not ended.wait(duration.total_seconds() / 3):
            try:
                ledger.heartbeat(job.id, worker, duration)
            except Exception as error:  # noqa: BLE001  # a thread that ends in silence would lose the ranges
                log.warning("no sign of life could be given, trying again: %s", type(error).__name__)

    thread = Thread(target=heartbeat, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(TwinstoreError):
            ledger.sign_off(job.id, worker)


def picklable(error: Exception) -> Exception:
    """Return an error as another process can read it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  # what was written here
    except Exception:  # noqa: BLE001  # whatever a class of errors does
        return TwinstoreError(f"A process of the copy failed: unexpected {type(error).__name__}.")
    return error

"""Running the pieces of a verification: here, in child processes, or in processes that an engine lends.

    tasks, made lazily -> workers that have room, else this process -> results in the order of the tasks
                          |       ^
                          +-------+ again, where a process was lost

Tasks are made one by one, because later ones depend on earlier results: ``None`` among them waits for all.
A task is a pure function of what it names and of two stores: it does not matter where it runs, nor how often.
"""

from __future__ import annotations

import pickle
import socket
import time
import traceback
from collections import deque
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from logging import getLogger
from threading import Condition, Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeAlias, TypeVar

from typing_extensions import override

from twinstore.errors import TwinstoreError, ValidationError
from twinstore.runtime.secrets import mask_secret_url
from twinstore_backfill.engines import PATIENCE_SECONDS, delay, open_engine
from twinstore_backfill.engines.processes import MOST, Processes
from twinstore_backfill.engines.sites import Ticket, opened
from twinstore_backfill.engines.workers import Workers
from twinstore_backfill.process.messages import warn
from twinstore_backfill.verify.context import VerifyContext
from twinstore_backfill.verify.memory_lock import HOST_FILE, lock_file, set_lock_file, use_lock_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from twinstore_backfill.engines.sites import Sides, Specs
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.verify.context import Task

log = getLogger(__name__)
R = TypeVar("R")
# One task that runs and one that waits for each process: none is idle, and few results pile up.
TASKS_PER_WORKER: Final = 2
# How often a thread that waits for a task looks after those that were lost.
TICK_SECONDS: Final = 0.2
# How often the engine is asked for its slots.
LOOK_SECONDS: Final = 1.0
# How often a task is sent again whose process was lost: it may be the task that kills it.
MOST_LOSSES: Final = 3
# A task that has run for so long is no failure, whatever else the engine does.
BUSY_SECONDS: Final = 10.0
# One that has not come back by then is sent once more: an engine may never have run it.
LOST_SECONDS: Final = 1800.0
# A worker that can do nothing would take the tasks of all others, because it is free at once.
REFUSAL_SECONDS: Final = 1.0


def run_tasks(
    tasks: Iterable[Task[R] | None], context: VerifyContext, workers: WorkerPool, stop: StopSwitch
) -> Iterator[R]:
    """Yield the result of each task in the order of the tasks.

    At ``None`` every result so far is yielded before the next task is requested. Without an engine this
    process runs a task while the others are busy.

    Raises:
        StopRequestedError: a stop was requested.
        TwinstoreError: the failure of a task, or worker processes that were lost.
    """
    waiting: deque[Future[R]] = deque()
    for task in tasks:
        stop.check()
        if task is None:
            yield from _drain(waiting, workers, stop)
            continue
        # Results leave in the order of the tasks, so that the ranges of an entity are merged in key order.
        sent = workers.send(task) if workers.takes(task) else _completed(task.run(context))
        while sent is None and workers.is_engine:
            yield from _finished(waiting)
            workers.wait_for_room()
            stop.check()
            sent = workers.send(task)
        waiting.append(sent or _completed(task.run(context)))
        yield from _finished(waiting)
    yield from _drain(waiting, workers, stop)


def _finished(waiting: deque[Future[R]]) -> Iterator[R]:
    while waiting and waiting[0].done():
        yield waiting.popleft().result()


def _drain(waiting: deque[Future[R]], workers: WorkerPool, stop: StopSwitch) -> Iterator[R]:
    while waiting:
        stop.check()
        yield workers.result_of(waiting.popleft(), stop.check)


def _completed(result: R) -> Future[R]:
    future: Future[R] = Future()
    future.set_result(result)
    return future


# In a worker.


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """The result of a task."""

    result: R


@dataclass(frozen=True, slots=True)
class Failed:
    """The failure of a task, which is the same in any process."""

    error: Exception
    traceback: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A worker that cannot do this work."""

    host: str
    reason: str


Outcome: TypeAlias = Done[R] | Failed | Refused


class WorkerTraceback(Exception):  # noqa: N818  # it is no error, but says where one happened
    """The place of a failure in a worker process."""


# The context of the last task of this process; tasks of one verification follow one another.
_last: Final[list[tuple[Ticket, bytes, Sides, VerifyContext]]] = []


def work(ticket: Ticket, shared: bytes, task: Task[R], specs: Specs | None, turns: Path | None) -> Outcome[R]:
    """Run a task in this process, which an engine has lent.

    Args:
        ticket: the stores.
        shared: the part of the context that is sent.
        task: the task.
        specs: how a parent on this host has opened the stores; ``None``: as the settings of this process say.
        turns: the lock file of the parent.
    """
    with ExitStack() as stack:
        try:
            sides = stack.enter_context(opened(ticket, specs))
            context = _context_of(ticket, shared, sides, turns or HOST_FILE, is_foreign=specs is None)
        except TwinstoreError as error:
            if specs is not None:
                return Failed(error, traceback.format_exc())
            time.sleep(REFUSAL_SECONDS)
            return Refused(socket.gethostname(), str(error))
        try:
            return Done(task.run(context))
        except Exception as error:  # noqa: BLE001  # raised by the process that has sent the task
            return Failed(error, traceback.format_exc())


def _context_of(
    ticket: Ticket, shared: bytes, sides: Sides, turns: Path, *, is_foreign: bool
) -> VerifyContext:
    for known_ticket, known, stores, context in _last:
        if (known_ticket, known) == (ticket, shared) and stores is sides:
            return context
    source, target = sides
    if is_foreign:
        ticket.check(source, target, source.bulk.entities())
    set_lock_file(turns)
    options, *others = pickle.loads(shared)  # noqa: S301  # from the process that verifies
    context = VerifyContext(source, replace(target, options=options), *others)
    _last[:] = [(ticket, shared, sides, context)]
    return context


def _shared(context: VerifyContext) -> bytes:
    """Return the part of a context that can be sent to another process."""
    return pickle.dumps(
        (
            # Retention is that of the process that verifies, whatever the settings of a worker say.
            context.target.options,
            context.as_of,
            context.batch_size,
            context.absent,
            context.server_ttls,
            context.since,
            context.ignored_fields,
            context.subset,
            context.rules,
            context.slow,
        )
    )


# In the process that verifies.


@dataclass(slots=True, eq=False)
class Sent:
    """A task that some worker runs, or is to run.

    Attributes:
        result: what its sender waits for.
        future: the last attempt, ``None`` if another one is due.
        losses: how many processes were lost with it.
        failures: the same, and how often it was refused.
    """

    task: Task[Any]
    result: Future[Any] = field(default_factory=Future[Any])
    future: Future[Outcome[Any]] | None = None
    since: float = 0.0
    due: float = 0.0
    losses: int = 0
    failures: int = 0

    def is_due(self, now: float) -> bool:
        """Whether it has to be sent now, perhaps a second time."""
        return self.due <= now if self.future is None else now - self.since > LOST_SECONDS


class WorkerPool(AbstractContextManager["WorkerPool"]):
    """The processes that run tasks of one verification: those of an engine, or children of this process.

    A thread that waits for a task also looks after the others; no thread does only that. No lock that a
    callback of the engine needs is held over a call to the engine.
    """

    def __init__(self, context: VerifyContext, jobs: int, url: str | None = None) -> None:
        """Open the engine.

        Args:
            context: the stores, and what is sent of the context.
            jobs: without an engine, how many processes there are with this one.
            url: that of the engine.

        Raises:
            ConfigurationError: there is no such engine, or it cannot be reached.
            ValidationError: the URL cannot be read, or no other process can open one of the stores.
        """
        source, target = context.source, context.target
        self._specs = None if source.spec is None or target.spec is None else (source.spec, target.spec)
        self._url, self._engine = url, None if url is None else open_engine(url)
        if url is None and jobs > 1 and self._specs is not None:
            self._engine = Processes(str(min(jobs - 1, MOST)))
        if url is not None and self._specs is None:
            raise ValidationError("--engine needs two stores on servers; no other process can open this one.")
        if isinstance(self._engine, Workers):
            raise ValidationError("workers:// lends nothing to a verification; use --jobs or another engine.")
        self._arguments: tuple[Ticket, bytes] | None = None
        if self._engine is not None:
            # A child of this process has the same descriptions, and to make a digest of them takes a while.
            entities = () if self._is_local else source.bulk.entities()
            self._arguments = Ticket.of(source, target, entities), _shared(context)
        self._turns: Path | None = None
        self._open = ExitStack()
        self._slots, self._look_at = 0, 0.0
        # Held over calls to the engine.
        self._engine_lock = Lock()
        # Held for moments, also by callbacks.
        self._changed = Condition()
        self._sent: set[Sent] = set()
        self._bad_since: float | None = None
        self._bad_looks = 0
        self._problem = ""
        self._warned: set[str] = set()

    @override
    def __enter__(self) -> Self:
        """Take turns with child processes at what takes much memory, and ask for the slots."""
        if self._is_local:
            self._turns = self._open.enter_context(lock_file())
            self._open.enter_context(use_lock_file(self._turns))
        self.tend()
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is still run, and close the engine."""
        with self._engine_lock:
            engine, self._engine, self._arguments = self._engine, None, None
        if engine is not None:
            engine.close()
        self._open.close()

    @property
    def _is_local(self) -> bool:
        return isinstance(self._engine, Processes)

    @property
    def is_engine(self) -> bool:
        """Whether a user named it, so that this process does not do its work."""
        return self._url is not None

    @property
    def slots(self) -> int:
        """How many tasks run at the same time."""
        return self._slots

    def takes(self, task: Task[R]) -> bool:
        """Whether a task may run in another process."""
        return self._arguments is not None and not (task.is_local or (self.is_engine and task.stays))

    def send(self, task: Task[R]) -> Future[R] | None:
        """Have a worker run a task; ``None`` if there is no room for it.

        Raises:
            TwinstoreError: the engine has not done anything for a long time.
        """
        self.tend()
        sent = Sent(task, since=monotonic())
        with self._changed:
            if len(self._sent) >= self._slots * TASKS_PER_WORKER:
                return None
            self._sent.add(sent)
        with self._engine_lock:
            self._start(sent)
        return sent.result

    def run(self, task: Task[R], check: Callable[[], object]) -> R:
        """Have a worker run a task, and wait for room and for the result; ``check`` may end that."""
        while (sent := self.send(task)) is None:
            self.wait_for_room()
            check()
        return self.result_of(sent, check)

    def result_of(self, future: Future[R], check: Callable[[], object]) -> R:
        """Wait for a result; ``check`` may end that."""
        try:
            while not future.done():
                check()
                self.tend()
                wait([future], TICK_SECONDS)
        except BaseException:
            self._forget(future)
            raise
        return future.result()

    def wait_for_room(self) -> None:
        """Wait a moment, but no longer than until a task is done."""
        with self._changed:
            if len(self._sent) >= self._slots * TASKS_PER_WORKER:
                self._changed.wait(TICK_SECONDS)

    def tend(self) -> None:
        """Ask for the slots, open an engine again that has forgotten us, and send again what is due.

        Raises:
            TwinstoreError: the engine has not done anything for a long time.
        """
        # Another thread that waits does it.
        if self._arguments is None or not self._engine_lock.acquire(blocking=False):
            return
        try:
            now = monotonic()
            if now >= self._look_at:
                self._look(now)
            with self._changed:
                due = [sent for sent in self._sent if sent.is_due(now)]
            for sent in due:
                self._start(sent)
        finally:
            self._engine_lock.release()
        self._refuse_to_wait(now)

    def _look(self, now: float) -> None:
        """Ask for the slots; what cannot say how many it has is opened again."""
        self._look_at = now + LOOK_SECONDS
        try:
            if self._engine is None and self._url is not None:
                self._engine = open_engine(self._url)
            self._slots = 0 if self._engine is None else self._engine.slots()
        except Exception as error:  # noqa: BLE001  # of any client library
            self._lose_engine(error)
        else:
            self._bad_looks = 0
            if self._engine is not None and not self._slots:
                self._note("it has no slots")
            elif not self._sent:
                self._bad_since = None

    def _lose_engine(self, error: BaseException) -> None:
        """Close an engine that has forgotten us; all that it has is sent again when it is open again."""
        if self._url is None:
            raise error
        log.debug("the engine is opened again", exc_info=error)
        engine, self._engine = self._engine, None
        if engine is not None:
            with suppress(Exception):
                engine.close()
        self._slots = 0
        self._bad_looks += 1
        self._look_at = monotonic() + delay(self._bad_looks)
        self._note(mask_secret_url(f"{type(error).__name__}: {error}"))
        with self._changed:
            for sent in self._sent:
                sent.future, sent.due = None, 0.0

    def _start(self, sent: Sent) -> None:
        """Send a task, or again; the engine lock is held."""
        if self._engine is None or self._arguments is None or sent.result.done():
            return
        specs, turns = (self._specs, self._turns) if self._is_local else (None, None)
        submit = partial(self._engine.submit, work, *self._arguments, sent.task, specs, turns)
        # An engine may give a refused task to the same free worker for ever; of several one goes elsewhere.
        copies = 1 + min(sent.failures - sent.losses, self._slots)
        try:
            futures: list[Future[Outcome[Any]]] = [submit() for _ in range(copies)]
        except Exception as error:  # noqa: BLE001  # of any client library
            self._lose_engine(error)
            return
        with self._changed:
            sent.future, sent.since = futures[-1], monotonic()
        for future in futures:
            future.add_done_callback(partial(self._ended, sent))

    def _ended(self, sent: Sent, future: Future[Outcome[Any]]) -> None:
        """Take an outcome, in any thread; one that comes late or twice changes nothing."""
        error = CancelledByEngine() if future.cancelled() else future.exception()
        outcome = None if error is not None else future.result()
        with self._changed:
            if sent not in self._sent:
                return
            if isinstance(outcome, Done):
                sent.result.set_result(outcome.result)
            elif isinstance(outcome, Failed):
                outcome.error.__cause__ = WorkerTraceback(outcome.traceback)
                sent.result.set_exception(outcome.error)
            elif sent.future is future:
                self._again(sent, outcome, error)
            if sent.result.done():
                self._sent.discard(sent)
            if isinstance(outcome, Done | Failed):
                self._bad_since = None
            self._changed.notify_all()

    def _again(self, sent: Sent, refused: Refused | None, error: BaseException | None) -> None:
        """Have a task sent again, unless it is the one that ends its processes."""
        sent.future, sent.failures = None, sent.failures + 1
        sent.due = monotonic() + delay(sent.failures)
        if refused is not None:
            text = f"A worker on {refused.host} does nothing for this verification: {refused.reason}"
            self._note(refused.reason)
            if text not in self._warned:
                self._warned.add(text)
                warn(text)
            return
        log.debug("a worker process was lost", exc_info=error)
        # An engine that is asked at once says whether it has lost the process, or us.
        self._look_at = 0.0
        if isinstance(error, CancelledByEngine):
            self._note("it has cancelled the tasks")
            return
        sent.losses += 1
        if sent.losses > MOST_LOSSES:
            remedy = "fewer processes on a host" if self.is_engine else "a smaller --jobs"
            sent.result.set_exception(
                TwinstoreError(
                    "A worker process of the verification was killed or ran out of memory; nothing was "
                    f"written. Run the same command again, with {remedy} if memory is short."
                )
            )

    def _forget(self, future: Future[Any]) -> None:
        """Take back a task whose result is not needed any more; it may still be run."""
        with self._changed:
            unwanted = [sent for sent in self._sent if sent.result is future]
            self._sent.difference_update(unwanted)
        for attempt in [sent.future for sent in unwanted]:
            if attempt is not None:
                attempt.cancel()

    def _note(self, problem: str) -> None:
        self._problem = problem
        self._bad_since = self._bad_since or monotonic()

    def _refuse_to_wait(self, now: float) -> None:
        """End a verification on an engine that does nothing.

        Raises:
            TwinstoreError: there was no good task for a long time.
        """
        bad_since = self._bad_since
        if bad_since is None or now - bad_since < PATIENCE_SECONDS:
            return
        with self._changed:
            ends = [sent.since for sent in self._sent if sent.future is not None]
        if self._slots and any(now - since > BUSY_SECONDS for since in ends):
            self._bad_since = None
            return
        raise TwinstoreError(
            f"{mask_secret_url(self._url or '')} has not done any work for {PATIENCE_SECONDS / 60:.0f} "
            f"minutes: {self._problem}. Nothing was written; run the same command again when it does."
        )


class CancelledByEngine(Exception):  # noqa: N818  # it is what a future says that has no error
    """The engine has cancelled a task."""

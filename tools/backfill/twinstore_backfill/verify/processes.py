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
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Self, TypeAlias, TypeVar

from typing_extensions import override

from twinstore.errors import TwinstoreError, ValidationError
from twinstore.runtime.secrets import mask_secret_url
from twinstore_backfill.engines import open_engine
from twinstore_backfill.engines.pool import Pool, Refused
from twinstore_backfill.engines.processes import CHILDREN, MOST, Processes
from twinstore_backfill.engines.sites import Ticket, opened
from twinstore_backfill.verify.context import VerifyContext
from twinstore_backfill.verify.memory_lock import HOST_FILE, lock_file, set_lock_file, use_lock_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from twinstore_backfill.engines import Engine
    from twinstore_backfill.engines.sites import Sides, Specs
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.verify.context import Task

R = TypeVar("R")
# One task that runs and one that waits for each process: none is idle, and few results pile up.
PER_SLOT: Final = 2
# A worker that can do nothing would take the tasks of all others, because it is free at once.
REFUSAL_SECONDS: Final = 1.0
LOST: Final = (
    "A worker process of the verification was killed or ran out of memory; nothing was written. Run the same "
    "command again, with fewer processes if memory is short."
)


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
    waiting: deque[Future[Outcome[R]]] = deque()
    for task in tasks:
        stop.check()
        if task is None:
            yield from _drain(waiting, workers, stop)
            continue
        # Results leave in the order of the tasks, so that the ranges of an entity are merged in key order.
        sent = workers.begin(task) if workers.takes(task) else _completed(task.run(context))
        while sent is None and workers.is_engine:
            yield from _finished(waiting)
            workers.wait_for_room()
            stop.check()
            sent = workers.begin(task)
        waiting.append(sent or _completed(task.run(context)))
        yield from _finished(waiting)
    yield from _drain(waiting, workers, stop)


def _finished(waiting: deque[Future[Outcome[R]]]) -> Iterator[R]:
    while waiting and waiting[0].done():
        yield value(waiting.popleft().result())


def _drain(waiting: deque[Future[Outcome[R]]], workers: WorkerPool, stop: StopSwitch) -> Iterator[R]:
    while waiting:
        stop.check()
        yield value(workers.result_of(waiting.popleft(), stop.check))


def _completed(result: R) -> Future[Outcome[R]]:
    future: Future[Outcome[R]] = Future()
    future.set_result(Done(result))
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


Outcome: TypeAlias = Done[R] | Failed


class WorkerTraceback(Exception):  # noqa: N818  # it is no error, but says where one happened
    """The place of a failure in a worker process."""


# The context of the last task of this process; tasks of one verification follow one another.
_last: Final[list[tuple[Ticket, bytes, Sides, VerifyContext]]] = []


def work(
    ticket: Ticket, shared: bytes, task: Task[R], specs: Specs | None, turns: Path | None
) -> Outcome[R] | Refused:
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


class WorkerPool(Pool):
    """The processes that run tasks of one verification: those of an engine, or children of this process.

    Attributes:
        is_engine: whether a user named it, so that this process does not do its work.
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
        specs = None if source.spec is None or target.spec is None else (source.spec, target.spec)
        if url is not None and specs is None:
            raise ValidationError("--engine needs two stores on servers; no other process can open this one.")
        self.is_engine = url is not None
        lend: Callable[[], Engine] | None = None
        if url is not None:
            lend = partial(open_engine, url)
        elif jobs > 1 and specs is not None:
            lend = partial(Processes, str(min(jobs - 1, MOST)))
        super().__init__(lend, mask_secret_url(url or CHILDREN), per_slot=PER_SLOT, lost=LOST)
        if not self.lends:
            raise ValidationError("workers:// lends nothing to a verification; use --jobs or another engine.")
        self._open = ExitStack()
        self._turns: Path | None = None
        self._specs = specs if self.is_local else None
        self._has_processes = lend is not None
        if self._has_processes:
            # A child of this process has the same descriptions, and to make a digest of them takes a while.
            entities = () if self.is_local else source.bulk.entities()
            self._arguments = Ticket.of(source, target, entities), _shared(context)

    @override
    def __enter__(self) -> Self:
        """Take turns with child processes at what takes much memory, and ask for the slots."""
        if self.is_local:
            self._turns = self._open.enter_context(lock_file())
            self._open.enter_context(use_lock_file(self._turns))
        self.tend()
        return self

    @override
    def close(self) -> None:
        super().close()
        self._open.close()

    def takes(self, task: Task[R]) -> bool:
        """Whether a task may run in another process."""
        return self._has_processes and not (task.is_local or (self.is_engine and task.stays))

    def begin(self, task: Task[R]) -> Future[Outcome[R]] | None:
        """Have a worker run a task; ``None`` if there is no room for it.

        Raises:
            TwinstoreError: the engine has not done anything for a long time.
        """
        return self.send(work, *self._arguments, task, self._specs, self._turns)

    def run(self, task: Task[R], check: Callable[[], object]) -> R:
        """Have a worker run a task, and wait for room and for the result; ``check`` may end that."""
        while (sent := self.begin(task)) is None:
            self.wait_for_room()
            check()
        return value(self.result_of(sent, check))


def value(outcome: Outcome[R]) -> R:
    """Return the result of a task, or raise its failure."""
    if isinstance(outcome, Failed):
        raise outcome.error from WorkerTraceback(outcome.traceback)
    return outcome.result

"""Running the synchronous library in worker threads, of which there are only so many.

    SharedThreads: independent calls, each in any thread
    UnitThread:    the calls of one session or unit of work, in one thread in their order

Calls, sessions and units share one queue for the slots that the driver can serve. A waiting call takes no
thread, and a free thread takes the first job of the queue without a round through the event loop. Of five or
more slots some are never given to sessions and units: a call made past one of these from inside it would
otherwise wait for a slot that only the end of that session or unit gives back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from asyncio import CancelledError
from collections import deque
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Generic, ParamSpec, Protocol, TypeVar, cast

from typing_extensions import override

from twinstore.access.nested_units import caller, calls_as
from twinstore.errors import ConfigurationError, Outcome, UnavailableError, ValidationError
from twinstore.runtime.cancellation import RUNNING, RunningCall
from twinstore.runtime.forks import Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "MAX_WAITING_HANDLES",
    "Awaited",
    "BlockEntry",
    "CallThreads",
    "Job",
    "SharedThreads",
    "UnitThread",
    "block_entry",
]


log = logging.getLogger("twinstore.aio")

T = TypeVar("T")

# A service that is not asked keeps no threads.
IDLE_SECONDS: Final = 10.0


class ThreadLease(Protocol):
    """A thread that is kept over several calls.

    Attributes:
        worker: the thread, while it is kept.
        entered: whether what it is kept for has begun and not ended.
    """

    worker: Worker | None
    entered: bool


class Job(Generic[T]):
    """A call, made once by one thread in the context of the task that asked for it.

    Attributes:
        future: gets the answer, in the event loop of the task.
        running: lets the task give the call up.
        lease: the thread it must be made by; ``None`` for any.
        begun: a thread has taken it.
        number: its position in the queue.
        since: when it began to wait there, by the monotonic clock.
        wanted: it ends something, so it is neither dropped nor cancelled nor refused.
    """

    __slots__ = (
        "_call",
        "_caller",
        "_context",
        "_loop",
        "begun",
        "future",
        "lease",
        "number",
        "running",
        "since",
        "wanted",
    )

    def __init__(self, call: Callable[[], T], *, wanted: bool = False) -> None:
        """Take the call; ``wanted``: it is made even if no task waits for it."""
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._caller, self._context = caller(), copy_context()
        self.future: asyncio.Future[T] = self._loop.create_future()
        self.running = RunningCall()
        self.lease: ThreadLease | None = None
        self.begun = False
        self.number = 0
        self.since = 0.0
        self.wanted = wanted
        # Also where nothing may be cancelled: the context may be that of another call.
        self._context.run(RUNNING.set, None if wanted else self.running)

    def execute(self) -> None:
        """Make the call and hand the answer over; nothing where it was given up before. Never raises."""
        # Before the check: a cancelling task is either seen here or sees that the call has begun.
        self.begun = True
        running = self.running
        if running.cancelled:
            running.end()
            return
        try:
            with calls_as(self._caller):
                answer = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs to the caller
            running.end()
            self._deliver(self._fail, error)
        else:
            running.end()
            self._deliver(self._answer, answer)

    def refuse(self, error: Exception) -> None:
        """Hand an error over instead of making the call, in any thread."""
        self.running.cancelled = True
        self._deliver(self._fail, error)

    def _deliver(self, callback: Callable[..., None], what: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, what)
        except RuntimeError:
            log.debug("The event loop that waited for a call is closed; its answer is dropped.")

    def _answer(self, answer: T) -> None:
        if not self.future.done():
            self.future.set_result(answer)

    def _fail(self, error: BaseException) -> None:
        if self.future.done():
            return
        if isinstance(error, StopIteration):  # which a future cannot hold
            wrapped = RuntimeError("a call raised StopIteration")
            wrapped.__cause__ = error
            error = wrapped
        self.future.set_exception(error)


class Worker:
    """One thread, which makes the jobs that it is given in their order."""

    __slots__ = ("_after", "_jobs", "_retire")

    def __init__(
        self,
        name: str,
        after: Callable[[Worker, Job[object]], Job[object] | None],
        retire: Callable[[Worker], bool],
    ) -> None:
        """Start the thread.

        Args:
            name: of the thread.
            after: called with each job that was made; returns another job to make at once.
            retire: called after a while without work; returns whether the thread may end.
        """
        self._jobs: SimpleQueue[Job[object] | None] = SimpleQueue()
        self._after = after
        self._retire = retire
        # A daemon, because a process that ends must not wait for an idle thread.
        Thread(target=self._work, name=name, daemon=True).start()

    def put(self, job: Job[object] | None) -> None:
        """Give it a job; ``None`` ends the thread."""
        self._jobs.put(job)

    def take_back(self) -> Job[object] | None:
        """Return a job that it has not begun, ``None`` where there is none."""
        try:
            return self._jobs.get_nowait()
        except Empty:
            return None

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                if self._retire(self):
                    return
                continue
            if job is None:
                return
            while job is not None:
                job.execute()
                job = self._after(self, job)


P = ParamSpec("P")

# One slot in so many is for independent calls. A service with fewer may want all of them for units.
CALLS_SHARE: Final = 5
# How many handles, such as locks, may be waited for at the same time, each in a thread.
MAX_WAITING_HANDLES: Final = 32
# As long as the synchronous library waits for a connection: when no session and no unit has ended meanwhile,
# none may end at all, because each of them waits for another one.
STALL_SECONDS: Final = 10.0
CHECKS_PER_STALL: Final = 4


class CallThreads(ABC):
    """Where the calls of a facade are made."""

    @property
    @abstractmethod
    def shared(self) -> SharedThreads:
        """The threads of independent calls."""

    @property
    @abstractmethod
    def waiting(self) -> CallThreads:
        """Where handles, such as locks, are waited for.

        Not among the calls: who waits for a lock would keep out the one who gives it up.
        """

    @abstractmethod
    def submit(self, job: Job[T]) -> None:
        """Have a job made."""

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a call made in a worker thread.

        A task that is cancelled gets its ``CancelledError`` at once, and the call is given up: one that waits
        for a thread is not made, and one that runs is cancelled on the server where the driver can do that.
        The call sees the context variables of the task, such as its span; what it sets there itself is lost.
        """
        job = Job(partial(call, *args, **kwargs) if args or kwargs else cast("Callable[[], T]", call))
        self.submit(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            self.shared.cancel_job(job)
            raise

    async def finish(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a call that ends something.

        Shielded: it is made in any case and never cancelled on the server, and a task that is cancelled
        meanwhile stops waiting.
        """
        return await asyncio.shield(self._begun(partial(call, *args, **kwargs)))

    async def enter(self, entry: BlockEntry[T]) -> T:
        """Return the value of a block that is entered in a worker thread.

        If the task is cancelled meanwhile, the same thread leaves the block as soon as it is entered, even if
        nothing awaits the task any more or its event loop has been closed.
        """
        job = Job(entry.enter)
        self.submit(job)
        return await self._entered(job, entry)

    async def leave(self, entry: BlockEntry[T], error: BaseException | None) -> bool:
        """Leave a block and return whether it has dealt with the error; see :meth:`finish`."""
        return await self.finish(entry.leave, error)

    async def _entered(self, job: Job[T], entry: BlockEntry[T]) -> T:
        try:
            return await job.future
        except asyncio.CancelledError:
            self.shared.cancel_job(job)
            if entry.abandon():
                # A new error: a caller that keeps this one must not keep what the block had.
                left = self._begun(partial(entry.leave, asyncio.CancelledError()))
                left.add_done_callback(retrieve_outcome)
            raise

    def _begun(self, call: Callable[[], T]) -> asyncio.Future[T]:
        job = Job(call, wanted=True)
        self.submit(job)
        return job.future


class Awaited(Generic[T]):
    """Base of the generated classes that await the calls of a synchronous part."""

    def __init__(self, sync: T, threads: CallThreads) -> None:
        self._sync = sync
        self._threads = threads


class SharedThreads(CallThreads, Renewable):
    """Makes calls in at most ``concurrency`` threads; later ones wait their turn in the order they came in.

    Several event loops may use it, one after the other or at the same time.

    Attributes:
        max_leased: how many sessions and units may be open at the same time.
        generation: is another one in a forked child.
    """

    def __init__(self, concurrency: int, name: str) -> None:
        """Start no thread yet.

        Raises:
            ValidationError: ``concurrency`` is less than 1.
        """
        if concurrency < 1:
            raise ValidationError(f"Argument concurrency should be at least 1, not {concurrency!r}.")
        self._total = concurrency
        self.max_leased = concurrency - concurrency // CALLS_SHARE
        self._name = name
        self._closed = False
        self._canceller = Canceller()
        self._attempts: SharedThreads | None = None
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Work with new threads in a forked child; those of the parent do not exist there."""
        # Not renewed by itself: jobs of the parent wait for event loops that do not run here.
        self._lock = Lock()
        self._idle: list[Worker] = []
        self._calls: deque[Job[object]] = deque()
        self._openings: deque[Job[object]] = deque()
        self._busy = self._leased = 0
        self._last_release = time.monotonic()
        self._numbers = count()
        self._check_loop: asyncio.AbstractEventLoop | None = None
        self.generation = object()

    @property
    @override
    def shared(self) -> SharedThreads:
        return self

    @property
    @override
    def waiting(self) -> SharedThreads:
        if self._attempts is None:
            self._attempts = SharedThreads(MAX_WAITING_HANDLES, f"{self._name}-waiting")
        return self._attempts

    @override
    def submit(self, job: Job[T]) -> None:
        """Have a job made as soon as there is a free slot.

        Raises:
            ConfigurationError: the storage is closed.
        """
        self._submit(cast("Job[object]", job))

    def submit_opening(self, job: Job[T], lease: ThreadLease) -> None:
        """Have a block entered in a thread that is then kept."""
        job.lease = lease
        self._submit(cast("Job[object]", job))

    def submit_to(self, lease: UnitThread, job: Job[T]) -> None:
        """Have a job made by a thread that is kept, or by any once it is not kept any more."""
        with self._lock:
            if lease.worker is not None and lease.generation is self.generation:
                job.lease = lease
                lease.worker.put(cast("Job[object]", job))
                return
        # The session or unit has ended, or is that of a parent process; the call itself says so.
        self.submit(job)

    def cancel_job(self, job: Job[T]) -> None:
        """Cancel the wait for a job, and what the job does on a server."""
        job.running.cancelled = True
        # No task awaits its error any more, and asyncio should not report it.
        job.future.add_done_callback(retrieve_outcome)
        # After that: a job that has not begun sees that it is not wanted any more.
        if job.begun:
            self._canceller.end(job.running)

    def close(self) -> None:
        """Accept no further calls; those that were made end by themselves, and open units may go on."""
        # Without waiting: a call may wait for a lock of the server, which would block the event loop.
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.put(None)
        if self._attempts is not None:
            self._attempts.close()

    def _submit(self, job: Job[object]) -> None:
        with self._lock:
            if self._closed and not job.wanted:
                raise ConfigurationError("This storage is closed; open a new one.")
            if self._busy == self._total or (job.lease is not None and self._leased == self.max_leased):
                job.number, job.since = next(self._numbers), time.monotonic()
                (self._calls if job.lease is None else self._openings).append(job)
                self._schedule_check()
                return
            worker = self._idle.pop() if self._idle else Worker(self._name, self._after, self._retire)
            # After that: where no thread can be started, no slot is taken.
            self._busy += 1
            self._assign(job, worker)
            worker.put(job)

    def _assign(self, job: Job[object], worker: Worker) -> None:
        if job.lease is not None:
            job.lease.worker = worker
            self._leased += 1

    def _after(self, worker: Worker, job: Job[object]) -> Job[object] | None:
        """Return what a thread makes next; ``None``: it waits for what it is given."""
        with self._lock:
            if job.lease is not None:
                if job.lease.entered:
                    return None
                self._end(job.lease, worker)
            following = self._first()
            if following is not None:
                self._assign(following, worker)
                return following
            self._busy -= 1
            if self._closed:
                worker.put(None)
            else:
                self._idle.append(worker)
            return None

    def _end(self, lease: ThreadLease, worker: Worker) -> None:
        """Take back the thread of a session or unit that has ended; its late calls go first, and fail."""
        lease.worker = None
        self._leased -= 1
        self._last_release = time.monotonic()
        while (late := worker.take_back()) is not None:
            late.lease = None
            late.number = -1
            self._calls.appendleft(late)

    def _first(self) -> Job[object] | None:
        """Take the first job that a free slot may be given to out of the queue."""
        call, opening = wanted(self._calls), wanted(self._openings)
        if opening is None or self._leased == self.max_leased:
            return None if call is None else self._calls.popleft()
        if call is None or opening.number < call.number:
            return self._openings.popleft()
        return self._calls.popleft()

    def _schedule_check(self) -> None:
        """Have the line looked at as long as there is one."""
        if self._check_loop is None or self._check_loop.is_closed():
            self._check_loop = asyncio.get_running_loop()
            self._check_loop.call_later(STALL_SECONDS / CHECKS_PER_STALL, self._check_stalled)

    def _check_stalled(self) -> None:
        """Refuse jobs that waited long while no session or unit ended: the open ones may wait for them."""
        with self._lock:
            self._check_loop = None
            long_ago = time.monotonic() - STALL_SECONDS
            refused: list[Job[object]] = []
            if self._last_release <= long_ago and self._leased == self.max_leased:
                refused += pop_waiting(self._openings, long_ago)
                # No call ends either, where all slots are kept.
                refused += pop_waiting(self._calls, long_ago) if self._leased == self._total else []
            if self._calls or self._openings:
                self._schedule_check()
        for job in refused:
            job.refuse(
                UnavailableError(
                    f"All {self.max_leased} slots for sessions and units of work stayed in use for "
                    f"{STALL_SECONDS:.0f} s; end them sooner, open none inside another one, or raise "
                    "concurrency and PoolMax.",
                    outcome=Outcome.NOT_APPLIED,
                )
            )

    def _retire(self, worker: Worker) -> bool:
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


class UnitThread(CallThreads, ThreadLease):
    """Makes the calls of one session or unit of work in one thread, in the order in which they were made.

    All of them go through one connection or client session, which must get them in that order.
    """

    def __init__(self, shared: SharedThreads) -> None:
        self._shared = shared
        self.generation = shared.generation
        self.worker: Worker | None = None
        self.entered = False

    @property
    @override
    def shared(self) -> SharedThreads:
        return self._shared

    @property
    @override
    def waiting(self) -> CallThreads:
        """This thread: what it asks belongs to the session or unit."""
        return self

    @override
    def submit(self, job: Job[T]) -> None:
        self._shared.submit_to(self, job)

    async def open(self, entry: BlockEntry[T]) -> T:
        """Return the value of a block, for which the thread is kept until it is left.

        Raises:
            UnavailableError: all slots were kept, and none was given back for too long.
        """
        entry.lease = self
        job = Job(entry.enter)
        self._shared.submit_opening(job, self)
        return await self._entered(job, entry)


def wanted(queue: deque[Job[object]]) -> Job[object] | None:
    """Return the first job of a queue that a task still waits for."""
    while queue:
        if not queue[0].running.cancelled:
            return queue[0]
        queue.popleft()
    return None


def pop_waiting(queue: deque[Job[object]], since: float) -> list[Job[object]]:
    """Take those out of a line who wait since an instant or longer."""
    found: list[Job[object]] = []
    while queue and queue[0].since <= since:
        found.append(queue.popleft())
    return found


def retrieve_outcome(future: asyncio.Future[T]) -> None:
    """Retrieve an outcome that no task awaits, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()


class BlockEntry(Generic[T]):
    """What is entered by one thread and left once, by whichever side is the last to know that it must be.

    Attributes:
        lease: the thread that is kept from the begin to the end.
    """

    def __init__(
        self, enter: Callable[[], T], leave: Callable[[T, BaseException | None], bool | None]
    ) -> None:
        """Take what enters it, and what leaves it with an error or without."""
        self._enter = enter
        self._leave = leave
        self._lock = Lock()
        self._values: list[T] = []
        self._abandoned = False
        self.lease: ThreadLease | None = None

    def enter(self) -> T:
        """Enter it, and leave it at once where the task has been cancelled meanwhile; made by a thread."""
        value = self._enter()
        with self._lock:
            self._values.append(value)
            abandoned = self._abandoned
            if self.lease is not None:
                self.lease.entered = True
        if abandoned:
            try:
                self.leave(CancelledError())
            except Exception as error:  # noqa: BLE001  # no task awaits it
                log.debug("A block that a cancelled task had opened ended with %s.", type(error).__name__)
        return value

    def abandon(self) -> bool:
        """Note that the task has been cancelled; return whether the caller must have the block left."""
        with self._lock:
            self._abandoned = True
            return bool(self._values)

    def leave(self, error: BaseException | None) -> bool:
        """Leave it and return whether it has dealt with the error; made by a thread."""
        with self._lock:
            if not self._values:
                return False
            value = self._values.pop()
        try:
            return bool(self._leave(value, error))
        finally:
            if self.lease is not None:
                self.lease.entered = False


def block_entry(block: AbstractContextManager[T]) -> BlockEntry[T]:
    """Return the entering of a synchronous block."""

    def leave(_: T, error: BaseException | None) -> bool | None:
        return block.__exit__(
            None if error is None else type(error), error, None if error is None else error.__traceback__
        )

    return BlockEntry(block.__enter__, leave)


THREAD_NAME: Final = "twinstore-cancel"
# A cancellation may come before the statement that it is meant for, so it is repeated.
INITIAL_BACKOFF: Final = 0.05
MAX_BACKOFF: Final = 1.0


class Canceller(Renewable):
    """Cancels calls until they have ended, in a thread that is there while there are some.

    Not in the event loop, because a cancellation waits for the server.
    """

    def __init__(self) -> None:
        """Start no thread yet."""
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Forget in a forked child the calls of the parent."""
        self._lock = Lock()
        self._calls: list[RunningCall] = []
        self._more = Event()
        self._working = False

    def end(self, call: RunningCall) -> None:
        """Cancel a call that was given up; returns at once."""
        with self._lock:
            self._calls.append(call)
            self._more.set()
            if self._working:
                return
            # A daemon, because a process that ends must not wait for it.
            thread = Thread(target=self._work, name=THREAD_NAME, daemon=True)
            # A process that is about to end may start none, and its calls end with it.
            with suppress(RuntimeError):
                thread.start()
                self._working = True

    def _work(self) -> None:
        pause = INITIAL_BACKOFF
        while True:
            if self._more.is_set():
                pause = INITIAL_BACKOFF
                self._more.clear()
            with self._lock:
                calls = [*self._calls]
            over = {id(call) for call in calls if not call.cancel()}
            with self._lock:
                self._calls = [call for call in self._calls if id(call) not in over]
                if not self._calls:
                    self._working = False
                    return
            self._more.wait(pause)
            pause = min(2 * pause, MAX_BACKOFF)

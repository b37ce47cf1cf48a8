"""One call on its way from a task into a thread, and its answer on the way back."""

from __future__ import annotations

import asyncio
import logging
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from twinstore.cancelling import RUNNING, RunningCall
from twinstore.units import caller, calls_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Job", "Lease", "Worker"]

log = logging.getLogger("twinstore.aio")

T = TypeVar("T")

# A service that is not asked keeps no threads.
IDLE_SECONDS: Final = 10.0


class Lease(Protocol):
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
        number: its place in the line.
        since: when it began to wait there, by the monotonic clock.
        wanted: it ends something, so it is neither dropped nor cancelled nor refused.
    """

    __slots__ = (
        "_call",
        "_context",
        "_loop",
        "_who",
        "begun",
        "future",
        "lease",
        "number",
        "running",
        "since",
        "wanted",
    )

    def __init__(self, call: Callable[[], T], *, wanted: bool = False) -> None:
        """Take the call; ``wanted``: it is made in any case, whoever waits for it."""
        self._loop = asyncio.get_running_loop()
        self._call = call
        self._who, self._context = caller(), copy_context()
        self.future: asyncio.Future[T] = self._loop.create_future()
        self.running = RunningCall()
        self.lease: Lease | None = None
        self.begun = False
        self.number = 0
        self.since = 0.0
        self.wanted = wanted
        # Also where nothing may be cancelled: the context may be that of another call.
        self._context.run(RUNNING.set, None if wanted else self.running)

    def make(self) -> None:
        """Make the call and hand the answer over; nothing where it was given up before. Never raises."""
        # Before the question: whoever gives the call up either is seen here or sees that it has begun.
        self.begun = True
        running = self.running
        if running.given_up:
            running.end()
            return
        try:
            with calls_of(self._who):
                answer = self._context.run(self._call)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs to the caller
            running.end()
            self._tell(self._fail, error)
        else:
            running.end()
            self._tell(self._answer, answer)

    def refuse(self, error: Exception) -> None:
        """Hand an error over instead of making the call, in any thread."""
        self.running.given_up = True
        self._tell(self._fail, error)

    def _tell(self, tell: Callable[..., None], what: object) -> None:
        try:
            self._loop.call_soon_threadsafe(tell, what)
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
            after: is told of each job that was made; returns another one to make at once.
            retire: is asked after a while without work whether the thread may end.
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
                job.make()
                job = self._after(self, job)

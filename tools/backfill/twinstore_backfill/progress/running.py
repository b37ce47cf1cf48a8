"""Work that takes long: its progress as events, its result, and how it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import Final, Generic, TypeVar

from twinstore_backfill.process.stopping import AGAIN, StopRequestedError, StopSwitch
from twinstore_backfill.progress.record import CombinedProgress, PartState, Progress, RecordedProgress

__all__ = ["Run"]

T = TypeVar("T")
# Seconds between two looks at the progress.
INTERVAL: Final = 0.25


class Run(Generic[T]):
    """One run of a long work: a source of progress events, and a promise of its result.

    It begins when its events or its result are asked for, and runs once::

        for event in run:  # in a separate thread, with an event for each part that went on
            print(event.part, event.done, event.total)
        report = run.result()

    Leaving the loop before the run ends cancels it, whether by ``break``, an exception or Ctrl-C.
    ``run.result()`` alone works in the thread of the caller. In asyncio, ``async for event in run`` and
    ``await run`` do the same; a task that is cancelled there cancels the run and waits for its safe point.
    """

    def __init__(
        self,
        work: Callable[[Progress, StopSwitch], T],
        *,
        cancel: StopSwitch | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Take the work, what cancels it, and who else hears of its progress."""
        self._work = work
        self._switch = cancel or StopSwitch()
        self._recorded = RecordedProgress()
        self._progress = self._recorded if progress is None else CombinedProgress(progress, self._recorded)
        self._future: Future[T] = Future()
        self._lock = Lock()

    def cancel(self) -> None:
        """Ask the run to stop at its next safe point; its result is then an ``InterruptedRunError``."""
        self._switch.cancel()

    @property
    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._future.done()

    def progress(self) -> tuple[PartState, ...]:
        """Return how far each part is, in the order in which they began."""
        return self._recorded.states()

    def result(self) -> T:
        """Return the result; begin the work in this thread if nothing has begun it.

        Raises:
            InterruptedRunError: it was cancelled; what was finished is kept.
            TwinstoreError: what the work itself raises.
        """
        if self._begins():
            self._perform()
        try:
            return self._future.result()
        except KeyboardInterrupt:
            # Of this thread, while another one works.
            self.cancel()
            raise

    def __iter__(self) -> Iterator[PartState]:
        """Begin the work, and yield the state of each part that has changed, until it ends."""
        self._start()
        known: dict[str, PartState] = {}
        try:
            while not self.done:
                yield from self._changed(known)
                with suppress(TimeoutError):
                    self._future.exception(INTERVAL)
            yield from self._changed(known)
        finally:
            # An exception in the body of the loop arrives here as a generator that is closed.
            if not self.done:
                self.cancel()

    async def __aiter__(self) -> AsyncIterator[PartState]:
        """Do the same without blocking the loop."""
        ended = self._started()
        known: dict[str, PartState] = {}
        try:
            while not ended.is_set():
                for state in self._changed(known):
                    yield state
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), INTERVAL)
        finally:
            await self._settled(ended)
        for state in self._changed(known):
            yield state

    def __await__(self) -> Generator[object, None, T]:
        """Begin the work, and return its result."""
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        ended = self._started()
        try:
            await ended.wait()
        finally:
            await self._settled(ended)
        return self._future.result()

    def _started(self) -> asyncio.Event:
        """Begin the work, and return what is set in this loop when it ends."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end(_: Future[T]) -> None:
            # A loop that leaves an unfinished generator behind closes without waiting for it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        self._start()
        self._future.add_done_callback(end)
        return ended

    async def _settled(self, ended: asyncio.Event) -> None:
        """Cancel a run that has not ended, and wait for its safe point, also if the waiting is cancelled."""
        again: asyncio.CancelledError | None = None
        while not ended.is_set():
            self.cancel()
            try:
                await ended.wait()
            except asyncio.CancelledError as error:
                again = error
        if again is not None:
            raise again

    def _begins(self) -> bool:
        """Whether the caller is the one who begins the work."""
        with self._lock:
            # So marked, no cancelled future of asyncio takes the result away.
            return (
                not self._future.running() and not self.done and self._future.set_running_or_notify_cancel()
            )

    def _start(self) -> None:
        if self._begins():
            Thread(target=self._perform, name="migration").start()

    def _perform(self) -> None:
        try:
            self._future.set_result(self._finished())
        except BaseException as error:  # noqa: BLE001  # whoever asks for the result gets it
            self._future.set_exception(error)

    def _finished(self) -> T:
        try:
            self._switch.check()  # before a store is opened
            return self._work(self._progress, self._switch)
        except StopRequestedError:
            self._switch.raise_if_interrupted(AGAIN)
            raise

    def _changed(self, known: dict[str, PartState]) -> Iterator[PartState]:
        """Yield what has changed since the last look."""
        for state in self._recorded.states():
            before = known.get(state.part)
            if before is None or (before.done, before.total, before.finished, before.outcomes) != (
                state.done,
                state.total,
                state.finished,
                state.outcomes,
            ):
                known[state.part] = state
                yield state

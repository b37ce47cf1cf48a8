"""Handles for asyncio: what a call hands out, and the blocks that it opens.

A task may wait for a handle as long as another holder has it. In the threads that all calls share, the
waiters would block the holder that is about to release it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar

from typing_extensions import override

from twinstore.aio.calls import Awaited, BlockEntry, CallThreads, Job, block_entry

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from types import TracebackType

    from twinstore.aio.calls import SharedThreads

__all__ = ["AwaitedHandle", "JoinedThreads", "entered", "handed_out", "left"]


A = TypeVar("A")
H = TypeVar("H", bound=AbstractContextManager[object])
T = TypeVar("T")

ZERO: Final = timedelta(0)


class AwaitedHandle(Awaited[H]):
    """Base of what awaits a handle; it is an asynchronous context manager."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._threads.finish(self._sync.__exit__, kind, error, trace)


async def handed_out(
    threads: CallThreads, call: Callable[[timedelta], H | None], facade: Callable[[H, CallThreads], A]
) -> A | None:
    """Return what a call hands out, in its class for asyncio; ``None`` where it hands out nothing.

    A task that is cancelled meanwhile gets nothing, and what the call hands out later is given up at once.

    Args:
        threads: in which the handle is asked.
        call: gets how long it has waited for a thread; see :func:`left`.
        facade: the class of the handle for asyncio.
    """
    begin = time.monotonic()
    entry = BlockEntry(lambda: call(timedelta(seconds=time.monotonic() - begin)), release_unclaimed)
    found = await threads.waiting.enter(entry)
    return None if found is None else facade(found, threads)


def release_unclaimed(found: AbstractContextManager[object] | None, error: BaseException | None) -> None:
    """Release a handle that no task receives."""
    del error  # of the task, which is none of the handle's
    if found is not None:
        found.__exit__(None, None, None)


def left(timeout: timedelta, waited: timedelta) -> timedelta:
    """Return what is left of the time a caller is ready to wait, after some of it has passed."""
    try:
        return max(timeout - waited, ZERO) if timeout > ZERO else timeout
    except TypeError:  # it is no time, which the call itself says better
        return timeout


@asynccontextmanager
async def entered(block: AbstractContextManager[T], threads: CallThreads) -> AsyncGenerator[T]:
    """Enter and leave a block in the threads; a cancelled task leaves it, too."""
    entry = block_entry(block)
    value = await threads.enter(entry)
    try:
        yield value
    except BaseException as error:
        if not await threads.leave(entry, error):
            raise
    else:
        await threads.leave(entry, None)


P = ParamSpec("P")


class JoinedThreads(CallThreads):
    """Makes the calls on a connection or client session of a caller, in shared threads.

    A task that gives a call up goes on when the call has ended: before, what is the caller's is in use.
    """

    def __init__(self, shared: SharedThreads) -> None:
        self._shared = shared

    @property
    @override
    def shared(self) -> SharedThreads:
        return self._shared

    @property
    @override
    def waiting(self) -> CallThreads:
        """The same: what is asked belongs to what was joined."""
        return self

    @override
    def submit(self, job: Job[T]) -> None:
        self._shared.submit(job)

    @override
    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        job = Job(partial(call, *args, **kwargs))
        self.submit(job)
        try:
            return await asyncio.shield(job.future)
        except asyncio.CancelledError:
            self._shared.cancel_job(job)
            if job.begun:
                await asyncio.wait({job.future})
            raise

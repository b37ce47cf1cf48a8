"""Calls for asyncio on what a caller has: a connection, or a client session."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from typing_extensions import override

from twinstore.aio.jobs import Job
from twinstore.aio.threads import CallThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.aio.threads import SharedThreads

__all__ = ["JoinedThreads"]

P = ParamSpec("P")
T = TypeVar("T")


class JoinedThreads(CallThreads):
    """Makes the calls on a connection or client session of a caller, in shared threads.

    A task that gives a call up goes on when the call has ended: before, what is the caller's is in use.
    """

    def __init__(self, shared: SharedThreads) -> None:
        """Take the threads."""
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
            self._shared.give_up(job)
            if job.begun:
                await asyncio.wait({job.future})
            raise

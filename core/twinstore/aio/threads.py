"""Running the synchronous library in worker threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from typing_extensions import override

from twinstore.forks import Renewable, renew_in_child
from twinstore.units import context_of_caller

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DEFAULT_CONCURRENCY", "CallThreads"]

P = ParamSpec("P")
T = TypeVar("T")

# The default size of the PostgreSQL pool: more threads would only wait for a connection.
DEFAULT_CONCURRENCY: Final = 10


class CallThreads(Renewable):
    """Runs calls in at most ``concurrency`` threads; later calls wait their turn.

    With a concurrency of one, all calls run in one thread in the order in which they were made, which is
    what a session or a unit of work needs.
    """

    def __init__(self, concurrency: int, name: str) -> None:
        """Start no thread yet."""
        self._start = partial(ThreadPoolExecutor, max_workers=concurrency, thread_name_prefix=name)
        self._threads = self._start()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Work with threads of its own in a forked child; those of the parent do not exist there."""
        self._threads = self._start()

    async def run(self, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a call made in a worker thread.

        A cancelled task stops waiting; the call itself goes on and is bounded by the timeouts of the server.
        The call sees the context variables of the task, such as its span; what it sets there itself is lost.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, partial(context_of_caller().run, call, *args, **kwargs)
        )

    def begin(self, call: Callable[[], object]) -> None:
        """Make a call in a worker thread whose result nobody waits for."""
        self._threads.submit(context_of_caller().run, call)

    def close(self) -> None:
        """Accept no further calls; those that were made end by themselves."""
        # Without waiting: a call may wait for a lock of the server, and the event loop would stand still with
        # it.
        self._threads.shutdown(wait=False)

"""The parts of a module for asyncio that are the same for every module: its migrations and its sessions."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Generic, TypeVar

from twinstore.aio.entering import of_block
from twinstore.aio.threads import UnitThread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager

    from twinstore.aio.threads import CallThreads, SharedThreads
    from twinstore.migrations import Consent, Effect, Initializer, MigrationReport, MigrationStatus
    from twinstore.module_storage import SessionFactory
    from twinstore.observing.notifier import Notifier

__all__ = ["AsyncInitializer", "AsyncModuleSessions", "in_one_thread", "observing"]

A = TypeVar("A")
S = TypeVar("S")


class AsyncInitializer:
    """Awaits an :class:`~twinstore.migrations.Initializer`, whose contracts hold.

    A task that is cancelled stops waiting; what was begun is completed.
    """

    def __init__(self, sync: Callable[[], Initializer], threads: CallThreads) -> None:
        """Take what finds the synchronous one, and the threads to call it in."""
        self._sync = sync
        self._threads = threads

    async def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Apply what is pending and bring indexes in line; safe from several processes at once."""
        return await self._threads.run(lambda: self._sync().ensure_migrations(release=release, accept=accept))

    async def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        """Return what ``ensure_migrations`` would need consent for, by kind and name; writes nothing."""
        return await self._threads.run(lambda: self._sync().effects(release=release))

    async def status(self) -> tuple[MigrationStatus, ...]:
        """Return the shipped and the applied migrations by name; writes nothing."""
        return await self._threads.run(lambda: self._sync().status())

    async def verify(self, *, additions: bool = True) -> tuple[str, ...]:
        """Return how the real schema differs from the wanted one, one sentence each; writes nothing."""
        return await self._threads.run(lambda: self._sync().verify(additions=additions))

    async def export(self, names: Collection[str] | None = None) -> str:
        """Return the migrations as text for an administrator: SQL, or a shell script."""
        return await self._threads.run(lambda: self._sync().export(names))


class AsyncModuleSessions(Generic[S, A]):
    """The session factory."""

    def __init__(
        self,
        sync: SessionFactory[object, S],
        threads: SharedThreads,
        facade: Callable[[S, CallThreads], A],
    ) -> None:
        """Take the synchronous factory, the threads, and the class of the awaited sessions."""
        self._sync = sync
        self._threads = threads
        self._facade = facade

    @asynccontextmanager
    async def open(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> AsyncGenerator[A]:
        """Open a session; see :meth:`twinstore.module_storage.SessionFactory.open`.

        Raises:
            UnavailableError: besides, all places for sessions and units stayed in use.
        """
        opening = self._sync.unobserved(tenant_id, causal_consistency=causal_consistency, purpose=purpose)
        with observing(self._sync.notifier, "session"):
            async with in_one_thread(opening, self._facade, self._threads) as bound:
                yield bound


def observing(notifier: Notifier | None, name: str) -> AbstractContextManager[None]:
    """Return a block whose length the observers are told, in the context of the task inside."""
    return nullcontext() if notifier is None else notifier.block(name, nullcontext())


@asynccontextmanager
async def in_one_thread(
    opening: AbstractContextManager[S], facade: Callable[[S, CallThreads], A], threads: SharedThreads
) -> AsyncGenerator[A]:
    """Enter, use and leave a session in one thread, which is kept as long.

    Leaving is shielded: a cancelled task must not leave a transaction open, and because the thread works
    in order, the end comes after a call that still runs.
    """
    thread, entering = UnitThread(threads), of_block(opening)
    session = await thread.open(entering)
    try:
        yield facade(session, thread)
    except BaseException as error:
        # True: the session has dealt with the error, as any context manager may.
        if not await thread.leave(entering, error):
            raise
    else:
        await thread.leave(entering, None)

"""Storage for asyncio: the same names as the synchronous storage, every call awaited."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Generic, Self, TypeVar, overload

from twinstore.aio.installed import AsyncModuleAttributes, facade_of
from twinstore.aio.threads import DEFAULT_CONCURRENCY, CallThreads
from twinstore.errors import ConcurrencyError, ValidationError
from twinstore.forgetting import without_locals
from twinstore.retrying import note_lost_race, pauses
from twinstore.storage import open_storage as open_sync_storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager
    from types import TracebackType

    from twinstore.backend import Capabilities
    from twinstore.clock import Clock
    from twinstore.config import ConfigSource
    from twinstore.migrations import Consent, MigrationReport
    from twinstore.module_storage import ModuleStorage
    from twinstore.observing.observer import Observer
    from twinstore.storage import Storage

__all__ = ["AsyncModuleStorage", "AsyncStorage", "open_storage"]

A = TypeVar("A")
S = TypeVar("S")
T = TypeVar("T")


class AsyncModuleStorage(Generic[S, A]):
    """A module for asyncio: sessions and units of work.

    ``S`` is the synchronous session of the module and ``A`` the one whose parts are awaited. The class of a
    module is generated; it has the parts of the unbound session besides.
    """

    def __init__(
        self, storage: ModuleStorage[object, S], threads: CallThreads, facade: Callable[[S, CallThreads], A]
    ) -> None:
        """Take the synchronous storage, the threads to call it in, and the class of its awaited sessions."""
        self._storage = storage
        self._threads = threads
        self._facade = facade

    async def capabilities(self) -> Capabilities:
        """Return what the driver can do on the connected server."""
        return await self._threads.run(lambda: self._storage.capabilities)

    async def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Create and upgrade the schema; see :class:`~twinstore.migrations.Initializer`."""
        return await self._threads.run(
            lambda: self._storage.initializer.ensure_migrations(release=release, accept=accept)
        )

    async def check_ready(self) -> None:
        """Connect and check server, roles and schema."""
        await self._threads.run(self._storage.check_ready)

    @asynccontextmanager
    async def session(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> AsyncGenerator[A]:
        """Open a session; see :class:`~twinstore.module_storage.ModuleSessions`."""
        opening = self._storage.sessions.unobserved(
            tenant_id, causal_consistency=causal_consistency, purpose=purpose
        )
        with self._observed("session"):
            async with _in_one_thread(opening, self._facade) as bound:
                yield bound

    @asynccontextmanager
    async def transaction(
        self, tenant_id: str | None = None, *, purpose: str | None = None, read_only: bool = False
    ) -> AsyncGenerator[A]:
        """Open a unit of work: commit at normal exit, roll back on any exception or cancellation.

        See :meth:`twinstore.module_storage.ModuleStorage.transaction`; a second unit of one task is
        refused, units of several tasks stand beside each other.
        """
        opening = self._storage.unobserved_transaction(tenant_id, purpose=purpose, read_only=read_only)
        # Here, because the unit itself is opened in a thread of its own, which knows nothing of this task.
        with self._observed("transaction"), self._storage.open_units.opened():
            async with _in_one_thread(opening, self._facade) as bound:
                yield bound

    async def transact(
        self,
        fn: Callable[[A], Awaitable[T]],
        *,
        tenant_id: str | None = None,
        purpose: str | None = None,
        attempts: int | None = None,
    ) -> T:
        """Await ``fn`` in a unit of work and repeat both after ``ConcurrencyError``, with growing pauses.

        See :meth:`twinstore.module_storage.ModuleStorage.transact`.
        """
        with self._observed("transact"):
            return await self._repeated(fn, tenant_id, purpose, attempts)

    async def _repeated(
        self,
        fn: Callable[[A], Awaitable[T]],
        tenant_id: str | None,
        purpose: str | None,
        attempts: int | None,
    ) -> T:
        # Not ``repeat``, which sleeps in the thread: here the event loop must go on meanwhile.
        for pause in pauses(attempts):
            try:
                return await self._attempt(fn, tenant_id, purpose)
            except ConcurrencyError as error:
                note_lost_race(error, pause)
                await asyncio.sleep(pause)
        return await self._attempt(fn, tenant_id, purpose)

    async def _attempt(
        self,
        fn: Callable[[A], Awaitable[T]],
        tenant_id: str | None,
        purpose: str | None,
    ) -> T:
        async with self.transaction(tenant_id, purpose=purpose) as unit:
            return await fn(unit)

    def _observed(self, name: str) -> AbstractContextManager[None]:
        """Return a block whose length the observers are told, in the context of the task inside."""
        notifier = self._storage.sessions.notifier
        return nullcontext() if notifier is None else notifier.block(name, nullcontext())


@asynccontextmanager
async def _in_one_thread(
    opening: AbstractContextManager[S], facade: Callable[[S, CallThreads], A]
) -> AsyncGenerator[A]:
    """Enter, use and leave a session in one thread of its own.

    Leaving is shielded: a cancelled task must not leave a transaction open, and because the thread works
    in order, the end comes after a call that still runs.
    """
    # One thread of its own: all calls of a unit go through one connection or client session, which must get
    # them in the order in which they were made.
    threads = CallThreads(1, "twinstore-unit")
    try:
        session = await threads.run(opening.__enter__)
        try:
            yield facade(session, threads)
        except BaseException as error:
            # True: the session has dealt with the error, as any context manager may.
            if not await asyncio.shield(
                threads.run(opening.__exit__, type(error), error, error.__traceback__)
            ):
                raise
        else:
            await asyncio.shield(threads.run(opening.__exit__, None, None, None))
    finally:
        threads.close()


class AsyncStorage(AsyncModuleAttributes):
    """The storages of all modules for asyncio; an asynchronous context manager."""

    def __init__(self, storage: Storage, concurrency: int = DEFAULT_CONCURRENCY) -> None:
        """Take a synchronous storage, which is closed with this one."""
        self._storage = storage
        self._threads = CallThreads(concurrency, "twinstore")
        self._opened: dict[str, object] = {}

    @overload
    def module(self, name: str) -> object: ...
    @overload
    def module(self, name: str, kind: type[T]) -> T: ...
    def module(self, name: str, kind: type[object] = object) -> object:
        """Return the storage of a module; see :meth:`twinstore.storage.Storage.module`.

        Args:
            name: the module, compared without case.
            kind: the class of its asynchronous storage, for type checkers.

        Raises:
            ConfigurationError: as there, or the module has no classes for asyncio.
            ValidationError: the module has a storage of another class.
        """
        key = name.casefold()
        # No lock: nothing is awaited between the look and the store, so no other task gets in between.
        if key not in self._opened:
            self._opened[key] = facade_of(key)(self._storage.module(key), self._threads)
        found = self._opened[key]
        if not isinstance(found, kind):
            raise ValidationError(
                f"The storage of the module {name!r} is a {type(found).__name__}, not a {kind.__name__}."
            )
        return found

    async def close(self) -> None:
        """Close what was opened; a second call does nothing."""
        # In a thread of asyncio's own, because calls that still wait may keep all of ours.
        await asyncio.to_thread(self._storage.close)
        self._threads.close()

    async def __aenter__(self) -> Self:
        """Return the storage."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what was opened."""
        await self.close()


@without_locals
def open_storage(
    config: ConfigSource = None,
    *,
    clock: Clock | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    observers: Iterable[Observer] = (),
    concurrency: int = DEFAULT_CONCURRENCY,
) -> AsyncStorage:
    """Return the storage that the configuration names, for asyncio; it does no I/O.

    Args:
        config: as for :func:`twinstore.open_storage`.
        clock: the clock of the services.
        options: as for :func:`twinstore.open_storage`.
        observers: as for :func:`twinstore.open_storage`; they are told in the threads that make the calls.
        concurrency: calls that run at the same time; sessions and units of work come on top.
    """
    return AsyncStorage(
        open_sync_storage(config, clock=clock, options=options, observers=observers), concurrency
    )

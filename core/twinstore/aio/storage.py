"""Storage for asyncio: the same names as the synchronous storage, every call awaited."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, overload

from twinstore.access.retry import backoff_delays
from twinstore.aio.calls import SharedThreads, UnitThread, block_entry
from twinstore.aio.handles import JoinedThreads
from twinstore.aio.installed import AsyncModuleAttributes, facade_of
from twinstore.errors import ConcurrencyError, ValidationError
from twinstore.runtime.secrets import without_locals
from twinstore.runtime.service_log import log_lost_race
from twinstore.storage.open import open_storage as open_sync_storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import TracebackType

    from pydantic import SecretStr

    from twinstore.aio.calls import CallThreads
    from twinstore.clock import Clock
    from twinstore.config import ConfigPathLike, ConfigSource
    from twinstore.errors import Effect
    from twinstore.migrations.migration import Consent, Initializer, MigrationReport, MigrationStatus
    from twinstore.observing.observer import Notifier, Observer
    from twinstore.plugins.backend import Capabilities
    from twinstore.storage.module import ModuleStorage, SessionFactory
    from twinstore.storage.open import Storage

__all__ = ["AsyncModuleStorage", "AsyncStorage", "open_storage"]


A = TypeVar("A")
S = TypeVar("S")
T = TypeVar("T")

THREAD_NAME: Final = "twinstore"


class AsyncModuleStorage(Generic[S, A]):
    """A module for asyncio: sessions and units of work.

    ``S`` is the synchronous session of the module and ``A`` the one whose parts are awaited. The class of a
    module is generated; it has the parts of the unbound session besides.
    """

    def __init__(
        self, storage: ModuleStorage[object, S], threads: SharedThreads, facade: Callable[[S, CallThreads], A]
    ) -> None:
        """Take the synchronous storage, the threads to call it in, and the class of its awaited sessions."""
        self._storage = storage
        self._threads = threads
        self._facade = facade
        self.sessions = AsyncModuleSessions(storage.sessions, threads, facade)
        self.initializer = AsyncInitializer(lambda: storage.initializer, threads)

    @property
    def driver(self) -> str:
        """The name of the driver."""
        return self._storage.driver

    @property
    def concurrency(self) -> int:
        """How many calls the driver can serve at the same time."""
        return self._storage.concurrency

    @property
    def unbound(self) -> A:
        """The repositories and services; each call is independent."""
        return self._facade(self._storage.unbound, self._threads)

    async def capabilities(self) -> Capabilities:
        """Return what the driver can do on the connected server."""
        return await self._threads.run(lambda: self._storage.capabilities)

    async def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Create and upgrade the schema; the same as ``initializer.ensure_migrations``."""
        return await self.initializer.ensure_migrations(release=release, accept=accept)

    async def check_ready(self, *, timeout_ms: int | None = None) -> None:
        """Connect and check server, roles and schema, within some milliseconds if a probe waits no longer."""
        await self._threads.run(lambda: self._storage.check_ready(timeout_ms=timeout_ms))

    def session(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> AbstractAsyncContextManager[A]:
        """Open a session; the same as ``sessions.open``."""
        return self.sessions.open(tenant_id, causal_consistency=causal_consistency, purpose=purpose)

    @asynccontextmanager
    async def transaction(
        self, tenant_id: str | None = None, *, purpose: str | None = None, read_only: bool = False
    ) -> AsyncGenerator[A]:
        """Open a unit of work: commit at normal exit, roll back on any exception or cancellation.

        See :meth:`twinstore.storage.module.ModuleStorage.transaction`; a second unit of one task is refused,
        while several tasks may each have one.

        Raises:
            UnavailableError: besides, all slots for sessions and units stayed in use.
        """
        opening = self._storage.unobserved_transaction(tenant_id, purpose=purpose, read_only=read_only)
        # Here, because the unit itself is opened in a separate thread, which knows nothing of this task.
        with observing(self._storage.sessions.notifier, "transaction"), self._storage.open_units.opened():
            async with in_one_thread(opening, self._facade, self._threads) as bound:
                yield bound

    async def bind(self, handle: object, tenant_id: str | None = None) -> A:
        """Join a caller's own psycopg connection or pymongo client session, inside its transaction.

        See :meth:`twinstore.storage.module.ModuleStorage.bind`. The handle is a synchronous one; await its
        calls one after the other. A call that is cancelled may end the transaction of the caller; its task
        goes on when the handle is free again.
        """
        bound = await self._threads.run(self._storage.bind, handle, tenant_id)
        return self._facade(bound, JoinedThreads(self._threads))

    async def close(self) -> None:
        """Close what this module opened; a second call does nothing, another one is refused."""
        await asyncio.to_thread(self._storage.close)

    async def transact(
        self,
        fn: Callable[[A], Awaitable[T]],
        *,
        tenant_id: str | None = None,
        purpose: str | None = None,
        attempts: int | None = None,
    ) -> T:
        """Await ``fn`` in a unit of work and repeat both after ``ConcurrencyError``, with growing pauses.

        See :meth:`twinstore.storage.module.ModuleStorage.transact`.
        """
        with observing(self._storage.sessions.notifier, "transact"):
            return await self._repeated(fn, tenant_id, purpose, attempts)

    async def _repeated(
        self,
        fn: Callable[[A], Awaitable[T]],
        tenant_id: str | None,
        purpose: str | None,
        attempts: int | None,
    ) -> T:
        # Not ``repeat``, which sleeps in the thread: here the event loop must go on meanwhile.
        for pause in backoff_delays(attempts):
            try:
                return await self._attempt(fn, tenant_id, purpose)
            except ConcurrencyError as error:
                log_lost_race(error, pause)
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


class AsyncStorage(AsyncModuleAttributes):
    """The storages of all modules for asyncio; an asynchronous context manager."""

    def __init__(self, storage: Storage, concurrency: int | None = None) -> None:
        """Take a synchronous storage, which is closed with this one; ``concurrency`` as for open_storage.

        Raises:
            ValidationError: ``concurrency`` is less than 1.
        """
        self._storage = storage
        # One for all modules, or one for each driver, whose modules share what it can serve.
        self._given = None if concurrency is None else SharedThreads(concurrency, THREAD_NAME)
        self._threads: dict[tuple[str, int], SharedThreads] = {}
        self._opened: dict[str, object] = {}

    @overload
    def module(self, name: str) -> object: ...
    @overload
    def module(self, name: str, kind: type[T]) -> T: ...
    def module(self, name: str, kind: type[object] = object) -> object:
        """Return the storage of a module; see :meth:`twinstore.storage.open.Storage.module`.

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
            storage = self._storage.module(key)
            self._opened[key] = facade_of(key)(storage, self._threads_for(storage))
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
        for threads in (self._given, *self._threads.values()):
            if threads is not None:
                threads.close()

    def _threads_for(self, storage: ModuleStorage[object, object]) -> SharedThreads:
        if self._given is not None:
            return self._given
        key = storage.driver, storage.concurrency
        if key not in self._threads:
            self._threads[key] = SharedThreads(storage.concurrency, THREAD_NAME)
        return self._threads[key]

    async def __aenter__(self) -> Self:
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
    env_file: ConfigPathLike = None,
    secrets_dir: ConfigPathLike = None,
    clock: Clock | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    observers: Iterable[Observer] = (),
    concurrency: int | None = None,
    url: str | SecretStr | None = None,
    module: str | None = None,
) -> AsyncStorage:
    """Return the storage that the configuration names, for asyncio; it does no I/O.

    Args:
        config: as for :func:`twinstore.open_storage`.
        env_file: as for :func:`twinstore.open_storage`.
        secrets_dir: as for :func:`twinstore.open_storage`.
        clock: the clock of the services.
        options: as for :func:`twinstore.open_storage`.
        observers: as for :func:`twinstore.open_storage`; they are called in the threads that make the calls.
        concurrency: how many calls, sessions and units of work may be at work at the same time, each of them
            in a thread; ``None``: as many as the driver can serve (``PoolMax`` on PostgreSQL). Sessions and
            units get four fifths of five or more, so that calls go on. Waiting tasks take no thread.
        url: as for :func:`twinstore.open_storage`.
        module: the module of ``url``.

    Raises:
        ConfigurationError: as :func:`twinstore.open_storage`.
        ValidationError: ``concurrency`` is less than 1.
    """
    storage = open_sync_storage(
        config,
        env_file=env_file,
        secrets_dir=secrets_dir,
        clock=clock,
        options=options,
        observers=observers,
        url=url,
        module=module,
    )
    return AsyncStorage(storage, concurrency)


# The parts of a module for asyncio that are the same for every module: its migrations and its sessions.


class AsyncInitializer:
    """Awaits an :class:`~twinstore.migrations.migration.Initializer`, whose contracts hold.

    A task that is cancelled stops waiting; what was begun is completed.
    """

    def __init__(self, sync: Callable[[], Initializer], threads: CallThreads) -> None:
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
        self._sync = sync
        self._threads = threads
        self._facade = facade

    @asynccontextmanager
    async def open(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> AsyncGenerator[A]:
        """Open a session; see :meth:`twinstore.storage.module.SessionFactory.open`.

        Raises:
            UnavailableError: besides, all slots for sessions and units stayed in use.
        """
        opening = self._sync.unobserved(tenant_id, causal_consistency=causal_consistency, purpose=purpose)
        with observing(self._sync.notifier, "session"):
            async with in_one_thread(opening, self._facade, self._threads) as bound:
                yield bound


def observing(notifier: Notifier | None, name: str) -> AbstractContextManager[None]:
    """Return a block whose duration is reported to the observers, in the context of the task inside."""
    return nullcontext() if notifier is None else notifier.block(name, nullcontext())


@asynccontextmanager
async def in_one_thread(
    opening: AbstractContextManager[S], facade: Callable[[S, CallThreads], A], threads: SharedThreads
) -> AsyncGenerator[A]:
    """Enter, use and leave a session in one thread, which is kept as long.

    Leaving is shielded: a cancelled task must not leave a transaction open, and because the thread works
    in order, the end comes after a call that still runs.
    """
    thread, entry = UnitThread(threads), block_entry(opening)
    session = await thread.open(entry)
    try:
        yield facade(session, thread)
    except BaseException as error:
        # True: the session has dealt with the error, as any context manager may.
        if not await thread.leave(entry, error):
            raise
    else:
        await thread.leave(entry, None)

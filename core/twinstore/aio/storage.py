"""Storage for asyncio: the same names as the synchronous storage, every call awaited."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from twinstore.aio.scheduler import AsyncSchedulerSession
from twinstore.aio.threads import DEFAULT_CONCURRENCY, Worker
from twinstore.errors import ConcurrencyError
from twinstore.retrying import pauses
from twinstore.storage import open_storage as open_sync_storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from collections.abc import Set as AbstractSet
    from contextlib import AbstractContextManager
    from types import TracebackType

    from twinstore.backend import Capabilities
    from twinstore.clock import Clock
    from twinstore.config import ConfigSource
    from twinstore.migrations import Consent, MigrationReport
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.storage import Storage

__all__ = ["AsyncSchedulerStorage", "AsyncStorage", "open_storage"]

T = TypeVar("T")


class AsyncSchedulerStorage(AsyncSchedulerSession):
    """The scheduler for asyncio: repositories, services, sessions and units of work."""

    def __init__(self, storage: SchedulerStorage, worker: Worker) -> None:
        """Take the synchronous storage and the threads to call it in."""
        super().__init__(storage.unbound, worker)
        self._storage = storage
        self._worker = worker

    async def capabilities(self) -> Capabilities:
        """Return what the driver can do on the connected server."""
        return await self._worker.run(lambda: self._storage.capabilities)

    async def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Create and upgrade the schema; see :class:`~twinstore.migrations.Initializer`."""
        return await self._worker.run(
            lambda: self._storage.initializer.ensure_migrations(release=release, accept=accept)
        )

    async def check_ready(self) -> None:
        """Connect and check server, roles and schema."""
        await self._worker.run(self._storage.check_ready)

    @asynccontextmanager
    async def session(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> AsyncGenerator[AsyncSchedulerSession]:
        """Open a session; see :class:`~twinstore.scheduler.storage.SchedulerSessions`."""
        opening = self._storage.sessions.open(
            tenant_id, causal_consistency=causal_consistency, purpose=purpose
        )
        async with _in_one_thread(opening) as bound:
            yield bound

    @asynccontextmanager
    async def transaction(
        self, tenant_id: str | None = None, *, purpose: str | None = None, read_only: bool = False
    ) -> AsyncGenerator[AsyncSchedulerSession]:
        """Open a unit of work: commit at normal exit, roll back on any exception or cancellation.

        See :meth:`twinstore.scheduler.storage.SchedulerStorage.transaction`; a second unit of one task is
        refused, units of several tasks stand beside each other.
        """
        opening = self._storage.transaction(tenant_id, purpose=purpose, read_only=read_only)
        # Here, because the unit itself is opened in a thread of its own, which knows nothing of this task.
        with self._storage.open_units.opened():
            async with _in_one_thread(opening) as bound:
                yield bound

    async def transact(
        self,
        fn: Callable[[AsyncSchedulerSession], Awaitable[T]],
        *,
        tenant_id: str | None = None,
        purpose: str | None = None,
        attempts: int | None = None,
    ) -> T:
        """Await ``fn`` in a unit of work and repeat both after ``ConcurrencyError``, with growing pauses.

        See :meth:`twinstore.scheduler.storage.SchedulerStorage.transact`.
        """
        for pause in pauses(attempts):
            try:
                return await self._attempt(fn, tenant_id, purpose)
            except ConcurrencyError:
                await asyncio.sleep(pause)
        return await self._attempt(fn, tenant_id, purpose)

    async def _attempt(
        self,
        fn: Callable[[AsyncSchedulerSession], Awaitable[T]],
        tenant_id: str | None,
        purpose: str | None,
    ) -> T:
        async with self.transaction(tenant_id, purpose=purpose) as unit:
            return await fn(unit)


@asynccontextmanager
async def _in_one_thread(
    opening: AbstractContextManager[SchedulerSession],
) -> AsyncGenerator[AsyncSchedulerSession]:
    """Enter, use and leave a session in one thread of its own.

    Leaving is shielded: a cancelled task must not leave a transaction open, and because the thread works
    in order, the end comes after a call that still runs.
    """
    worker = Worker(1, "twinstore-unit")
    try:
        session = await worker.run(opening.__enter__)
        try:
            yield AsyncSchedulerSession(session, worker)
        except BaseException as error:
            if not await asyncio.shield(
                worker.run(opening.__exit__, type(error), error, error.__traceback__)
            ):
                raise
        else:
            await asyncio.shield(worker.run(opening.__exit__, None, None, None))
    finally:
        worker.close()


class AsyncStorage:
    """The storages of all modules for asyncio; an asynchronous context manager."""

    def __init__(self, storage: Storage, concurrency: int = DEFAULT_CONCURRENCY) -> None:
        """Take a synchronous storage, which is closed with this one."""
        self._storage = storage
        self._worker = Worker(concurrency, "twinstore")
        self._scheduler: AsyncSchedulerStorage | None = None

    @property
    def scheduler(self) -> AsyncSchedulerStorage:
        """The storage of the scheduler."""
        if self._scheduler is None:
            self._scheduler = AsyncSchedulerStorage(self._storage.scheduler, self._worker)
        return self._scheduler

    async def close(self) -> None:
        """Close what was opened; a second call does nothing."""
        await asyncio.to_thread(self._storage.close)
        self._worker.close()

    async def __aenter__(self) -> Self:
        """Return the storage."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what was opened."""
        await self.close()


def open_storage(
    config: ConfigSource = None, *, clock: Clock | None = None, concurrency: int = DEFAULT_CONCURRENCY
) -> AsyncStorage:
    """Return the storage that the configuration names, for asyncio; it does no I/O.

    Args:
        config: as for :func:`twinstore.open_storage`.
        clock: the clock of the services.
        concurrency: calls that run at the same time; sessions and units of work come on top.
    """
    return AsyncStorage(open_sync_storage(config, clock=clock), concurrency)

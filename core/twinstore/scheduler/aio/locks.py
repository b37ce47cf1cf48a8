"""Locks for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, cast

from twinstore.aio.calls import Awaited
from twinstore.aio.handles import AwaitedHandle, entered, handed_out, left
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.scheduler.locks import LEASE, DistributedLock, LockHandle

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from twinstore.scheduler.locks import LockInfo


__all__ = ["AsyncDistributedLock", "AsyncLockHandle"]


class AsyncLockHandle(AwaitedHandle[LockHandle]):
    """Awaits a :class:`LockHandle`, whose contracts hold."""

    @property
    def lock_key(self) -> str:
        """What is locked."""
        return self._sync.lock_key

    @property
    def tenant_id(self) -> str:
        """The tenant it belongs to, ``system`` for none."""
        return self._sync.tenant_id

    @property
    def holder_id(self) -> str:
        """Who holds it."""
        return self._sync.holder_id

    @property
    def fence(self) -> int:
        """The number of this ownership, higher than that of every earlier one."""
        return self._sync.fence

    @property
    def acquired_at(self) -> datetime:
        """When it was acquired, by the server clock."""
        return self._sync.acquired_at

    @property
    def expires_at(self) -> datetime:
        """When the lease ends unless it is renewed, by the server clock."""
        return self._sync.expires_at

    async def renew(self, *, lease: timedelta | None = None) -> datetime:
        """Extend the lease from now on, by its own length or another; return its new end. Atomic."""
        return await self._threads.run(self._sync.renew, lease=lease)

    async def is_held(self) -> bool:
        """Whether it is still held as far as this process knows; asks no server."""
        return await self._threads.run(self._sync.is_held)

    def keep_alive(self) -> AbstractAsyncContextManager[None]:
        """Renew at a third of the lease, in a thread, until the block ends."""
        return entered(self._sync.keep_alive(), self._threads)

    async def release(self) -> bool:
        """Give the lock up; return whether this call did. Repeated, or after a loss: false. Never raises."""
        return await self._threads.run(self._sync.release)


class AsyncDistributedLock(Awaited[DistributedLock]):
    """Awaits a :class:`DistributedLock`, whose contracts hold."""

    async def try_acquire(
        self,
        lock_key: str,
        timeout: timedelta,
        *,
        lease: timedelta = LEASE,
        holder_id: str | None = None,
        tenant_id: str = SYSTEM_TENANT,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncLockHandle | None:
        """Acquire a lock, waiting at most ``timeout``; ``None`` when another holder had it all the time."""
        return await handed_out(
            self._threads,
            lambda waited: self._sync.try_acquire(
                lock_key,
                left(timeout, waited),
                lease=lease,
                holder_id=holder_id,
                tenant_id=tenant_id,
                metadata=metadata,
            ),
            AsyncLockHandle,
        )

    async def acquire(
        self,
        lock_key: str,
        timeout: timedelta,
        *,
        lease: timedelta = LEASE,
        holder_id: str | None = None,
        tenant_id: str = SYSTEM_TENANT,
        metadata: Mapping[str, str] | None = None,
    ) -> AsyncLockHandle:
        """Acquire a lock as :meth:`try_acquire` does."""
        return cast(
            "AsyncLockHandle",
            await handed_out(
                self._threads,
                lambda waited: self._sync.acquire(
                    lock_key,
                    left(timeout, waited),
                    lease=lease,
                    holder_id=holder_id,
                    tenant_id=tenant_id,
                    metadata=metadata,
                ),
                AsyncLockHandle,
            ),
        )

    async def inspect(self, lock_key: str, *, tenant_id: str = SYSTEM_TENANT) -> LockInfo | None:
        """Return what is stored of a lock, be it held or free. Absent, because never acquired: ``None``."""
        return await self._threads.run(self._sync.inspect, lock_key, tenant_id=tenant_id)

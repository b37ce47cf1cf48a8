"""Locks: who holds what until when, and the contracts of acquiring and of holding.

A lock is a lease: it is free when it has no holder or when its end is not in the future. The server clock
decides, so that clients whose clocks differ agree. The row of a lock stays when it is released, because its
fence lives there: the number of the ownership, which only grows, and by which the protected resource can
refuse a holder that was too slow.
"""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Protocol, Self

from pydantic import Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import SYSTEM_TENANT, Id, LowerKeyMap, PositiveInt, TenantText, Timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime
    from types import TracebackType


__all__ = ["LEASE", "DistributedLock", "LockHandle", "LockInfo", "lock_number"]

LEASE: Final = timedelta(seconds=30)


class LockInfo(CanonicalModel):
    """What is locked, who holds it or held it last, and until when.

    The tenant ``system`` is that of locks which belong to no tenant. A lock is free when ``expiresAt`` is not
    in the future by the server clock; its row stays, with the fence.
    """

    # No rule that one instant follows another: the clock of the server may step back while the lock is held.
    lock_key: Id
    tenant_id: TenantText = SYSTEM_TENANT
    holder_id: Id
    acquired_at: Timestamp
    expires_at: Timestamp
    renewed_at: Timestamp | None = None
    fence: PositiveInt
    metadata: LowerKeyMap = Field(default_factory=dict)


def lock_number(tenant_id: str, lock_key: str) -> int:
    """Return the 64-bit number of a lock, for stores that lock numbers; the same in every process."""
    digest = sha256(f"scheduler:{tenant_id}:{lock_key}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


class LockHandle(Protocol):
    """One ownership of a lock. Leaving its ``with`` block releases it. Usable from several threads.

    In a forked child it is not held, and nothing that is done to it there concerns the parent.
    """

    @property
    def lock_key(self) -> str:
        """What is locked."""
        ...

    @property
    def tenant_id(self) -> str:
        """The tenant it belongs to, ``system`` for none."""
        ...

    @property
    def holder_id(self) -> str:
        """Who holds it."""
        ...

    @property
    def fence(self) -> int:
        """The number of this ownership, higher than that of every earlier one."""
        ...

    @property
    def acquired_at(self) -> datetime:
        """When it was acquired, by the server clock."""
        ...

    @property
    def expires_at(self) -> datetime:
        """When the lease ends unless it is renewed, by the server clock."""
        ...

    def renew(self, *, lease: timedelta | None = None) -> datetime:
        """Extend the lease from now on, by its own length or another; return its new end. Atomic.

        Repeated call: extends it again. After any error but ``LeaseLostError`` it is as it was.

        Args:
            lease: from 1 s to 1 h; ``None``: as long as before.

        Raises:
            LeaseLostError: it has expired, was released, or another holder has it; or the connection was
                lost, so that its state is unknown. Nothing was changed, and the handle can no longer be used.
            UnavailableError: the store could not be asked; try again while ``is_held()``.
            ValidationError: a lease of another length.
            TransactionAbortedError: in a forked child.
        """
        ...

    def is_held(self) -> bool:
        """Whether it is still held as far as this process knows; asks no server.

        False after a release, after a loss, from the instant at which the last confirmed lease ends by the
        clock of this process, and in a forked child. A process that was stopped learns it when it wakes up,
        so that what must not happen twice has to be guarded by the fence.
        """
        ...

    def keep_alive(self) -> AbstractContextManager[None]:
        """Renew at a third of the lease, in a thread, until the block ends.

        A renewal that could not be sent is tried again until the lease ends. After a loss the thread ends and
        ``is_held()`` is false; nothing is raised in the block, which has to look.
        """
        ...

    def release(self) -> bool:
        """Give the lock up; return whether this call did. Repeated, or after a loss: false. Never raises.

        The row stays, with holder and fence. Where the store cannot be reached the lease runs out by itself.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class DistributedLock(Protocol):
    """Locks that exclude each other in all processes that share a store; see the capability for that.

    They are reached in system scope and never take part in a session or unit of work of a caller: through
    one of these ``inspect`` alone can be called, and acquiring is a ``ValidationError``. They are not
    re-entrant: a second attempt by the same holder fails like any other.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` in a session of one tenant,
    and ``UnavailableError`` when the store cannot be reached or no further connection may be opened.
    """

    def try_acquire(  # the first two are fixed, the others are by keyword
        self,
        lock_key: str,
        timeout: timedelta,
        *,
        lease: timedelta = LEASE,
        holder_id: str | None = None,
        tenant_id: str = SYSTEM_TENANT,
        metadata: Mapping[str, str] | None = None,
    ) -> LockHandle | None:
        """Acquire a lock, waiting at most ``timeout``; ``None`` when another holder had it all the time.

        Atomic: of all that attempt it at once, one gets it. The fence is one higher than that of the owner
        before. Waiting attempts repeat after 10 ms, doubling to 250 ms; there is no queue. Repeated call by
        the same holder: ``None`` while it is held.

        Args:
            lock_key: what is locked, from a bounded set of names, because rows of locks are never removed.
            timeout: 0 is one attempt.
            lease: from 1 s to 1 h; how long it is held unless it is renewed.
            holder_id: who holds it; default: host, process and a random part.
            tenant_id: the tenant it belongs to, ``system`` for none.
            metadata: stored with the holder until the next one.
        """
        ...

    def acquire(  # as above
        self,
        lock_key: str,
        timeout: timedelta,
        *,
        lease: timedelta = LEASE,
        holder_id: str | None = None,
        tenant_id: str = SYSTEM_TENANT,
        metadata: Mapping[str, str] | None = None,
    ) -> LockHandle:
        """Acquire a lock as :meth:`try_acquire` does.

        Raises:
            LockTimeoutError: where ``try_acquire`` answers ``None``.
        """
        ...

    def inspect(self, lock_key: str, *, tenant_id: str = SYSTEM_TENANT) -> LockInfo | None:
        """Return what is stored of a lock, be it held or free. Absent, because never acquired: ``None``."""
        ...

"""One held lock: what a caller has in hand, whatever store the lock is in.

    Locks.try_acquire -> Contender of the driver, or the general one -> HeldLock, which owns the contender

A contender is what one caller talks to the store through while it wants and has a lock. Where a connection is
part of the lock, the contender is that connection. It compares holder and fence with every step, so that a
holder that was too slow changes nothing.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, Protocol, Self

from typing_extensions import override

from twinstore.errors import LeaseLostError, Outcome, TwinstoreError, UnavailableError
from twinstore.runtime.forks import ForkSafeLock, NotPicklable, ProcessGuard
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.locks import LockHandle
from twinstore.scheduler.rules.locks import lease_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime, timedelta

    from twinstore.scheduler.locks import LockInfo
    from twinstore.scheduler.rules.locks import LockClaim

log = logging.getLogger("twinstore.locks")

# So that a renewal may come late by twice as long.
RENEWALS_PER_LEASE: Final = 3
# After a renewal that could not be sent.
RETRY_SECONDS: Final = 0.1


class Contender(Protocol):
    """What one caller talks to the store through. Used by one thread at a time.

    Every method raises ``UnavailableError``, whose outcome is ``UNKNOWN`` where the ownership, if there was
    one, can no longer be relied on.
    """

    def acquire(self, claim: LockClaim) -> LockInfo | None:
        """Attempt it once; ``None`` when it is held. Must not wait for another holder."""
        ...

    def renew(self, owned: LockInfo, lease: timedelta) -> LockInfo | None:
        """Extend the lease; ``None`` when it has expired or is another one's."""
        ...

    def release(self, owned: LockInfo) -> bool:
        """Give it up; false when it has expired or is another one's."""
        ...

    def close(self) -> None:
        """Give up what the contender needs; a second call does nothing."""
        ...


def elapsed() -> float:
    """Return the seconds of a monotonic clock, which goes on while the machine sleeps if it can."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class HeldLock(NotPicklable, LockHandle):
    """Implements :class:`~twinstore.scheduler.locks.LockHandle`."""

    def __init__(
        self,
        contender: Contender,
        owned: LockInfo,
        lease: timedelta,
        requested_at: float,
        check: Callable[[], object],
    ) -> None:
        """Take the ownership.

        Args:
            contender: closed when the lock is no longer held.
            owned: the row as it was acquired.
            lease: how long it is held from then on.
            requested_at: what :func:`elapsed` returned before the request, so that the lease ends here before
                it ends on the server.
            check: raises when the storage is closed.
        """
        self._contender = contender
        self._owned = owned
        self._lease = lease
        self._until = requested_at + lease.total_seconds()
        self._check = check
        self._process = ProcessGuard()
        # A thread that renews and one that releases must not use one connection at a time.
        self._lock = ForkSafeLock()
        self._ended = False

    @property
    @override
    def lock_key(self) -> str:
        return self._owned.lock_key

    @property
    @override
    def tenant_id(self) -> str:
        return self._owned.tenant_id

    @property
    @override
    def holder_id(self) -> str:
        return self._owned.holder_id

    @property
    @override
    def fence(self) -> int:
        return self._owned.fence

    @property
    @override
    def acquired_at(self) -> datetime:
        return self._owned.acquired_at

    @property
    @override
    def expires_at(self) -> datetime:
        return self._owned.expires_at

    @override
    def renew(self, *, lease: timedelta | None = None) -> datetime:
        wanted = self._lease if lease is None else lease_argument(lease)
        self._process.check("This lock")
        with self._lock:
            if self._ended:
                raise self._lost("was released or lost before")
            self._check()
            requested_at = elapsed()
            try:
                owned = self._contender.renew(self._owned, wanted)
            except UnavailableError as error:
                if error.outcome is Outcome.NOT_APPLIED:
                    raise  # the store knows nothing of it, so the lease is as it was
                self._end()
                raise self._lost("can no longer be relied on, because the connection was lost") from error
            if owned is None:
                self._end()
                raise self._lost("has expired or belongs to another holder")
            self._owned, self._lease, self._until = owned, wanted, requested_at + wanted.total_seconds()
            return owned.expires_at

    @override
    def is_held(self) -> bool:
        return not self._ended and not self._process.forked and elapsed() < self._until

    @contextmanager
    def keep_alive(self) -> Generator[None]:
        """Renew at a third of the lease until the block ends; see the Protocol."""
        done = Event()
        # A daemon: a process that ends must not wait for it. The lease then runs out by itself.
        renewer = Thread(
            target=self._renew_until_done, args=(done,), name=f"twinstore-lock-{self.lock_key}", daemon=True
        )
        renewer.start()
        try:
            yield
        finally:
            if not self._process.forked:
                done.set()
                renewer.join()

    @override
    def release(self) -> bool:
        if self._process.forked:
            return False  # it is the parent's
        with self._lock:
            if self._ended:
                return False
            try:
                self._check()
                return self._contender.release(self._owned)
            except TwinstoreError as error:
                # Leaving a block must not put another error in the place of one that is on its way.
                log.warning("A lock could not be released (%s); its lease runs out.", error.message)
                return False
            finally:
                self._end()

    @override
    def __enter__(self) -> Self:
        return self

    @override
    def __exit__(self, *_: object) -> None:
        self.release()

    @override
    def __repr__(self) -> str:
        return f"{self.tenant_id}:{self.lock_key} (fence {self.fence})"

    def _renew_until_done(self, done: Event) -> None:
        pause = self._renew_interval()
        while not done.wait(pause) and self.is_held():
            try:
                self.renew()
            except LeaseLostError:
                log.warning("A lock was lost; keep_alive() renews it no longer.")
                return
            except TwinstoreError as error:
                log.warning("A lock could not be renewed (%s); trying again.", error.message)
                pause = min(RETRY_SECONDS, self._renew_interval())
            else:
                pause = self._renew_interval()

    def _renew_interval(self) -> float:
        return self._lease.total_seconds() / RENEWALS_PER_LEASE

    def _end(self) -> None:
        self._ended = True
        self._contender.close()

    def _lost(self, why: str) -> LeaseLostError:
        return LeaseLostError(
            f"The lock {self!r} {why}; stop what it protects, and acquire it again.",
            **LOCKS.located(LOCKS.key_text((self.tenant_id, self.lock_key))),
        )

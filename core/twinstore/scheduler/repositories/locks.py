"""Locks that exclude each other in all processes which share a store."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar, cast
from uuid import uuid4

from pydantic import TypeAdapter
from typing_extensions import override

from twinstore.access.guard import check_size
from twinstore.access.nested_units import calls_as
from twinstore.access.protocol import Access, Ref, Rows, ServerClock
from twinstore.access.repository import Repository
from twinstore.access.scope import UNBOUND, adapted, id_argument
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import LockTimeoutError, ValidationError
from twinstore.models.fields import SYSTEM_TENANT, LowerKeyMap, TenantText
from twinstore.observing.observer import CURRENT_NOTIFIER, report_lock_wait
from twinstore.runtime.cancellation import cancelled
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.held_lock import Contender, HeldLock, elapsed
from twinstore.scheduler.locks import LEASE, DistributedLock, LockHandle, LockInfo
from twinstore.scheduler.observed_lock import ObservedLock
from twinstore.scheduler.rules import locks as rules
from twinstore.scheduler.rules.locks import LockClaim, lease_argument, timeout_argument

T = TypeVar("T")

CONTEND: Final = "contend"
"""The special operation: takes the seconds that the caller is ready to wait for what it needs; returns a
:class:`~twinstore.scheduler.held_lock.Contender`."""
PURPOSE: Final = "locks"
INITIAL_BACKOFF: Final = 0.010
MAX_BACKOFF: Final = 0.250
# For the size of a row, to which it does not matter when it is granted.
PLACEHOLDER_TIME: Final = datetime(2000, 1, 1, tzinfo=UTC)
TENANT: Final = TypeAdapter[str](TenantText)
METADATA: Final = TypeAdapter[Mapping[str, str]](LowerKeyMap)


class Locks(Repository, DistributedLock):
    """Implements :class:`~twinstore.scheduler.locks.DistributedLock`."""

    @property
    def access(self) -> Access:
        """The rows of locks without the rules of ownership, for tests of these rules."""
        return self._access

    @override
    def try_acquire(  # as the Protocol
        self,
        lock_key: str,
        timeout: timedelta,
        *,
        lease: timedelta = LEASE,
        holder_id: str | None = None,
        tenant_id: str = SYSTEM_TENANT,
        metadata: Mapping[str, str] | None = None,
    ) -> LockHandle | None:
        claim = LockClaim(
            tenant_id=adapted(TENANT, tenant_id, "tenant_id"),
            lock_key=id_argument(lock_key, "lock_key"),
            holder_id=default_holder_id() if holder_id is None else id_argument(holder_id, "holder_id"),
            lease=lease_argument(lease),
            metadata=adapted(METADATA, metadata or {}, "metadata"),
        )
        seconds = timeout_argument(timeout)
        if claim.metadata:
            # Here, because a driver's own statement writes the row past the checks of an access.
            check_size(LOCKS, Row(claim.granted(PLACEHOLDER_TIME, PLACEHOLDER_TIME + claim.lease, 1)))
        self._admit_system(PURPOSE)
        self._refuse_bound()

        def general(seconds: float) -> Contender:
            del seconds  # the access waits for its connections as long as every call does
            return GeneralContender(self._access)

        return self._contended(self._special(CONTEND, general), claim, seconds)

    @override
    def acquire(  # as the Protocol
        self,
        lock_key: str,
        timeout: timedelta,
        *,
        lease: timedelta = LEASE,
        holder_id: str | None = None,
        tenant_id: str = SYSTEM_TENANT,
        metadata: Mapping[str, str] | None = None,
    ) -> LockHandle:
        handle = self.try_acquire(
            lock_key, timeout, lease=lease, holder_id=holder_id, tenant_id=tenant_id, metadata=metadata
        )
        if handle is not None:
            return handle
        key = LOCKS.key_text((tenant_id.strip(), lock_key.strip()))
        raise LockTimeoutError(
            f"The lock {key!r} stayed in other hands for {timeout.total_seconds():g} s; wait longer, or look "
            "with inspect() who holds it.",
            **LOCKS.located(key, driver=self.driver),
        )

    @override
    def inspect(self, lock_key: str, *, tenant_id: str = SYSTEM_TENANT) -> LockInfo | None:
        key = (adapted(TENANT, tenant_id, "tenant_id"), id_argument(lock_key, "lock_key"))
        return self._get(LOCKS, self._admit_system(PURPOSE), key)

    def _contended(
        self, contend: Callable[[float], Contender], claim: LockClaim, seconds: float
    ) -> LockHandle | None:
        start = time.monotonic()
        contender = contend(seconds)
        held: HeldLock | None = None
        attempts = 0
        try:
            for pause in backoff_delays(start + seconds):
                if pause:  # to sleep for 0 s is to let other processes go first
                    time.sleep(pause)
                if cancelled():
                    break
                attempts += 1
                # Before the question: the server may count the lease from any instant after it.
                requested_at = elapsed()
                owned = contender.acquire(claim)
                if owned is not None:
                    held = self._held(contender, owned, claim, requested_at)
                    break
        finally:
            if held is None:
                contender.close()
        report_lock_wait(
            LOCKS.name,
            time.monotonic() - start,
            contended=attempts > 1 or held is None,
            acquired=held is not None,
        )
        return held

    def _held(self, contender: Contender, owned: LockInfo, claim: LockClaim, requested_at: float) -> HeldLock:
        ownership = (contender, owned, claim.lease, requested_at, lambda: self._access.binding)
        notifier = CURRENT_NOTIFIER.get()
        if notifier is None:
            return HeldLock(*ownership)
        return ObservedLock(*ownership, notifier=notifier.of(LOCKS.name))

    def _refuse_bound(self) -> None:
        # A lock that a roll-back would take away, or that only its own transaction sees, is none.
        if self._access.binding.scope != UNBOUND:
            raise ValidationError(
                "Locks never take part in a session or unit of work; acquire them on the storage itself.",
                **LOCKS.located(driver=self.driver),
            )


class GeneralContender(Contender):
    """Decides by the rules of core, over the access of any driver; each step changes one row."""

    def __init__(self, access: Access) -> None:
        """Take the access, which is bound to no session."""
        self._access = access

    @override
    def acquire(self, claim: LockClaim) -> LockInfo | None:
        return self._step(claim.key, lambda stored, now: rules.acquired(stored, claim, now))

    @override
    def renew(self, owned: LockInfo, lease: timedelta) -> LockInfo | None:
        return self._step(key_of(owned), lambda stored, now: rules.renewed(stored, owned, lease, now))

    @override
    def release(self, owned: LockInfo) -> bool:
        return self._step(key_of(owned), lambda stored, now: rules.released(stored, owned, now)) is not None

    @override
    def close(self) -> None:
        """Do nothing: there is only the row."""

    def _step(
        self, key: tuple[str, str], rule: Callable[[LockInfo | None, datetime], LockInfo | None]
    ) -> LockInfo | None:
        """Store what a rule makes of a row; return it, ``None`` where the rule leaves the row alone."""
        after: LockInfo | None = None

        def changed(rows: Rows, now: ServerClock) -> Rows:
            nonlocal after
            # The rule may be called again after a lost race, so nothing of an earlier call may stay.
            after = rule(None if rows[0] is None else cast("LockInfo", rows[0].model), now())
            return (None if after is None else Row(after),)

        # Not by a caller that has a unit open: locks are not part of units.
        with calls_as(self):
            self._access.change((Ref(LOCKS, ALL_TENANTS, key),), changed)
        return after


def key_of(lock: LockInfo) -> tuple[str, str]:
    """Return the key of the row of a lock."""
    return (lock.tenant_id, lock.lock_key)


def backoff_delays(end: float) -> Iterator[float]:
    """Yield the seconds before each attempt: 0, then from 10 ms doubling to 250 ms, up to ``end``.

    With jitter, so that those who wait do not attempt it together.
    """
    yield 0
    pause = INITIAL_BACKOFF
    while (left := end - time.monotonic()) > 0:
        yield min(left, pause * random.uniform(0.5, 1))  # noqa: S311  # no secret depends on it
        pause = min(2 * pause, MAX_BACKOFF)


def default_holder_id() -> str:
    """Return the name of a holder that gave none: host, process and a random part."""
    return f"{socket.gethostname()[:200]}/{os.getpid()}/{uuid4().hex[:8]}"

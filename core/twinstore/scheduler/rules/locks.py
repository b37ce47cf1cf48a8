"""What acquiring, renewing and releasing do to the row of a lock, by the rule of every lease.

Drivers that do it in one statement of their own must answer as these do.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from twinstore.access import leases
from twinstore.access.leases import LeaseState
from twinstore.access.scope import duration_argument
from twinstore.errors import ValidationError
from twinstore.runtime.formatting import safe_repr
from twinstore.scheduler.locks import LockInfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

MIN_LEASE: Final = timedelta(seconds=1)
MAX_LEASE: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockClaim:
    """Who wants what, and for how long; every value is normalised."""

    tenant_id: str
    lock_key: str
    holder_id: str
    lease: timedelta
    metadata: Mapping[str, str]

    @property
    def key(self) -> tuple[str, str]:
        """The key of the row."""
        return (self.tenant_id, self.lock_key)

    def granted(self, acquired_at: datetime, expires_at: datetime, fence: int) -> LockInfo:
        """Return the row with which a store grants it."""
        return LockInfo(
            lock_key=self.lock_key,
            tenant_id=self.tenant_id,
            holder_id=self.holder_id,
            acquired_at=acquired_at,
            expires_at=expires_at,
            fence=fence,
            metadata=dict(self.metadata),
        )


def lease_argument(lease: object) -> timedelta:
    """Return the length of a lease in whole milliseconds.

    Raises:
        ValidationError: it is none, or shorter than 1 s, or longer than 1 h.
    """
    length = duration_argument(lease, "lease")
    if not MIN_LEASE <= length <= MAX_LEASE:
        raise ValidationError(
            f"Argument lease should be a timedelta from 1 s to 1 h, not {safe_repr(lease)}."
        )
    return length - length % timedelta(milliseconds=1)


def timeout_argument(timeout: object) -> float:
    """Return how many seconds a caller waits.

    Raises:
        ValidationError: it is not a length of time, or a negative one.
    """
    length = duration_argument(timeout, "timeout")
    if length < timedelta(0):
        raise ValidationError(
            f"Argument timeout should be a timedelta of 0 or more, not {safe_repr(timeout)}."
        )
    return length.total_seconds()


def acquired(stored: LockInfo | None, claim: LockClaim, now: datetime) -> LockInfo | None:
    """Return the lock in the hands of a new holder, ``None`` while anybody has it, be it the same holder."""
    before = LeaseState() if stored is None else _state(stored)
    if leases.held(before, now):
        return None
    return claim.granted(now, now + claim.lease, before.fence + 1)


def renewed(stored: LockInfo | None, owned: LockInfo, lease: timedelta, now: datetime) -> LockInfo | None:
    """Return the lock extended from now on, ``None`` when it is another one's, or has expired."""
    if stored is None:
        return None
    after = leases.renewed(_state(stored), owned.holder_id, owned.fence, now, lease)
    if after is None or after.expires_at is None:
        return None
    return stored.evolve(expires_at=after.expires_at, renewed_at=now)


def released(stored: LockInfo | None, owned: LockInfo, now: datetime) -> LockInfo | None:
    """Return the lock given up now, ``None`` when it is another one's or free already."""
    if stored is None or not leases.held(_state(stored), now):
        return None
    if not leases.owned(_state(stored), owned.holder_id, owned.fence):
        return None
    # The last holder stays named; the fence distinguishes it from the next one.
    return stored.evolve(expires_at=now)


def _state(lock: LockInfo) -> LeaseState:
    return LeaseState(lock.holder_id, lock.fence, lock.expires_at)

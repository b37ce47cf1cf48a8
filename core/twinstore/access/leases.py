"""The rule of a lease: stored state and the server's time in, new state out.

Copy jobs, streams and migrations keep their lease in a row and change it by this rule while the row is locked
or compared. Locks and claims are single statements of a driver, for which this rule is the oracle.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The holder of a lease, and its end.

    Attributes:
        holder: the last holder, ``None`` when it was never held or was released.
        fence: grows by one with every new ownership and never falls.
        expires_at: by the server's clock; ``None`` without a holder.
    """

    holder: str | None = None
    fence: int = 0
    expires_at: datetime | None = None


def held(state: LeaseState, now: datetime) -> bool:
    """Whether the lease is held: it is free from the very instant at which it expires."""
    return state.holder is not None and state.expires_at is not None and state.expires_at > now


def acquired(
    state: LeaseState, holder: str, now: datetime, duration: timedelta, *, dead: Collection[str] = ()
) -> LeaseState | None:
    """Return the lease in the hands of a new holder, ``None`` while another one holds it.

    A holder that asks again gets a new fence, so that what it began before is refused. ``dead`` names holders
    that are known to be gone.
    """
    if held(state, now) and state.holder != holder and state.holder not in dead:
        return None
    # Also for the same holder: an earlier call of that holder that still hangs must not pass for this
    # ownership.
    return LeaseState(holder, state.fence + 1, now + duration)


def renewed(
    state: LeaseState, holder: str, fence: int, now: datetime, duration: timedelta
) -> LeaseState | None:
    """Return the lease extended from now on, ``None`` when it is another one's or has expired."""
    # An expired lease is not renewed even by its holder: another one may have acted on its end already.
    if not owned(state, holder, fence) or not held(state, now):
        return None
    return replace(state, expires_at=now + duration)


def released(state: LeaseState, holder: str, fence: int) -> LeaseState | None:
    """Return the lease given back, ``None`` when it is another one's; the fence stays."""
    # The fence stays, because it distinguishes late writers of this holder from the next holder.
    return LeaseState(None, state.fence, None) if owned(state, holder, fence) else None


def owned(state: LeaseState, holder: str, fence: int) -> bool:
    """Whether this is the ownership of that holder and fence, expired or not."""
    return (state.holder, state.fence) == (holder, fence)

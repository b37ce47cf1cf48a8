"""The smoke test of locks: a verification acquires one on the target, under a key that no service uses."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, key_order
from twinstore.catalog.conditions import After
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import TwinstoreError
from twinstore.models.json_text import format_timestamp
from twinstore.plugins.checks import SmokeTest
from twinstore.scheduler.catalog import LOCKS, SMOKE_TEST
from twinstore.scheduler.rules.locks import MAX_LEASE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.scheduler.locks import DistributedLock, LockHandle
    from twinstore.scheduler.storage import SchedulerStorage

TENANT, KEY = SMOKE_TEST
# Another verification may be at it; one that was killed leaves its lease behind.
TIMEOUT: Final = timedelta(seconds=10)
LEASE: Final = timedelta(seconds=5)
NOW: Final = timedelta(0)
NAMED: Final = 10


def smoke_test(storage: SchedulerStorage) -> Iterator[str]:
    """Yield what locks do otherwise than they must."""
    try:
        if (stuck := _stuck(storage.locks)) is not None:
            yield stuck
            return
        with storage.locks.acquire(KEY, TIMEOUT, lease=LEASE, tenant_id=TENANT) as first:
            yield from _while_held(storage.locks, first)
        with storage.locks.acquire(KEY, TIMEOUT, lease=LEASE, tenant_id=TENANT) as second:
            if second.fence <= first.fence:
                yield f"the fence went from {first.fence} to {second.fence}, which is not higher"
    except TwinstoreError as error:
        yield error.message


def _stuck(locks: DistributedLock) -> str | None:
    """Return what to do about a lease that no smoke test requested and that no caller should wait for."""
    stored = locks.inspect(KEY, tenant_id=TENANT)
    if stored is None or stored.expires_at - (stored.renewed_at or stored.acquired_at) <= LEASE:
        return None
    return (
        f"the lock {KEY} of tenant {TENANT} is leased until {format_timestamp(stored.expires_at)} to "
        f"{stored.holder_id!r}, but a smoke test leases it for {LEASE.seconds} s; set expiresAt of its row "
        "to its acquiredAt"
    )


def _while_held(locks: DistributedLock, held: LockHandle) -> Iterator[str]:
    """Yield what goes wrong between acquiring and releasing."""
    again = locks.try_acquire(KEY, NOW, lease=LEASE, tenant_id=TENANT)
    if again is not None:
        again.release()
        yield "a second attempt got the lock while it was held"
    before = held.expires_at
    # By the server clock, which may not have advanced by a millisecond.
    if held.renew() < before:
        yield "renewing did not extend the lease"
    if not held.release():
        yield "the lock was not released"


def held_locks(storage: SchedulerStorage, longer_than: timedelta = NOW) -> Iterator[str]:
    """Yield a sentence for each lock that is leased for longer than this from now on; it is only read."""
    now = storage.bulk.now()
    query = Query(
        entity=LOCKS.name,
        scope=ALL_TENANTS,
        where=(After("expiresAt", now + longer_than),),
        order=(SortKey("expiresAt", descending=True, time=True), *key_order(LOCKS)),
        limit=NAMED + 1,
        skips_undecodable=True,
    )
    locks = [row.model for row in storage.bulk.access().page(LOCKS, query)]
    for lock in locks[:NAMED]:
        held = (
            f"the lock {lock.lock_key!r} of tenant {lock.tenant_id!r} is held by {lock.holder_id!r} until "
            f"{format_timestamp(lock.expires_at)}"
        )
        if lock.expires_at > now + MAX_LEASE:
            yield (
                f"{held}, over {MAX_LEASE} from now; no call leases for so long. End its holder, and set "
                "expiresAt of its row to its acquiredAt"
            )
        elif (lock.tenant_id, lock.lock_key) != SMOKE_TEST:
            yield f"{held}; stop its holder, or wait for that instant"
    if len(locks) > NAMED:
        yield f"more than {NAMED} locks are held"


LOCK_SMOKE_TEST: Final = SmokeTest(
    title="lock smoke test",
    does="acquired, refused to a second, renewed, released, acquired again with a higher fence",
    run=smoke_test,
    held=held_locks,
)

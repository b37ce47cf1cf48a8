"""Locks on PostgreSQL: an advisory lock for exclusion, and before and after it the row with holder and fence.

Both use one dedicated connection. When its process dies the server frees the advisory lock, and when it is
silent for as long as the lease, ``idle_session_timeout`` ends the connection. Only the row says that a lock
is held: it outlives a lost connection until its lease ends, and its fence outlives everything. A connection
on which nothing of its owner remains serves the next one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from psycopg import errors
from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore.models.json_text import dumps_sorted
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.held_lock import Contender
from twinstore.scheduler.locks import lock_number
from twinstore.scheduler.repositories.locks import CONTEND
from twinstore_postgres.connection.direct import IDLE_MS
from twinstore_postgres.connection.errors import Subject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.scheduler.locks import LockInfo
    from twinstore.scheduler.rules.locks import LockClaim
    from twinstore_postgres.access.access import PostgresAccess, Special
    from twinstore_postgres.connection.direct import DedicatedConnection, DedicatedConnections
    from twinstore_postgres.mapping.codec import Values

# One statement: a process that stops between two of them would hold the advisory lock and no lease. The time
# is read behind the advisory lock; waiting for the row can only make it older, and the lease shorter.
ACQUIRE: Final = b"""
WITH attempt AS MATERIALIZED (SELECT pg_try_advisory_lock(%(number)s) AS entered),
     entered AS MATERIALIZED (
    SELECT entered, CASE WHEN entered THEN set_config('idle_session_timeout', %(idle)s, false) END
      FROM attempt
), clock AS MATERIALIZED (
    SELECT date_trunc('milliseconds', clock_timestamp()) AS now FROM entered WHERE entered
), leased AS (
    INSERT INTO scheduler.locks AS stored
           (tenant_id, lock_key, holder_id, acquired_at, expires_at, renewed_at, fence, metadata)
    SELECT %(tenant)s, %(key)s, %(holder)s, now, now + %(lease)s, NULL, 1, %(metadata)s::jsonb FROM clock
        ON CONFLICT (tenant_id, lock_key) DO UPDATE
       SET holder_id = excluded.holder_id, acquired_at = excluded.acquired_at,
           expires_at = excluded.expires_at, renewed_at = NULL, fence = stored.fence + 1,
           metadata = excluded.metadata
     WHERE stored.expires_at <= excluded.acquired_at
    RETURNING acquired_at, expires_at, fence
)
SELECT entered, acquired_at, expires_at, fence FROM entered LEFT JOIN leased ON true
"""
NOT_LEASED: Final[Values] = (True, None, None, None)
# Takes from a connection all that an owner leaves on it: the advisory lock, and the timer of its lease.
CLEAN: Final = b"pg_advisory_unlock_all(), set_config('idle_session_timeout', %(idle)s, false)"
LEAVE: Final = b"SELECT " + CLEAN
# The row of this ownership, as long as its lease lasts: a fence is given once, so no one else had it since.
OWN: Final = b"""
 WHERE tenant_id = %(tenant)s AND lock_key = %(key)s AND holder_id = %(holder)s AND fence = %(fence)s
   AND expires_at > now
"""
# Every statement restarts the timer of the connection; this one also sets it to the new lease.
RENEW: Final = (
    b"""
UPDATE scheduler.locks SET expires_at = now + %(lease)s, renewed_at = now
  FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS now) AS clock"""
    + OWN
    + b"RETURNING expires_at, renewed_at, set_config('idle_session_timeout', %(idle)s, false)"
)
# The row first: the next holder of the advisory lock then waits for this statement to commit.
RELEASE: Final = (
    b"""
WITH released AS (
    UPDATE scheduler.locks SET expires_at = now
      FROM (SELECT date_trunc('milliseconds', clock_timestamp()) AS now) AS clock"""
    + OWN
    + b"""
    RETURNING fence
), counted AS MATERIALIZED (SELECT count(*) AS released FROM released)
SELECT released, """
    + CLEAN
    + b" FROM counted"
)
UNOWNED: Final = {"idle": str(IDLE_MS)}


class AdvisoryContender(Contender):
    """Implements :class:`~twinstore.scheduler.held_lock.Contender` on one connection, opened at first use."""

    def __init__(self, connections: DedicatedConnections, seconds: float) -> None:
        """Take where connections come from, and how long to wait for one."""
        self._connections = connections
        self._seconds = seconds
        self._connection: DedicatedConnection | None = None
        self._clean = False

    @override
    def acquire(self, claim: LockClaim) -> LockInfo | None:
        if self._connection is None:
            self._connection = self._connections.open(self._seconds)
        self._clean = False
        try:
            found = self._query(ACQUIRE, claim.key, claim_values(claim))
        except TwinstoreError as error:
            if not isinstance(error.__cause__, errors.LockNotAvailable):
                raise
            # The advisory lock outlives the statement that took it. The timer does not: a process that stops
            # right here frees the lock after IDLE_MS.
            found = NOT_LEASED
        entered, acquired_at, expires_at, fence = found or NOT_LEASED
        if fence is not None:
            return claim.granted(acquired_at, expires_at, fence)
        if entered:
            self._query(LEAVE, claim.key, UNOWNED)
        self._clean = True
        return None

    @override
    def renew(self, owned: LockInfo, lease: timedelta) -> LockInfo | None:
        values = {**owned_values(owned), **lease_values(lease)}
        found = self._query(RENEW, (owned.tenant_id, owned.lock_key), values)
        return None if found is None else owned.evolve(expires_at=found[0], renewed_at=found[1])

    @override
    def release(self, owned: LockInfo) -> bool:
        found = self._query(RELEASE, (owned.tenant_id, owned.lock_key), {**owned_values(owned), **UNOWNED})
        self._clean = True
        return found is not None and found[0] > 0

    @override
    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            (connection.give_back if self._clean else connection.close)()

    def _query(self, statement: bytes, key: tuple[str, str], values: Mapping[str, object]) -> Values | None:
        if self._connection is None:
            raise LookupError("this lock was never requested")  # met by programmers only
        tenant, name = key
        place = {"tenant": tenant, "key": name, "number": lock_number(tenant, name)}
        return self._connection.one(statement, {**place, **values}, Subject(LOCKS, key))


def claim_values(claim: LockClaim) -> dict[str, object]:
    """Return what a claim adds to the key of its row."""
    metadata = dumps_sorted(dict(claim.metadata)).decode()
    return {"holder": claim.holder_id, "metadata": metadata, **lease_values(claim.lease)}


def owned_values(owned: LockInfo) -> dict[str, object]:
    """Return what distinguishes an ownership from all others of its row."""
    return {"holder": owned.holder_id, "fence": owned.fence}


def lease_values(lease: timedelta) -> dict[str, object]:
    """Return a lease, also in milliseconds for the timer of the connection."""
    return {"lease": lease, "idle": str(lease // timedelta(milliseconds=1))}


def contend(access: PostgresAccess, seconds: float) -> Contender:
    """Return a contender that attempts locks on connections outside the pool."""
    connections = access.execution.dedicated
    if connections is None:
        raise LookupError("locks are not acquired in a session")  # core refuses that before
    return AdvisoryContender(connections, seconds)


OPERATIONS: Final[Mapping[str, Special]] = {CONTEND: contend}

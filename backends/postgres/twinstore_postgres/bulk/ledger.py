"""The ledger of copies: jobs with their lease, and ranges; the clock of the server judges every lease."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import orjson
import psycopg
from psycopg import sql

from twinstore.bulk import Claim, Job, JobState, KeyRange, Lease, RangeProgress, RangeState, RangeTally
from twinstore.errors import LeaseLostError, NotFoundError
from twinstore.jsontext import format_timestamp
from twinstore.scope import instant_argument
from twinstore_postgres.codec import Json
from twinstore_postgres.errors import translated
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from twinstore_postgres.bulk.connections import BulkConnections
    from twinstore_postgres.codec import Row
    from twinstore_postgres.connecting import Connection

__all__ = ["LedgerConnection", "PostgresLedger", "check_lease", "finish_range"]

PAGE: Final = 2000

SELECT_JOB: Final = (
    b"SELECT job_id, settings, state, generation, as_of, started_at, position"
    b" FROM {schema}.backfill_jobs WHERE job_id = %s"
)
LOCK_JOB: Final = SELECT_JOB + b" FOR UPDATE"
SELECT_JOBS: Final = (
    b"SELECT job_id, settings, state, generation, as_of, started_at, position"
    b" FROM {schema}.backfill_jobs ORDER BY started_at DESC, job_id"
)
INSERT_JOB: Final = b"""
INSERT INTO {schema}.backfill_jobs (job_id, settings, state, generation, as_of, started_at)
VALUES (%s, %s, 'running', 1, %s, clock_timestamp()) ON CONFLICT (job_id) DO NOTHING
"""
NEXT_GENERATION: Final = b"""
UPDATE {schema}.backfill_jobs
   SET settings = %s, state = 'running', generation = generation + 1, as_of = %s,
       started_at = clock_timestamp(), position = NULL
 WHERE job_id = %s
"""
FORGET_RANGES: Final = b"DELETE FROM {schema}.backfill_ranges WHERE job_id = %s"
# Free, expired, the caller's own, or that of a holder known to be gone.
ACQUIRE: Final = b"""
UPDATE {schema}.backfill_jobs
   SET lease_holder = %s, lease_fence = lease_fence + 1, lease_expires_at = clock_timestamp() + %s
 WHERE job_id = %s
   AND (lease_holder IS NULL OR lease_expires_at <= clock_timestamp() OR lease_holder = ANY (%s))
RETURNING lease_holder, lease_fence, lease_expires_at
"""
SELECT_LEASE: Final = b"""
SELECT lease_holder, lease_fence, lease_expires_at, lease_expires_at > clock_timestamp()
  FROM {schema}.backfill_jobs WHERE job_id = %s
"""
RENEW: Final = b"""
UPDATE {schema}.backfill_jobs SET lease_expires_at = clock_timestamp() + %s
 WHERE job_id = %s AND lease_holder = %s AND lease_fence = %s AND lease_expires_at > clock_timestamp()
RETURNING lease_holder, lease_fence, lease_expires_at
"""
RELEASE: Final = b"""
UPDATE {schema}.backfill_jobs SET lease_holder = NULL, lease_expires_at = NULL
 WHERE job_id = %s AND lease_holder = %s AND lease_fence = %s
"""
COMPLETE: Final = b"UPDATE {schema}.backfill_jobs SET state = 'complete' WHERE job_id = %s"
# The lock lasts until the commit: nobody can take the lease between this check and the commit.
HOLD_LEASE: Final = b"""
SELECT FROM {schema}.backfill_jobs
 WHERE job_id = %s AND lease_holder = %s AND lease_fence = %s AND lease_expires_at > clock_timestamp()
   FOR SHARE
"""
HAS_RANGES: Final = b"SELECT FROM {schema}.backfill_ranges WHERE job_id = %s AND entity = %s LIMIT 1"
LAST_NUMBER: Final = b"SELECT coalesce(max(number), 0) FROM {schema}.backfill_ranges WHERE job_id = %s"
INSERT_RANGE: Final = b"""
INSERT INTO {schema}.backfill_ranges (job_id, number, entity, lower, upper, state)
VALUES (%s, %s, %s, %s, %s, 'pending')
"""
SELECT_RANGES: Final = b"""
SELECT number, entity, lower, upper, state, tally, position, finished_at
  FROM {schema}.backfill_ranges
 WHERE job_id = %s AND number > %s AND (%s::text IS NULL OR entity = %s)
 ORDER BY number LIMIT %s
"""
CLAIM: Final = b"""
UPDATE {schema}.backfill_ranges SET state = 'copying', finished_at = NULL
 WHERE job_id = %s AND number = %s RETURNING entity, lower, upper
"""
FINISH_RANGE: Final = b"""
UPDATE {schema}.backfill_ranges SET state = 'live', tally = %s, finished_at = clock_timestamp()
 WHERE job_id = %s AND number = %s
"""


@lru_cache
def in_schema(statement: bytes, schema: str) -> bytes:
    """Return a statement about the ledger of a schema."""
    return statement.replace(b"{schema}", sql.Identifier(schema).as_bytes())


@dataclass(frozen=True, slots=True)
class LedgerConnection:
    """A connection that speaks to the ledger of one schema."""

    connection: Connection
    schema: str

    def execute(self, statement: bytes, values: Sequence[object] = ()) -> psycopg.Cursor[Row]:
        """Execute one statement."""
        return self.connection.execute(in_schema(statement, self.schema), values)

    def execute_each(self, statement: bytes, rows: Sequence[Sequence[object]]) -> None:
        """Execute one statement for each row of values."""
        self.connection.cursor().executemany(in_schema(statement, self.schema), rows)


class PostgresLedger:
    """Implements :class:`~twinstore.bulk.Ledger`."""

    def __init__(self, connections: BulkConnections, schema: str) -> None:
        """Take the connections of bulk work, and the schema in which the ledger lives."""
        self._connections = connections
        self._schema = schema

    def find(self, job_id: str) -> Job | None:
        """Return a job; see the Protocol."""
        with self._transaction() as connection:
            row = connection.execute(SELECT_JOB, [job_id]).fetchone()
        return None if row is None else job_of(row)

    def jobs(self) -> Iterator[Job]:
        """Return all jobs, the latest start first; see the Protocol."""
        with self._transaction() as connection:
            rows = connection.execute(SELECT_JOBS).fetchall()
        return map(job_of, rows)

    def lease(self, job_id: str) -> Lease | None:
        """Return the lease that somebody holds; see the Protocol."""
        with self._transaction() as connection:
            row = connection.execute(SELECT_LEASE, [job_id]).fetchone()
        if row is None or row[0] is None or not row[3]:
            return None
        return Lease(job_id, row[0], row[1], row[2])

    def start(self, job_id: str, settings: Mapping[str, str], as_of: datetime) -> Job:
        """Create a job or its next generation; see the Protocol."""
        instant = instant_argument(as_of, "as_of")
        stored = Json(orjson.dumps(dict(settings)))
        with self._transaction() as connection:
            connection.execute(INSERT_JOB, [job_id, stored, instant])
            job = locked_job(connection, job_id)
            if job.state is JobState.COMPLETE:
                connection.execute(NEXT_GENERATION, [stored, instant, job_id])
                connection.execute(FORGET_RANGES, [job_id])
                job = locked_job(connection, job_id)
        return job

    def acquire(self, job_id: str, holder: str, lease: timedelta, *, dead: str | None = None) -> Lease:
        """Take the lease of a job; see the Protocol."""
        passable = [holder] if dead is None else [holder, dead]
        with self._transaction() as connection:
            row = connection.execute(ACQUIRE, [holder, lease, job_id, passable]).fetchone()
            if row is None:
                raise held_by_another(connection, job_id)
        return Lease(job_id, *row)

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease; see the Protocol."""
        with self._transaction() as connection:
            values = [duration, lease.job_id, lease.holder, lease.fence]
            row = connection.execute(RENEW, values).fetchone()
        if row is None:
            raise lost(lease)
        return Lease(lease.job_id, *row)

    def release(self, lease: Lease) -> None:
        """Give a lease back; see the Protocol."""
        with self._transaction() as connection:
            connection.execute(RELEASE, [lease.job_id, lease.holder, lease.fence])

    def plan(self, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        """Store the ranges of an entity; see the Protocol."""
        with self._transaction() as connection:
            locked_job(connection, lease.job_id)
            check_lease(connection, lease)
            if connection.execute(HAS_RANGES, [lease.job_id, entity]).rowcount:
                return
            last = connection.execute(LAST_NUMBER, [lease.job_id]).fetchone()
            first = 1 + (0 if last is None else last[0])
            connection.execute_each(
                INSERT_RANGE,
                [
                    (lease.job_id, number, entity, key_list(within.lower), key_list(within.upper))
                    for number, within in enumerate(ranges, first)
                ],
            )

    def ranges(self, job_id: str, entity: str | None = None) -> Iterator[RangeProgress]:
        """Return the ranges in order of number; see the Protocol."""
        after = 0
        while True:
            with self._transaction() as connection:
                rows = connection.execute(SELECT_RANGES, [job_id, after, entity, entity, PAGE]).fetchall()
            yield from map(range_of, rows)
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def claim(self, lease: Lease, number: int) -> Claim:
        """Mark a range as copying; see the Protocol."""
        with self._transaction() as connection:
            check_lease(connection, lease)
            row = connection.execute(CLAIM, [lease.job_id, number]).fetchone()
        if row is None:
            raise NotFoundError(
                f"The job {lease.job_id!r} has no range {number}; plan it first.", driver=DRIVER
            )
        entity, lower, upper = row
        return Claim(lease, number, entity, KeyRange(key_of(lower), key_of(upper)))

    def complete(self, lease: Lease) -> None:
        """Mark the job as complete; see the Protocol."""
        with self._transaction() as connection:
            check_lease(connection, lease)
            connection.execute(COMPLETE, [lease.job_id])

    @contextmanager
    def _transaction(self) -> Iterator[LedgerConnection]:
        with self._connections.lend() as connection, translated(), connection.transaction():
            yield LedgerConnection(connection, self._schema)


def locked_job(connection: LedgerConnection, job_id: str) -> Job:
    """Lock and return a job.

    Raises:
        NotFoundError: there is none.
    """
    row = connection.execute(LOCK_JOB, [job_id]).fetchone()
    if row is None:
        raise unknown_job(job_id)
    return job_of(row)


def check_lease(connection: LedgerConnection, lease: Lease) -> None:
    """Hold a lease until the end of the transaction.

    Raises:
        LeaseLostError: it expired or another holder has it.
    """
    if not connection.execute(HOLD_LEASE, [lease.job_id, lease.holder, lease.fence]).rowcount:
        raise lost(lease)


def finish_range(connection: LedgerConnection, claim: Claim, tally: RangeTally) -> None:
    """Mark a range as live with its tally."""
    values = [Json(orjson.dumps(asdict(tally))), claim.lease.job_id, claim.number]
    if not connection.execute(FINISH_RANGE, values).rowcount:
        # A rival with the lease of a later generation has forgotten the ranges of this one.
        raise lost(claim.lease)


def held_by_another(connection: LedgerConnection, job_id: str) -> LeaseLostError | NotFoundError:
    """Return why the lease of a job cannot be taken."""
    row = connection.execute(SELECT_LEASE, [job_id]).fetchone()
    if row is None:
        return unknown_job(job_id)
    holder, _, expires_at, _ = row
    until = "" if expires_at is None else f" until {format_timestamp(whole(expires_at))}"
    return LeaseLostError(
        f"Job {job_id!r} is leased to {holder!r}{until}; wait for it, or stop that worker.",
        key=holder,
        driver=DRIVER,
    )


def whole(value: datetime) -> datetime:
    """Return an instant in whole milliseconds."""
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def lost(lease: Lease) -> LeaseLostError:
    """Return the error of a lease that expired or was taken."""
    return LeaseLostError(
        f"The lease of {lease.holder!r} on job {lease.job_id!r} (fence {lease.fence}) expired or was taken; "
        "nothing was written. Run the copy again.",
        key=lease.holder,
        driver=DRIVER,
    )


def unknown_job(job_id: str) -> NotFoundError:
    """Return the error of a job that does not exist."""
    return NotFoundError(f"There is no job {job_id!r}; start it first.", driver=DRIVER, key=job_id)


def job_of(row: Row) -> Job:
    """Return the job of a row."""
    job_id, settings, state, generation, as_of, started_at, position = row
    return Job(
        id=job_id,
        settings=settings,
        state=JobState(state),
        generation=generation,
        as_of=as_of,
        started_at=started_at,
        position=position,
    )


def range_of(row: Row) -> RangeProgress:
    """Return the range of a row."""
    number, entity, lower, upper, state, tally, position, finished_at = row
    return RangeProgress(
        number=number,
        entity=entity,
        within=KeyRange(key_of(lower), key_of(upper)),
        state=RangeState(state),
        tally=None if tally is None else RangeTally(**tally),
        position=position,
        finished_at=finished_at,
    )


def key_list(key: Sequence[str] | None) -> list[str] | None:
    """Return a key as the server stores it."""
    return None if key is None else list(key)


def key_of(values: Sequence[str] | None) -> tuple[str, ...] | None:
    """Return a stored key."""
    return None if values is None else tuple(values)

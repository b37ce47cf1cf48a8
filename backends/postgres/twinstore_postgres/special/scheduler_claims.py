"""Leasing policy jobs in one statement, and replacing those of a lease holder in two round trips."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.access.protocol import Add
from twinstore.catalog.conditions import AtMost
from twinstore.catalog.row import Row as StoredRow
from twinstore.errors import DocumentDecodeError
from twinstore.models import json_text
from twinstore.models.canonical import decode_stored
from twinstore.scheduler.catalog import POLICY_JOBS
from twinstore.scheduler.policy_jobs import PolicyRunJob
from twinstore.scheduler.repositories.policy_jobs import CLAIM, COMPLETE
from twinstore.scheduler.rules.policy_jobs import complete_batch, lease_order
from twinstore_postgres.access import statements
from twinstore_postgres.connection.errors import Subject
from twinstore_postgres.mapping.codec import Json
from twinstore_postgres.mapping.table import listed, table_of
from twinstore_postgres.mapping.tenancy import ScopeKind, owner_condition, owner_values, scope_kind, setting
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from twinstore.access.protocol import FieldUpdates
    from twinstore.access.query import Query
    from twinstore.catalog.tenancy import Tenants
    from twinstore.scheduler.enums import PolicyRunJobStatus
    from twinstore_postgres.access.access import PostgresAccess, Special
    from twinstore_postgres.mapping.codec import Values

log = logging.getLogger("twinstore.postgres")

TABLE: Final = table_of(POLICY_JOBS)
ONE: Final = sql.Identifier("job")
COLUMNS: Final = listed(TABLE.columns, ONE)
# The first due jobs that no other process is leasing; the column and the payload say the same then.
# With the limit in the text one plan is right for all executions, so the server keeps it.
LEASE: Final = """
WITH due AS MATERIALIZED (
    SELECT job.id FROM scheduler.policy_jobs AS job
     WHERE job.status = 0 AND job.available_at <= %s AND job.attempt_count < 2147483647 AND {owner}
     ORDER BY job.priority DESC, job.available_at, job.created_at, job.id
     LIMIT {limit} FOR UPDATE SKIP LOCKED)
UPDATE scheduler.policy_jobs AS job
   SET status = 1, attempt_count = job.attempt_count + 1, row_version = job.row_version + 1,
       updated_at = %s, lease_owner = %s, lease_expires_at = %s,
       payload = job.payload || %s || jsonb_build_object('attemptCount', job.attempt_count + 1)
  FROM due WHERE job.id = due.id
RETURNING job.id, job.payload
"""
# In the order of their ids, so that two holders of the same jobs do not deadlock.
LOCK: Final = """
SELECT {columns} FROM scheduler.policy_jobs AS job
 WHERE job.id = ANY (%s) AND {owner} ORDER BY job.id FOR UPDATE
"""


def owned(kind: ScopeKind) -> sql.Composable:
    """Return the condition of the jobs in a scope."""
    return owner_condition(TABLE, kind, ONE) or sql.SQL("true")


@lru_cache(maxsize=64)
def lease_statement(kind: ScopeKind, limit: int) -> bytes:
    """Return the statement that leases up to that many jobs."""
    return TABLE.statement(LEASE, owner=owned(kind), limit=sql.Literal(limit))


@lru_cache(maxsize=4)
def lock_statement(kind: ScopeKind) -> bytes:
    """Return the statement that locks and reads some jobs."""
    return TABLE.statement(LOCK, owner=owned(kind), columns=COLUMNS)


def claim(access: PostgresAccess, query: Query, sets: FieldUpdates) -> tuple[PolicyRunJob, ...]:
    """Lease the first jobs of a list."""
    (due,) = (item.value for item in query.where if isinstance(item, AtMost))
    values = {name: value for name, value in sets.items() if not isinstance(value, Add)}
    statement = lease_statement(scope_kind(query.scope), query.limit)
    changed = (values["updatedAt"], values["leaseOwner"], values["leaseExpiresAt"])
    parameters = (due, *owner_values(TABLE, query.scope), *changed, Json(json_text.dumps(values)))
    while True:
        (found,) = access.execution.write(setting(query.scope), Subject(POLICY_JOBS), (statement, parameters))
        leased = tuple(sorted(decoded(found.rows), key=lease_order))
        # Where none of them could be read, the next ones may: those are leased now, and out of the way.
        if leased or not found.rows:
            return leased


def decoded(rows: Iterable[Values]) -> Iterable[PolicyRunJob]:
    """Yield the jobs of some rows; one that cannot be read is left to the end of its lease."""
    for key, payload in rows:
        try:
            yield decode_stored(PolicyRunJob, payload, entity=POLICY_JOBS.name, key=key, driver=DRIVER)
        except DocumentDecodeError as error:
            log_skipped(error.message)


def readable(rows: Iterable[Values]) -> Iterable[PolicyRunJob]:
    """Yield the jobs of some whole rows; one that cannot be read is as absent."""
    for values in rows:
        try:
            yield TABLE.decode(values)
        except DocumentDecodeError as error:
            log_skipped(error.message)


@lru_cache(maxsize=1000)
def log_skipped(problem: str) -> None:
    """Log a job that is passed over, once; the same one is met again at the end of each lease."""
    log.error("A policy job was passed over: %s", problem)


def complete(  # noqa: PLR0917  # the arguments of the general way
    access: PostgresAccess,
    scope: Tenants,
    jobs: tuple[PolicyRunJob, ...],
    expected: PolicyRunJobStatus,
    lease_owner: str | None,
    now: datetime,
) -> tuple[bool, ...]:
    """Replace some jobs, each by itself; see ``PolicyJobRepository.complete_many``."""
    ids = sorted({job.id for job in jobs})
    step = (lock_statement(scope_kind(scope)), (ids, *owner_values(TABLE, scope)))

    def once() -> tuple[bool, ...]:
        with access.execution.unit(setting(scope), Subject(POLICY_JOBS)) as steps:
            (locked,) = steps.run(step)
            stored = {job.id: job for job in readable(locked.rows)}
            settled = complete_batch(stored, jobs, expected, lease_owner, now)
            update = statements.update(TABLE)
            steps.finish(
                *((update, (*TABLE.encode(StoredRow(job)), job.id)) for job in settled.changed.values())
            )
        return settled.outcome()

    return access.execution.retry(once)


OPERATIONS: Final[Mapping[str, Special]] = {CLAIM: claim, COMPLETE: complete}

"""The work done by psycopg alone: the statements and round trips of the library, raw rows as the answer.

It makes no checks and consults no rules; the results of rules are computed in advance.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from itertools import count
from random import shuffle
from time import monotonic, perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

import orjson
import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool
from typing_extensions import override

from benchmarks.peers.contender import Contender, Endpoints, Kind, Step, Work
from benchmarks.peers.stock import TENANT, request
from twinstore.access.protocol import Ref
from twinstore.catalog.row import Row as StoredRow
from twinstore.catalog.tenancy import Tenant
from twinstore.scheduler import Run, RunState, RunTrigger, queries
from twinstore.scheduler.catalog import POLICY_JOBS, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.locks import lock_number
from twinstore.scheduler.policy_service import job_of
from twinstore.scheduler.repositories.locks import backoff_delays
from twinstore.scheduler.repositories.schedules import trigger_ref
from twinstore_postgres.access import statements
from twinstore_postgres.access.changing import lock_step
from twinstore_postgres.access.queries import compile_query
from twinstore_postgres.mapping.codec import Json
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.mapping.tenancy import ScopeKind
from twinstore_postgres.special.scheduler import with_schedules
from twinstore_postgres.special.scheduler_claims import lease_statement, lock_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["BarePostgres"]

Row = tuple[Any, ...]
Statement = tuple[bytes, "Sequence[object]"]

JOBS: Final = table_of(POLICY_JOBS)
TRIGGER: Final = table_of(TRIGGERS)
RUN: Final = table_of(RUNS)
SET: Final = b"SELECT set_config('app.tenant_id', %s, true)"
SYSTEM: Final[Statement] = (SET, ("system",))
BEGIN: Final[Statement] = (b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE", ())
COMMIT: Final[Statement] = (b"COMMIT", ())
LEASE: Final = timedelta(minutes=1)
PAGE: Final = 100
NUMBER: Final = lock_number("system", "bare")
TRY: Final = "SELECT pg_try_advisory_lock(%s)"
UNLOCK: Final = "SELECT pg_advisory_unlock(%s)"
TIMEOUT: Final = 300.0
NAME: Final = "(name)"
DAY: Final = timedelta(days=1)


def places_of(columns: Sequence[str], *names: str) -> list[int]:
    """Return the positions of columns in a row."""
    return [columns.index(name) for name in names]


COLUMNS: Final = [column.name for column in JOBS.columns]
ID, RUN_OF_JOB, STATUS, OWNER, EXPIRES, UPDATED, PAYLOAD = places_of(
    COLUMNS, "id", "run_id", "status", "lease_owner", "lease_expires_at", "updated_at", "payload"
)
OF_TRIGGER: Final = [column.name for column in TRIGGER.columns]
NEXT, LAST, LAST_RUN, FIRED = places_of(
    OF_TRIGGER, "next_fire_at", "last_fire_at", "last_run_id", "fire_count"
)
RUN_ID, RUN_SCHEDULE = places_of([column.name for column in RUN.columns], "id", "schedule_id")
SCHEDULE_OF_TRIGGER: Final = OF_TRIGGER.index("schedule_id")


class BarePostgres(Contender):
    """A worker that is written against psycopg."""

    def __init__(self, endpoints: Endpoints, worker: str) -> None:
        self._stack = ExitStack()
        self._url = endpoints.app_url
        pool: ConnectionPool[psycopg.Connection[Row]] = ConnectionPool(
            endpoints.app_url, kwargs={"autocommit": True}, min_size=1, max_size=1, open=False
        )
        self._pool = self._stack.enter_context(pool)
        self._worker = worker
        self._kept: psycopg.Connection | None = None
        self._due: list[Row] = []
        self._numbers = count()
        # Rows of the right form, of which only the keys change.
        self._job = JOBS.encode(StoredRow(job_of(request(0, NAME), datetime.now(UTC))))
        self._run = RUN.encode(
            StoredRow(
                Run(
                    id=NAME,
                    tenant_id=TENANT,
                    schedule_id=NAME,
                    trigger=RunTrigger.CRON,
                    state=RunState.PLANNING,
                    created_at=datetime.now(UTC),
                )
            )
        )

    @override
    def close(self) -> None:
        self._stack.close()

    @override
    def step(self, work: Work) -> Step:
        self.waited = None
        self._due = []
        if work.kind is Kind.LOCK and self._kept is None:
            self._kept = self._stack.enter_context(closing(self._connected()))
        steps: dict[Kind, Callable[[int], int]] = {
            Kind.CLAIM: lambda size: len(self._claimed(size)),
            Kind.PROCESS: self._process,
            Kind.LIFE: self._life,
            Kind.FIRE: lambda _: self._fire(list.reverse),
            Kind.FIRE_SPREAD: lambda _: self._fire(shuffle),
            Kind.LOCK: lambda size: self._lock(size, self._kept),
            Kind.LOCK_RECONNECT: lambda size: self._lock(size, None),
        }
        chosen, size = steps[work.kind], work.size
        return lambda: chosen(size)

    def _send(self, connection: psycopg.Connection[Row], *steps: Statement) -> list[psycopg.Cursor[Row]]:
        """Send statements in one round trip; their cursors are read after it."""
        cursors = [connection.cursor() for _ in steps]
        with connection.pipeline():
            for cursor, (statement, values) in zip(cursors, steps, strict=True):
                cursor.execute(statement, values)
        return cursors

    def _claimed(self, size: int) -> list[Row]:
        now = datetime.now(UTC)
        until = now + LEASE
        wire = {"lastAttemptAt": now, "updatedAt": now, "leaseExpiresAt": until}
        new_values = {"status": "dispatching", "leaseOwner": self._worker, **wire}
        values = (now, now, self._worker, until, Jsonb(new_values, dumps=orjson.dumps))
        with self._pool.connection() as connection:
            _, found = self._send(connection, SYSTEM, (lease_statement(ScopeKind.ANY_TENANT, size), values))
            return found.fetchall()

    def _process(self, size: int) -> int:
        ids = sorted(row[0] for row in self._claimed(size))
        now = datetime.now(UTC)
        if not ids:
            return 0
        self._moved(ids, 2, {"status": "submitted", "submittedAt": now}, now)
        return self._moved(ids, 3, {"status": "completed", "completedAt": now}, now)

    def _moved(self, ids: list[str], status: int, new_values: dict[str, object], now: datetime) -> int:
        """Lock and read some jobs, then write all of each, as the library does."""
        with self._pool.connection() as connection:
            hold = (lock_statement(ScopeKind.ANY_TENANT), (ids,))
            *_, held = self._send(connection, BEGIN, SYSTEM, hold)
            updates: list[Statement] = []
            for row in held.fetchall():
                values = list(row)
                payload = {**row[PAYLOAD], **new_values, "updatedAt": now}
                for gone in ("leaseOwner", "leaseExpiresAt"):
                    payload.pop(gone, None)
                values[STATUS], values[UPDATED] = status, now
                values[OWNER] = values[EXPIRES] = None
                values[PAYLOAD] = Jsonb(payload, dumps=orjson.dumps)
                updates.append((statements.update(JOBS), (*values, row[0])))
            self._send(connection, *updates, COMMIT)
        return len(updates)

    def _new_job(self, name: str) -> list[object]:
        values = list(self._job)
        payload: bytes = self._job[PAYLOAD]
        payload = payload.replace(self._job[ID].encode(), f"job-{name}".encode())
        values[PAYLOAD] = Json(payload.replace(NAME.encode(), name.encode()))
        values[ID], values[RUN_OF_JOB] = f"job-{name}", name
        return values

    def _life(self, size: int) -> int:
        values = self._new_job(f"{self._worker}-{next(self._numbers)}")
        with self._pool.connection() as connection:
            self._send(connection, (SET, (TENANT,)), (statements.insert(JOBS), values))
        return self._process(size)

    def _fire(self, arrange: Callable[[list[Any]], None]) -> int:
        now = datetime.now(UTC)
        with self._pool.connection() as connection:
            if not self._due:
                statement, values = compile_query(queries.due_triggers(now, PAGE), TRIGGER)
                _, due = self._send(connection, SYSTEM, (with_schedules(statement), values))
                self._due = due.fetchall()
                arrange(self._due)
            if not self._due:
                return 0
            return self._fired(connection, self._due.pop()[SCHEDULE_OF_TRIGGER], now)

    def _fired(self, connection: psycopg.Connection[Row], key: str, now: datetime) -> int:
        """Look at the trigger, lock all three rows, write two."""
        tenant, by_schedule = Tenant(TENANT), trigger_ref(Tenant(TENANT), key)
        scope: Statement = (SET, (TENANT,))
        unique, values = TRIGGER.locate(by_schedule.key)
        find = (statements.find(TRIGGER, ScopeKind.TENANT, unique), (*values, TENANT))
        _, seen = self._send(connection, scope, find)
        row = seen.fetchone()
        if row is None or row[NEXT] > now:
            return 0
        run_id = f"run:{TENANT}:{key}:{row[NEXT]:%Y%m%dT%H%M%SZ}"
        locks = [
            lock_step(Ref(SCHEDULES, tenant, (key,))),
            lock_step(by_schedule),
            lock_step(Ref(RUNS, tenant, (run_id,)), with_time=True),
        ]
        _, _, _, held, _ = self._send(connection, BEGIN, scope, *locks)
        trigger = held.fetchone()
        if trigger is None or trigger[NEXT] != row[NEXT]:
            self._send(connection, COMMIT)
            return 0
        after = list(trigger)
        after[NEXT], after[LAST], after[LAST_RUN] = now + DAY, row[NEXT], run_id
        after[FIRED] += 1
        update = (statements.update(TRIGGER), (*after, row[0]))
        run = list(self._run)
        run[RUN_ID], run[RUN_SCHEDULE] = run_id, key
        self._send(connection, update, (statements.insert(RUN), run), COMMIT)
        return 1

    def _lock(self, size: int, connection: psycopg.Connection | None) -> int:
        """Take the advisory lock, asking again as often as the library does."""
        began = perf_counter()
        own = connection or self._connected()
        for pause in backoff_delays(monotonic() + TIMEOUT):
            if pause:
                sleep(pause)
            if own.execute(TRY, [NUMBER]).fetchone() == (True,):
                break
        self.waited = perf_counter() - began
        own.execute(UNLOCK, [NUMBER])
        if connection is None:
            own.close()
        return size

    def _connected(self) -> psycopg.Connection:
        return psycopg.connect(self._url, autocommit=True)

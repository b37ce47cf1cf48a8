"""The potential of a native path on PostgreSQL: psycopg's asyncio with the statements of the driver.

``PlainPostgres`` sends them in the usual way; ``OwnPostgres`` writes and reads them as the driver does, with
its tables, so it is the driver itself except for the waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg
from psycopg_pool import AsyncConnectionPool
from typing_extensions import override

from benchmarks.awaited.calls import PAGE, RUN_SUMMARIES, RUNS, SCOPE, AwaitedCalls, row_of, run_id
from twinstore_postgres.access import statements
from twinstore_postgres.access.queries import compile_query
from twinstore_postgres.connection.batch import Result, Step
from twinstore_postgres.connection.pipeline import PipelineCodec, check, fetched
from twinstore_postgres.connection.target import target_of
from twinstore_postgres.connection.transaction import SET_TENANT
from twinstore_postgres.mapping.codec import Values, register_loaders
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.mapping.tenancy import scope_parameters, setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore_postgres.settings import PostgresSettings

__all__ = ["OwnPostgres", "PlainPostgres", "open_pool"]

RUN_TABLE: Final = table_of(RUNS)
SUMMARY_TABLE: Final = table_of(RUN_SUMMARIES)


class OwnAsyncConnection(psycopg.AsyncConnection[Values]):
    """The exchange of the driver, with another way to wait."""

    wire: PipelineCodec

    async def execute_batch(self, steps: Sequence[Step], before: Sequence[Step]) -> list[Result]:
        """Execute statements in one round trip; return what each of ``steps`` answered."""
        async with self.lock:
            messages = self.wire.messages(self.pgconn, steps, before, ())
            self.pgconn.enter_pipeline_mode()
            try:
                for message in messages:
                    message.send()
                self.pgconn.pipeline_sync()
                answers = await self.wait(fetched(self.pgconn))
            finally:
                self.pgconn.exit_pipeline_mode()
            self.wire.remember(messages, answers)
            check(messages, answers)
            wanted = zip(messages, answers, strict=False)
            return [self.wire.result(answer) for message, answer in wanted if message.is_read]


Pool = AsyncConnectionPool[OwnAsyncConnection]


async def open_pool(settings: PostgresSettings, size: int) -> Pool:
    """Open a pool with the settings that connections of the driver have."""
    target = target_of(settings.connection_string, settings, purpose="The benchmark")
    pool: Pool = AsyncConnectionPool(
        target.conninfo.get_secret_value(),
        connection_class=OwnAsyncConnection,
        kwargs={"autocommit": True, "prepare_threshold": 0},
        min_size=size,
        max_size=size,
        open=False,
        configure=_configure,
    )
    await pool.open(wait=True)
    return pool


async def _configure(connection: OwnAsyncConnection) -> None:
    connection.wire = PipelineCodec()
    register_loaders(connection)


class OwnPostgres(AwaitedCalls):
    """The driver's own way."""

    def __init__(self, pool: Pool) -> None:
        """Take an open pool."""
        self._pool = pool

    async def _read(self, tenant_setting: str, step: Step) -> Result:
        async with self._pool.connection() as connection:
            return (await connection.execute_batch((step,), ((SET_TENANT, (tenant_setting,)),)))[0]

    @override
    async def get(self, number: int) -> object:
        found = (await self._read(*find_step(number))).first
        return None if found is None else RUN_TABLE.row(found).model

    @override
    async def upsert(self, number: int) -> object:
        return (await self._read(*put_step(number))).first

    @override
    async def list(self, number: int) -> object:
        found = await self._read(setting(SCOPE), compile_query(PAGE, RUN_TABLE))
        by = RUN_TABLE.field_getter([key.field for key in PAGE.order])
        return PAGE.page(found.rows, RUN_TABLE.row, by, RUN_TABLE.tenant_in)


class PlainPostgres(AwaitedCalls):
    """psycopg as it is, without a model."""

    def __init__(self, pool: Pool) -> None:
        """Take an open pool."""
        self._pool = pool

    async def _read(self, tenant_setting: str, step: Step) -> list[Values]:
        async with self._pool.connection() as connection:
            cursor = connection.cursor()
            async with connection.pipeline():
                await connection.execute(SET_TENANT, (tenant_setting,))
                await cursor.execute(step[0], step[1], binary=True)
        return await cursor.fetchall() if cursor.description else []

    @override
    async def get(self, number: int) -> object:
        return await self._read(*find_step(number))

    @override
    async def upsert(self, number: int) -> object:
        return await self._read(*put_step(number))

    @override
    async def list(self, number: int) -> object:
        return await self._read(setting(SCOPE), compile_query(PAGE, RUN_TABLE))


def find_step(number: int) -> tuple[str, Step]:
    """Return the setting and the statement of a get, as ``PostgresAccess.find`` has them."""
    unique, values = RUN_TABLE.locate((run_id(number),))
    kind, tenant_setting, owner = scope_parameters(RUN_TABLE, SCOPE)
    return tenant_setting, (statements.find(RUN_TABLE, kind, unique), (*values, *owner))


def put_step(number: int) -> tuple[str, Step]:
    """Return the setting and the statement of an upsert, as ``PostgresAccess.put`` has them."""
    row = row_of(number)
    kind, tenant_setting, owner = scope_parameters(SUMMARY_TABLE, SCOPE)
    values = SUMMARY_TABLE.encode(row)
    if not statements.is_put_own(SUMMARY_TABLE):
        key = RUN_SUMMARIES.key_of(row.model, row.storage)
        values = (*values, *key, *owner, *key, *owner)
    return tenant_setting, (statements.put(SUMMARY_TABLE, kind), values)

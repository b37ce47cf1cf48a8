"""Settings of the PostgreSQL driver; importing them does not import psycopg."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from twinstore.plugins.settings import BackendSettings
from twinstore.runtime.secrets import digest_of_secret

DRIVER: Final = "Postgres"


class PostgresSettings(BackendSettings):
    """Where PostgreSQL is and how it is used.

    Attributes:
        connection_string: libpq URL or keywords of the application role.
        owner_connection_string: of the role that owns the schemas and runs migrations; default:
            ``direct_connection_string``, else the application's.
        lock_connection_string: for locks, past a transaction pooler; default: ``direct_connection_string``,
            else the application's.
        direct_connection_string: of the application role, past a transaction pooler: for bulk work; default:
            the application's.
        bulk_connection_string: of a role that row-level security does not bind, for the rows that a copy
            writes while a migration lasts; default: none, the application role writes them. See "A role for
            the days of a migration".
        transaction_pooler: a pooler in transaction mode answers at ``connection_string``: nothing is prepared
            on the server, and every transaction sends its own settings; see "Behind a transaction pooler".
        lock_connections_max: how many connections for locks a storage may have open outside the pool; each
            lock that is held or waited for needs one. An unused one is kept for a minute.
        application_role: the role that migrations grant to.
        pool_min, pool_max: size of the connection pool.
        pool_timeout_ms: how long a call waits for a connection while all of the pool are in use, in
            milliseconds.
        pool_max_lifetime_ms: how long a connection of the pool is used, in milliseconds; when it comes back
            after that, a new one takes its place, a little earlier or later for each.
        statement_timeout_ms: the server cancels a statement after this many milliseconds; 0 never. The
            driver stops waiting for a silent server 5 seconds later and closes the connection.
        pipeline: send the statements of a call at once, past the cursors of psycopg, for half the processor
            time of a call. Off, tools that wrap cursors see each statement; see "Metrics, traces and logs".
        allow_unsafe_role: accept a role that row-level security does not bind, and unsafe settings of
            sessions; for tests only.
        pool: an open ``psycopg_pool.ConnectionPool`` of the host, used instead of ``connection_string`` and
            never closed; it keeps its own connection settings. From Python only.
    """

    connection_string: SecretStr | None = None
    owner_connection_string: SecretStr | None = None
    lock_connection_string: SecretStr | None = None
    direct_connection_string: SecretStr | None = None
    bulk_connection_string: SecretStr | None = None
    transaction_pooler: bool = False
    lock_connections_max: Annotated[int, Field(ge=1, le=1000)] = 10
    application_role: Annotated[str, Field(min_length=1, max_length=63)] = "twinstore_app"
    pool_min: Annotated[int, Field(ge=0, le=1000)] = 1
    pool_max: Annotated[int, Field(ge=1, le=1000)] = 10
    pool_timeout_ms: Annotated[int, Field(ge=1, le=2_147_483_647)] = 10_000
    pool_max_lifetime_ms: Annotated[int, Field(ge=1, le=2_147_483_647)] = 3_600_000
    statement_timeout_ms: Annotated[int, Field(ge=0, le=2_147_483_647)] = 30_000
    pipeline: bool = True
    allow_unsafe_role: bool = False
    pool: object | None = Field(default=None, exclude=True, repr=False)

    @property
    def fingerprint(self) -> tuple[object, ...]:
        """What two modules must have in common to share one pool."""
        return (
            digest_of_secret(self.connection_string),
            digest_of_secret(self.direct_connection_string),
            id(self.pool),
            self.pool_min,
            self.pool_max,
            self.pool_timeout_ms,
            self.pool_max_lifetime_ms,
            self.statement_timeout_ms,
            self.allow_unsafe_role,
            self.transaction_pooler,
            self.pipeline,
        )

    @model_validator(mode="after")
    def _pool_sizes_in_order(self) -> Self:
        if self.pool_min > self.pool_max:
            raise PydanticCustomError("pool_size", "PoolMin should not exceed PoolMax")
        return self

"""A pool of the host: where it connects to, and what stands between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from psycopg import conninfo
from psycopg_pool import ConnectionPool
from pydantic import SecretStr

from twinstore.errors import ConfigurationError
from twinstore.forgetting import without_locals
from twinstore_postgres.connecting import Connection, Route, Target
from twinstore_postgres.settings import DRIVER
from twinstore_postgres.targets import target_of

if TYPE_CHECKING:
    from twinstore_postgres.settings import PostgresSettings

__all__ = ["HostPool", "host_pool", "pool_target", "route_of"]

HostPool = ConnectionPool[Connection]

CONNECTION_KEYWORDS: Final = frozenset(
    {
        "host",
        "hostaddr",
        "port",
        "dbname",
        "user",
        "password",
        "passfile",
        "service",
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "options",
        "application_name",
    }
)


@without_locals
def pool_target(pool: HostPool, settings: PostgresSettings) -> Target:
    """Return where the pool of the host connects to, for connections beside it."""
    given, more = pool.conninfo, pool.kwargs
    text = given() if callable(given) else given
    extra = more() if callable(more) else more
    known = {name: str(value) for name, value in (extra or {}).items() if name in CONNECTION_KEYWORDS}
    return target_of(
        SecretStr(conninfo.make_conninfo(text, **known)),
        settings,
        purpose="The connection string of the pool",
        route=route_of(settings),
    )


def route_of(settings: PostgresSettings) -> Route:
    """Return what stands between the pool and the server."""
    return Route.POOLER if settings.transaction_pooler else Route.ANY


def host_pool(settings: PostgresSettings) -> HostPool | None:
    """Return the pool of the host, or ``None``."""
    if settings.pool is None:
        return None
    if not isinstance(settings.pool, ConnectionPool):
        raise ConfigurationError(
            f"pool should be a psycopg_pool.ConnectionPool, not {type(settings.pool).__name__}.",
            driver=DRIVER,
        )
    return cast("HostPool", settings.pool)

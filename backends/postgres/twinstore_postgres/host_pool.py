"""A pool of the host: where it connects to, and what stands between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from psycopg import Error, conninfo
from psycopg_pool import ConnectionPool
from pydantic import SecretStr

from twinstore.errors import ConfigurationError, TwinstoreError
from twinstore.forgetting import without_locals
from twinstore_postgres.connecting import Route, Target, is_full
from twinstore_postgres.pooling import silence_of
from twinstore_postgres.settings import DRIVER
from twinstore_postgres.targets import target_of

if TYPE_CHECKING:
    from twinstore.attempts import SharedAttempt
    from twinstore_postgres.loans import Pool
    from twinstore_postgres.settings import PostgresSettings

__all__ = ["host_pool", "pool_target", "refusal_of", "route_of"]

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
def pool_target(pool: Pool, settings: PostgresSettings) -> Target:
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


def host_pool(settings: PostgresSettings) -> Pool | None:
    """Return the pool of the host, or ``None``."""
    if settings.pool is None:
        return None
    if not isinstance(settings.pool, ConnectionPool):
        raise ConfigurationError(
            f"pool should be a psycopg_pool.ConnectionPool, not {type(settings.pool).__name__}.",
            driver=DRIVER,
        )
    return cast("Pool", settings.pool)


def refusal_of(
    target: Target, asking: SharedAttempt[None], seconds: float
) -> tuple[TwinstoreError | None, bool]:
    """Return why a server takes no connection now, if so, and whether that is because it is full.

    Args:
        target: of the connection that is tried.
        asking: shared by all who ask at the same time.
        seconds: how long to wait for the answer.
    """
    if seconds <= 0:
        return None, False
    try:
        asking.run(lambda: target.connect().close(), seconds)
    except TimeoutError:
        return silence_of(target.place, round(seconds, 1)), False
    except TwinstoreError as error:
        return error, isinstance(error.__cause__, Error) and is_full(error.__cause__)
    return None, False

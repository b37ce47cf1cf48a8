"""Where to connect: to the pool's address, or past a transaction pooler, and with which settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import conninfo
from pydantic import SecretStr

from twinstore.errors import ConfigurationError
from twinstore.forgetting import without_locals
from twinstore_postgres.connecting import MARK, Route, Target
from twinstore_postgres.deadlines import round_trip_seconds
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore_postgres.settings import PostgresSettings

__all__ = ["BULK", "BULK_ROLE", "FORMS", "LOCKS", "MIGRATIONS", "direct_target", "target_of"]

# libpq would wait for as long as the operating system does, which is minutes.
CONNECT_SECONDS: Final = 10
DEFAULT_PORT: Final = "5432"
# A peer that is gone without a word is noticed within a minute, also where statements have no limit; by
# itself the operating system takes two hours where it waits, and a quarter of one where it sends.
KEEPALIVE: Final = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",  # milliseconds
}
# How values are shown and read, and that policies hide rows instead of failing.
FORMS: Final = {
    "TimeZone": "UTC",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "quote_all_identifiers": "off",
    "row_security": "on",
}


@dataclass(frozen=True, slots=True)
class Use:
    """What a transaction pooler cannot carry.

    Attributes:
        what: the first words of a message.
        key: the setting that says where it connects to.
        purpose: that setting, in the words of a message.
    """

    what: str
    key: str
    purpose: str


BULK: Final = Use(
    "Bulk work",
    "DirectConnectionString",
    "The connection string past the pooler (DirectConnectionString)",
)
BULK_ROLE: Final = Use(
    "The role of a migration",
    "BulkConnectionString",
    "The connection string of the bulk role (BulkConnectionString)",
)
LOCKS: Final = Use("Locks", "LockConnectionString", "The connection string for locks (LockConnectionString)")
MIGRATIONS: Final = Use("Migrations", "OwnerConnectionString", "The connection string of the owner role")


def direct_target(
    use: Use,
    settings: PostgresSettings,
    own: SecretStr | None,
    *,
    pooled: Target | None = None,
    read_only: bool = False,
) -> Target:
    """Return where to connect for what a transaction pooler cannot carry.

    Args:
        use: what needs it.
        settings: those of the driver.
        own: the connection string of this use alone, if it has one.
        pooled: where the pool connects to.
        read_only: as for :func:`target_of`.

    Raises:
        ConfigurationError: behind a transaction pooler no other address is given, or that of the pooler.
    """
    secret = own or settings.direct_connection_string
    if not settings.transaction_pooler:
        secret = secret or settings.connection_string
        return target_of(secret, settings, purpose=use.purpose, read_only=read_only)
    if secret is None:
        keys = dict.fromkeys((use.key, BULK.key))
        raise ConfigurationError(
            f"{use.what} cannot go through a transaction pooler (TransactionPooler is set); give the address "
            f"of the server itself: set {' or '.join(f'Persistence:Postgres:{key}' for key in keys)}.",
            driver=DRIVER,
        )
    target = target_of(secret, settings, purpose=use.purpose, read_only=read_only, route=Route.DIRECT)
    if pooled is not None and address(target) == address(pooled):
        raise ConfigurationError(
            f"{use.purpose} leads to {target.place}, where the pooler of ConnectionString answers; give host "
            "and port of the server itself.",
            driver=DRIVER,
        )
    return target


def address(target: Target) -> tuple[str, ...]:
    """Return host and port of a target."""
    parts = target.parts
    host = parts.get("hostaddr") or parts.get("host") or ""
    return str(host), str(parts.get("port") or DEFAULT_PORT)


@without_locals
def target_of(
    secret: SecretStr | None,
    settings: PostgresSettings,
    *,
    purpose: str,
    read_only: bool = False,
    route: Route = Route.ANY,
) -> Target:
    """Return where to connect; ``read_only`` connections take no write unless a transaction asks for it.

    Raises:
        ConfigurationError: no connection string, or one that libpq does not understand, or one with options
            for a pooler that passes none on.
    """
    if secret is None or not secret.get_secret_value().strip():
        raise ConfigurationError(
            f"{purpose} is missing; set Persistence:Postgres:ConnectionString "
            "(Persistence__Postgres__ConnectionString in the environment).",
            driver=DRIVER,
        )
    text = secret.get_secret_value()
    try:
        parts = {name: str(value) for name, value in conninfo.conninfo_to_dict(text).items()}
    except psycopg.ProgrammingError:
        # The cause is not kept: libpq repeats the part it stumbled over, which may be the password.
        raise ConfigurationError(
            f"{purpose} cannot be read; use "
            "postgresql://user:password@host:port/database or keywords such as host=... dbname=... user=....",
            driver=DRIVER,
        ) from None
    if "@" in parts.get("host", "").lstrip("@"):
        # libpq ends the password at its first "@", and would show the rest of it as a host.
        raise ConfigurationError(
            f"{purpose} names a host with an '@'; write an '@' inside user or password as %40.",
            driver=DRIVER,
        )
    if not all(port.isdecimal() for port in filter(None, parts.get("port", "").split(","))):
        # Without a host, libpq takes the user for one and the password for the port, which messages show.
        raise ConfigurationError(
            f"{purpose} names a port that is no number; use postgresql://user:password@host:port/database.",
            driver=DRIVER,
        )
    own = parts.pop("options", "")
    if route is Route.POOLER:
        if own:
            raise options_refused(purpose)
        # An empty text, because libpq would otherwise take what PGOPTIONS says.
        options = ""
    else:
        # Of two values of a setting the last one counts, so the user's stand before ours.
        options = f"{own} {_options(settings.statement_timeout_ms, read_only=read_only)}".strip()
    limit = round_trip_seconds(settings.statement_timeout_ms)
    return Target(SecretStr(_complete(parts, options)), secret, route, limit)


def options_refused(purpose: str) -> ConfigurationError:
    """Return the error of options that would not reach the server."""
    return ConfigurationError(
        f"{purpose} has options, which a transaction pooler passes on to no server (TransactionPooler is "
        "set); take them out, and set them for the role instead: ALTER ROLE ... SET ....",
        driver=DRIVER,
    )


def _options(timeout: int, *, read_only: bool) -> str:
    """Return the settings of every connection: one form, a limit on each statement, the isolation of units.

    Whatever somebody has set for the database or the role: values are read and written in one form.
    """
    values = FORMS | {
        "statement_timeout": str(timeout),
        "default_transaction_isolation": r"read\ committed",
        "default_transaction_read_only": "on" if read_only else "off",
        MARK: "on",
    }
    return " ".join(f"-c {name}={value}" for name, value in values.items())


def _complete(parts: dict[str, str], options: str) -> str:
    """Return the connection string with UTF-8, a name, and limits on how long a silent server is believed."""
    complete = {"application_name": "twinstore", "connect_timeout": str(CONNECT_SECONDS)} | KEEPALIVE | parts
    return conninfo.make_conninfo("", **complete, options=options, client_encoding="UTF8")

"""One connection: how it is configured, why it could not be opened, and what a forked child does with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import psycopg
from psycopg import conninfo
from pydantic import SecretStr
from typing_extensions import override

from twinstore.errors import (
    ConfigurationError,
    Outcome,
    TimeoutExceededError,
    TwinstoreError,
    UnavailableError,
)
from twinstore.runtime.forks import ProcessGuard, Renewable, renew_in_child
from twinstore.runtime.secrets import mentions_secret, secrets_in, without_locals
from twinstore.runtime.service_log import log_unavailable
from twinstore_postgres.connection.batch import PipelinedConnection
from twinstore_postgres.connection.cursors import ADAPTERS, refuse_registered
from twinstore_postgres.connection.deadlines import (
    Connection,
    LongRunningConnection,
    TimedConnection,
    round_trip_seconds,
)
from twinstore_postgres.connection.errors import (
    CONNECT_REMEDIES,
    connect_sqlstate,
    hide_password,
    remedy_of_too_many,
)
from twinstore_postgres.connection.transaction import FORMS
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore_postgres.settings import PostgresSettings

OLDEST_VERSION: Final = 140_000
# Shows whether the server got the start-up options of a connection: a pooler may drop them silently.
MARK: Final = "twinstore.direct"
MARKED: Final = f"SELECT current_setting('{MARK}', true)"
# For a server that is asked whether it is well.
PROBE_SECONDS: Final = 10.0
# One that waits for this client has sent its answer, which got lost, or has not got the statement.
IS_EXECUTING: Final = """
SELECT state IS DISTINCT FROM 'idle' AND state IS DISTINCT FROM 'idle in transaction'
       AND wait_event_type IS DISTINCT FROM 'Client'
  FROM pg_stat_activity WHERE pid = %s
"""
# The server takes every parameter that libpq knows, so a pooler has said this.
REFUSED_PARAMETER: Final = "unsupported startup parameter"
# Of a pooler whose database is switched off for a while.
DISABLED: Final = '" is disabled'
# Some of these also match 'role "' or 'database "', but are transient.
TOO_MANY_CONNECTIONS_TEXTS: Final = (
    "too many connections",
    "too many clients",
    "remaining connection slots",
    "max_client_conn",
    DISABLED,
)
# The same by SQLSTATE, where the text is in another language.
CODES: Final = {
    "28P01": "password authentication failed",
    "28000": "authentication failed",
    "3D000": 'database "',
    "42501": 'permission denied for database "',
    "42704": "unrecognized configuration parameter",
}
NO_SLOT: Final = "53300"
# Nothing that settings cause: no refusal, the connection, resources, an administrator, the system.
TRANSIENT: Final = ("00", "08", "53", "57", "58", "XX")
# A server that comes or goes, after it has asked for the password; of libpq, which names no SQLSTATE here.
UNAVAILABLE_TEXTS: Final = (
    "the database system is",
    "terminating connection",
    "closed the connection unexpectedly",
    "could not receive data",
    "could not send",
    "Connection refused",
    "timeout expired",
    "canceling",
    # Of a pooler, to a client that it knows but has no connection of the server for.
    "query_wait_timeout",
    "client_login_timeout",
    "server login has been failing",
    "cannot connect to server",
    "server conn crashed",
    "database removed",
)


def sentences(text: str) -> str:
    """Return what libpq says on several lines, without ends of sentences, as sentences on one."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return " ".join(line if line.endswith((".", "?", "!", ":")) else f"{line}." for line in lines)


class Route(Enum):
    """What is between this process and the server; the value says what to do about a pooler there."""

    ANY = (
        "A connection pooler answers there, in transaction or session mode; set "
        "Persistence:Postgres:TransactionPooler to true, and DirectConnectionString to the server itself."
    )
    POOLER = (
        "The transaction pooler passes it on to no server; take it out of the connection string and out of "
        "the environment of this process."
    )
    DIRECT = (
        "A pooler answers there, past which this connection must go; give host and port of the server itself "
        "(DirectConnectionString, LockConnectionString, OwnerConnectionString)."
    )


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect and how a connection is set up.

    Attributes:
        conninfo: the connection string of libpq, complete.
        given: the one of the settings, whose secrets may be spelled otherwise.
        route: what is between.
        limit: the seconds of a round trip on its connections; ``None``: no limit.
    """

    conninfo: SecretStr
    given: SecretStr
    route: Route = Route.ANY
    limit: float | None = None

    @property
    def parts(self) -> dict[str, str | int | None]:
        """The connection string by keyword, secrets included."""
        return conninfo.conninfo_to_dict(self.conninfo.get_secret_value())

    @property
    def database(self) -> str:
        """The name of the database."""
        parts = self.parts
        return str(parts.get("dbname") or parts.get("user") or "")

    @property
    def place(self) -> str:
        """Host and database, without anything secret."""
        parts = self.parts
        host = parts.get("host") or parts.get("hostaddr") or "local socket"
        port = f":{parts['port']}" if "port" in parts else ""
        return f"{host}{port}/{self.database}"

    @without_locals
    def connect(
        self, kind: type[TimedConnection] = TimedConnection, *, qualified: bool = False
    ) -> Connection:
        """Open a connection.

        Args:
            kind: of the connection; a :class:`LongRunningConnection` for statements that may take longer than
                the limit, while the server works on them.
            qualified: for statements that name the schema of everything.

        Raises:
            ConfigurationError: wrong password, role, database or option; says what to change.
            UnavailableError: no server answers; nothing was done.
        """
        refuse_registered()
        # The pipeline prepares by itself.
        unprepared = self.route is Route.POOLER or issubclass(kind, PipelinedConnection)
        try:
            # Statements come again and again, so each is prepared at its first use, not at the fifth.
            connection = kind.connect(
                (self._without_path if qualified else self).conninfo.get_secret_value(),
                autocommit=True,
                prepare_threshold=None if unprepared else 0,
                context=ADAPTERS,
            )
        except psycopg.Error as error:
            raise self.explain(error) from error
        connection.limit = self.limit
        if isinstance(connection, LongRunningConnection):
            connection.is_executing = self.is_executing
        detach_in_child(connection)
        if self.route is Route.DIRECT:
            self.check_options(connection)
        return connection

    def check_options(self, connection: Connection) -> None:
        """Refuse a connection of this target whose options did not reach the server, and close it.

        No options are sent to a known pooler.

        Raises:
            ConfigurationError: a pooler that is not configured has silently dropped them.
        """
        if self.route is Route.POOLER:
            return
        try:
            marked = connection.execute(MARKED, prepare=False).fetchone() == ("on",)
        except psycopg.Error as error:
            connection.close()
            raise self.explain(error) from error
        if not marked:
            connection.close()
            lost = f"The options of the connection to {self.place} did not reach the server."
            raise ConfigurationError(f"{lost} {self.route.value}", driver=DRIVER)

    def is_executing(self, process: int) -> bool:
        """Whether the server answers, and a process of it works on a statement.

        Behind a transaction pooler the process that serves a connection is not known.
        """
        try:
            text = self.conninfo.get_secret_value()
            with TimedConnection.connect(text, autocommit=True) as other:
                other.limit = PROBE_SECONDS
                found = other.execute(IS_EXECUTING, (process,), prepare=False).fetchone()
        except psycopg.Error as error:
            # A server that has no free slot has said so.
            return not isinstance(self.explain(error), UnavailableError) or is_full(error)
        return found == (True,) or self.route is Route.POOLER

    @property
    def _without_path(self) -> Target:
        """The target of connections that look nowhere for what has no schema.

        What the catalog shows of indexes and policies depends on the path, and so does which function a name
        means. Connections of the pool keep theirs, because hosts borrow them, and so do those of migrations,
        which may call functions that an administrator has installed.
        """
        return self.with_settings(search_path="")

    def with_settings(self, **settings: object) -> Target:
        """Return the target of connections with more settings of the server, which win over those before."""
        more = " ".join(f"-c {name}={value}" for name, value in settings.items())
        options = f"{self.parts['options']} {more}"
        return replace(
            self,
            conninfo=SecretStr(conninfo.make_conninfo(self.conninfo.get_secret_value(), options=options)),
        )

    def explain(self, error: psycopg.Error) -> TwinstoreError:
        """Return why no connection could be opened."""
        # Of libpq, which repeats the connection string in parts, hence the look for the password.
        text = " ".join(str(error).split())
        secrets = secrets_in(self.conninfo.get_secret_value()) | secrets_in(self.given.get_secret_value())
        shown = type(error).__name__ if mentions_secret(text, secrets) else str(error)
        message = f"PostgreSQL at {self.place} cannot be used: {sentences(shown)}"
        full = is_full(error)
        known = {REFUSED_PARAMETER: self.route.value, **CONNECT_REMEDIES}
        remedy = None if full else next((how for pattern, how in known.items() if pattern in text), None)
        away = full or any(words in text for words in UNAVAILABLE_TEXTS)
        if remedy is None and not away and _sent_password(error):
            # In the words of another language, or of another release.
            code = connect_sqlstate(self.conninfo.get_secret_value(), PROBE_SECONDS)
            full = code == NO_SLOT
            remedy = CONNECT_REMEDIES["authentication failed"] if code is None else remedy_of(code)
        hide_password(error)
        if remedy is not None or isinstance(error, psycopg.ProgrammingError):
            return ConfigurationError(
                f"{message} {remedy or 'Correct the connection string.'}", driver=DRIVER
            )
        kind = (
            TimeoutExceededError if isinstance(error, psycopg.errors.ConnectionTimeout) else UnavailableError
        )
        advice = remedy_of_too_many(shown) if full else "Check that the server runs and can be reached."
        gone = kind(f"{message} {advice}", outcome=Outcome.NOT_APPLIED, driver=DRIVER)
        gone.full = full and DISABLED not in text
        return log_unavailable(gone)


class Sockets(Renewable):
    """The sockets of this process, from which a forked child lets go at once.

    Whatever the child then does, it cannot write on them, and the server notices the end of the parent
    although the child lives on.
    """

    def __init__(self) -> None:
        self._connections: WeakSet[Connection] = WeakSet()
        renew_in_child(self)

    def add(self, connection: Connection) -> None:
        """Note the socket of a connection."""
        self._connections.add(connection)

    @override
    def renew(self) -> None:
        """Let go of all of them in a forked child."""
        for connection in list(self._connections):
            detach_socket(connection)


_sockets: Final = Sockets()


def check_version(connection: Connection) -> int:
    """Return the version of the server, such as 160004.

    Raises:
        ConfigurationError: it is too old.
    """
    version = connection.info.server_version
    if version < OLDEST_VERSION:
        raise ConfigurationError(
            f"PostgreSQL {version // 10_000} is too old; use version {OLDEST_VERSION // 10_000} or newer.",
            driver=DRIVER,
        )
    return version


def detach_in_child(connection: Connection) -> None:
    """Let a forked child go of a connection that this library opened."""
    _sockets.add(connection)


def detach_socket(connection: Connection) -> None:
    """Put a dead end in place of an inherited socket, without a word to the server.

    The number stays taken, because the connection would otherwise write to whatever gets that number next.
    """
    # Silently: a closed connection has no socket to release, and in a new child the handler of a log may wait
    # for a lock that a thread of the parent held.
    with suppress(psycopg.Error, OSError):
        dead_end = os.open(os.devnull, os.O_RDWR)
        try:
            os.dup2(dead_end, connection.fileno(), inheritable=False)
        finally:
            os.close(dead_end)


@contextmanager
def in_one_process(connection: Connection) -> Iterator[None]:
    """Stream from a connection in the process that opened it.

    In a forked child the connection is abandoned before the blocks around this one end: they would ask the
    server, on another connection, to cancel what the parent streams.
    """
    process = ProcessGuard()
    try:
        yield
    finally:
        if process.forked:
            detach_socket(connection)
            connection.pgconn.finish()


def is_full(error: psycopg.Error) -> bool:
    """Whether the server had no free slot."""
    text = str(error)
    return any(words in text for words in TOO_MANY_CONNECTIONS_TEXTS)


def remedy_of(code: str) -> str | None:
    """Return what to change in the settings after a refusal with this SQLSTATE, ``None`` for nothing."""
    if code.startswith(TRANSIENT):
        return None
    return CONNECT_REMEDIES.get(CODES.get(code, ""), "Correct the connection string.")


def _sent_password(error: psycopg.Error) -> bool:
    """Whether a password was asked for: then a server has answered."""
    try:
        return error.pgconn is not None and bool(error.pgconn.used_password or error.pgconn.needs_password)
    except psycopg.Error:  # it was closed since, and says nothing any more; the first error has the reason
        return False


# Where to connect: to the pool's address, or past a transaction pooler, and with which settings.


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
            f"{purpose} names a port that is not a number; use postgresql://user:password@host:port/database.",
            driver=DRIVER,
        )
    own = parts.pop("options", "")
    if route is Route.POOLER:
        if own:
            raise options_refused(purpose)
        # An empty text, because libpq would otherwise take what PGOPTIONS says.
        options = ""
    else:
        # Of two values of a setting the last one counts, so the user's come before ours.
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

    Values are read and written in one form, whatever is set for the database or the role.
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

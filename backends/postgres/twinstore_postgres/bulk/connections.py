"""Connections of bulk work: outside the pool, without a statement timeout, reused one after the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from psycopg import errors
from psycopg.pq import TransactionStatus
from typing_extensions import override

from twinstore.access.scope import record_system_scope
from twinstore.errors import ConfigurationError, Outcome
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.runtime.forks import cleanup_unless_forked
from twinstore_postgres.connection.errors import loggable, translated
from twinstore_postgres.connection.idle import IdleConnections
from twinstore_postgres.connection.target import BULK_ROLE, direct_target
from twinstore_postgres.connection.transaction import OWN, ConnectionSource, Transaction
from twinstore_postgres.connection.undocumented import bulk_connection
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from pydantic import SecretStr

    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.connection.pool import ServerConnections
    from twinstore_postgres.connection.transaction import Transport
    from twinstore_postgres.settings import PostgresSettings

# A statement that streams lasts as long as its reader takes, which no limit of the server can know, and so do
# the pauses of a copy with a limited rate. Only what this release of the server has.
NO_LIMIT: Final = (
    (
        b"SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN"
        b" ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')"
    ),
    (),
)


UNBOUND_ROLE: Final = "SELECT rolbypassrls OR rolsuper FROM pg_roles WHERE rolname = current_user"


class BulkConnections(ConnectionSource):
    """Connections opened for bulk work; idle ones are reused.

    A stream holds its connection as long as its reader takes, so a pooled one would be missing for requests.
    """

    def __init__(self, server: ServerConnections) -> None:
        """Take the server; nothing is opened yet."""
        self._server = server
        self._idle = IdleConnections()
        self._closed = False

    @property
    def place(self) -> str:
        """Host and database, without anything secret."""
        return self._server.direct.place

    @property
    @override
    def transport(self) -> Transport:
        """Every connection is our own, also where the pool is the host's, and goes past a pooler."""
        return OWN

    @contextmanager
    @override
    def connection(self) -> Iterator[Connection]:
        """Check out a connection outside any transaction; one returned in another state is closed."""
        connection = self._idle.take() or self._opened()
        with cleanup_unless_forked(partial(self._give_back, connection)):
            yield connection

    @contextmanager
    def system(self, purpose: str, *, begin: bytes) -> Iterator[Transaction]:
        """Open a transaction in system scope on a separate connection; see :func:`inside`."""
        with self.connection() as connection, inside(connection, purpose, begin=begin) as transaction:
            yield transaction

    def close(self) -> None:
        """Close the idle connections, and those in use when they are given back."""
        self._closed = True
        self._idle.close()

    def _opened(self) -> Connection:
        return self._server.connect()

    def _give_back(self, connection: Connection) -> None:
        if connection.closed or connection.info.transaction_status != TransactionStatus.IDLE:
            connection.close()
            return
        self._idle.give(connection)
        if self._closed:  # meanwhile, and the thread that closed the others may have missed this one
            self._idle.close()


class RoleConnections(BulkConnections):
    """Connections of a role that row-level security does not bind, for the rows that a copy writes.

    Into a table that no policy guards for this role the server takes a COPY without a detour.
    """

    def __init__(self, server: ServerConnections, settings: PostgresSettings, secret: SecretStr) -> None:
        """Take the server and the connection string of the role; nothing is opened yet.

        Raises:
            ConfigurationError: a connection string that cannot be read, or that leads to the pooler.
        """
        super().__init__(server)
        self._role = direct_target(BULK_ROLE, settings, secret, pooled=server.target)
        self._pipeline = settings.pipeline

    @override
    def _opened(self) -> Connection:
        with closing(self._server.connect()) as own:
            wanted = instance_of(own)
        connection = bulk_connection(self._role, pipeline=self._pipeline)
        try:
            refuse_other(connection, wanted)
        except BaseException:
            connection.close()
            raise
        return connection


def refuse_other(connection: Connection, wanted: str) -> None:
    """Raise ``ConfigurationError`` for a role that is bound, and for another database than wanted."""
    key = "Persistence:Postgres:BulkConnectionString"
    if instance_of(connection) != wanted:
        raise ConfigurationError(
            f"{key} leads to another database than ConnectionString; a copy would write its rows there. "
            "Correct it, or remove it.",
            driver=DRIVER,
        )
    with translated(outcome=Outcome.NOT_APPLIED):
        found = connection.execute(UNBOUND_ROLE).fetchone()
    if found != (True,):
        role = connection.info.user
        raise ConfigurationError(
            f"Row-level security binds the role {role} of {key}, so that it is of no use: ALTER ROLE {role} "
            "BYPASSRLS, or remove the setting.",
            driver=DRIVER,
        )


@contextmanager
def inside(connection: Connection, purpose: str, *, begin: bytes) -> Iterator[Transaction]:
    """Open a transaction in system scope without a limit on statements, pauses and the whole of it.

    It begins with its first statement. The caller commits it; anything else is rolled back at the end.
    """
    record_system_scope(purpose)
    transaction = Transaction(connection, SYSTEM_TENANT, begin=begin)
    try:
        transaction.later(NO_LIMIT)
        yield transaction
    finally:
        transaction.roll_back()


log = logging.getLogger("twinstore.postgres")

# The cluster was given its number when it was created, and its databases count from there.
OF_CLUSTER: Final = """
SELECT system_identifier::text, d.oid::text
  FROM pg_control_system(), pg_database d WHERE d.datname = current_database()
"""
# Where an administrator has withdrawn the right to ask for it: the address at which the server is reached.
OF_ADDRESS: Final = """
SELECT concat_ws(':', host(inet_server_addr()), current_setting('port')), d.datname, d.oid::text
  FROM pg_database d WHERE d.datname = current_database()
"""


# Of the running server; the right to query its start time is in practice never revoked.
OF_INSTANCE: Final = """
SELECT extract(epoch FROM pg_postmaster_start_time())::text, current_setting('port'), d.oid::text
  FROM pg_database d WHERE d.datname = current_database()
"""


def instance_of(connection: Connection) -> str:
    """Return what distinguishes this database of the running server; the same text for every role."""
    with translated(outcome=Outcome.NOT_APPLIED):
        return "/".join(connection.execute(OF_INSTANCE).fetchone() or ())


def identity_of(connection: Connection) -> str:
    """Return what distinguishes this database from every other one, whatever host name was used.

    Standbys and physical copies of a server have the number of their original server.
    """
    with translated(outcome=Outcome.NOT_APPLIED):
        try:
            found = connection.execute(OF_CLUSTER).fetchone()
        except errors.InsufficientPrivilege as error:
            log.debug(
                "The cluster does not report its number (%s); it is identified by its address.",
                loggable(error),
            )
            found = connection.execute(OF_ADDRESS).fetchone()
    return "/".join(found or ())

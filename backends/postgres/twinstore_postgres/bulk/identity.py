"""What the server says of itself, by which two stores are told apart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from psycopg import errors

from twinstore.errors import Outcome
from twinstore_postgres.errors import loggable, translated

if TYPE_CHECKING:
    from twinstore_postgres.connecting import Connection

__all__ = ["identity_of", "instance_of"]

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


# Of the running server; nobody withdraws the right to ask when it was started.
OF_INSTANCE: Final = """
SELECT extract(epoch FROM pg_postmaster_start_time())::text, current_setting('port'), d.oid::text
  FROM pg_database d WHERE d.datname = current_database()
"""


def instance_of(connection: Connection) -> str:
    """Return what tells this database of the running server, whoever asks."""
    with translated(outcome=Outcome.NOT_APPLIED):
        return "/".join(connection.execute(OF_INSTANCE).fetchone() or ())


def identity_of(connection: Connection) -> str:
    """Return what tells this database from every other one, whatever name led here.

    Standbys and physical copies of a server have the number of the server that they were made from.
    """
    with translated(outcome=Outcome.NOT_APPLIED):
        try:
            found = connection.execute(OF_CLUSTER).fetchone()
        except errors.InsufficientPrivilege as error:
            log.debug("The cluster does not tell its number (%s); its address names it.", loggable(error))
            found = connection.execute(OF_ADDRESS).fetchone()
    return "/".join(found or ())

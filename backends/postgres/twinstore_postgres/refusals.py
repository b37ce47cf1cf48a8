"""Why a server has refused a connection, in whatever language it says so.

Of a refused connection the client library keeps the text and not the code, and the text is in the language of
the server. Where it is not known, the server is asked once more, and what it sends is looked at on the wire.
"""

from __future__ import annotations

import os
import re
import select
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import pq

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

__all__ = ["REFUSALS", "code_of_refusal", "hide_password", "remedy_of_full"]

# The server's answers to a connection that can only be repaired by changing the settings.
REFUSALS: Final = {
    "password authentication failed": "Correct the password in the connection string.",
    "no password supplied": "Add the password to the connection string.",
    "authentication failed": "Correct the user and password in the connection string.",
    "no pg_hba.conf entry": "Allow this host, user and database in pg_hba.conf.",
    "is not permitted to log in": "Give the role the right to log in: ALTER ROLE ... LOGIN.",
    'role "': "Create the role, or correct the user in the connection string.",
    'database "': "Create the database, or correct its name in the connection string.",
    "invalid connection option": "Correct the connection string.",
    "unrecognized configuration parameter": "Correct the options in the connection string.",
    "certificate verify failed": (
        "Give the authority that signed the certificate of the server as sslrootcert, or renew a "
        "certificate that has expired."
    ),
    "does not match host name": "Connect by a name that stands in the certificate of the server.",
    "root certificate file": "Correct sslrootcert in the connection string.",
    "could not get home directory to locate root certificate": "Give sslrootcert in the connection string.",
    "certificate file": "Correct sslcert in the connection string.",
    "private key file": "Correct sslkey in the connection string.",
    "server does not support SSL": "Switch TLS on at the server, or correct sslmode.",
    "requires a valid client certificate": "Give sslcert and sslkey in the connection string.",
}
# What an administrator has set for one role or one database.
LIMITED: Final = re.compile(r'too many connections for (?P<what>role|database) "(?P<name>.*)"')
# A line of what the client library writes of the messages it gets.
REFUSAL: Final = re.compile(rb'\tErrorResponse\t.*? C "(?P<code>[0-9A-Z]{5})"')
NOT_REFUSED: Final = "00000"
WAITS: Final = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


def remedy_of_full(text: str) -> str:
    """Return what to do where the server has said that it has no connection left."""
    limited = LIMITED.search(text)
    if limited is None:
        return "Try again later."
    name = limited["name"].replace('"', '""')
    raised = f'ALTER {limited["what"].upper()} "{name}" CONNECTION LIMIT <number>.'
    return f"Its CONNECTION LIMIT is reached. Try again later, use fewer at a time, or raise it: {raised}"


def code_of_refusal(conninfo: str, seconds: float) -> str | None:
    """Connect once more, and return the SQLSTATE with which the server refuses it.

    ``None``: it cannot be asked on this platform; ``"00000"``: it does not refuse this time.
    """
    if not hasattr(os, "memfd_create"):
        return None
    # In memory, because the password is among the messages; nobody else can open it.
    with os.fdopen(os.memfd_create("twinstore"), "w+b") as told:
        if not _traced(conninfo, told.fileno(), seconds):
            return None
        told.seek(0)
        found = REFUSAL.search(told.read())
    return NOT_REFUSED if found is None else found["code"].decode()


def _traced(conninfo: str, told: int, seconds: float) -> bool:
    """Connect, and have all messages written to a file; return whether this platform can do that."""
    connection: PGconn = pq.PGconn.connect_start(conninfo.encode())
    # The client library opens a stream on it and never closes that.
    own = os.dup(told)
    try:
        connection.trace(own)
        try:
            _connect(connection, time.monotonic() + seconds)
        finally:
            # It writes out what the stream has: later it would go to whatever has got the number by then.
            connection.untrace()
    except psycopg.NotSupportedError:
        return False
    finally:
        os.close(own)
        connection.finish()
    return True


def _connect(connection: PGconn, end: float) -> None:
    """Connect as far as that goes, until an instant of ``time.monotonic()``."""
    while (wanted := WAITS.get(pq.PollingStatus(connection.connect_poll()))) is not None:
        waiting = select.poll()
        waiting.register(connection.socket, wanted)
        if not waiting.poll(max(0.0, end - time.monotonic()) * 1000):
            return


def hide_password(error: psycopg.Error) -> None:
    """Take the password out of what psycopg keeps of a connection that could not be opened.

    It is the cause of our error, and shows all it has in its representation.
    """
    kept = error.pgconn
    for name, nothing in {"password": b"", "info": []}.items():
        # What is still a connection can be read only, and shows nothing.
        with suppress(AttributeError, psycopg.Error):
            setattr(kept, name, nothing)

"""Every exception of psycopg and psycopg_pool, and the error of this library it becomes.

A server error is judged by its SQLSTATE: first the exact code, then the first two characters. Everything
else is judged by its class. Messages name the statement's place and the rule that was broken, never values:
the primary text and the detail of a server error may contain them.
"""

from __future__ import annotations

import os
import re
import select
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final

import psycopg
import psycopg_pool
from psycopg import errors as pg
from psycopg import pq

from twinstore.access.errors import duplicate, duplicate_id, not_found
from twinstore.catalog.entity import Entity
from twinstore.catalog.indexes import Index
from twinstore.catalog.row import Row
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    ConflictError,
    DuplicateError,
    MigrationError,
    NotFoundError,
    Outcome,
    TimeoutExceededError,
    TransactionAbortedError,
    TwinstoreError,
    UnavailableError,
    ValidationError,
)
from twinstore.runtime.service_log import log_unavailable
from twinstore_postgres.connection.deadlines import NoAnswer
from twinstore_postgres.mapping.columns import index_name
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn

Kind = type[TwinstoreError]
OF_PSYCOPG: Final = (psycopg.Error, psycopg.Warning, psycopg.Rollback)
# The name under which an exception has the number of its statement in the round trip.
STATEMENT_INDEX: Final = "twinstore_place"


@dataclass(slots=True)  # every call makes one, and a frozen one would cost twice as much
class Subject:
    """What a statement is about, for messages.

    Attributes:
        entity: the entity.
        parts: its key.
        row: what is written; it also gives the key, and which value is taken.
        others: what the other statements of the same round trip are about.
        each: what each statement of the round trip is about, where several are about one table.
    """

    entity: Entity | None = None
    parts: tuple[object, ...] | None = None
    row: Row | None = None
    others: tuple[Subject, ...] = ()
    each: tuple[Subject, ...] = ()

    @property
    def key(self) -> str | None:
        """The text of the key; made here, because only a failure needs it."""
        if self.entity is not None and self.row is not None:
            return ":".join(map(str, self.entity.key_of(self.row.model, self.row.storage)))
        return None if self.parts is None else ":".join(map(str, self.parts))

    def for_error(self, error: BaseException) -> Subject:
        """Return what the failed statement was about, as far as the server reports it."""
        place: int | None = vars(error).get(STATEMENT_INDEX)
        # Other errors than those about a row may have come before the first statement.
        if isinstance(error, psycopg.IntegrityError) and place is not None and place < len(self.each):
            return self.each[place]
        table = getattr(getattr(error, "diag", None), "table_name", None)
        for other in self.others:
            if other.entity is not None and other.entity.name == table:
                return other
        return self


NO_SUBJECT: Final = Subject()


def set_statement_index(error: BaseException, place: int) -> None:
    """Note which statement of its round trip an error is about, from 0: the server does not report it."""
    vars(error)[STATEMENT_INDEX] = place


STATES: Final[dict[str, Kind]] = {
    # classes
    "00": TwinstoreError,
    "01": TwinstoreError,
    "02": TwinstoreError,
    "03": TwinstoreError,
    "08": UnavailableError,  # the connection
    "09": ConfigurationError,
    "0A": ConfigurationError,  # a feature that this server does not have
    "0B": ConfigurationError,
    "0F": ValidationError,
    "0L": ConfigurationError,
    "0P": ConfigurationError,
    "0Z": TwinstoreError,
    "10": ValidationError,
    "20": ConfigurationError,
    "21": ConfigurationError,
    "22": ValidationError,
    "23": ValidationError,
    "24": ConfigurationError,
    "25": TransactionAbortedError,  # the transaction has failed before
    "26": ConfigurationError,  # a prepared statement that another connection of a pooler does not know
    "27": ConfigurationError,
    "28": ConfigurationError,
    "2B": MigrationError,
    "2D": TransactionAbortedError,
    "2F": ConfigurationError,
    "34": ConfigurationError,
    "38": ConfigurationError,
    "39": ConfigurationError,
    "3B": TransactionAbortedError,
    "3D": ConfigurationError,
    "3F": MigrationError,
    "40": ConcurrencyError,  # serialisation failure, deadlock
    "42": ConfigurationError,
    "44": ConfigurationError,
    "53": UnavailableError,  # out of connections, memory or disk
    "54": ValidationError,  # a value or key that is too large
    "55": ConcurrencyError,  # another process uses the object
    "57": UnavailableError,  # an administrator, or a shutdown
    "58": UnavailableError,  # an error of the system below the server
    "72": ConcurrencyError,  # snapshot too old
    "F0": ConfigurationError,
    "HV": ConfigurationError,
    "P0": ConfigurationError,
    "XX": UnavailableError,  # an internal error, such as a damaged page
    # exact codes
    "23001": ConflictError,  # restrict violation
    "23503": NotFoundError,  # foreign key violation
    "23505": DuplicateError,  # unique violation
    "23P01": ConflictError,  # exclusion violation
    "25006": ValidationError,  # a write in a transaction that only reads
    "25P03": TimeoutExceededError,  # idle in a transaction
    "25P04": TimeoutExceededError,  # transaction timeout
    "40003": UnavailableError,  # statement completion unknown
    "42703": MigrationError,  # undefined column
    "42704": MigrationError,  # undefined object
    "42883": MigrationError,  # undefined function
    "42P01": MigrationError,  # undefined table
    "42P06": MigrationError,  # duplicate schema
    "42P07": MigrationError,  # duplicate table
    "42701": MigrationError,  # duplicate column
    "42710": MigrationError,  # duplicate object
    "55000": ConfigurationError,  # object not in the state that is needed
    "55006": ConcurrencyError,  # object in use
    "55P02": ConfigurationError,  # a setting that cannot be changed now
    "55P04": ConfigurationError,  # unsafe new value of an enumeration
    "57014": TimeoutExceededError,  # query cancelled, mostly by statement_timeout
    "57P05": TimeoutExceededError,  # idle session timeout
}
"""What a SQLSTATE, or a class of them, becomes."""

# A subclass comes before its base: the first match decides.
CLASSES: Final[dict[type[BaseException], Kind]] = {
    NoAnswer: TimeoutExceededError,
    psycopg_pool.PoolTimeout: UnavailableError,
    psycopg_pool.TooManyRequests: UnavailableError,
    psycopg_pool.PoolClosed: ConfigurationError,
    pg.ConnectionTimeout: TimeoutExceededError,
    pg.CancellationTimeout: TimeoutExceededError,
    pg.PipelineAborted: TransactionAbortedError,
    psycopg.DataError: ValidationError,
    psycopg.IntegrityError: ValidationError,
    psycopg.OperationalError: UnavailableError,
    psycopg.NotSupportedError: ConfigurationError,
    psycopg.ProgrammingError: ConfigurationError,
    psycopg.InternalError: UnavailableError,
    psycopg.InterfaceError: UnavailableError,
    psycopg.DatabaseError: UnavailableError,
    psycopg.Error: UnavailableError,
    psycopg.Warning: TwinstoreError,
    psycopg.Rollback: TransactionAbortedError,
}
"""What an exception without a SQLSTATE becomes."""

REMEDIES: Final[dict[Kind, str]] = {
    MigrationError: "The schema is missing or older than this library; run: twinstore migrate run",
    ConcurrencyError: "It lost against another transaction; repeat it as a whole.",
    TimeoutExceededError: "It took longer than the server allows; narrow it or raise StatementTimeoutMs.",
    TransactionAbortedError: "The unit of work cannot be used any more; repeat it as a whole.",
}

NAME_POOLER: Final = (
    "A transaction pooler has given the connection of the server to several clients; set "
    "Persistence:Postgres:TransactionPooler to true, and DirectConnectionString to the server itself."
)
# Of SQLSTATEs that say more than their class.
STATE_REMEDIES: Final[dict[str, str]] = {
    "26000": f"Repeat it if an application had prepared statements deallocated. Otherwise: {NAME_POOLER}",
    "42P05": NAME_POOLER,
    "25P03": "It was idle for longer than the server allows; end it sooner.",
    # The driver sets such a limit on a connection that holds a lock.
    "57P05": "Its holder was silent for longer than its lease, so the lock is lost; acquire it again.",
}

# What a pooler says, under the one code that it has, to a call for which it had no connection of the server.
POOLER: Final = "08P01"
# Of one that gives each statement to any connection of the server, so that no unit of work can exist.
STATEMENT_MODE: Final = "statement pooling mode"
NOT_STARTED: Final = ("query_wait_timeout", "server login has been failing", "cannot connect to server")

# The server answered, so the transaction is rolled back. A server that is shut down (57P01) may have
# committed before it took its leave; so may one whose answer was lost (08).
NOT_APPLIED_STATES: Final = frozenset({"25", "53", "54", "58", "XX", "57014", "57P03", "57P05"})


def kind_of(error: BaseException) -> Kind | None:
    """Return the class an exception becomes, ``None`` when it is not of psycopg."""
    state = getattr(error, "sqlstate", None)
    if _is_statement_mode(error):
        return ConfigurationError
    if isinstance(state, str):
        known = STATES.get(state) or STATES.get(state[:2])
        if known is not None:
            return known
    for cls, kind in CLASSES.items():
        if isinstance(error, cls):
            return kind
    return None


def loggable(error: BaseException) -> str:
    """Return what a log may show of an exception: its class and the SQLSTATE; its text repeats values."""
    state = getattr(error, "sqlstate", None)
    return type(error).__name__ + ("" if state is None else f" {state}")


class translated:  # noqa: N801  # reads as what is done to the errors of its block
    """Turns exceptions of psycopg into those of this library; a class, because every call passes here."""

    __slots__ = ("_outcome", "_subject")

    def __init__(self, subject: Subject = NO_SUBJECT, *, outcome: Outcome = Outcome.UNKNOWN) -> None:
        """Take what is known of the statements of the block.

        Args:
            subject: what they are about.
            outcome: what is known of a write when the connection is lost inside.
        """
        self._subject = subject
        self._outcome = outcome

    def __enter__(self) -> None:
        """Let the statements begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OF_PSYCOPG):
            raise translate(error, self._subject, self._outcome) from error


def reading() -> translated:
    """Translate exceptions of statements that only read."""
    return translated(outcome=Outcome.NOT_APPLIED)


def translate(
    error: BaseException, subject: Subject = NO_SUBJECT, outcome: Outcome = Outcome.UNKNOWN
) -> TwinstoreError:
    """Return the error of this library for one of psycopg."""
    kind = kind_of(error) or TwinstoreError
    # Of the statements of one round trip, the one that failed.
    subject = subject.for_error(error)
    if kind is DuplicateError:
        return _duplicate(error, subject)
    if kind is NotFoundError and (orphan := _orphan(subject)) is not None:
        return orphan
    if kind is ConfigurationError and getattr(error, "sqlstate", None) == "42501":
        return _forbidden(error, subject)
    where = _where(subject)
    remedy = _remedy(error, kind)
    message = f"{where}{_describe(error)} {remedy}".rstrip()
    details = {"module": _module(subject), "entity": _entity(subject), "key": subject.key, "driver": DRIVER}
    if issubclass(kind, UnavailableError):
        return log_unavailable(kind(message, outcome=_outcome(error, outcome), **details))
    return kind(message, **details)


def _remedy(error: BaseException, kind: Kind) -> str:
    if isinstance(error, NoAnswer):
        return "Check that the server runs and can be reached."
    if _is_statement_mode(error):
        return "Set pool_mode of the pooler to transaction or session."
    return STATE_REMEDIES.get(getattr(error, "sqlstate", None) or "", REMEDIES.get(kind, ""))


def _duplicate(error: BaseException, subject: Subject) -> TwinstoreError:
    entity, key, row = subject.entity, subject.key, subject.row
    if entity is None or key is None:
        return DuplicateError(f"{_describe(error)}", driver=DRIVER)
    if row is None:
        return duplicate_id(entity, key, DRIVER)
    index = _violated(entity, _constraint(error))
    value = None if index is None else entity.value(row.model, row.storage, index.names[-1])
    return duplicate(entity, entity.key_of(row.model, row.storage), DRIVER, index, value)


def _violated(entity: Entity, constraint: str | None) -> Index | None:
    """Return the unique index of that name, ``None`` when it is the key."""
    found = (index for index in entity.uniques if index_name(entity, index) == constraint)
    return next(found, None)


def _orphan(subject: Subject) -> TwinstoreError | None:
    """Return the error of a new row whose parent does not exist."""
    entity, row = subject.entity, subject.row
    if entity is None or entity.parent is None or row is None:
        return None
    above = entity.parent.entity
    return not_found(above, str(entity.value(row.model, row.storage, entity.parent.field)), DRIVER)


def _forbidden(error: BaseException, subject: Subject) -> TwinstoreError:
    return ConfigurationError(
        f"{_where(subject)}{_describe(error)} The role may not do this, or row-level security refused it; "
        "run: twinstore migrate run (it grants what the application role needs) and check ApplicationRole.",
        module=_module(subject),
        entity=_entity(subject),
        key=subject.key,
        driver=DRIVER,
    )


def _outcome(error: BaseException, outcome: Outcome) -> Outcome:
    """Return what is known of a write, which may be less than the caller hopes."""
    state = getattr(error, "sqlstate", None)
    if isinstance(error, (psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests)):
        return Outcome.NOT_APPLIED
    if isinstance(state, str) and {state, state[:2]} & NOT_APPLIED_STATES:
        return Outcome.NOT_APPLIED
    if state == POOLER and any(text in _primary_text(error) for text in NOT_STARTED):
        return Outcome.NOT_APPLIED
    return outcome


def _describe(error: BaseException) -> str:
    """Name the failure by rule and code; the text of the server may repeat values."""
    state = getattr(error, "sqlstate", None)
    name = type(error).__name__
    if isinstance(error, NoAnswer):
        return f"PostgreSQL is silent: {error}, so the connection was closed."
    if not isinstance(state, str):
        # Without a code the text comes from the client library, which knows no values of rows.
        lost = isinstance(error, psycopg.OperationalError)
        # Its first line says what happened; the others guess why.
        detail = f" ({str(error).strip().partition(chr(10))[0].rstrip()})" if lost else ""
        return f"PostgreSQL could not be used: {name}{detail}."
    constraint = _constraint(error)
    rule = f", rule {constraint}" if constraint else ""
    if state == POOLER:
        rule = f", {_primary_text(error)}"  # of the protocol, which knows no values of rows
    return f"PostgreSQL answered {name} ({state}{rule})."


def _is_statement_mode(error: BaseException) -> bool:
    return getattr(error, "sqlstate", None) == POOLER and STATEMENT_MODE in _primary_text(error)


def _primary_text(error: BaseException) -> str:
    """Return the primary text of an error."""
    return str(getattr(getattr(error, "diag", None), "message_primary", None) or "")


def _constraint(error: BaseException) -> str | None:
    diagnostic = getattr(error, "diag", None)
    return getattr(diagnostic, "constraint_name", None)


def _where(subject: Subject) -> str:
    if subject.entity is None:
        return ""
    key = f" {subject.key!r}" if subject.key is not None else ""
    return f"The {subject.entity.singular}{key}: "


def _module(subject: Subject) -> str | None:
    return None if subject.entity is None else subject.entity.module


def _entity(subject: Subject) -> str | None:
    return None if subject.entity is None else subject.entity.name


# Why a server has refused a connection, in whatever language it says so.
#
# For a refused connection the client library keeps the text and not the code, and the text is in the language
# of the server. If the text is unknown, the driver connects again and reads the reply of the server on the
# wire.


# The server's answers to a connection that can only be repaired by changing the settings.
CONNECT_REMEDIES: Final = {
    "password authentication failed": "Correct the password in the connection string.",
    "no password supplied": "Add the password to the connection string.",
    "certificate authentication failed": (
        "Give a client certificate as sslcert whose common name is the user, or map it in pg_ident.conf."
    ),
    "authentication failed": "Correct the user and password in the connection string.",
    "no pg_hba.conf entry": "Allow this host, user and database in pg_hba.conf.",
    "is not permitted to log in": "Give the role the right to log in: ALTER ROLE ... LOGIN.",
    'permission denied for database "': "Let the role connect: GRANT CONNECT ON DATABASE ... TO ....",
    'role "': "Create the role, or correct the user in the connection string.",
    'database "': "Create the database, or correct its name in the connection string.",
    "invalid connection option": "Correct the connection string.",
    "unrecognized configuration parameter": "Correct the options in the connection string.",
    "certificate verify failed": (
        "Give the authority that signed the certificate of the server as sslrootcert, or renew a "
        "certificate that has expired."
    ),
    "does not match host name": "Connect by a name that is in the certificate of the server.",
    "root certificate file": "Correct sslrootcert in the connection string.",
    "could not get home directory to locate root certificate": "Give sslrootcert in the connection string.",
    "certificate file": "Correct sslcert in the connection string.",
    "private key file": "Correct sslkey in the connection string.",
    "server does not support SSL": "Switch TLS on at the server, or correct sslmode.",
    "requires a valid client certificate": "Give sslcert and sslkey in the connection string.",
    "alert certificate expired": "Renew the client certificate that sslcert names.",
    "alert unknown ca": (
        "Give a client certificate as sslcert that an authority of the server (its ssl_ca_file) has signed."
    ),
    "authentication method requirement": "Correct require_auth in the connection string, or pg_hba.conf.",
    "channel binding": (
        "Correct channel_binding in the connection string; it needs TLS (sslmode) and scram-sha-256."
    ),
}
# What an administrator has set for one role or one database.
LIMITED: Final = re.compile(r'too many connections for (?P<what>role|database) "(?P<name>.*)"')
# A line of what the client library writes of the messages it gets.
ERROR_RESPONSE: Final = re.compile(rb'\tErrorResponse\t.*? C "(?P<code>[0-9A-Z]{5})"')
NO_ERROR: Final = "00000"
POLL_EVENTS: Final = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}


def remedy_of_too_many(text: str) -> str:
    """Return what to do where the server has said that it has no connection left."""
    limited = LIMITED.search(text)
    if limited is None:
        return "Try again later."
    name = limited["name"].replace('"', '""')
    raised = f'ALTER {limited["what"].upper()} "{name}" CONNECTION LIMIT <number>.'
    return f"Its CONNECTION LIMIT is reached. Try again later, use fewer at a time, or raise it: {raised}"


def connect_sqlstate(conninfo: str, seconds: float) -> str | None:
    """Connect again, and return the SQLSTATE with which the server refuses it.

    ``None``: not possible on this platform; ``"00000"``: the server does not refuse this time.
    """
    if not hasattr(os, "memfd_create"):
        return None
    # In memory, because the password is among the messages; no other process can open it.
    with os.fdopen(os.memfd_create("twinstore"), "w+b") as trace_file:
        if not _trace_connect(conninfo, trace_file.fileno(), seconds):
            return None
        trace_file.seek(0)
        found = ERROR_RESPONSE.search(trace_file.read())
    return NO_ERROR if found is None else found["code"].decode()


def _trace_connect(conninfo: str, trace_file: int, seconds: float) -> bool:
    """Connect, and have all messages written to a file; return whether this platform can do that."""
    connection: PGconn = pq.PGconn.connect_start(conninfo.encode())
    # The client library opens a stream on it and never closes that.
    own = os.dup(trace_file)
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
    while (wanted := POLL_EVENTS.get(pq.PollingStatus(connection.connect_poll()))) is not None:
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

"""What each exception of pymongo and bson means to a caller: one table, no payloads, no secrets.

Messages of the server repeat documents, keys and hosts, so none of them is passed on; the exception itself
is the ``__cause__``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from bson import errors as bson_errors
from gridfs import errors as gridfs_errors
from pymongo import errors

from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DocumentDecodeError,
    DuplicateError,
    MigrationError,
    Outcome,
    TimeoutExceededError,
    TwinstoreError,
    UnavailableError,
    UnsupportedCapabilityError,
    ValidationError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog import Entity

__all__ = [
    "CLIENT_ERRORS",
    "CODES",
    "DRIVER",
    "MAPPING",
    "STORE_ERRORS",
    "Where",
    "translate",
    "violated_index",
]

DRIVER: Final = "Mongo"

CLIENT_ERRORS: Final = (errors.PyMongoError, bson_errors.BSONError, OverflowError, RecursionError)
# What makes a unit of work unusable although it did not come from pymongo itself.
STORE_ERRORS: Final = (DuplicateError, ConcurrencyError, UnavailableError)

TRANSIENT: Final = "TransientTransactionError"
ID_INDEX: Final = "_id_"
DUPLICATE_KEY: Final = 11000


@dataclass(frozen=True, slots=True)
class Where:
    """Where an error happened, and what is known of the write when the answer was lost."""

    hosts: str = ""
    entity: str | None = None
    key: str | None = None
    module: str | None = None
    outcome: Outcome = Outcome.UNKNOWN
    timeout_ms: int | None = None

    def of(self, entity: Entity, key: str | None = None, outcome: Outcome = Outcome.NOT_APPLIED) -> Where:
        """Return the same server with an entity."""
        return replace(self, module=entity.module, entity=entity.name, key=key, outcome=outcome)

    @property
    def location(self) -> dict[str, str | None]:
        """The location as the errors take it."""
        return {"module": self.module, "entity": self.entity, "key": self.key, "driver": DRIVER}

    @property
    def server(self) -> str:
        """The server as messages name it."""
        return f"MongoDB at {self.hosts}" if self.hosts else "MongoDB"

    @property
    def subject(self) -> str:
        """The row or entity as messages name it."""
        if self.entity and self.key:
            return f"{self.entity} {self.key!r}"
        return self.entity or "the call"


Translation = Callable[[Exception, Where], TwinstoreError]


def translate(error: Exception, where: Where) -> TwinstoreError:
    """Return the error of the library for an exception of the client; raise it ``from`` the exception."""
    if isinstance(error, errors.PyMongoError) and error.has_error_label(TRANSIENT):
        return concurrency(error, where)
    for kind in type(error).__mro__:
        if kind in MAPPING:
            return MAPPING[kind](error, where)
    return unexpected(error, where)


def unavailable(error: Exception, where: Where) -> TwinstoreError:
    """The connection was lost: whether a write was applied is known only outside the exception."""
    del error
    tail = "it is unknown whether the write was applied" if where.outcome is Outcome.UNKNOWN else "try again"
    return UnavailableError(
        f"The connection to {where.server} was lost during {where.subject}; {tail}.",
        outcome=where.outcome,
        **where.location,
    )


def unreachable(error: Exception, where: Where) -> TwinstoreError:
    """No suitable server was found, so nothing was sent."""
    del error
    within = f" within {where.timeout_ms} ms" if where.timeout_ms else ""
    return TimeoutExceededError(
        f"No usable server of {where.server} answered{within}; check that it runs and has a primary, and "
        "that host, port and replicaSet in the connection string are right.",
        outcome=Outcome.NOT_APPLIED,
        **where.location,
    )


def pool_exhausted(error: Exception, where: Where) -> TwinstoreError:
    """Every connection of the pool is busy, so nothing was sent."""
    del error
    return UnavailableError(
        f"All connections to {where.server} are busy; raise maxPoolSize or use fewer threads.",
        outcome=Outcome.NOT_APPLIED,
        **where.location,
    )


def not_primary(error: Exception, where: Where) -> TwinstoreError:
    """The server gave up being primary; a new one takes over soon."""
    del error
    return UnavailableError(
        f"{where.server} has no primary at the moment, so {where.subject} was not served; try again.",
        outcome=where.outcome,
        **where.location,
    )


def refused_write(error: Exception, where: Where) -> TwinstoreError:
    """A secondary refused the write before doing anything."""
    return not_primary(error, replace(where, outcome=Outcome.NOT_APPLIED))


def timed_out(error: Exception, where: Where) -> TwinstoreError:
    """The time limit of the call passed."""
    del error
    return TimeoutExceededError(
        f"{where.server} did not finish {where.subject} in time; try again or raise timeoutMS in the "
        "connection string.",
        outcome=where.outcome,
        **where.location,
    )


def unacknowledged(error: Exception, where: Where) -> TwinstoreError:
    """The primary wrote, but a majority did not confirm."""
    del error
    return UnavailableError(
        f"{where.server} wrote {where.subject} but a majority of its members did not confirm it; the write "
        "may be rolled back.",
        outcome=Outcome.UNKNOWN,
        **where.location,
    )


def duplicate(error: Exception, where: Where) -> TwinstoreError:
    """A unique index refused a write; the repositories know better which value it was."""
    index = violated_index(error)
    what = f" of index {index}" if index and index != ID_INDEX else ""
    return DuplicateError(
        f"The key or a unique value{what} exists already: {where.subject}.", **where.location
    )


def concurrency(error: Exception, where: Where) -> TwinstoreError:
    """Another writer got in between; everything was rolled back."""
    del error
    return ConcurrencyError(
        f"Another writer changed the same data during {where.subject}; repeat it.", **where.location
    )


def refused_document(error: Exception, where: Where) -> TwinstoreError:
    """The validator of the collection refused a document."""
    del error
    return ValidationError(
        f"The validator of the collection refuses {where.subject}; run `twinstore migrate run` if the "
        "validator is older than this library.",
        **where.location,
    )


def too_large(error: Exception, where: Where) -> TwinstoreError:
    """The document does not fit."""
    del error
    return ValidationError(
        f"{where.subject} is larger than the 16 MB that MongoDB takes; make it smaller.", **where.location
    )


def unencodable(error: Exception, where: Where) -> TwinstoreError:
    """A value has no BSON form."""
    return ValidationError(
        f"{where.subject} holds a value that BSON cannot express ({type(error).__name__}).", **where.location
    )


def undecodable(error: Exception, where: Where) -> TwinstoreError:
    """Stored bytes are no valid BSON."""
    del error
    return DocumentDecodeError(
        f"{where.subject} stored in {DRIVER} is no valid BSON. Repair or quarantine the document.",
        **where.location,
    )


def bad_uri(error: Exception, where: Where) -> TwinstoreError:
    """The connection string cannot be read; its text stays hidden, because it holds the password."""
    del error
    return ConfigurationError(
        "The MongoDB connection string is malformed; write mongodb://user:password@host:port/database and "
        "percent-encode special characters of user and password.",
        **where.location,
    )


def bad_settings(error: Exception, where: Where) -> TwinstoreError:
    """The options contradict each other or the server lacks what they ask for."""
    del error
    return ConfigurationError(
        f"The options for {where.server} are not acceptable to the client or the server; check the options "
        "in the connection string.",
        **where.location,
    )


def rejected_login(error: Exception, where: Where) -> TwinstoreError:
    """User or password are wrong."""
    del error
    return ConfigurationError(
        f"{where.server} rejects the login; check user, password and authSource in the connection string.",
        **where.location,
    )


def no_permission(error: Exception, where: Where) -> TwinstoreError:
    """The user may not do this, or nobody logged in."""
    del error
    return ConfigurationError(
        f"The user of the connection string has no permission for {where.subject} on {where.server}; log in "
        "with a user that has readWrite (and dbAdmin for migrations) on the database.",
        **where.location,
    )


def no_transactions(error: Exception, where: Where) -> TwinstoreError:
    """A standalone server met a transaction."""
    del error
    return ConfigurationError(f"{where.server} has no transactions. {STANDALONE_REMEDY}", **where.location)


def misused(error: Exception, where: Where) -> TwinstoreError:
    """The client was used in a way it does not allow, most often after it was closed."""
    del error
    return UnavailableError(
        f"The client of {where.server} cannot serve {where.subject}; it was closed or its session has ended.",
        outcome=Outcome.NOT_APPLIED,
        **where.location,
    )


def lost_history(error: Exception, where: Where) -> TwinstoreError:
    """The point in time is older than the history of the server."""
    del error
    return UnsupportedCapabilityError(
        f"{where.server} no longer has the history for this point in time; use a newer position or raise its "
        "parameter minSnapshotHistoryWindowInSeconds.",
        **where.location,
    )


def bad_hint(error: Exception, where: Where) -> TwinstoreError:
    """The server refuses a value; in practice an index that a hint names is missing."""
    if "hint" not in str(error):
        return refused_command(error, where)
    return MigrationError(
        f"{where.entity or 'The collection'} lacks an index that this call needs; "
        "run `twinstore migrate run`.",
        **where.location,
    )


def refused_command(error: Exception, where: Where) -> TwinstoreError:
    """The server refused a command for a reason that has no own row in the table."""
    code = getattr(error, "code", None)
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    name = details.get("codeName") or (f"code {code}" if code is not None else type(error).__name__)
    return TwinstoreError(f"{where.server} refused {where.subject}: {name}.", **where.location)


def unexpected(error: Exception, where: Where) -> TwinstoreError:
    """An exception that the client library documents for calls this driver does not make."""
    return TwinstoreError(
        f"{where.subject} failed in {where.server}: {type(error).__name__}.", **where.location
    )


STANDALONE_REMEDY: Final = (
    "Start mongod with --replSet NAME and run rs.initiate() once, or set AllowStandalone to do without "
    "transactions and sessions."
)

CODES: Final[dict[int, Translation]] = {
    2: bad_hint,
    6: unavailable,  # HostUnreachable
    7: unavailable,  # HostNotFound
    13: no_permission,
    18: rejected_login,
    20: no_transactions,  # IllegalOperation: transaction numbers need a replica set
    24: concurrency,  # LockTimeout
    43: unavailable,  # CursorNotFound: the server forgot the cursor, for instance after a failover
    50: timed_out,
    64: unacknowledged,
    79: bad_settings,  # UnknownReplWriteConcern
    89: timed_out,
    91: not_primary,
    100: bad_settings,  # UnsatisfiableWriteConcern
    112: concurrency,
    121: refused_document,
    133: unavailable,  # FailedToSatisfyReadPreference
    189: not_primary,
    225: concurrency,  # TransactionTooOld
    239: lost_history,
    246: concurrency,  # SnapshotUnavailable
    251: concurrency,  # NoSuchTransaction
    257: too_large,  # TransactionTooLarge
    262: timed_out,  # ExceededTimeLimit
    290: concurrency,  # TransactionExceededLifetimeLimitSeconds
    8000: rejected_login,  # AtlasError
    9001: unavailable,
    10107: refused_write,
    10334: too_large,
    11600: not_primary,
    11602: not_primary,
    13388: concurrency,  # StaleConfig
    13435: refused_write,
    13436: refused_write,
    17280: too_large,  # KeyTooLong
    17419: too_large,
    17420: too_large,
    DUPLICATE_KEY: duplicate,
}


def by_code(error: Exception, where: Where) -> TwinstoreError:
    """Let the code of the server decide."""
    code = getattr(error, "code", None)
    return (
        CODES.get(code, refused_command)(error, where)
        if isinstance(code, int)
        else refused_command(error, where)
    )


def by_first_write_error(error: Exception, where: Where) -> TwinstoreError:
    """Let the first refused document of a bulk write decide, else the write concern."""
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    refused = details.get("writeErrors") or []
    if refused:
        return CODES.get(refused[0].get("code"), refused_command)(first_write_error(refused[0]), where)
    if details.get("writeConcernErrors"):
        return unacknowledged(error, where)
    return by_code(error, where)


def first_write_error(details: Mapping[str, Any]) -> errors.WriteError:
    """Return one refused document of a bulk write as an exception of its own."""
    kind = errors.DuplicateKeyError if details.get("code") == DUPLICATE_KEY else errors.WriteError
    return kind(str(details.get("errmsg", "")), details.get("code"), details)


MAPPING: Final[dict[type[BaseException], Translation]] = {
    errors.PyMongoError: unexpected,
    errors.ProtocolError: unavailable,
    errors.ConnectionFailure: unavailable,
    errors.AutoReconnect: unavailable,
    errors.NetworkTimeout: timed_out,
    errors.NotPrimaryError: not_primary,
    errors.ServerSelectionTimeoutError: unreachable,
    errors.WaitQueueTimeoutError: pool_exhausted,
    errors.ConfigurationError: bad_settings,
    errors.InvalidURI: bad_uri,
    errors.InvalidName: bad_settings,
    errors.CollectionInvalid: refused_command,
    errors.OperationFailure: by_code,
    errors.CursorNotFound: by_code,
    errors.ExecutionTimeout: timed_out,
    errors.WriteConcernError: unacknowledged,
    errors.WTimeoutError: unacknowledged,
    errors.WriteError: by_code,
    errors.DuplicateKeyError: duplicate,
    errors.BulkWriteError: by_first_write_error,
    errors.ClientBulkWriteException: by_first_write_error,
    errors.InvalidOperation: misused,
    errors.DocumentTooLarge: too_large,
    errors.EncryptionError: unexpected,
    errors.EncryptedCollectionError: unexpected,
    gridfs_errors.GridFSError: unexpected,
    gridfs_errors.NoFile: unexpected,
    gridfs_errors.FileExists: unexpected,
    gridfs_errors.CorruptGridFile: unexpected,
    bson_errors.BSONError: unencodable,
    bson_errors.InvalidBSON: undecodable,
    bson_errors.InvalidDocument: unencodable,
    bson_errors.InvalidStringData: unencodable,
    bson_errors.InvalidId: unencodable,
    OverflowError: unencodable,
    RecursionError: unencodable,
}


def violated_index(error: BaseException | None) -> str | None:
    """Return the name of the index that a duplicate key violates, ``None`` when the server does not say.

    The structured answer names the fields only; the name stands in the text, between fixed words.
    """
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    text = str(details.get("errmsg", ""))
    _, found, rest = text.partition(" index: ")
    return rest.partition(" ")[0] if found else None

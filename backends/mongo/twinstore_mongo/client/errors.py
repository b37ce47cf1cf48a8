"""What each exception of pymongo and bson means to a caller: one table.

The exception itself becomes the ``__cause__``; its text is not passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from twinstore.runtime.service_log import log_unavailable

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity

# What may go wrong, in the words of the library: no payloads, no secrets.
#
# Messages of the server repeat documents, keys and hosts, so none of them is passed on.


DRIVER: Final = "Mongo"
ID_INDEX: Final = "_id_"
STANDALONE_REMEDY: Final = (
    "Start mongod with --replSet NAME and run rs.initiate() once, or set AllowStandalone to do without "
    "transactions and sessions."
)
# Of a server that is away, or comes and goes.
UNREACHABLE_TEXTS: Final = (
    "refused",
    "timed out",
    "reset by peer",
    "Name or service not known",
    "connection closed",
)
# What the client says of a member that recovers, as after a rollback, instead of sending a command.
NO_SESSIONS: Final = "Sessions are not supported by this MongoDB deployment"
# What the client keeps of a refused login. Until its next check of the server, which may be 10 s later, calls
# end without a new attempt.
LOGIN_TEXTS: Final = ("AuthenticationFailed", "UserNotFound", "MechanismUnavailable")
CLOSED_HINT: Final = (
    " It closes connections at once: it may require tls=true, or refuse the client certificate "
    "(tlsCertificateKeyFile is missing, expired, or of an authority that it does not trust)."
)
# The first match decides: each failed check of a certificate says the last one too.
TLS_PROBLEMS: Final = {
    "Hostname mismatch": (
        "its certificate is for another host; connect by a name that is in the certificate."
    ),
    "IP address mismatch": (
        "its certificate is for another address; connect by a name that is in the certificate."
    ),
    "certificate has expired": "its certificate has expired; renew it on the server.",
    "certificate is not yet valid": "its certificate is not valid yet; look at the clocks of both hosts.",
    "certificate verify failed": (
        "its certificate is not signed by an authority that is trusted here; give the authority as "
        "tlsCAFile in the connection string."
    ),
    "WRONG_VERSION_NUMBER": (
        "it does not speak TLS; take tls=true out of the connection string, or switch TLS on there."
    ),
}


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
    def reading(self) -> Where:
        """The same for what only reads."""
        return replace(self, outcome=Outcome.NOT_APPLIED)

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


def violated_index(error: BaseException | None) -> str | None:
    """Return the name of the index that a duplicate key violates, ``None`` when the server does not say.

    The structured answer names only the fields; the name is in the text, between fixed words.
    """
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    text = str(details.get("errmsg", ""))
    _, found, rest = text.partition(" index: ")
    return rest.partition(" ")[0] if found else None


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an exception means whatever it says itself.

    Attributes:
        kind: the class of the error.
        text: its message, with ``{server}`` and ``{subject}``.
        outcome: what is known of a write; ``None``: what the caller knows.
    """

    kind: type[TwinstoreError]
    text: str
    outcome: Outcome | None = None

    def __call__(self, error: Exception, where: Where) -> TwinstoreError:
        """Return the error of this row, whatever the client said."""
        del error
        text = self.text.format(server=where.server, subject=where.subject)
        if issubclass(self.kind, UnavailableError):
            return self.kind(text, outcome=self.outcome or where.outcome, **where.location)
        return self.kind(text, **where.location)


# The operation was ended on the server: by an administrator, or by a cancelled call.
interrupted: Final = Meaning(
    UnavailableError, "{server} ended {subject} on request before it was done; try again."
)
# Every connection of the pool is busy, so nothing was sent.
pool_exhausted: Final = Meaning(
    UnavailableError,
    "All connections to {server} are busy; raise maxPoolSize or use fewer threads.",
    Outcome.NOT_APPLIED,
)
# The server gave up being primary; a new one takes over soon.
not_primary: Final = Meaning(
    UnavailableError, "{server} has no primary at the moment, so {subject} was not served; try again."
)
# A secondary refused the write before doing anything.
refused_write: Final = replace(not_primary, outcome=Outcome.NOT_APPLIED)
# The time limit of the call passed.
timed_out: Final = Meaning(
    TimeoutExceededError,
    "{server} did not finish {subject} in time; try again or raise timeoutMS in the connection string.",
)
# The primary wrote, but a majority did not confirm.
unacknowledged: Final = Meaning(
    UnavailableError,
    "{server} wrote {subject} but a majority of its members did not confirm it; the write may be rolled "
    "back.",
    Outcome.UNKNOWN,
)
# Another writer got in between; everything was rolled back.
concurrency: Final = Meaning(
    ConcurrencyError, "Another writer changed the same data during {subject}; repeat it."
)
# The validator of the collection refused a document.
refused_document: Final = Meaning(
    ValidationError,
    "The validator of the collection refuses {subject}; run `twinstore migrate run` if the validator is "
    "older than this library.",
)
too_large: Final = Meaning(
    ValidationError, "{subject} is larger than the 16 MB that MongoDB takes; make it smaller."
)
# A transaction has written more than the server can take back.
too_much: Final = Meaning(
    ValidationError,
    f"One unit of work has written more than {DRIVER} takes in a transaction, at {{subject}}; nothing was "
    "written. Write less in one unit, or give the server a larger cache.",
)
# Stored bytes are not valid BSON.
undecodable: Final = Meaning(
    DocumentDecodeError,
    f"{{subject}} stored in {DRIVER} is not valid BSON. Repair or quarantine the document.",
)
# The text of the connection string stays hidden, because it holds the password.
bad_uri: Final = Meaning(
    ConfigurationError,
    "The MongoDB connection string is malformed; write mongodb://user@host:27017/database, with a colon and "
    "the password behind the user, and percent-encode special characters of both. Its port is a number, and "
    "its options are those of MongoDB.",
)
# The options contradict each other or the server lacks what they ask for.
bad_settings: Final = Meaning(
    ConfigurationError,
    "The options for {server} are not acceptable to the client or the server; check the options in the "
    "connection string.",
)
bad_certificate: Final = Meaning(
    ConfigurationError,
    "tlsCertificateKeyFile of the MongoDB connection string must be a file with a certificate and its "
    "private key; if the key is encrypted, tlsCertificateKeyFilePassword must be right.",
)
rejected_login: Final = Meaning(
    ConfigurationError,
    "{server} rejects the login; check user, password, authSource and authMechanism in the connection "
    "string, and for MONGODB-X509 that $external has a user with the subject of tlsCertificateKeyFile.",
)
# The user may not do this, or the client did not log in.
no_permission: Final = Meaning(
    ConfigurationError,
    "The user of the connection string has no permission for {subject} on {server}; log in with a user that "
    "has readWrite on the database (for the source of a copy: read; for migrations: also dbAdmin). If the "
    "user was dropped and created again, restart this process: its open connections are no longer logged in.",
)
# A standalone server met a transaction.
no_transactions: Final = Meaning(ConfigurationError, f"{{server}} has no transactions. {STANDALONE_REMEDY}")
# The client was used in a way it does not allow, most often after it was closed.
misused: Final = Meaning(
    UnavailableError,
    "The client of {server} cannot serve {subject}; it was closed or its session has ended.",
    Outcome.NOT_APPLIED,
)
# The point in time is older than the history of the server.
lost_history: Final = Meaning(
    UnsupportedCapabilityError,
    "{server} no longer has the history for this point in time; use a newer position or raise its parameter "
    "minSnapshotHistoryWindowInSeconds.",
)


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
    if (problem := untrusted(str(error))) is not None:
        return ConfigurationError(f"{where.server} cannot be used: {problem}", **where.location)
    if any(words in str(error) for words in LOGIN_TEXTS):
        return rejected_login(error, where)
    within = f" within {where.timeout_ms} ms" if where.timeout_ms else ""
    hint = CLOSED_HINT if "connection closed" in str(error) else ""
    return TimeoutExceededError(
        f"No usable server of {where.server} answered{within}; check that it runs and has a primary, and "
        f"that host, port and replicaSet in the connection string are right.{hint}",
        outcome=Outcome.NOT_APPLIED,
        **where.location,
    )


def untrusted(text: str) -> str | None:
    """Return why TLS fails with every server that was found, ``None`` where waiting may help.

    Only the text of the client distinguishes a bad certificate from a server that is away.
    """
    if any(words in text for words in UNREACHABLE_TEXTS):
        return None
    return next((problem for words, problem in TLS_PROBLEMS.items() if words in text), None)


def bad_options(error: Exception, where: Where) -> TwinstoreError:
    """The client refuses an option, the files that it names, or a member that recovers."""
    if NO_SESSIONS in str(error):
        return refused_write(error, where)
    return (bad_certificate if "Private key" in str(error) else bad_settings)(error, where)


def duplicate(error: Exception, where: Where) -> TwinstoreError:
    """A unique index refused a write; the repositories know better which value it was."""
    index = violated_index(error)
    what = f" of index {index}" if index and index != ID_INDEX else ""
    return DuplicateError(
        f"The key or a unique value{what} already exists: {where.subject}.", **where.location
    )


def unencodable(error: Exception, where: Where) -> TwinstoreError:
    """A value has no BSON form."""
    return ValidationError(
        f"{where.subject} holds a value that BSON cannot express ({type(error).__name__}).", **where.location
    )


def unreadable_file(error: OSError, where: Where) -> TwinstoreError:
    """A file of TLS that the connection string names is not there, or may not be read."""
    return ConfigurationError(
        f"A file that the MongoDB connection string names cannot be read ({error.filename or 'unnamed'}: "
        f"{error.strerror or type(error).__name__}); correct tlsCAFile, tlsCertificateKeyFile or tlsCRLFile.",
        **where.location,
    )


def unstorable(error: Exception, where: Where) -> TwinstoreError:
    """The server stores no such name or value."""
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    name = details.get("codeName") or f"code {getattr(error, 'code', None)}"
    return ValidationError(
        f"{where.subject} holds a name or a value that {DRIVER} does not store ({name}); change it.",
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


CLIENT_ERRORS: Final = (errors.PyMongoError, bson_errors.BSONError, OverflowError, RecursionError)
# What makes a unit of work unusable although it did not come from pymongo itself.
STORE_ERRORS: Final = (DuplicateError, ConcurrencyError, UnavailableError)

TRANSIENT: Final = "TransientTransactionError"
DUPLICATE_KEY: Final = 11000

Translation = Callable[[Exception, Where], TwinstoreError]


def translate(error: Exception, where: Where) -> TwinstoreError:
    """Return the error of the library for an exception of the client; raise it ``from`` the exception."""
    # A server that does not answer is down for the next attempt too, so that is not a lost race.
    if isinstance(error, errors.PyMongoError) and error.has_error_label(TRANSIENT) and not error.timeout:
        return concurrency(error, where)
    for kind in type(error).__mro__:
        if kind in MAPPING:
            away = isinstance(error, errors.ServerSelectionTimeoutError)
            return log_unavailable(MAPPING[kind](error, where), no_server=away)
    return unexpected(error, where)


def loggable(error: BaseException) -> str:
    """Return what a log may show of an exception: its class and the code of the server.

    Its text repeats documents, keys and hosts.
    """
    code = getattr(error, "code", None)
    return type(error).__name__ if code is None else f"{type(error).__name__} {code}"


CODES: Final[dict[int, Translation]] = {
    2: bad_hint,  # BadValue
    6: unavailable,  # HostUnreachable
    7: unavailable,  # HostNotFound
    11: rejected_login,  # UserNotFound: of a client certificate
    13: no_permission,  # Unauthorized
    18: rejected_login,  # AuthenticationFailed
    20: no_transactions,  # IllegalOperation: transaction numbers need a replica set
    24: concurrency,  # LockTimeout
    22: unstorable,  # InvalidBSON
    43: unavailable,  # CursorNotFound: forgotten by the server, for instance after a failover
    50: timed_out,  # MaxTimeMSExpired
    52: unstorable,  # DollarPrefixedFieldName
    55: unstorable,  # InvalidDBRef
    56: unstorable,  # EmptyFieldName
    57: unstorable,  # DottedFieldName
    64: unacknowledged,  # WriteConcernTimeout: members lag behind
    79: bad_settings,  # UnknownReplWriteConcern
    89: timed_out,  # NetworkTimeout
    91: not_primary,  # ShutdownInProgress
    100: bad_settings,  # UnsatisfiableWriteConcern
    112: concurrency,  # WriteConflict: the first writer wins
    121: refused_document,  # DocumentValidationFailure
    133: unavailable,  # FailedToSatisfyReadPreference
    189: not_primary,  # PrimarySteppedDown
    225: concurrency,  # TransactionTooOld
    239: lost_history,  # SnapshotTooOld
    246: concurrency,  # SnapshotUnavailable
    251: concurrency,  # NoSuchTransaction
    257: too_much,  # TransactionTooLarge
    262: timed_out,  # ExceededTimeLimit
    290: concurrency,  # TransactionExceededLifetimeLimitSeconds
    334: rejected_login,  # MechanismUnavailable
    388: too_much,  # TransactionTooLargeForCache
    8000: rejected_login,  # AtlasError
    9001: unavailable,  # SocketException
    10107: refused_write,  # NotWritablePrimary
    10334: too_large,  # BSONObjectTooLarge
    11600: not_primary,  # InterruptedAtShutdown
    11601: interrupted,
    11602: not_primary,  # InterruptedDueToReplStateChange
    13388: concurrency,  # StaleConfig
    13435: refused_write,  # NotPrimaryNoSecondaryOk
    13436: refused_write,  # NotPrimaryOrSecondary
    17280: too_large,  # KeyTooLong
    17419: too_large,
    17420: too_large,
    DUPLICATE_KEY: duplicate,
}


def by_code(error: Exception, where: Where) -> TwinstoreError:
    """Let the code of the server decide."""
    code: int = getattr(error, "code", None) or 0
    return CODES.get(code, refused_command)(error, where)


def by_first_write_error(error: Exception, where: Where) -> TwinstoreError:
    """Let the first refused document of a bulk write decide, else the write concern."""
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    refused = details.get("writeErrors") or []
    if refused:
        return by_code(first_write_error(refused[0]), where)
    if details.get("writeConcernErrors"):
        return unacknowledged(error, where)
    return by_code(error, where)


def first_write_error(details: Mapping[str, Any]) -> errors.WriteError:
    """Return one refused document of a bulk write as a separate exception."""
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
    errors.ConfigurationError: bad_options,
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

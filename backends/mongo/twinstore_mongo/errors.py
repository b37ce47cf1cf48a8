"""What each exception of pymongo and bson means to a caller: one table.

The exception itself becomes the ``__cause__``; its text is not passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from bson import errors as bson_errors
from gridfs import errors as gridfs_errors
from pymongo import errors

from twinstore.errors import ConcurrencyError, DuplicateError, TwinstoreError, UnavailableError
from twinstore.servicelog import note_lost
from twinstore_mongo import error_messages
from twinstore_mongo.error_messages import DRIVER, ID_INDEX, STANDALONE_REMEDY, Where, violated_index

__all__ = [
    "CLIENT_ERRORS",
    "CODES",
    "DRIVER",
    "DUPLICATE_KEY",
    "ID_INDEX",
    "MAPPING",
    "STANDALONE_REMEDY",
    "STORE_ERRORS",
    "Where",
    "first_write_error",
    "loggable",
    "translate",
    "violated_index",
]

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
        return error_messages.concurrency(error, where)
    for kind in type(error).__mro__:
        if kind in MAPPING:
            away = isinstance(error, errors.ServerSelectionTimeoutError)
            return note_lost(MAPPING[kind](error, where), no_server=away)
    return error_messages.unexpected(error, where)


def loggable(error: BaseException) -> str:
    """Return what a log may show of an exception: its class and the code of the server.

    Its text repeats documents, keys and hosts.
    """
    code = getattr(error, "code", None)
    return type(error).__name__ if code is None else f"{type(error).__name__} {code}"


CODES: Final[dict[int, Translation]] = {
    2: error_messages.bad_hint,  # BadValue
    6: error_messages.unavailable,  # HostUnreachable
    7: error_messages.unavailable,  # HostNotFound
    13: error_messages.no_permission,  # Unauthorized
    18: error_messages.rejected_login,  # AuthenticationFailed
    20: error_messages.no_transactions,  # IllegalOperation: transaction numbers need a replica set
    24: error_messages.concurrency,  # LockTimeout
    22: error_messages.unstorable,  # InvalidBSON
    43: error_messages.unavailable,  # CursorNotFound: forgotten by the server, for instance after a failover
    50: error_messages.timed_out,  # MaxTimeMSExpired
    52: error_messages.unstorable,  # DollarPrefixedFieldName
    55: error_messages.unstorable,  # InvalidDBRef
    56: error_messages.unstorable,  # EmptyFieldName
    57: error_messages.unstorable,  # DottedFieldName
    64: error_messages.unacknowledged,  # WriteConcernTimeout: members lag behind
    79: error_messages.bad_settings,  # UnknownReplWriteConcern
    89: error_messages.timed_out,  # NetworkTimeout
    91: error_messages.not_primary,  # ShutdownInProgress
    100: error_messages.bad_settings,  # UnsatisfiableWriteConcern
    112: error_messages.concurrency,  # WriteConflict: the first writer wins
    121: error_messages.refused_document,  # DocumentValidationFailure
    133: error_messages.unavailable,  # FailedToSatisfyReadPreference
    189: error_messages.not_primary,  # PrimarySteppedDown
    225: error_messages.concurrency,  # TransactionTooOld
    239: error_messages.lost_history,  # SnapshotTooOld
    246: error_messages.concurrency,  # SnapshotUnavailable
    251: error_messages.concurrency,  # NoSuchTransaction
    257: error_messages.too_much,  # TransactionTooLarge
    262: error_messages.timed_out,  # ExceededTimeLimit
    290: error_messages.concurrency,  # TransactionExceededLifetimeLimitSeconds
    388: error_messages.too_much,  # TransactionTooLargeForCache
    8000: error_messages.rejected_login,  # AtlasError
    9001: error_messages.unavailable,  # SocketException
    10107: error_messages.refused_write,  # NotWritablePrimary
    10334: error_messages.too_large,  # BSONObjectTooLarge
    11600: error_messages.not_primary,  # InterruptedAtShutdown
    11601: error_messages.interrupted,
    11602: error_messages.not_primary,  # InterruptedDueToReplStateChange
    13388: error_messages.concurrency,  # StaleConfig
    13435: error_messages.refused_write,  # NotPrimaryNoSecondaryOk
    13436: error_messages.refused_write,  # NotPrimaryOrSecondary
    17280: error_messages.too_large,  # KeyTooLong
    17419: error_messages.too_large,
    17420: error_messages.too_large,
    DUPLICATE_KEY: error_messages.duplicate,
}


def by_code(error: Exception, where: Where) -> TwinstoreError:
    """Let the code of the server decide."""
    code: int = getattr(error, "code", None) or 0
    return CODES.get(code, error_messages.refused_command)(error, where)


def by_first_write_error(error: Exception, where: Where) -> TwinstoreError:
    """Let the first refused document of a bulk write decide, else the write concern."""
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    refused = details.get("writeErrors") or []
    if refused:
        return by_code(first_write_error(refused[0]), where)
    if details.get("writeConcernErrors"):
        return error_messages.unacknowledged(error, where)
    return by_code(error, where)


def first_write_error(details: Mapping[str, Any]) -> errors.WriteError:
    """Return one refused document of a bulk write as an exception of its own."""
    kind = errors.DuplicateKeyError if details.get("code") == DUPLICATE_KEY else errors.WriteError
    return kind(str(details.get("errmsg", "")), details.get("code"), details)


MAPPING: Final[dict[type[BaseException], Translation]] = {
    errors.PyMongoError: error_messages.unexpected,
    errors.ProtocolError: error_messages.unavailable,
    errors.ConnectionFailure: error_messages.unavailable,
    errors.AutoReconnect: error_messages.unavailable,
    errors.NetworkTimeout: error_messages.timed_out,
    errors.NotPrimaryError: error_messages.not_primary,
    errors.ServerSelectionTimeoutError: error_messages.unreachable,
    errors.WaitQueueTimeoutError: error_messages.pool_exhausted,
    errors.ConfigurationError: error_messages.bad_settings,
    errors.InvalidURI: error_messages.bad_uri,
    errors.InvalidName: error_messages.bad_settings,
    errors.CollectionInvalid: error_messages.refused_command,
    errors.OperationFailure: by_code,
    errors.CursorNotFound: by_code,
    errors.ExecutionTimeout: error_messages.timed_out,
    errors.WriteConcernError: error_messages.unacknowledged,
    errors.WTimeoutError: error_messages.unacknowledged,
    errors.WriteError: by_code,
    errors.DuplicateKeyError: error_messages.duplicate,
    errors.BulkWriteError: by_first_write_error,
    errors.ClientBulkWriteException: by_first_write_error,
    errors.InvalidOperation: error_messages.misused,
    errors.DocumentTooLarge: error_messages.too_large,
    errors.EncryptionError: error_messages.unexpected,
    errors.EncryptedCollectionError: error_messages.unexpected,
    gridfs_errors.GridFSError: error_messages.unexpected,
    gridfs_errors.NoFile: error_messages.unexpected,
    gridfs_errors.FileExists: error_messages.unexpected,
    gridfs_errors.CorruptGridFile: error_messages.unexpected,
    bson_errors.BSONError: error_messages.unencodable,
    bson_errors.InvalidBSON: error_messages.undecodable,
    bson_errors.InvalidDocument: error_messages.unencodable,
    bson_errors.InvalidStringData: error_messages.unencodable,
    bson_errors.InvalidId: error_messages.unencodable,
    OverflowError: error_messages.unencodable,
    RecursionError: error_messages.unencodable,
}

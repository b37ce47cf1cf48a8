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
from twinstore_mongo import meanings
from twinstore_mongo.meanings import DRIVER, ID_INDEX, STANDALONE_REMEDY, Where, violated_index

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
    # A server that does not answer is down for the next attempt too, so that is no lost race.
    if isinstance(error, errors.PyMongoError) and error.has_error_label(TRANSIENT) and not error.timeout:
        return meanings.concurrency(error, where)
    for kind in type(error).__mro__:
        if kind in MAPPING:
            return MAPPING[kind](error, where)
    return meanings.unexpected(error, where)


CODES: Final[dict[int, Translation]] = {
    2: meanings.bad_hint,
    6: meanings.unavailable,  # HostUnreachable
    7: meanings.unavailable,  # HostNotFound
    13: meanings.no_permission,
    18: meanings.rejected_login,
    20: meanings.no_transactions,  # IllegalOperation: transaction numbers need a replica set
    24: meanings.concurrency,  # LockTimeout
    43: meanings.unavailable,  # CursorNotFound: the server forgot the cursor, for instance after a failover
    50: meanings.timed_out,
    64: meanings.unacknowledged,
    79: meanings.bad_settings,  # UnknownReplWriteConcern
    89: meanings.timed_out,
    91: meanings.not_primary,
    100: meanings.bad_settings,  # UnsatisfiableWriteConcern
    112: meanings.concurrency,
    121: meanings.refused_document,
    133: meanings.unavailable,  # FailedToSatisfyReadPreference
    189: meanings.not_primary,
    225: meanings.concurrency,  # TransactionTooOld
    239: meanings.lost_history,
    246: meanings.concurrency,  # SnapshotUnavailable
    251: meanings.concurrency,  # NoSuchTransaction
    257: meanings.too_large,  # TransactionTooLarge
    262: meanings.timed_out,  # ExceededTimeLimit
    290: meanings.concurrency,  # TransactionExceededLifetimeLimitSeconds
    8000: meanings.rejected_login,  # AtlasError
    9001: meanings.unavailable,
    10107: meanings.refused_write,
    10334: meanings.too_large,
    11600: meanings.not_primary,
    11602: meanings.not_primary,
    13388: meanings.concurrency,  # StaleConfig
    13435: meanings.refused_write,
    13436: meanings.refused_write,
    17280: meanings.too_large,  # KeyTooLong
    17419: meanings.too_large,
    17420: meanings.too_large,
    DUPLICATE_KEY: meanings.duplicate,
}


def by_code(error: Exception, where: Where) -> TwinstoreError:
    """Let the code of the server decide."""
    code: int = getattr(error, "code", None) or 0
    return CODES.get(code, meanings.refused_command)(error, where)


def by_first_write_error(error: Exception, where: Where) -> TwinstoreError:
    """Let the first refused document of a bulk write decide, else the write concern."""
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    refused = details.get("writeErrors") or []
    if refused:
        return by_code(first_write_error(refused[0]), where)
    if details.get("writeConcernErrors"):
        return meanings.unacknowledged(error, where)
    return by_code(error, where)


def first_write_error(details: Mapping[str, Any]) -> errors.WriteError:
    """Return one refused document of a bulk write as an exception of its own."""
    kind = errors.DuplicateKeyError if details.get("code") == DUPLICATE_KEY else errors.WriteError
    return kind(str(details.get("errmsg", "")), details.get("code"), details)


MAPPING: Final[dict[type[BaseException], Translation]] = {
    errors.PyMongoError: meanings.unexpected,
    errors.ProtocolError: meanings.unavailable,
    errors.ConnectionFailure: meanings.unavailable,
    errors.AutoReconnect: meanings.unavailable,
    errors.NetworkTimeout: meanings.timed_out,
    errors.NotPrimaryError: meanings.not_primary,
    errors.ServerSelectionTimeoutError: meanings.unreachable,
    errors.WaitQueueTimeoutError: meanings.pool_exhausted,
    errors.ConfigurationError: meanings.bad_settings,
    errors.InvalidURI: meanings.bad_uri,
    errors.InvalidName: meanings.bad_settings,
    errors.CollectionInvalid: meanings.refused_command,
    errors.OperationFailure: by_code,
    errors.CursorNotFound: by_code,
    errors.ExecutionTimeout: meanings.timed_out,
    errors.WriteConcernError: meanings.unacknowledged,
    errors.WTimeoutError: meanings.unacknowledged,
    errors.WriteError: by_code,
    errors.DuplicateKeyError: meanings.duplicate,
    errors.BulkWriteError: by_first_write_error,
    errors.ClientBulkWriteException: by_first_write_error,
    errors.InvalidOperation: meanings.misused,
    errors.DocumentTooLarge: meanings.too_large,
    errors.EncryptionError: meanings.unexpected,
    errors.EncryptedCollectionError: meanings.unexpected,
    gridfs_errors.GridFSError: meanings.unexpected,
    gridfs_errors.NoFile: meanings.unexpected,
    gridfs_errors.FileExists: meanings.unexpected,
    gridfs_errors.CorruptGridFile: meanings.unexpected,
    bson_errors.BSONError: meanings.unencodable,
    bson_errors.InvalidBSON: meanings.undecodable,
    bson_errors.InvalidDocument: meanings.unencodable,
    bson_errors.InvalidStringData: meanings.unencodable,
    bson_errors.InvalidId: meanings.unencodable,
    OverflowError: meanings.unencodable,
    RecursionError: meanings.unencodable,
}

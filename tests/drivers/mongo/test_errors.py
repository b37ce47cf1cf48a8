from __future__ import annotations

import inspect
from types import ModuleType

import bson.errors
import gridfs.errors
import pymongo.errors
import pytest
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ClientBulkWriteException,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteError,
)

from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DuplicateError,
    MigrationError,
    Outcome,
    TimeoutExceededError,
    TwinstoreError,
    UnavailableError,
    UnsupportedCapabilityError,
    ValidationError,
)
from twinstore_mongo.client.errors import CODES, MAPPING, Where, translate, violated_index

SECRET = "hunter2-payload"
WHERE = Where(hosts="db.example:27017", entity="runs", key="r-1", module="scheduler", timeout_ms=5000)


def public_exceptions(module: ModuleType) -> list[type[BaseException]]:
    found = inspect.getmembers(module, inspect.isclass)
    return [
        kind
        for name, kind in found
        if issubclass(kind, BaseException) and not name.startswith("_") and kind.__module__ == module.__name__
    ]


ALL = [kind for module in (pymongo.errors, bson.errors, gridfs.errors) for kind in public_exceptions(module)]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_public_exception_of_the_client_has_its_own_row(kind: type[BaseException]) -> None:
    assert kind in MAPPING


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_exception_becomes_one_of_the_library_without_its_text(kind: type[Exception]) -> None:
    error = instance(kind)
    translated = translate(error, WHERE)
    assert isinstance(translated, TwinstoreError)
    assert SECRET not in str(translated)
    assert "\n" not in translated.message
    assert translated.driver == "Mongo"
    assert "db.example" not in translated.public_message


def instance(kind: type[Exception]) -> Exception:
    if kind is BulkWriteError:
        return BulkWriteError({"writeErrors": [{"index": 0, "code": 8, "errmsg": SECRET}]})
    if kind is ClientBulkWriteException:
        return ClientBulkWriteException({"writeErrors": [], "error": None, "errmsg": SECRET}, verbose=False)
    if kind.__name__ == "EncryptionError":
        return kind(ValueError(SECRET))
    if kind.__name__ == "EncryptedCollectionError":
        return kind(ValueError(SECRET), {})
    return kind(SECRET)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (2, TwinstoreError),
        (13, ConfigurationError),
        (18, ConfigurationError),
        (20, ConfigurationError),
        (50, TimeoutExceededError),
        (64, UnavailableError),
        (91, UnavailableError),
        (112, ConcurrencyError),
        (121, ValidationError),
        (189, UnavailableError),
        (239, UnsupportedCapabilityError),
        (246, ConcurrencyError),
        (251, ConcurrencyError),
        (8000, ConfigurationError),
        (10107, UnavailableError),
        (10334, ValidationError),
        (11000, DuplicateError),
        (11600, UnavailableError),
        (11601, UnavailableError),
        (13435, UnavailableError),
        (999_999, TwinstoreError),
    ],
)
def test_the_code_of_the_server_decides(code: int, expected: type[TwinstoreError]) -> None:
    translated = translate(OperationFailure(SECRET, code, {"codeName": "Name", "errmsg": SECRET}), WHERE)
    assert type(translated) is expected
    assert SECRET not in str(translated)


@pytest.mark.parametrize("code", sorted(CODES))
def test_no_message_repeats_what_the_server_said(code: int) -> None:
    translated = translate(OperationFailure(SECRET, code, {"errmsg": SECRET}), WHERE)
    assert SECRET not in str(translated)
    assert "db.example" not in translated.public_message


def test_a_refused_document_of_a_bulk_write_decides() -> None:
    details = {"writeErrors": [{"index": 3, "code": 121, "errmsg": SECRET}]}
    assert type(translate(BulkWriteError(details), WHERE)) is ValidationError


def test_a_lost_write_concern_of_a_bulk_write_is_an_unknown_outcome() -> None:
    error = translate(BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 64}]}), WHERE)
    assert isinstance(error, UnavailableError)
    assert error.outcome is Outcome.UNKNOWN


def test_a_transient_error_of_a_transaction_is_a_lost_race() -> None:
    assert type(translate(labelled(AutoReconnect(SECRET)), WHERE)) is ConcurrencyError


@pytest.mark.parametrize("kind", [ServerSelectionTimeoutError, NetworkTimeout])
def test_a_server_that_does_not_answer_is_no_lost_race(kind: type[PyMongoError]) -> None:
    assert type(translate(labelled(kind(SECRET)), WHERE)) is TimeoutExceededError


def labelled(error: PyMongoError) -> PyMongoError:
    error._add_error_label("TransientTransactionError")  # noqa: SLF001  # only the client sets labels
    return error


def test_nothing_was_sent_when_no_server_was_found() -> None:
    error = translate(ServerSelectionTimeoutError(SECRET), WHERE)
    assert isinstance(error, TimeoutExceededError)
    assert error.outcome is Outcome.NOT_APPLIED
    assert "db.example:27017" in str(error)
    assert "5000 ms" in str(error)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_lost_connection_says_what_is_known_of_the_write(outcome: Outcome) -> None:
    where = Where(outcome=outcome)
    for lost in (AutoReconnect(SECRET), ExecutionTimeout(SECRET, 50)):
        error = translate(lost, where)
        assert isinstance(error, UnavailableError)
        assert error.outcome is outcome


def test_a_secondary_that_refuses_a_write_has_not_applied_it() -> None:
    error = translate(OperationFailure(SECRET, 10107), Where(outcome=Outcome.UNKNOWN))
    assert isinstance(error, UnavailableError)
    assert error.outcome is Outcome.NOT_APPLIED


def test_a_missing_index_that_a_hint_names_asks_for_the_migration() -> None:
    message = "error processing query: planner returned error: hint provided does not correspond to an index"
    error = translate(OperationFailure(message, 2), WHERE)
    assert type(error) is MigrationError
    assert "migrate" in str(error)


def test_the_violated_index_is_read_from_the_answer() -> None:
    text = (
        'E11000 duplicate key error collection: db.schedules index: ux_tenantId_name dup key: { name: "x" }'
    )
    assert violated_index(DuplicateKeyError("", 11000, {"errmsg": text})) == "ux_tenantId_name"


@pytest.mark.parametrize(
    "error", [None, DuplicateKeyError("E11000"), WriteError("x", 11000, {"errmsg": "?"})]
)
def test_an_answer_without_index_names_none(error: Exception | None) -> None:
    assert violated_index(error) is None

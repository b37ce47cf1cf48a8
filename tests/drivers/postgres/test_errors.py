from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import psycopg_pool
import pytest
from psycopg import errors as pg
from typing_extensions import override

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
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.testing.scheduler.builders import make_schedule, make_trigger
from twinstore_postgres.connection.errors import STATES, Subject, kind_of, translate, translated
from twinstore_postgres.connection.target import sentences

if TYPE_CHECKING:
    from types import ModuleType


def exceptions_of(module: ModuleType) -> list[type[BaseException]]:
    classes = [
        item for item in vars(module).values() if inspect.isclass(item) and issubclass(item, BaseException)
    ]
    own = {item for item in classes if item.__module__.startswith("psycopg")}
    return sorted(own, key=lambda item: item.__qualname__)


PUBLIC = [
    *exceptions_of(psycopg),
    *exceptions_of(pg),
    *exceptions_of(psycopg_pool),
    *exceptions_of(psycopg.transaction),
]
WITH_STATE = [item for item in PUBLIC if isinstance(getattr(item, "sqlstate", None), str)]


class FromServer(pg.UniqueViolation):
    """An error that names a constraint and its table, as those of a server do."""

    constraint = ""
    table: str | None = None

    @property
    @override
    def diag(self) -> Any:  # a stand-in for the diagnostics of a server
        return SimpleNamespace(constraint_name=self.constraint, table_name=self.table)


def test_every_public_exception_of_psycopg_is_mapped() -> None:
    kinds = {cls: kind_of(cls("text")) for cls in PUBLIC}
    assert [cls for cls, kind in kinds.items() if kind is None or not issubclass(kind, TwinstoreError)] == []


def test_every_sqlstate_is_in_the_table() -> None:
    assert len(WITH_STATE) > 200
    assert {
        state for state in map(sqlstate_of, WITH_STATE) if not {state, state[:2]} & STATES.keys()
    } == set()


def sqlstate_of(cls: type[BaseException]) -> str:
    return str(getattr(cls, "sqlstate", None))


def test_an_exception_of_another_library_is_not_mapped() -> None:
    assert kind_of(ValueError("x")) is None
    with pytest.raises(ZeroDivisionError), translated():
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pg.UniqueViolation, DuplicateError),
        (pg.CheckViolation, ValidationError),
        (pg.NotNullViolation, ValidationError),
        (pg.ForeignKeyViolation, NotFoundError),
        (pg.ExclusionViolation, ConflictError),
        (pg.SerializationFailure, ConcurrencyError),
        (pg.DeadlockDetected, ConcurrencyError),
        (pg.LockNotAvailable, ConcurrencyError),
        (pg.InFailedSqlTransaction, TransactionAbortedError),
        (pg.ReadOnlySqlTransaction, ValidationError),
        (pg.UndefinedTable, MigrationError),
        (pg.UndefinedColumn, MigrationError),
        (pg.InvalidSchemaName, MigrationError),
        (pg.InsufficientPrivilege, ConfigurationError),
        (pg.InvalidPassword, ConfigurationError),
        (pg.InvalidAuthorizationSpecification, ConfigurationError),
        (pg.InvalidCatalogName, ConfigurationError),
        (pg.QueryCanceled, TimeoutExceededError),
        (pg.AdminShutdown, UnavailableError),
        (pg.TooManyConnections, UnavailableError),
        (pg.DiskFull, UnavailableError),
        (pg.ConnectionFailure, UnavailableError),
        (pg.InvalidTextRepresentation, ValidationError),
        (pg.ProgramLimitExceeded, ValidationError),
        (pg.ConnectionTimeout, TimeoutExceededError),
        (psycopg.OperationalError, UnavailableError),
        (psycopg_pool.PoolTimeout, UnavailableError),
        (psycopg_pool.PoolClosed, ConfigurationError),
        (psycopg.DataError, ValidationError),
    ],
)
def test_an_error_becomes(error: type[psycopg.Error], kind: type[TwinstoreError]) -> None:
    with pytest.raises(kind) as caught, translated():
        raise error("text")
    assert type(caught.value) is kind
    assert caught.value.driver == "Postgres"
    assert isinstance(caught.value.__cause__, error)


def test_a_missing_table_names_the_command_that_creates_it() -> None:
    assert "twinstore migrate run" in translate(pg.UndefinedTable("x")).message


@pytest.mark.parametrize(
    ("error", "remedy"),
    [(pg.IdleSessionTimeout("x"), "lease"), (pg.IdleInTransactionSessionTimeout("x"), "end it sooner")],
)
def test_a_connection_that_was_idle_gets_no_advice_to_be_quicker(error: psycopg.Error, remedy: str) -> None:
    message = translate(error).message
    assert remedy in message
    assert "StatementTimeoutMs" not in message


@pytest.mark.parametrize(
    ("constraint", "part"),
    [
        ("schedules_pkey", "id 'k'"),
        ("uq_schedules_tenant_name", "name 'nightly'"),
        ("uq_triggers_schedule", "id 'k'"),
    ],
)
def test_a_duplicate_says_whether_it_is_the_id_or_the_name(constraint: str, part: str) -> None:
    error = FromServer("text of the server")
    error.constraint = constraint
    row = Row(make_schedule("tenant", "k", name="nightly"))
    answer = translate(error, Subject(SCHEDULES, row=row))
    assert isinstance(answer, DuplicateError)
    assert part in answer.message
    assert answer.key == "k"


def test_of_several_writes_the_one_that_failed_is_named() -> None:
    subjects = Subject(SCHEDULES, ("k",)), Subject(TRIGGERS, row=Row(make_trigger("tenant", "k")))
    error = FromServer("text of the server")
    error.table, error.constraint = TRIGGERS.name, "triggers_pkey"
    answer = translate(error, Subject(SCHEDULES, ("k",), others=subjects))
    assert (answer.entity, answer.key) == (TRIGGERS.name, make_trigger("tenant", "k").id)


def test_a_missing_parent_is_what_does_not_exist() -> None:
    row = Row(make_trigger("tenant", "nowhere"))
    answer = translate(pg.ForeignKeyViolation("text of the server"), Subject(TRIGGERS, row=row))
    assert isinstance(answer, NotFoundError)
    assert (answer.entity, answer.key) == (SCHEDULES.name, "nowhere")


def test_no_message_repeats_the_text_of_the_server() -> None:
    for cls in WITH_STATE:
        answer = translate(cls("Key (name)=(SECRET) exists"), Subject(SCHEDULES, ("k",)))
        assert "SECRET" not in answer.message, cls


def test_a_data_error_of_the_client_does_not_repeat_the_value() -> None:
    assert "SECRET" not in translate(psycopg.DataError("cannot load SECRET")).message


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (pg.QueryCanceled("x"), Outcome.NOT_APPLIED),
        (pg.DiskFull("x"), Outcome.NOT_APPLIED),
        (pg.CannotConnectNow("x"), Outcome.NOT_APPLIED),
        (pg.AdminShutdown("x"), Outcome.UNKNOWN),
        (pg.CrashShutdown("x"), Outcome.UNKNOWN),
        (pg.ConnectionFailure("x"), Outcome.UNKNOWN),
        (psycopg_pool.PoolTimeout("x"), Outcome.NOT_APPLIED),
        (psycopg.OperationalError("server closed the connection unexpectedly"), Outcome.UNKNOWN),
        (pg.TransactionResolutionUnknown("x"), Outcome.UNKNOWN),
        (pg.StatementCompletionUnknown("x"), Outcome.UNKNOWN),
    ],
)
def test_what_is_known_of_a_write_whose_answer_was_lost(error: psycopg.Error, outcome: Outcome) -> None:
    answer = translate(error)
    assert isinstance(answer, UnavailableError)
    assert answer.outcome is outcome


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (
            'connection to server at "h" failed: Connection refused\n\tIs the server running on that host?\n',
            'connection to server at "h" failed: Connection refused. Is the server running on that host?',
        ),
        ("All failures were:\n- host: 'a': refused\n", "All failures were: - host: 'a': refused."),
        ("", ""),
    ],
)
def test_what_libpq_says_on_lines_becomes_sentences(said: str, shown: str) -> None:
    assert sentences(said) == shown

"""Connections that send for themselves: one round trip, what stays prepared, and what a failure leaves."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from twinstore_postgres.connection import pipeline
from twinstore_postgres.connection.batch import Result
from twinstore_postgres.connection.pipeline import OwnConnection, numbered
from twinstore_postgres.mapping.codec import Unprepared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

    from tests.databases import PostgresDatabase

PREPARED = Unprepared(b"SELECT count(*) FROM pg_prepared_statements")
INSERT = b"INSERT INTO counted (number) VALUES (%s)"
COUNT = b"SELECT count(*) FROM counted"


@pytest.fixture
def connection(module_postgres_database: PostgresDatabase) -> Iterator[OwnConnection]:
    url = module_postgres_database.app_url
    with closing(OwnConnection.connect(url, autocommit=True, prepare_threshold=None)) as opened:
        opened.execute("CREATE TEMPORARY TABLE counted (number int UNIQUE DEFERRABLE)")
        yield opened


def one(connection: OwnConnection, statement: bytes, *values: object) -> object:
    """Return the first value that a statement answers."""
    (result,) = connection.exchange([(statement, values)])
    return result.rows[0][0]


def test_the_statements_of_a_round_trip_are_one_transaction_and_each_has_its_answer(
    connection: OwnConnection,
) -> None:
    told = connection.exchange(
        [
            (INSERT, (1,)),
            (b"SELECT number, %s::text FROM counted", ("a",)),
            (b"UPDATE counted SET number = 2", ()),
        ],
        before=[(b"SELECT set_config('app.tenant_id', %s, true)", ("t",))],
        after=[(b"SELECT 1", ())],
    )
    assert told == [Result([], 1), Result([(1, "a")], 1), Result([], 1)]
    assert one(connection, b"SELECT current_setting('app.tenant_id')") == ""
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.exchange([(INSERT, (3,)), (b"SELECT 1 / %s", (0,)), (INSERT, (4,))])
    assert connection.info.transaction_status == TransactionStatus.IDLE
    assert one(connection, COUNT) == 1


def test_a_round_trip_waits_once_whatever_the_number_of_its_statements(
    connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[object] = []
    wait = connection.wait

    def counted(generator: PQGen[list[PGresult]]) -> list[PGresult]:
        waits.append(generator)
        return wait(generator)

    monkeypatch.setattr(connection, "wait", counted)
    connection.exchange([(COUNT, ())] * 3, before=[(COUNT, ())], after=[(COUNT, ())])
    assert len(waits) == 1


def test_a_statement_is_prepared_once_also_where_its_first_execution_fails(connection: OwnConnection) -> None:
    connection.exchange([(INSERT, (1,)), (INSERT, (2,))])
    for _ in range(3):
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.exchange([(INSERT, (1,))])
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.exchange([(b"SELECT 1 / %s", (0,))])
    assert one(connection, PREPARED) == 2


def test_what_could_not_be_prepared_is_prepared_later(connection: OwnConnection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.exchange([(b"SELECT 1 FROM later", ())])
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.exchange([(Unprepared(b"SELECT 1 / 0"), ()), (COUNT, ())])
    assert one(connection, PREPARED) == 0
    connection.exchange([(Unprepared(b"CREATE TEMPORARY TABLE later ()"), ())])
    connection.exchange([(b"SELECT 1 FROM later", ()), (COUNT, ())])
    assert one(connection, PREPARED) == 2


def test_a_rollback_leaves_what_is_prepared(connection: OwnConnection) -> None:
    connection.exchange([(Unprepared(b"BEGIN"), ()), (COUNT, ())])
    connection.rollback()
    assert one(connection, COUNT) == 0
    assert one(connection, PREPARED) == 1


def test_a_connection_keeps_so_many_statements_prepared_and_no_more(
    connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MOST_PREPARED", 3)
    for turn in range(2):
        for number in range(5):
            assert one(connection, b"SELECT %d" % number) == number, turn
    assert one(connection, PREPARED) == 3
    told = connection.exchange([(b"SELECT %d" % (number % 6), ()) for number in range(20)])
    assert [result.first for result in told] == [(number % 6,) for number in range(20)]


def test_a_value_that_cannot_be_written_is_met_before_anything_is_sent(connection: OwnConnection) -> None:
    with pytest.raises(psycopg.DataError):
        connection.exchange([(INSERT, (1,)), (b"SELECT %s::text", ("\x00",))])
    with pytest.raises(psycopg.ProgrammingError):
        connection.exchange([(INSERT, (1,)), (b"SELECT %s", (object(),))])
    assert one(connection, COUNT) == 0


def test_a_commit_that_is_refused_raises(connection: OwnConnection) -> None:
    connection.exchange([(Unprepared(b"SET CONSTRAINTS ALL DEFERRED"), ()), (INSERT, (1,))])
    deferred = (Unprepared(b"SET CONSTRAINTS ALL DEFERRED"), ())
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.exchange([deferred, (INSERT, (1,))])
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.exchange([(Unprepared(b"BEGIN"), ()), deferred, (INSERT, (1,))], after=[(b"COMMIT", ())])
    assert one(connection, COUNT) == 1


def test_what_the_server_said_before_it_closed_the_connection_is_told(connection: OwnConnection) -> None:
    with pytest.raises(psycopg.errors.AdminShutdown):
        connection.exchange([(b"SELECT pg_terminate_backend(pg_backend_pid())", ()), (COUNT, ())])
    with pytest.raises(psycopg.OperationalError):
        connection.exchange([(COUNT, ())])
    assert connection.closed


def test_a_connection_whose_answers_nobody_waited_for_is_closed(
    connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(generator: object) -> None:
        del generator
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.exchange([(COUNT, ())])
    assert connection.closed


def test_more_than_the_buffers_hold_goes_both_ways_at_once(connection: OwnConnection) -> None:
    text = "x" * 2_000_000
    told = connection.exchange([(b"SELECT %s::text", (text,))] * 8)
    assert [len(result.rows[0][0]) for result in told] == [len(text)] * 8


def test_an_instant_outside_of_what_python_holds_spoils_no_other_row(connection: OwnConnection) -> None:
    (result,) = connection.exchange(
        [(b"SELECT * FROM (VALUES ('infinity'::timestamptz), (%s)) AS v", (None,))]
    )
    assert repr(result.rows) == "[((unreadable),), (None,)]"


def test_placeholders_are_numbered_and_percent_signs_stay() -> None:
    assert numbered(b"SELECT %s, '%%s' LIKE %s") == b"SELECT $1, '%s' LIKE $2"
    with pytest.raises(ValueError, match="%b"):
        numbered(b"SELECT %b")

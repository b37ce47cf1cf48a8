"""Connections that send for themselves: one round trip, what stays prepared, and what a failure leaves."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

import twinstore
from tests.support.copies import invoke, write_config
from twinstore.errors import ConfigurationError
from twinstore.testing.scheduler.builders import make_run
from twinstore_postgres.connection import pipeline, undocumented
from twinstore_postgres.connection.batch import Result
from twinstore_postgres.connection.cursors import OwnCursor
from twinstore_postgres.connection.deadlines import TimedConnection
from twinstore_postgres.connection.pipeline import OwnConnection, numbered
from twinstore_postgres.connection.pool import RecordedConnection
from twinstore_postgres.connection.transaction import READING, STEP, UNIT
from twinstore_postgres.mapping.codec import Unprepared

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from psycopg.abc import PQGen
    from psycopg.pq.abc import PGresult

    from tests.support.databases import PostgresDatabase
    from twinstore_postgres.connection.batch import Step

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
    (result,) = connection.execute_batch([(statement, values)])
    return result.rows[0][0]


def test_the_statements_of_a_round_trip_are_one_transaction_and_each_has_its_answer(
    connection: OwnConnection,
) -> None:
    told = connection.execute_batch(
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
        connection.execute_batch([(INSERT, (3,)), (b"SELECT 1 / %s", (0,)), (INSERT, (4,))])
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
    connection.execute_batch([(COUNT, ())] * 3, before=[(COUNT, ())], after=[(COUNT, ())])
    assert len(waits) == 1


def test_a_statement_is_prepared_once_also_where_its_first_execution_fails(connection: OwnConnection) -> None:
    connection.execute_batch([(INSERT, (1,)), (INSERT, (2,))])
    for _ in range(3):
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute_batch([(INSERT, (1,))])
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute_batch([(b"SELECT 1 / %s", (0,))])
    assert one(connection, PREPARED) == 2


DEALLOCATE: Final = ((Unprepared(b"DEALLOCATE ALL"), ()),)
BEGIN: Final = ((Unprepared(b"BEGIN"), ()),)


def test_after_deallocate_all_a_call_is_repeated_once_and_a_transaction_that_was_open_is_lost(
    connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = ((b"SELECT %s::int4", (1,)),)
    for before in ((), BEGIN):
        connection.execute_batch(statement)
        connection.execute_batch(DEALLOCATE)
        assert connection.execute_batch(statement, before) == [Result([(1,)], 1)]
        connection.rollback()
    connection.execute_batch(statement, BEGIN)
    connection.execute_batch(DEALLOCATE)
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        connection.execute_batch(statement)
    connection.rollback()
    assert connection.execute_batch(statement) == [Result([(1,)], 1)]

    def deallocated(*_: object) -> None:
        sent.append(1)
        raise psycopg.errors.InvalidSqlStatementName

    sent: list[int] = []
    monkeypatch.setattr(OwnConnection, "_exchange", deallocated)
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        connection.execute_batch(statement)
    assert len(sent) == 2  # behind a pooler it would go on for ever


def test_a_statement_is_not_sent_again_where_a_pooler_has_exchanged_the_server(
    connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection.execute_batch([(INSERT, (1,))])
    connection.execute_batch(DEALLOCATE)
    exchanged = iter(([Result([(0,)], 1)],))
    real = OwnConnection._exchange  # noqa: SLF001  # what is replaced for one call

    def exchange(
        self: OwnConnection, steps: Sequence[Step], before: Sequence[Step], after: Sequence[Step]
    ) -> list[Result]:
        is_pid = b"pg_backend_pid" in bytes(steps[0][0])
        return next(exchanged) if is_pid else real(self, steps, before, after)

    monkeypatch.setattr(OwnConnection, "_exchange", exchange)
    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        connection.execute_batch([(INSERT, (2,))])
    assert connection.execute_batch([(COUNT, ())])[0].rows == [(1,)]


def test_what_could_not_be_prepared_is_prepared_later(connection: OwnConnection) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute_batch([(b"SELECT 1 FROM later", ())])
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute_batch([(Unprepared(b"SELECT 1 / 0"), ()), (COUNT, ())])
    assert one(connection, PREPARED) == 0
    connection.execute_batch([(Unprepared(b"CREATE TEMPORARY TABLE later ()"), ())])
    connection.execute_batch([(b"SELECT 1 FROM later", ()), (COUNT, ())])
    assert one(connection, PREPARED) == 2


def test_a_rollback_leaves_what_is_prepared(connection: OwnConnection) -> None:
    connection.execute_batch([(Unprepared(b"BEGIN"), ()), (COUNT, ())])
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
    told = connection.execute_batch([(b"SELECT %d" % (number % 6), ()) for number in range(20)])
    assert [result.first for result in told] == [(number % 6,) for number in range(20)]


@pytest.mark.parametrize("begin", [STEP, READING, *UNIT.values()])
def test_a_transaction_begins_where_no_other_statement_can_be_prepared(
    begin: bytes, connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "MOST_PREPARED", 1)
    assert one(connection, COUNT) == 0
    connection.execute_batch([(b"SELECT 1", ())], [(begin, ())])
    assert one(connection, b"SHOW transaction_isolation") in {"repeatable read", "read committed"}
    connection.rollback()


def test_a_value_that_cannot_be_written_is_met_before_anything_is_sent(connection: OwnConnection) -> None:
    with pytest.raises(psycopg.DataError):
        connection.execute_batch([(INSERT, (1,)), (b"SELECT %s::text", ("\x00",))])
    with pytest.raises(psycopg.ProgrammingError):
        connection.execute_batch([(INSERT, (1,)), (b"SELECT %s", (object(),))])
    assert one(connection, COUNT) == 0


def test_a_commit_that_is_refused_raises(connection: OwnConnection) -> None:
    connection.execute_batch([(Unprepared(b"SET CONSTRAINTS ALL DEFERRED"), ()), (INSERT, (1,))])
    deferred = (Unprepared(b"SET CONSTRAINTS ALL DEFERRED"), ())
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute_batch([deferred, (INSERT, (1,))])
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute_batch(
            [(Unprepared(b"BEGIN"), ()), deferred, (INSERT, (1,))], after=[(b"COMMIT", ())]
        )
    assert one(connection, COUNT) == 1


def test_the_message_of_a_server_that_closes_the_connection_is_reported(connection: OwnConnection) -> None:
    with pytest.raises(psycopg.errors.AdminShutdown):
        connection.execute_batch([(b"SELECT pg_terminate_backend(pg_backend_pid())", ()), (COUNT, ())])
    with pytest.raises(psycopg.OperationalError):
        connection.execute_batch([(COUNT, ())])
    assert connection.closed


def test_a_connection_with_unread_answers_is_closed(
    connection: OwnConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(generator: object) -> None:
        del generator
        raise KeyboardInterrupt

    monkeypatch.setattr(connection, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        connection.execute_batch([(COUNT, ())])
    assert connection.closed


def test_more_than_the_buffers_hold_goes_both_ways_at_once(connection: OwnConnection) -> None:
    text = "x" * 2_000_000
    told = connection.execute_batch([(b"SELECT %s::text", (text,))] * 8)
    assert [len(result.rows[0][0]) for result in told] == [len(text)] * 8


def test_an_instant_outside_of_what_python_holds_spoils_no_other_row(connection: OwnConnection) -> None:
    (result,) = connection.execute_batch(
        [(b"SELECT * FROM (VALUES ('infinity'::timestamptz), (%s)) AS v", (None,))]
    )
    assert repr(result.rows) == "[((unreadable),), (None,)]"


def test_placeholders_are_numbered_and_percent_signs_stay() -> None:
    assert numbered(b"SELECT %s, '%%s' LIKE %s") == b"SELECT $1, '%s' LIKE $2"
    with pytest.raises(ValueError, match="%b"):
        numbered(b"SELECT %b")


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Return what changes the client as a next release may, in a process that has used none yet."""
    monkeypatch.setattr(undocumented, "_limitations", {})
    monkeypatch.setattr(undocumented, "_probed", set())
    return monkeypatch


def with_one_parameter_more(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as a release has it that asks for one more value."""

    def changed(*given: Any, demanded: object, **named: Any) -> object:  # noqa: ANN401  # as the original has them
        del demanded
        return function(*given, **named)

    return changed


def other_reader(original: Any) -> SimpleNamespace:  # noqa: ANN401  # not exported
    """Return a transformer whose answers have rows of another kind."""

    def from_context(adapters: object) -> SimpleNamespace:
        made = original.from_context(adapters)
        names = (name for name in dir(made) if not name.startswith("__"))
        kept = {name: getattr(made, name) for name in names if name not in {"types", "formats"}}
        return SimpleNamespace(**{**kept, "types": (), "formats": None, "load_rows": lambda *_: [[1]]})

    return SimpleNamespace(from_context=from_context)


def without_pipeline(released: pytest.MonkeyPatch) -> None:
    """Let the import of the pipeline fail, as if a name were gone."""
    released.setitem(sys.modules, "twinstore_postgres.connection.pipeline", None)


def without_wait(released: pytest.MonkeyPatch) -> None:
    """Let psycopg call another method, which this library does not override."""
    released.setattr(TimedConnection, "wait", psycopg.Connection.wait)


def without_adapters(released: pytest.MonkeyPatch) -> None:
    """Let cursors take how values are read from their connection alone."""
    released.delattr(OwnCursor, "adapters")


def without_connect(released: pytest.MonkeyPatch) -> None:
    """Let the pool call another method, which this library does not override."""
    released.delattr(RecordedConnection, "connect")


CHANGES: Final[dict[str, Callable[[Any], object]]] = {
    "fetch_many": with_one_parameter_more,
    "send": with_one_parameter_more,
    "error_from_result": with_one_parameter_more,
    "Transformer": with_one_parameter_more,
    "Transformer ": other_reader,
}


def serve(database: PostgresDatabase, tenant: str) -> None:
    """Use a storage as a service does."""
    with twinstore.open_storage(database.config) as storage:
        runs = storage.scheduler.runs
        runs.create(make_run(tenant, f"{tenant}/1"))
        with storage.scheduler.transaction(tenant) as unit:
            unit.runs.create(make_run(tenant, f"{tenant}/2"))
        assert {run.id for run in runs.list(tenant).items} == {f"{tenant}/1", f"{tenant}/2"}
        storage.scheduler.check_ready()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the mechanisms of which the log says that they are off, each as often as it says so."""
    lines = [record.getMessage() for record in caplog.records if record.name == "twinstore.postgres"]
    return [
        name for line in lines for name in undocumented.FALLBACKS if f"does not carry the {name} " in line
    ]


@pytest.mark.parametrize("name", CHANGES)
def test_where_the_parts_of_the_pipeline_are_other_ones_statements_travel_by_cursors(
    released: pytest.MonkeyPatch,
    postgres_database: PostgresDatabase,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    part = name.strip()
    released.setattr(pipeline, part, CHANGES[name](getattr(pipeline, part)))
    with caplog.at_level(logging.WARNING):
        serve(postgres_database, tenant)
        serve(postgres_database, f"{tenant}-again")
    assert told(caplog) == [undocumented.PIPELINE]


def test_without_a_part_of_the_pipeline_statements_travel_by_cursors(
    released: pytest.MonkeyPatch,
    postgres_database: PostgresDatabase,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    without_pipeline(released)
    with caplog.at_level(logging.WARNING):
        serve(postgres_database, tenant)
        serve(postgres_database, f"{tenant}-again")
    assert told(caplog) == [undocumented.PIPELINE]


@pytest.mark.parametrize("how", ["never called", "one parameter more"])
def test_where_psycopg_waits_in_another_way_calls_are_made_without_a_limit(
    released: pytest.MonkeyPatch,
    postgres_database: PostgresDatabase,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    wait, limited = psycopg.Connection.wait, TimedConnection.wait
    if how == "one parameter more":
        # Which psycopg gives, and only to a method that takes it.
        def more(*given: Any, reason: str = "", **named: Any) -> object:  # noqa: ANN401  # as the original has them
            del reason
            return wait(*given, **named)

        def called(*given: Any, **named: Any) -> object:  # noqa: ANN401  # as above
            return limited(*given, reason="a statement", **named)

        released.setattr(psycopg.Connection, "wait", more)
        released.setattr(TimedConnection, "wait", called)
    else:
        without_wait(released)
    with caplog.at_level(logging.WARNING):
        serve(postgres_database, tenant)
    assert undocumented.LIMIT in told(caplog)


def test_where_a_pool_connects_in_another_way_calls_are_made(
    released: pytest.MonkeyPatch,
    postgres_database: PostgresDatabase,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    without_connect(released)
    with caplog.at_level(logging.WARNING):
        serve(postgres_database, tenant)
        serve(postgres_database, f"{tenant}-again")
    assert told(caplog) == [undocumented.REASONS]


def test_where_cursors_read_by_their_connection_those_of_an_application_are_refused(
    released: pytest.MonkeyPatch,
    postgres_database: PostgresDatabase,
    tenant: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    without_adapters(released)
    refused = partial(pytest.raises, ConfigurationError, match="Connections of the application are refused")
    with caplog.at_level(logging.WARNING), twinstore.open_storage(postgres_database.config) as storage:
        # On the first connection of the process ...
        with psycopg.connect(postgres_database.app_url) as connection, refused():
            storage.scheduler.bind(connection, tenant).runs.get(tenant, "run")
        # ... and on later ones.
        serve(postgres_database, tenant)
        with ConnectionPool[Any](postgres_database.app_url, min_size=1, open=True) as pool:
            settings = {"Persistence": {"Postgres": {"Pool": pool}}}
            with twinstore.add_scheduler_postgres_storage(settings) as theirs:
                for call in (theirs.check_ready, partial(theirs.runs.get, tenant, "run")):
                    with refused():
                        call()
                assert pool.get_stats()["pool_available"] == 1
    assert told(caplog) == [undocumented.LOADERS]


OFF: Final[dict[str, Callable[[pytest.MonkeyPatch], None]]] = {
    undocumented.PIPELINE: without_pipeline,
    undocumented.LIMIT: without_wait,
    undocumented.LOADERS: without_adapters,
    undocumented.REASONS: without_connect,
}


@pytest.mark.parametrize("mechanism", OFF)
def test_doctor_names_what_is_off(
    released: pytest.MonkeyPatch,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    mechanism: str,
) -> None:
    OFF[mechanism](released)
    config = write_config(tmp_path / "settings.json", postgres_database.config)
    shown = " ".join(invoke(capsys, "--config", config, "doctor").out.split())
    assert f"does not carry the {mechanism} of this driver" in shown
    (state,) = invoke(capsys, "--config", config, "doctor", "--format", "json").json["databases"]
    assert len(state["defaults"]["client"]) == 1

"""Our own connections, whose statements are sent together and answered together.

For each statement, a cursor of psycopg looks up again how to write the values, hands them to the socket and
asks it for answers; a call of a repository has two to four statements. Here all values are written first and
all messages go out at once. The looked-up writers stay with the connection. This saves half the processor
time of a call.

It relies on parts of psycopg that its documentation does not promise, so the driver tests it before use
(:mod:`twinstore_postgres.connection.undocumented`) and works without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.generators import fetch_many, send
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from psycopg.rows import tuple_row
from typing_extensions import override

from twinstore_postgres.connection.batch import PipelinedConnection, Result, Step
from twinstore_postgres.connection.cursors import ADAPTERS, tolerant_rows
from twinstore_postgres.connection.deadlines import LongRunningConnection
from twinstore_postgres.connection.errors import set_statement_index
from twinstore_postgres.mapping.codec import Unprepared, Values

if TYPE_CHECKING:
    from psycopg.abc import PQGen
    from psycopg.abc import Transformer as Conversions
    from psycopg.pq.abc import PGconn, PGresult
    from psycopg.rows import RowFactory

Key = tuple[bytes, tuple[int, ...]]
"""A statement and the types of its values."""

# More than a service has statements by key; a connection that meets more drops the oldest ones.
MOST_PREPARED: Final = 200
# Longer ones have the values of many rows, and hardly come again.
CACHED_BYTES: Final = 4096
PLACEHOLDER: Final = re.compile(rb"%(.?)", re.DOTALL)
ANSWERED: Final = frozenset({ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK})


@dataclass(slots=True)
class Message:
    """One message to the server.

    Attributes:
        send: hands it to the client library of the server, which keeps it until all are sent.
        prepares: the statement that is prepared when it has been answered, and its name.
        is_read: whether the caller reads the answer.
    """

    send: Callable[[], None]
    prepares: tuple[Key, bytes] | None = None
    is_read: bool = False


class OwnConnection(PipelinedConnection):
    """A connection of our own, in autocommit mode and without ``prepare_threshold``.

    After a rollback psycopg has the server forget all prepared statements once it has prepared one itself.
    """

    def __init__(self, pgconn: PGconn, row_factory: RowFactory[Values] = tuple_row) -> None:
        super().__init__(pgconn, row_factory)
        self._codec = self._new_codec()

    @staticmethod
    def _new_codec() -> PipelineCodec:
        return PipelineCodec()

    @override
    def execute_batch(
        self, steps: Sequence[Step], before: Sequence[Step] = (), after: Sequence[Step] = ()
    ) -> list[Result]:
        try:
            return self._exchange(steps, before, after)
        except psycopg.errors.InvalidSqlStatementName:
            # What an application had the server forget, as DEALLOCATE ALL does, is prepared again.
            self._codec.names.clear()
            if self.pgconn.transaction_status != TransactionStatus.IDLE:
                if not before or not before[0][0].startswith(b"BEGIN"):
                    raise  # the transaction of earlier round trips is lost
                self.rollback()
            (answer,) = self._exchange([(Unprepared(b"SELECT pg_backend_pid()"), ())], (), ())
            if answer.rows != [(self.info.backend_pid,)]:
                raise  # a pooler has exchanged the server, on which our names mean other statements
            return self._exchange(steps, before, after)

    def _exchange(self, steps: Sequence[Step], before: Sequence[Step], after: Sequence[Step]) -> list[Result]:
        """Send statements and read their answers."""
        with self.lock:
            messages = self._codec.messages(self.pgconn, steps, before, after)
            answers = self._answers(messages)
            self._codec.remember(messages, answers)
            check(messages, answers)
            wanted = zip(messages, answers, strict=False)
            return [self._codec.result(answer) for message, answer in wanted if message.is_read]

    @override
    def is_supported(self) -> bool:
        results = self.execute_batch([(b"SELECT %s::int4", (1,))])
        failed = error_from_result(self.pgconn.make_empty_result(ExecStatus.FATAL_ERROR))
        return results == [Result([(1,)], 1)] and isinstance(failed, psycopg.Error)

    def _answers(self, messages: Sequence[Message]) -> list[PGresult]:
        """Return the answers in order, and perhaps one to the commit; fewer where the connection ended."""
        self.pgconn.enter_pipeline_mode()
        try:
            for message in messages:
                message.send()
            self.pgconn.pipeline_sync()
            return self.wait(fetched(self.pgconn))
        finally:
            self._exit_pipeline()

    def _exit_pipeline(self) -> None:
        if self.pgconn.status == ConnStatus.BAD:
            return
        try:
            self.pgconn.exit_pipeline_mode()
        except psycopg.OperationalError:
            # An interruption left unread answers, which the next statements would read as theirs.
            self.close()


class UnpreparedConnection(OwnConnection):
    """The same without prepared statements, for connections that a pooler gives to several clients."""

    @staticmethod
    @override
    def _new_codec() -> PipelineCodec:
        return UnpreparedPipelineCodec()


class LongRunningPipeline(LongRunningConnection, OwnConnection):
    """The same for statements that may take as long as they take."""


@dataclass(slots=True)
class PipelineCodec:
    """How the statements of one connection are written and its answers read; for one thread at a time.

    Attributes:
        names: of what the server has prepared, in the order in which it did.
        name_count: how many names were given; none is given twice.
    """

    # Without the connection, which it would keep open after its owner has dropped it.
    transformer: Conversions = field(default_factory=lambda: Transformer.from_context(ADAPTERS))
    names: dict[Key, bytes] = field(default_factory=dict[Key, bytes])
    name_count: int = 0

    def messages(
        self, pgconn: PGconn, steps: Sequence[Step], before: Sequence[Step], after: Sequence[Step]
    ) -> list[Message]:
        """Write all statements: a value that cannot be written is met before anything is sent."""
        messages: list[Message] = []
        new: dict[Key, bytes] = {}
        for part, is_read in ((before, False), (steps, True), (after, False)):
            for statement, parameters in part:
                messages += self.written(pgconn, statement, parameters, new)
                messages[-1].is_read = is_read
        return messages

    def written(
        self, pgconn: PGconn, statement: bytes, parameters: Sequence[object], new: dict[Key, bytes]
    ) -> list[Message]:
        """Return the messages of one statement, of which the last executes it.

        ``new`` are the names of what earlier messages of the same round trip prepare.
        """
        text = numbered(statement) if len(statement) <= CACHED_BYTES else numbered.__wrapped__(statement)
        values = self.transformer.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
        types, formats = self.transformer.types or (), self.transformer.formats or []
        if isinstance(statement, Unprepared):
            return [Message(partial(pgconn.send_query_params, text, values, types, formats, Format.BINARY))]
        key = text, types
        name = self.names.get(key) or new.get(key)
        if name is not None:
            return [Message(partial(pgconn.send_query_prepared, name, values, formats, Format.BINARY))]
        self.name_count += 1
        name = new[key] = b"twinstore_%d" % self.name_count
        return [
            *self._eviction_messages(pgconn),
            Message(partial(pgconn.send_prepare, name, text, types), prepares=(key, name)),
            Message(partial(pgconn.send_query_prepared, name, values, formats, Format.BINARY)),
        ]

    def _eviction_messages(self, pgconn: PGconn) -> list[Message]:
        """Return the messages that make room for one more prepared statement."""
        if len(self.names) < MOST_PREPARED:
            return []
        # Statements still to be executed in this round trip come before it, or are prepared again.
        name = self.names.pop(next(iter(self.names)))
        return [Message(partial(pgconn.send_query_params, b"DEALLOCATE " + name, None))]

    def remember(self, messages: Sequence[Message], answers: Sequence[PGresult]) -> None:
        """Remember what has been prepared, also where a later statement failed."""
        for message, answer in zip(messages, answers, strict=False):
            if message.prepares is not None and answer.status == ExecStatus.COMMAND_OK:
                key, name = message.prepares
                self.names[key] = name

    def result(self, answer: PGresult) -> Result:
        """Return what a statement answered, as Python values."""
        if not answer.nfields:
            return Result([], answer.ntuples or answer.command_tuples or 0)
        self.transformer.set_pgresult(answer)
        try:
            return Result(self.transformer.load_rows(0, answer.ntuples, tuple), answer.ntuples)
        except psycopg.DataError:
            return Result(tolerant_rows(ADAPTERS, answer), answer.ntuples)
        finally:
            self.transformer.set_pgresult(None)  # which may be megabytes


@dataclass(slots=True)
class UnpreparedPipelineCodec(PipelineCodec):
    """Writes every statement as one that is parsed, executed and forgotten."""

    @override
    def written(
        self, pgconn: PGconn, statement: bytes, parameters: Sequence[object], new: dict[Key, bytes]
    ) -> list[Message]:
        text = numbered(statement) if len(statement) <= CACHED_BYTES else numbered.__wrapped__(statement)
        values = self.transformer.dump_sequence(parameters, [PyFormat.AUTO] * len(parameters))
        types, formats = self.transformer.types or (), self.transformer.formats or []
        return [Message(partial(pgconn.send_query_params, text, values, types, formats, Format.BINARY))]


@lru_cache(maxsize=1024)
def numbered(statement: bytes) -> bytes:
    """Return a statement with numbered placeholders, as the server has them."""
    numbers = count(1)

    def placed(found: re.Match[bytes]) -> bytes:
        if found[1] == b"%":
            return b"%"
        if found[1] == b"s":
            return b"$%d" % next(numbers)
        raise ValueError(f"{found[0]!r} is no placeholder; write %s, or %% for a percent sign")

    return PLACEHOLDER.sub(placed, statement)


def check(messages: Sequence[Message], answers: Sequence[PGresult]) -> None:
    """Raise the error of the first statement that failed, or of the commit."""
    for at, answer in enumerate(answers):
        if answer.status not in ANSWERED:
            error = error_from_result(answer)
            set_statement_index(error, sum(message.is_read for message in messages[:at]))
            raise error
    if len(answers) < len(messages):
        raise psycopg.OperationalError("the connection ended before the server had answered")


def fetched(pgconn: PGconn) -> PQGen[list[PGresult]]:
    """Send the pending messages, and return all answers up to the end of the round trip."""
    yield from send(pgconn)
    answers: list[PGresult] = []
    while True:
        try:
            found = yield from fetch_many(pgconn)
        except psycopg.OperationalError:
            # The server may have said why before it closed the connection.
            if any(answer.status == ExecStatus.FATAL_ERROR for answer in answers):
                return answers
            raise
        if not found or found[0].status == ExecStatus.PIPELINE_SYNC:
            return answers
        answers += found

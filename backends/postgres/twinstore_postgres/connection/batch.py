"""Statements that travel together: all of them in one round trip."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg

from twinstore_postgres.connection.cancellation import cancellable_on
from twinstore_postgres.connection.cursors import own_cursor, rows_of
from twinstore_postgres.connection.deadlines import TimedConnection
from twinstore_postgres.connection.errors import set_statement_index
from twinstore_postgres.mapping.codec import Unprepared, Values

if TYPE_CHECKING:
    from twinstore_postgres.connection.deadlines import Connection

Step = tuple[bytes, Sequence[object]]


@dataclass(slots=True)  # every statement makes one, and a frozen one would cost twice as much
class Result:
    """What one statement answered."""

    rows: list[Values]
    count: int

    @property
    def first(self) -> Values | None:
        """The first row, or ``None``."""
        return self.rows[0] if self.rows else None


class PipelinedConnection(TimedConnection):
    """A connection that sends several statements at once without cursors."""

    @abstractmethod
    def execute_batch(
        self, steps: Sequence[Step], before: Sequence[Step] = (), after: Sequence[Step] = ()
    ) -> list[Result]:
        """Execute statements in one round trip, return what each of ``steps`` answered.

        Outside an explicit transaction all of them are one.

        Raises:
            psycopg.Error: of the first that failed, or the connection is lost.
        """

    @abstractmethod
    def is_supported(self) -> bool:
        """Whether the parts of psycopg used here behave as expected; any exception means that they do not."""


def batch(
    connection: Connection, steps: Sequence[Step], before: Sequence[Step], after: Sequence[Step]
) -> list[Result]:
    """Execute statements in one round trip and return what each of ``steps`` answered.

    The statements before and after them only set up and end the transaction; their answers are not read.
    """
    if isinstance(connection, PipelinedConnection):
        with cancellable_on(connection):
            return connection.execute_batch(steps, before, after)
    return by_cursors(connection, steps, before, after)


def by_cursors(  # as batch has them
    connection: Connection,
    steps: Sequence[Step],
    before: Sequence[Step],
    after: Sequence[Step],
    *,
    prepare: bool | None = None,
) -> list[Result]:
    """Do the same as psycopg documents it: on connections that others use too, and without our pipeline.

    ``prepare``: as psycopg takes it; ``False`` never.

    One statement may have failed while the next is sent. The pipeline must not see that error, or it would
    log that the rest was not executed.
    """
    cursors = [own_cursor(connection) for _ in steps]
    # Making a cursor costs a hundredth of a small read; statements whose answers are not read share one.
    unread = own_cursor(connection)
    used = [*[unread] * len(before), *cursors, *[unread] * len(after)]
    failure: psycopg.Error | None = None
    try:
        with cancellable_on(connection), connection.pipeline():
            try:
                for cursor, (statement, parameters) in zip(used, (*before, *steps, *after), strict=True):
                    kept = False if isinstance(statement, Unprepared) else prepare
                    cursor.execute(statement, parameters, prepare=kept)
            except psycopg.Error as error:
                failure = error
    except psycopg.Error as error:
        failure = failure or error
    if failure is not None:
        # Those before it have their answers; the server executed none of those behind it.
        set_statement_index(failure, sum(cursor.pgresult is not None for cursor in cursors))
        raise failure
    return [Result(rows_of(cursor), cursor.rowcount) for cursor in cursors]

"""Cancelling on the server what a call waits for that its caller has given up.

A request to cancel names a connection, not a statement. So a statement ends only when the request that is on
its way has been answered. The server has acted on it by then, so it cannot hit the next statement on the
connection. If no answer came, the connection is closed.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from twinstore.runtime.cancellation import RunningCall, running_call

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore_postgres.connection.deadlines import Connection

# A server that does not answer by then does not answer the call either.
CANCEL_SECONDS: Final = 2.0
NOT_CANCELLABLE: Final[AbstractContextManager[None]] = nullcontext()


class CancellableStatements:
    """The statements of one round trip, which are cancelled when their call is given up."""

    __slots__ = ("_answered", "_call", "_connection")

    def __init__(self, call: RunningCall, connection: Connection) -> None:
        self._call = call
        self._connection = connection
        self._answered = True

    def __enter__(self) -> None:
        """Let them begin, unless their call was given up."""
        self._call.begin(self._cancel)

    def __exit__(self, *_: object) -> None:
        """End them; waits for a request that is on its way."""
        self._call.end_statement()
        if not self._answered:
            self._connection.close()

    def _cancel(self) -> None:
        self._answered = False
        self._connection.cancel_safe(timeout=CANCEL_SECONDS)
        self._answered = True


def cancellable_on(connection: Connection) -> AbstractContextManager[None]:
    """Return a block for statements on a connection; it does nothing if no caller can cancel them."""
    call = running_call()
    return NOT_CANCELLABLE if call is None else CancellableStatements(call, connection)

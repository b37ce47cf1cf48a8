"""Transactions of clients that are gone. The server keeps them, with their locks, for a minute and more.

It tells every user about sessions and connections of his own. A transaction that waits for its client, on a
connection that does not exist any more, belongs to a process that was killed, or to one that has lost the
connection and with it the transaction.
"""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any, Final

import pymongo
from pymongo.errors import OperationFailure

from twinstore_mongo.errors import CLIENT_ERRORS, loggable

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore_mongo.connection import Client, Document

__all__ = ["LONG_SECONDS", "Losses", "end_abandoned", "try_end_abandoned"]

log = logging.getLogger("twinstore.mongo")

# Own ones only, which needs no right beyond the login; one question, so that both lists are of one moment.
OWN: Final[Document] = {"$currentOp": {"allUsers": False, "idleSessions": True, "idleConnections": True}}

# Longer than any transaction of ours among rivals that live, and far below the minute.
LONG_SECONDS: Final = 1.0
# Repetitions pause for a quarter of it; what begins later after a loss is another story.
APART_SECONDS: Final = 1.0
# Looking costs milliseconds; whoever looks has a call of his own to go on with.
LOOK_SECONDS: Final = 10.0


class Losses:
    """When transactions of a storage lost against others: one after the other, the winner may be dead."""

    __slots__ = ("_asked", "_clock", "_first", "_last")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Take the clock, in seconds; nothing was lost yet."""
        self._clock = clock
        self._first = self._last = self._asked = -math.inf

    def begin(self) -> float:
        """Return the instant at which a transaction begins, for :meth:`go_on`."""
        return self._clock()

    def go_on(self, begun: float) -> bool:
        """Note a loss; return whether to look for abandoned transactions now, which is true once a second.

        Threads may call at once: at worst two of them look.

        Args:
            begun: when the transaction that lost began; on a busy machine that may be long ago.
        """
        now = self._clock()
        if begun - self._last > APART_SECONDS:
            self._first = now
        self._last = now
        if min(now - self._first, now - self._asked) < LONG_SECONDS:
            return False
        self._asked = now
        return True


def try_end_abandoned(client: Client) -> None:
    """End them where the server can be asked; for callers that have something else to go on with."""
    try:
        end_abandoned(client)
    except CLIENT_ERRORS as error:
        log.debug("Abandoned transactions were not ended (%s).", loggable(error))


def end_abandoned(client: Client) -> int:
    """End the transactions of this user and program whose connection is gone; return how many there were.

    A server that does not tell, such as a router, ends them itself after a while.
    """
    program = client.options.pool_options.appname
    try:
        with pymongo.timeout(LOOK_SECONDS):
            lost = abandoned(list(client.admin.aggregate([OWN])), program)
            if lost:
                client.admin.command("killSessions", lost)
    except OperationFailure as error:
        log.debug("Abandoned transactions cannot be looked for (%s).", loggable(error))
        return 0
    return len(lost)


def abandoned(found: list[Document], program: str | None) -> list[Document]:
    """Return the sessions, as ``killSessions`` takes them, whose transaction has lost its client."""
    connected = {item["connectionId"] for item in found if item["type"] == "op" and "connectionId" in item}
    return [
        {"id": session_of(item)["id"]}
        for item in found
        # Another program of the same user may have its own ways.
        if item["type"] == "idleSession" and "transaction" in item and item.get("appName") == program
        # Without a number it cannot be told whether the client is gone.
        if item.get("connectionId") is not None and item["connectionId"] not in connected
    ]


def session_of(item: Document) -> dict[str, Any]:
    """Return the session of what the server lists."""
    session: dict[str, Any] = item["lsid"]
    return session

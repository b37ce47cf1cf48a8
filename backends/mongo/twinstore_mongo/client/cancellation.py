"""Cancelling on the server what a call waits for that its caller has given up.

A call that may be given up gets a separate session, because the server ends what belongs to a session. That
needs no right beyond the login: all users may kill their own sessions. A session for which a command may
still be on its way is never used again, so a late command cannot affect another call.
"""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

import pymongo

from twinstore.runtime.cancellation import RunningCall, running_call

if TYPE_CHECKING:
    from pymongo.client_session import ClientSession

    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Client

# A server that does not answer by then does not answer the call either.
KILL_SECONDS: Final = 2.0
CURRENT_SESSION: Final[ContextVar[ClientSession | None]] = ContextVar("twinstore_mongo_session", default=None)


def end_session(session: ClientSession) -> None:
    """End a session, unless the server may still be about to kill it: pymongo would reuse it for other calls.

    Such a session is dropped; the server drops it after half an hour.
    """
    if session not in _maybe_killed:
        session.end_session()


def call_session(client: Client) -> ClientSession | None:
    """Return the session of the call that is made here through this client, ``None`` where it has none."""
    found = CURRENT_SESSION.get()
    # A rule that the call runs may ask another storage.
    return found if found is not None and found.client is client else None


_maybe_killed: Final[WeakSet[ClientSession]] = WeakSet()


class KillableStatement:
    """One statement of a call that may be given up: has a session that can be killed."""

    __slots__ = ("_call", "_client", "_own", "_session", "_token")

    def __init__(self, call: RunningCall, client: Client, bound: ClientSession | None) -> None:
        self._call = call
        self._client = client
        self._own: ClientSession | None = None
        self._token: Token[ClientSession | None] | None = None
        session = bound or call_session(client)
        if session is None:
            # Not causal: it would have reads wait for what other calls wrote.
            session = self._own = client.start_session(causal_consistency=False)
        self._session = session
        # Asked here: the thread that kills it must not be the first to ask.
        _ = session.session_id

    def begin(self) -> None:
        """Let the statement begin.

        Raises:
            TimeoutExceededError: its call was given up.
        """
        try:
            self._call.begin(self._kill)
        except BaseException:
            self._end()
            raise
        if self._own is not None:
            self._token = CURRENT_SESSION.set(self._own)

    def end(self) -> None:
        """End it; from now on nothing is killed."""
        self._call.end_statement()
        if self._token is not None:
            CURRENT_SESSION.reset(self._token)
        self._end()

    def _end(self) -> None:
        if self._own is not None:
            end_session(self._own)

    def _kill(self) -> None:
        # Before the answer: where none comes, the server may do it at any time.
        _maybe_killed.add(self._session)
        with pymongo.timeout(KILL_SECONDS):
            self._client.admin.command("killSessions", [{"id": self._session.session_id["id"]}])
        _maybe_killed.discard(self._session)


def killable(store: OpenDatabase, bound: ClientSession | None) -> KillableStatement | None:
    """Return what kills a statement when its call is given up, ``None`` if no caller can do that."""
    call = running_call()
    if call is None or not store.capabilities.sessions:
        return None
    return KillableStatement(call, store.client, bound)

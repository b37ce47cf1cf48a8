"""The sessions that a client of ours lends to one call after the other, each to one at a time.

pymongo gives a session back and forgets it afterwards. Where the handler of a signal raises in between, the
session is given back once more, when its cursor is collected, perhaps while another call has it. Two calls
would then have one session: a write of the one could become part of the transaction of the other.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from twinstore_mongo.connection import Client

    class Lent(Protocol):
        """What pymongo knows of a session on the server."""

        is_returned: bool

    class Ordinary:
        """The pool of pymongo; in which module it is depends on its release."""

        def get_server_session(self, session_timeout_minutes: int | None) -> Lent: ...

        def return_server_session(self, server_session: Lent) -> None: ...

else:
    Ordinary = object

__all__ = ["lend_once"]


class OnceReturned(Ordinary):
    """What a pool of server sessions does otherwise: whoever lends one gets an object that returns once."""

    def get_server_session(self, session_timeout_minutes: int | None) -> Lent:
        """Lend a session."""
        # A copy: whoever had it before may still have the object that was found.
        lent = copy.copy(super().get_server_session(session_timeout_minutes))
        lent.is_returned = False
        return lent

    def return_server_session(self, server_session: Lent) -> None:
        """Take a session back, once."""
        # One that was lent before the pool was ours says nothing.
        if not getattr(server_session, "is_returned", False):
            server_session.is_returned = True
            super().return_server_session(server_session)


def lend_once(client: Client) -> None:
    """Have a client lend each session to one call at a time, whatever the handler of a signal raises."""
    # No version of pymongo promises these names; without them it lends as it would by itself.
    pool: Any = getattr(getattr(client, "_topology", None), "_session_pool", None)
    steady = isinstance(pool, OnceReturned)
    if not steady and hasattr(pool, "get_server_session") and hasattr(pool, "return_server_session"):
        pool.__class__ = type("SteadySessions", (OnceReturned, type(pool)), {})

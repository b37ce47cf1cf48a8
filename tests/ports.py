"""A TCP port that is kept for one server of a test, whenever that one begins to listen."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["keep_port", "kept_port"]


def keep_port() -> socket.socket:
    """Return a socket that keeps a port of 127.0.0.1 until it is closed.

    It does not listen, so whoever connects is refused. A server that sets ``SO_REUSEADDR``, as all of ours
    do, may listen on the port. The system gives it to nobody who asks for any port, nor to a client for its
    own end: a port that was only free a moment ago may be taken by either before the server has it.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


@contextmanager
def kept_port() -> Iterator[int]:
    """Keep a port for the length of the block."""
    with keep_port() as kept:
        port: int = kept.getsockname()[1]
        yield port

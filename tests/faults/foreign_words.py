"""A server that asks for a password and then refuses, in the words and with the code that a test wants.

The servers of the tests speak English only.
"""

from __future__ import annotations

import socket
import struct
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["refusing"]

LENGTH: Final = struct.Struct("!I")
NO_ENCRYPTION: Final = frozenset({80877103, 80877104})  # a client asks for TLS, or for GSSAPI
ASKS_PASSWORD: Final = 3
ACCEPTED: Final = 0


@contextmanager
def refusing(code: str, text: str) -> Iterator[int]:
    """Answer on a port for the length of the block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=serve, args=(listener, code, text), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def serve(listener: socket.socket, code: str, text: str) -> None:
    """Refuse whoever comes."""
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError):
                refuse(client, code, text)


def refuse(client: socket.socket, code: str, text: str) -> None:
    """Ask for the password, accept it, and refuse the connection all the same."""
    while LENGTH.unpack(message(client)[:4])[0] in NO_ENCRYPTION:
        client.sendall(b"N")
    say(client, b"R", LENGTH.pack(ASKS_PASSWORD))
    client.recv(1)
    message(client)
    say(client, b"R", LENGTH.pack(ACCEPTED))
    fields = {b"S": b"FATAL", b"V": b"FATAL", b"C": code.encode(), b"M": text.encode()}
    say(client, b"E", b"".join(name + value + b"\0" for name, value in fields.items()) + b"\0")


def message(client: socket.socket) -> bytes:
    """Return what the client sends, without its length."""
    (length,) = LENGTH.unpack(exactly(client, LENGTH.size))
    return exactly(client, length - LENGTH.size)


def exactly(client: socket.socket, size: int) -> bytes:
    """Return so many bytes of a client; one that is given up meanwhile sends fewer."""
    found = client.recv(size, socket.MSG_WAITALL)
    if len(found) < size:
        raise ConnectionError("the client has gone")
    return found


def say(client: socket.socket, kind: bytes, body: bytes) -> None:
    """Send one message."""
    client.sendall(kind + LENGTH.pack(len(body) + 4) + body)

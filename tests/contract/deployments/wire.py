"""A line between driver and server that a test can cut, or on which it can hold up every byte."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Address", "Line", "connected", "end_all", "line_to"]

# A host with a port, or the path of a Unix socket.
Address = tuple[str, int] | str
CHUNK = 65_536


class Line:
    """Hands on every byte until it is cut; then every connection breaks and none is accepted any more."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = [self._listener]
        self._flowing = Event()
        self._flowing.set()
        self._is_cut = False
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break what is connected and accept nothing more; a second call does nothing."""
        self._is_cut = True
        self._flowing.set()
        ends, self._ends = self._ends, []
        end_all(*ends)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Hold up every byte for the length of the block; connections are accepted, and hear nothing."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = connected(self._server)
                except OSError:
                    client.close()
                    raise
                self._ends += (client, server)
                if self._is_cut:  # meanwhile
                    end_all(client, server)
                    return
                for source, target in ((client, server), (server, client)):
                    Thread(target=pump, args=(source, target, self._flowing), daemon=True).start()


def connected(address: Address) -> socket.socket:
    """Return a connection to a server."""
    if isinstance(address, tuple):
        return socket.create_connection(address)
    with ExitStack() as failing:
        end = failing.enter_context(socket.socket(socket.AF_UNIX))
        end.connect(address)
        failing.pop_all()
    return end


def end_all(*ends: socket.socket) -> None:
    """End connections, also for a thread that reads from one: only a shutdown wakes that up."""
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def pump(source: socket.socket, target: socket.socket, flowing: Event) -> None:
    """Hand on what one end says, until either of them is closed."""
    with suppress(OSError):
        while data := source.recv(CHUNK):
            flowing.wait()
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def line_to(server: Address) -> Iterator[Line]:
    """Open a line to a server and cut it at the end."""
    line = Line(server)
    try:
        yield line
    finally:
        line.cut()

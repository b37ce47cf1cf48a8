"""A way to a server that counts what comes back over it, can be slow, and can be cut."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final, Self, cast

from psycopg.conninfo import conninfo_to_dict
from pymongo.uri_parser import parse_uri

from tests.support.servers import keep_port, postgres_url

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random
    from types import TracebackType

    from tests.support.servers import Settings

PART: Final = 1 << 18
# Of the parts that are passed on while connections are torn: how many are the last one.
TORN: Final = 0.02
# Of the parts on a lossy way: how many are lost, and after how long they are sent again.
LOST: Final = 0.01
RESENT_SECONDS: Final = 0.2
# How much a narrow way lets through at once.
PIECE: Final = 1000


class CountingProxy:
    """Passes connections on to a server, and counts.

    Attributes:
        port: where clients connect.
        received: the bytes that the server has sent.
        round_trips: how often a client has sent something after it had the answer to what it sent before.
        latency: the seconds that each of them takes longer than the server does.
        flowing: whether anything is passed on.
        torn: decides which connections end in the middle of what is passed on; none without it.
        tearing: how many of the parts are the last one while connections are torn.
        lossy: decides which parts arrive late, as those do that are sent again; none without it.
        rate: how many bytes pass in a second, each way of each connection; ``None``: as many as come.
        mute: whether what the server says gets lost. A connection on which something was lost says nothing
            any more, and ends only with the proxy or by `cut`.
    """

    def __init__(self, family: socket.AddressFamily, address: Any) -> None:  # noqa: ANN401  # of a socket
        self._upstream = family, address
        # As long as the wire lasts: a client that keeps connecting while no server listens may get the port.
        self._kept = keep_port()
        self.port = int(self._kept.getsockname()[1])
        self._listener = self._listening()
        self._lock = Lock()
        self._open: list[socket.socket] = []
        self._cut = Event()
        self.flowing = Event()
        self.flowing.set()
        self.torn: Random | None = None
        self.tearing = TORN
        self.lossy: Random | None = None
        self.rate: float | None = None
        self.mute = False
        self.received = self.round_trips = 0
        self.latency = 0.0
        # Connections on which nothing was sent since the last answer, by their socket of the client.
        self._answered: dict[socket.socket, bool] = {}

    def __enter__(self) -> Self:
        """Begin to listen."""
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut every connection."""
        self._leave()
        self._kept.close()

    def cut(self) -> None:
        """Cut every connection, and each new one at once."""
        self._cut.set()
        shut(*self._open)

    def restore(self) -> None:
        """Let new connections pass again."""
        self._cut.clear()

    @contextmanager
    def unavailable(self) -> Iterator[None]:
        """Cut every connection and refuse new ones, as if the server were gone."""
        self._leave()
        yield
        self._open = []
        self.restore()
        self._listener = self._listening()
        self.__enter__()

    def _listening(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", self.port))

    def _leave(self) -> None:
        # To close it would not wake the thread that waits for a client.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        listener = self._listener
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                if self._cut.is_set():
                    client.close()
                    continue
                family, address = self._upstream
                server = socket.socket(family, socket.SOCK_STREAM)
                try:
                    server.connect(address)
                except OSError:
                    client.close()
                    server.close()
                    continue
                self._open += [client, server]
                if self._cut.is_set():  # meanwhile
                    shut(client, server)
                Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:  # noqa: FBT001
        lost = False
        with suppress(OSError):
            while part := source.recv(PART):
                self.flowing.wait()
                if (torn := self.torn) is not None and torn.random() < self.tearing:
                    target.sendall(part[: torn.randrange(len(part))])
                    break
                if counts and (self.mute or lost):
                    lost = True
                    continue
                self._count(source, target, part, answers=counts)
                self._send(target, part)
        # Closed alone, a socket on which the other thread waits stays open. PostgreSQL would wait on it for a
        # minute for a client that was about to log in, and so would creating or dropping a database.
        shut(source, target)
        target.close()

    def _send(self, target: socket.socket, part: bytes) -> None:
        if (lossy := self.lossy) is not None and lossy.random() < LOST:
            time.sleep(RESENT_SECONDS)
        while (rate := self.rate) is not None and part:
            piece, part = part[:PIECE], part[PIECE:]
            target.sendall(piece)
            time.sleep(len(piece) / rate)
        target.sendall(part)

    def _count(self, source: socket.socket, target: socket.socket, part: bytes, *, answers: bool) -> None:
        with self._lock:
            if answers:
                self.received += len(part)
                self._answered[target] = True
                return
            begins = self._answered.get(source, True)
            self._answered[source] = False
            self.round_trips += begins
        if begins:
            time.sleep(self.latency)


def shut(*sockets: socket.socket) -> None:
    """End connections in both directions, also for a thread that waits for their data."""
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def through_proxy(settings: Settings) -> tuple[CountingProxy, Settings]:
    """Return a wire to the server that settings name, and the settings that go over it."""
    persistence = dict(cast("dict[str, Any]", settings["Persistence"]))
    if "Mongo" in persistence:
        section = dict(persistence["Mongo"])
        ((host, port),) = parse_uri(section["ConnectionString"])["nodelist"]
        proxy = CountingProxy(socket.AF_INET, (host, port))
        section["ConnectionString"] = f"mongodb://127.0.0.1:{proxy.port}/?directConnection=true"
        persistence["Mongo"] = section
    else:
        section = dict(persistence["Postgres"])
        known = conninfo_to_dict(section["ConnectionString"])
        host, port = str(known["host"]), int(str(known.get("port", 5432)))
        local = host.startswith("/")
        address: Any = f"{host}/.s.PGSQL.{port}" if local else (host, port)
        proxy = CountingProxy(socket.AF_UNIX if local else socket.AF_INET, address)
        url = postgres_url(section["ConnectionString"], host="127.0.0.1", port=str(proxy.port))
        section["ConnectionString"] = url
        persistence["Postgres"] = section
    return proxy, {**settings, "Persistence": persistence}


# A host with a port, or the path of a Unix socket.
Address = tuple[str, int] | str
CHUNK = 65_536


class BreakableProxy:
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
def proxy_to(server: Address) -> Iterator[BreakableProxy]:
    """Open a line to a server and cut it at the end."""
    line = BreakableProxy(server)
    try:
        yield line
    finally:
        line.cut()

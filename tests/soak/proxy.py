"""A process between clients and a server, which passes bytes on, stops to, or cuts connections in the middle.

It is forked, because workers are: what threads of a supervisor hold would be held for ever in their copies.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.faults.claiming import forked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

__all__ = ["Proxy", "proxy_of"]

HOST: Final = "127.0.0.1"
CHUNK: Final = 65_536
# Of the pieces that are passed on while connections are cut: how many are the last one.
CUT: Final = 0.02


class Proxy:
    """The process, as others see it; one of them at a time may tell it something."""

    def __init__(self, port: int, orders: Connection[Any, Any]) -> None:
        """Take its port, and where it takes orders."""
        self.port = port
        self._orders = orders

    def stall(self) -> None:
        """Take connections and bytes, and pass nothing on."""
        self._order("stall")

    def cut(self) -> None:
        """End connections at random, in the middle of what is passed on."""
        self._order("cut")

    def flow(self) -> None:
        """Pass everything on again."""
        self._order("flow")

    def server_ports(self) -> list[int]:
        """Return the ports from which it is connected to the server."""
        ports: list[int] = self._order("ports")
        return ports

    def _order(self, what: str) -> Any:  # noqa: ANN401  # the answer to the order
        self._orders.send(what)
        return self._orders.recv()


@contextmanager
def proxy_of(server_port: int, seed: str) -> Iterator[Proxy]:
    """Run a proxy before a server of this machine for the length of the block."""
    orders, inside = Pipe()
    with socket.create_server((HOST, 0), backlog=200) as listener:

        def relay() -> None:
            # Its own copy would keep it from noticing that nobody else has one.
            orders.close()
            asyncio.run(_Relay(server_port, inside, Random(seed)).serve(listener))

        child = forked(relay)
        port: int = listener.getsockname()[1]
    inside.close()
    try:
        yield Proxy(port, orders)
    finally:
        orders.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@dataclass(eq=False, slots=True)
class _Relay:
    """Both directions of every connection."""

    server_port: int
    orders: Connection[Any, Any]
    random: Random
    cutting: bool = False
    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    links: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = field(
        default_factory=set["tuple[asyncio.StreamWriter, asyncio.StreamWriter]"]
    )

    async def serve(self, listener: socket.socket) -> None:
        """Pass on until nobody can give orders any more."""
        self.flowing.set()
        asyncio.get_running_loop().add_reader(self.orders.fileno(), self._obey)
        async with await asyncio.start_server(self._link, sock=listener):
            await self.ends.wait()

    def _obey(self) -> None:
        try:
            what = self.orders.recv()
        except EOFError:
            self.ends.set()
            return
        answer: list[int] | None = None
        if what == "ports":
            answer = [server.get_extra_info("sockname")[1] for _, server in self.links]
        elif what == "stall":
            self.flowing.clear()
        else:
            self.cutting = what == "cut"
            self.flowing.set()
        self.orders.send(answer)

    async def _link(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            answers, server = await asyncio.open_connection(HOST, self.server_port)
        except OSError:
            client.transport.abort()
            return
        link = client, server
        self.links.add(link)
        both = [asyncio.create_task(self._pass_on(reader, server)),
                asyncio.create_task(self._pass_on(answers, client))]  # fmt: skip
        # Its last tasks are cancelled when nobody can give orders any more.
        with suppress(asyncio.CancelledError):
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        self._unlink(link, both)

    def _unlink(
        self, link: tuple[asyncio.StreamWriter, asyncio.StreamWriter], both: list[asyncio.Task[None]]
    ) -> None:
        for task in both:
            task.cancel()
        for end in link:
            end.close()
        self.links.discard(link)

    async def _pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await source.read(CHUNK):
                await self.flowing.wait()
                if self.cutting and self.random.random() < CUT:
                    target.write(chunk[: self.random.randrange(len(chunk))])
                    await target.drain()
                    return
                target.write(chunk)
                await target.drain()

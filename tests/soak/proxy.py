"""A way to a server that passes bytes on, stops to, or cuts connections in the middle.

It is a process of its own, because workers are forked: what threads of a supervisor hold would be held for
ever in their copies.
"""

from __future__ import annotations

import os
import signal
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.faults.claiming import forked
from tests.wires import CountingWire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

__all__ = ["Proxy", "proxy_of"]

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Proxy:
    """The process, as others see it; one of them at a time may tell it something.

    Attributes:
        port: where clients connect.
        orders: what it is told.
    """

    port: int
    orders: Connection[Any, Any]

    def stall(self, meanwhile: Callable[[], object]) -> None:
        """Take connections and bytes for a while, and pass nothing on."""
        self._during("stall", meanwhile)

    def cut(self, meanwhile: Callable[[], object]) -> None:
        """End connections at random for a while, in the middle of what is passed on."""
        self._during("cut", meanwhile)

    def _during(self, what: str, meanwhile: Callable[[], object]) -> None:
        self._order(what)
        try:
            meanwhile()
        finally:
            self._order("flow")

    def _order(self, what: str) -> None:
        self.orders.send(what)
        self.orders.recv()


@contextmanager
def proxy_of(server_port: int, seed: str) -> Iterator[Proxy]:
    """Run a proxy before a server of this machine for the length of the block."""
    orders, inside = Pipe()

    def relay() -> None:
        # Its own copy would keep it from noticing that nobody else has one.
        orders.close()
        with suppress(EOFError), CountingWire(socket.AF_INET, (HOST, server_port)) as wire:
            inside.send(wire.port)
            while what := inside.recv():
                wire.torn = Random(seed) if what == "cut" else None
                (wire.flowing.clear if what == "stall" else wire.flowing.set)()
                inside.send(what)

    child = forked(relay)
    inside.close()
    try:
        yield Proxy(orders.recv(), orders)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

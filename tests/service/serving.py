"""Serves the sample service in this process, on a free port."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import unquote

import httpx
import uvicorn

from twinstore.fastapi import Caller

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from fastapi import FastAPI

JSON = {"Content-Type": "application/json"}


class OfPath(httpx.Auth):
    """Sends the token of the tenant that the path names, as ``by_name`` reads it."""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        tenant = (*request.url.raw_path.split(b"/"), b"", b"")[2].partition(b"?")[0].decode("ascii")
        request.headers.setdefault("Authorization", f"Bearer {tenant}/tester")
        yield request


async def by_name(token: str) -> Caller | None:
    """Accept ``tenant/actor``, both as in a path."""
    tenant, slash, actor = token.partition("/")
    return Caller(unquote(tenant), unquote(actor)) if slash else None


def listening() -> socket.socket:
    """Return a socket that listens on a free port."""
    # Its protocol is named, because asyncio sends small packets at once on a socket of TCP alone: others wait
    # 40 ms for each answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


@contextmanager
def served(app: FastAPI) -> Iterator[httpx.Client]:
    """Run a server in a thread and give a client of it; both end with the block."""
    with listening() as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        thread = Thread(target=server.run, args=([listener],), name="served")
        thread.start()
        try:
            # The socket listens already, so the first request waits until the server takes it.
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            with httpx.Client(base_url=url, timeout=30.0, auth=OfPath()) as client:
                assert client.get("/healthz").status_code == 200
                yield client
        finally:
            server.should_exit = True
            thread.join()

"""Serves the sample service in this process, on a free port."""

from __future__ import annotations

import socket
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

import httpx
import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

JSON = {"Content-Type": "application/json"}


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
            with httpx.Client(base_url=url, timeout=30.0) as client:
                assert client.get("/healthz").status_code == 200
                yield client
        finally:
            server.should_exit = True
            thread.join()

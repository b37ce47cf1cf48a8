"""Slow clients and clients that read nothing cost little, and keep no one else from an answer."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx
import pytest
from fastapi import HTTPException

from scheduler_service.limits import Limits
from tests.service.serving import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import Message, Receive, Scope, Send

ROOT: Final = Path(__file__).parents[2]
RUN: Final = json.loads((ROOT / "samples/api/scheduler/run-no-deltas.json").read_bytes())
TOKEN: Final = "of-the-tests"
AUTHORIZED: Final = f"Host: service\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
HEADERS: Final = "GET /readyz HTTP/1.1\r\nHost: service\r\nX-Slow: "
BODY: Final = f"PUT /tenants/acme/runs/x HTTP/1.1\r\n{AUTHORIZED}Content-Length: 100\r\n\r\n{{"
LIST: Final = f"GET /tenants/acme/runs?limit=200 HTTP/1.1\r\n{AUTHORIZED}\r\n"
SLOW, NEVER_READ, PIPELINED, RUNS = 300, 40, 20, 40


@pytest.fixture
def service(tmp_path: Path) -> Iterator[httpx.Client]:
    """Run the program itself, with a file of tokens."""
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({TOKEN: {"tenantId": "acme", "actor": "tester"}}))
    paths = os.pathsep.join((str(ROOT / "samples/service"), *sys.path))
    process = subprocess.Popen(
        [sys.executable, "-m", "scheduler_service", "--port", "0", "--tokens", str(tokens), "--metrics"],
        env={**os.environ, "PYTHONPATH": paths, "Persistence__Scheduler": "Memory"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with httpx.Client(
                base_url=url, timeout=60.0, headers={"Authorization": f"Bearer {TOKEN}"}
            ) as client:
                yield client
        finally:
            process.kill()


def test_readiness_is_answered_next_to_slow_clients_and_clients_that_read_nothing(
    service: httpx.Client,
) -> None:
    large = {**RUN, "reason": {"manualReason": "x" * 10_000}}
    for number in range(RUNS):
        stored = service.post("/tenants/acme/runs", json={**large, "id": f"run:{number}"}, headers=JSON)
        assert stored.is_success, stored.text
    assert len(service.get("/tenants/acme/runs?limit=200").content) > 400_000
    with ExitStack() as stack:

        def sent(text: str) -> None:
            address = (service.base_url.host, service.base_url.port)
            connection = stack.enter_context(socket.create_connection(address))
            connection.sendall(text.encode())

        for number in range(SLOW):
            sent(BODY if number % 2 else HEADERS)
        for _ in range(NEVER_READ):
            sent(LIST * PIPELINED)
        assert sorted(answered(service) for _ in range(10))[5] < 2.0
        text = service.get("/metrics").text
    calls = [line for line in text.splitlines() if 'entity="runs"' in line and 'operation="list"' in line]
    lists = float(next(line for line in calls if "_total{" in line).rpartition(" ")[2])
    # What their connections hold, and not what they asked for.
    assert lists < NEVER_READ * 4


def answered(service: httpx.Client) -> float:
    begin = time.monotonic()
    assert service.get("/readyz").json() == {"status": "ok"}
    return time.monotonic() - begin


async def body_of(seconds: float, *chunks: bytes | None) -> bytes:
    """Return the body that an application reads behind the limits; ``None`` never comes."""
    read = bytearray()

    async def app(_: Scope, receive: Receive, __: Send) -> None:
        more = True
        while more:
            message = await receive()
            read.extend(message["body"])
            more = message["more_body"]

    waiting = [*chunks]

    async def receive() -> Message:
        chunk = waiting.pop(0)
        if chunk is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": chunk, "more_body": bool(waiting)}

    async def send(_: Message) -> None:
        raise AssertionError("nothing is sent")

    await Limits(app, max_body=4, body_seconds=seconds)({"type": "http"}, receive, send)
    return bytes(read)


def test_a_body_within_the_limits_is_handed_on_as_it_is() -> None:
    assert asyncio.run(body_of(60.0, b"ab", b"", b"cd")) == b"abcd"


@pytest.mark.parametrize(
    ("chunks", "seconds", "status"),
    [
        ((b"abc", b"de"), 60.0, 413),
        ((b"a", None), 0.01, 408),
    ],
)
def test_a_body_that_is_too_large_or_too_slow_is_refused(
    chunks: tuple[bytes | None, ...], seconds: float, status: int
) -> None:
    with pytest.raises(HTTPException) as refused:
        asyncio.run(body_of(seconds, *chunks))
    assert refused.value.status_code == status

"""The page, its JSON and who may see them; every answer is made of the last snapshot.

The main thread reads and renders, another thread answers, so that no request costs a query.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
import socket
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from ipaddress import ip_address
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from twinstore.errors import ConfigurationError, TwinstoreError

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.datastructures import MutableHeaders
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise ConfigurationError(
        "backfill serve needs starlette and uvicorn, which are not installed. Run: "
        "pip install 'twinstore[serve]'"
    ) from error

from twinstore_backfill.process.secrets import REDACTOR
from twinstore_backfill.serve.page import body, page
from twinstore_backfill.serve.reports import ReportReader
from twinstore_backfill.serve.snapshot import LedgerReader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from twinstore_backfill.stores import Store

log = logging.getLogger(__name__)

# Seconds between two queries, the next try after one that failed, and two looks for reports.
INTERVAL: Final = 1.0
RETRY: Final = 3.0
REPORTS: Final = 5.0
COOKIE: Final = "twinstore_serve"
VARIABLE: Final = "TWINSTORE_SERVE_TOKEN"
TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{16,}")
LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
MOST_CLIENTS: Final = 500
BACKLOG: Final = 512
GRACE: Final = 3
EVENTS: Final = "text/event-stream"
HTML: Final = "text/html"
JSON: Final = "application/json"
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is answered until the next one, encoded once."""

    answers: bool
    page: bytes
    event: bytes
    progress: bytes
    report: bytes


class Board:
    """Holds the last snapshot for all browsers."""

    def __init__(self, store: Store, reports: Sequence[Path]) -> None:
        self._reader, self._reports = LedgerReader(store), ReportReader(reports)
        self._found, self._looked = self._reports.document(), monotonic()
        self.closed = False
        self.snapshot = self._taken()

    def look(self) -> float:
        """Make one query at most and take a snapshot; return the seconds until the next look."""
        began = monotonic()
        pause = INTERVAL
        try:
            self._reader.step()
        except TwinstoreError as error:
            if self.snapshot.answers:
                log.warning("the ledger cannot be read; it is tried every few seconds: %s", error.message)
            self._reader.fail(error.code)
            pause = RETRY
        if monotonic() - self._looked >= REPORTS:
            self._found, self._looked = self._reports.document(), monotonic()
        self.snapshot = self._taken()
        # A large ledger must not be read all the time.
        return max(pause, 4 * (monotonic() - began))

    def _taken(self) -> Snapshot:
        progress = self._reader.document()
        content = body(progress, self._found)
        event = "".join(f"data: {line}\n" for line in content.splitlines()) + "\n"
        return Snapshot(
            progress["answers"],
            page(progress, self._found).encode(),
            event.encode(),
            json.dumps(progress).encode(),
            json.dumps(self._found).encode(),
        )

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the content of the page each time there is a new one."""
        last = None
        yield b"retry: 2000\n\n"
        while not self.closed:
            if self.snapshot is not last:
                last = self.snapshot
                yield last.event
            await asyncio.sleep(INTERVAL)


class Guard:
    """Refuses other hosts, and clients without the token; gives every answer its headers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], token: str | None) -> None:
        """Take the names under which the page may be reached; none means any."""
        self._app, self._hosts, self._token = app, hosts, token
        # What a browser keeps does not show the token.
        self._cookie = "" if token is None else sha256(f"{COOKIE}:{token}".encode()).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await (self._answer(Request(scope)) or self._app)(scope, receive, send_with_headers)

    def _answer(self, request: Request) -> Response | None:
        """Return the answer to a request that the application must not see."""
        # A page of another origin whose name leads to this address would read what loopback protects.
        if self._hosts and _name(request.headers.get("host", "")) not in self._hosts:
            return PlainTextResponse("Unknown host\n", 421)
        if self._token is None or request.url.path == "/health":
            return None
        given = request.query_params.get("token")
        if given is not None and request.url.path == "/" and same(given, self._token):
            answer = RedirectResponse("./", 303)
            secure = request.url.scheme == "https"
            answer.set_cookie(COOKIE, self._cookie, httponly=True, samesite="strict", secure=secure)
            return answer
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        allowed = scheme.lower() == "bearer" and same(bearer, self._token)
        if allowed or (given is None and same(request.cookies.get(COOKIE, ""), self._cookie)):
            return None
        return PlainTextResponse("Unauthorized\n", 401, {"WWW-Authenticate": "Bearer"})


def same(given: str, wanted: str) -> bool:
    """Compare secrets in a time that says nothing of them."""
    return hmac.compare_digest(given.encode(), wanted.encode())


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def application(board: Board, hosts: frozenset[str], token: str | None) -> ASGIApp:
    """Return the application; it answers GET and HEAD."""

    def at(path: str, kind: str, content: Callable[[], bytes]) -> Route:
        async def endpoint(_: Request) -> Response:
            return Response(content(), media_type=kind)

        return Route(path, endpoint)

    def file(path: str, kind: str, *names: str) -> Route:
        content = b"".join((files("twinstore_backfill") / name).read_bytes() for name in names)
        return at(path, kind, lambda: content)

    async def events(request: Request) -> Response:
        if request.method == "HEAD":
            return Response(media_type=EVENTS)
        return StreamingResponse(board.events(), media_type=EVENTS)

    async def health(_: Request) -> Response:
        said = ("ok", 200) if board.snapshot.answers else ("the ledger cannot be read", 503)
        return PlainTextResponse(*said)

    routes = [
        at("/", HTML, lambda: board.snapshot.page),
        at("/progress", JSON, lambda: board.snapshot.progress),
        at("/report", JSON, lambda: board.snapshot.report),
        Route("/events", events),
        Route("/health", health),
        file("/style.css", "text/css", "report/templates/page.css", "serve/templates/serve.css"),
        file("/script.js", "text/javascript", "serve/templates/serve.js"),
    ]
    return Guard(Starlette(routes=routes), hosts, token)


def hosts_of(host: str, token: str | None) -> frozenset[str]:
    """Return the names under which the page may be reached; none means any.

    Raises:
        ConfigurationError: others than this machine could see the page, without a token.
    """
    try:
        loopback = ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if loopback:
        return LOCAL | {host}
    if token is None:
        raise ConfigurationError(
            f"--host {host}: others could read the page. Set a token with --token-file or {VARIABLE}, "
            "or listen on 127.0.0.1."
        )
    return frozenset()


def token_of(file: Path | None, environ: Mapping[str, str]) -> str | None:
    """Return the token of a file, or else of the environment.

    Raises:
        ConfigurationError: the file cannot be read, or it holds no usable token.
    """
    try:
        text = environ.get(VARIABLE) if file is None else file.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"--token-file {file} cannot be read ({type(error).__name__}).") from None
    if text is None:
        return None
    if TOKEN.fullmatch(text.strip()) is None:
        raise ConfigurationError(
            f"The token of {file or VARIABLE} should be at least 16 letters, digits or characters of -._~; "
            "`openssl rand -hex 32` makes one."
        )
    REDACTOR.add((text.strip(),))
    return text.strip()


@contextmanager
def serving(board: Board, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> Iterator[str]:
    """Answer requests in another thread for as long as the block lasts; yield the address of the page.

    Raises:
        ConfigurationError: the address cannot be listened on, or others could read the page without a token.
    """
    app = application(board, hosts_of(host, token), token)
    with listening(host, port) as listener:
        # Streams end by themselves; what is left then is a client that does not read.
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=MOST_CLIENTS,
            timeout_graceful_shutdown=GRACE,
        )
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, name="serve", daemon=True)
        board.closed = False
        thread.start()
        try:
            name = f"[{host}]" if ":" in host else host
            yield f"http://{name}:{listener.getsockname()[1]}/"
        finally:
            board.closed = server.should_exit = True
            thread.join()


def listening(host: str, port: int) -> socket.socket:
    """Return the socket to listen on; port 0 takes any that is free."""
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"--port: nothing can listen on {host}:{port}: {error.strerror}. Name another port."
        ) from None

"""A container engine without containers: as much of its HTTP interface as testcontainers asks for.

It listens on a Unix socket, as the real one does. Behind the mapped port of a "container" runs an embedded
server, which comes up as that of the image does: PostgreSQL is said to be ready twice, the first time for
the set-up of the image alone, and nobody answers on the port then.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import struct
import subprocess
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn, UnixStreamServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

import twinstore_embedded
from tests.contract.deployments.wire import Line, connected, pump
from twinstore_embedded.binaries import find_mongod
from twinstore_embedded.ports import HOST, on_free_port
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READY: Final = "database system is ready to accept connections\n"
NOBODY: Final = (HOST, 1)
STDERR: Final = 2
SECONDS: Final = 30.0
API: Final = {"ApiVersion": "1.44", "MinAPIVersion": "1.24", "Version": "25.0", "Platform": {"Name": "fake"}}


class MappedPort(Line):
    """A port of the host; the engine accepts a connection also while nobody answers behind it."""

    def lead_to(self, port: int) -> None:
        """Let later connections end at a server."""
        self._server = (HOST, port)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = connected(self._server)
                except OSError:
                    client.close()
                    continue
                self._ends += (client, server)
                for source, target in ((client, server), (server, client)):
                    Thread(target=pump, args=(source, target, self._flowing), daemon=True).start()


@dataclass
class Container:
    """What was created from an image.

    Attributes:
        image: its name with the tag.
        asked: the body of the request that created it.
        home: a directory for its server.
        ports: the mapped ports by those inside, such as ``5432/tcp``.
        said: what it has logged.
        running: whether it was started.
    """

    image: str
    asked: dict[str, Any]
    home: Path
    id: str = field(default_factory=lambda: uuid4().hex * 2)
    ports: dict[str, MappedPort] = field(default_factory=dict)
    said: str = ""
    running: bool = False
    _ends: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]])
    _rising: Thread = field(default_factory=Thread)

    def inspected(self) -> dict[str, object]:
        """Return what the engine tells of it."""
        mapped = {name: [{"HostIp": HOST, "HostPort": str(it.port)}] for name, it in self.ports.items()}
        return {
            "Id": self.id,
            "Name": f"/{self.id[:12]}",
            "Image": self.image,
            "State": {"Status": "running" if self.running else "created", "Running": self.running},
            "Config": {"Tty": False, "Image": self.image, "Labels": self.asked.get("Labels", {})},
            "HostConfig": {"NetworkMode": "default"},
            "NetworkSettings": {"Ports": mapped},
        }

    def start(self) -> None:
        """Map the ports that were asked for, and let the server come up behind them."""
        self.ports = {name: MappedPort(NOBODY) for name in self.asked.get("ExposedPorts", {})}
        self.running = True
        self._rising = Thread(target=self._come_up, daemon=True)
        self._rising.start()

    def _come_up(self) -> None:
        run = next(run for name, run in IMAGES.items() if self.image.startswith(name))
        self._ends.append(run(self))

    def remove(self) -> None:
        """End the server and forget its ports and its data."""
        self.running = False
        for port in self.ports.values():
            port.cut()
        if self._rising.ident is not None:
            self._rising.join()
        for end in self._ends:
            end()
        shutil.rmtree(self.home, ignore_errors=True)


def run_postgres(container: Container) -> Callable[[], object]:
    """Come up as the image of PostgreSQL does, with the password of its environment; return what ends it."""
    container.said += READY
    server = twinstore_embedded.start_postgres(container.home, durable=False, owned=True)
    environment = dict(item.partition("=")[::2] for item in container.asked["Env"])
    with psycopg.connect(server.superuser_url(), autocommit=True) as admin:
        password = sql.Literal(environment["POSTGRES_PASSWORD"])
        admin.execute(sql.SQL("ALTER ROLE postgres PASSWORD {}").format(password))
    container.ports["5432/tcp"].lead_to(server.port)
    container.said += READY
    return server.stop


def run_mongod(container: Container) -> Callable[[], object]:
    """Come up as the image of MongoDB does, with the command that was asked for; return what ends it."""
    command = [str(find_mongod()), *container.asked["Cmd"][1:]]
    command[command.index("--bind_ip_all")] = f"--bind_ip={HOST}"
    container.home.mkdir(parents=True, exist_ok=True)
    processes: list[subprocess.Popen[bytes]] = []

    def attempt(port: int) -> bool:
        log = container.home / "log"
        options = ["--port", str(port), "--dbpath", str(container.home), "--logpath", str(log)]
        options += ["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64"]
        process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
        processes.append(process)
        listens = "Waiting for connections"
        wait_until(
            lambda: process.poll() is not None or (log.exists() and listens in log.read_text()), SECONDS
        )
        return process.poll() is None

    port = on_free_port(None, attempt)
    container.ports["27017/tcp"].lead_to(port)
    container.said += (container.home / "log").read_text()
    return lambda: ended(processes[-1])


def run_reaper(container: Container) -> Callable[[], object]:
    """Answer as the reaper does, which removes what a session left behind; here the engine does."""
    listener = socket.create_server((HOST, 0))
    container.ports["8080/tcp"].lead_to(listener.getsockname()[1])
    Thread(target=acknowledge, args=(listener,), daemon=True).start()
    container.said += "Started!\n"
    return partial(listener.shutdown, socket.SHUT_RDWR)


def acknowledge(listener: socket.socket) -> None:
    """Say yes to every line, until the listener is shut down."""
    with listener, suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, client.makefile("rb") as lines:
                for _ in lines:
                    client.sendall(b"ACK\n")


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a process and wait for it."""
    process.kill()
    process.wait()


IMAGES: Final[dict[str, Callable[[Container], Callable[[], object]]]] = {
    "postgres:": run_postgres,
    "mongo:": run_mongod,
    "testcontainers/ryuk:": run_reaper,
}


class Engine(ThreadingMixIn, UnixStreamServer):
    """The engine.

    Attributes:
        containers: those that exist, by their id.
        pulled: the images that were fetched.
        done: what was done with containers, such as ``start postgres:17``.
    """

    daemon_threads = True

    def __init__(self, home: Path) -> None:
        self.home = home
        self.containers: dict[str, Container] = {}
        self.pulled: list[str] = []
        self.done: list[str] = []
        super().__init__(str(home / "engine.sock"), Request)

    @property
    def address(self) -> str:
        """The value of ``DOCKER_HOST``."""
        return f"unix://{self.home}/engine.sock"

    def create(self, asked: dict[str, Any]) -> Container:
        """Create a container of an image that is here."""
        found = Container(asked["Image"], asked, self.home / uuid4().hex[:8])
        self.containers[found.id] = found
        return found


class Request(BaseHTTPRequestHandler):
    """One request of a client."""

    protocol_version = "HTTP/1.1"

    @property
    def engine(self) -> Engine:
        """The engine that is asked."""
        assert isinstance(self.server, Engine)
        return self.server

    def handle_any(self) -> None:
        """Answer by method and path."""
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        parts = urlsplit(self.path)
        path = re.sub(r"^/v[\d.]+", "", unquote(parts.path))
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        engine = self.engine
        match [self.command, *path.strip("/").split("/")]:
            case ["GET", "version"]:
                self.answer(API)
            case ["GET", "images", *name, "json"]:
                image = "/".join(name)
                self.answer({"Id": image, "RepoTags": [image]} if image in engine.pulled else None)
            case ["POST", "images", "create"]:
                engine.pulled.append(f"{asked['fromImage']}:{asked['tag']}")
                self.answer({"status": "Downloaded"})
            case ["POST", "containers", "create"]:
                self.answer({"Id": engine.create(body).id, "Warnings": []}, HTTPStatus.CREATED)
            case [_, "containers", which, *action] if which in engine.containers:
                self.act(engine.containers[which], "/".join((self.command, *action)), asked)
            case _:
                self.answer(None)

    do_GET = do_POST = do_DELETE = handle_any  # noqa: N815  # the names that the base class looks for

    def act(self, container: Container, action: str, asked: dict[str, str]) -> None:
        """Do something with a container that exists."""
        match action:
            case "GET/json":
                self.answer(container.inspected())
            case "GET/logs":
                said = container.said.encode() if asked.get("stderr") == "1" else b""
                self.send(struct.pack(">BxxxL", STDERR, len(said)) + said)
            case "POST/start":
                self.engine.done.append(f"start {container.image}")
                container.start()
                self.send(b"", HTTPStatus.NO_CONTENT)
            case "DELETE":
                self.engine.done.append(f"remove {container.image}")
                del self.engine.containers[container.id]
                container.remove()
                self.send(b"", HTTPStatus.NO_CONTENT)
            case _:
                self.answer(None)

    def answer(self, found: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send a document; for none, that there is no such thing, in the words by which clients know it."""
        missing = found is None
        kind = "image" if "/images/" in self.path else "container"
        content = {"message": f"No such {kind}: {self.path}"} if missing else found
        self.send(json.dumps(content).encode(), HTTPStatus.NOT_FOUND if missing else status)

    def send(self, content: bytes, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        """Name the client, which has no address."""
        return "client"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # of the base class
        """Say nothing."""


@contextmanager
def running_engine(home: Path) -> Iterator[Engine]:
    """Run an engine until the block ends, and end what its clients left behind."""
    with Engine(home) as engine:
        Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield engine
        finally:
            engine.shutdown()
            for container in tuple(engine.containers.values()):
                container.remove()

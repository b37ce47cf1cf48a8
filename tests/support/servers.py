"""Where the real servers of a test run come from, and the settings that name them.

In this order:

1. ``TWINSTORE_TEST_MONGO_URL`` (a replica set) and ``TWINSTORE_TEST_POSTGRES_URL`` (a superuser), both;
2. containers, with ``TWINSTORE_TEST_SERVERS=containers`` on the engine that Docker's variables name, or with
   ``TWINSTORE_TEST_SERVERS=podman`` on one that the run starts;
3. the embedded servers, which come from pip and need nothing else.

``TWINSTORE_TEST_ONLY=postgres`` (or ``mongo``) leaves the other server out: none is started, no URL is
needed, and the tests that need it are skipped.

``containers`` runs ``mongo:7.0`` and ``postgres:17``, or ``TWINSTORE_TEST_MONGO_IMAGE`` and
``TWINSTORE_TEST_POSTGRES_IMAGE``. ``podman`` needs root, podman and runc, and no network: both images are
built from the programs of the embedded servers, and stay in ``.twinstore/podman`` until ``make clean``.
``make test-long`` runs a part of the kit this way; an empty ``TWINSTORE_TEST_PODMAN`` turns that off.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from twinstore_embedded.binaries import find_mongod, find_postgres
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MONGO_URL: Final = "TWINSTORE_TEST_MONGO_URL"
POSTGRES_URL: Final = "TWINSTORE_TEST_POSTGRES_URL"
# What runs in containers, where it is not mongo:7.0 and postgres:17.
MONGO_IMAGE: Final = "TWINSTORE_TEST_MONGO_IMAGE"
POSTGRES_IMAGE: Final = "TWINSTORE_TEST_POSTGRES_IMAGE"
SERVERS: Final = "TWINSTORE_TEST_SERVERS"
ONLY: Final = "TWINSTORE_TEST_ONLY"
KINDS: Final = {"mongo": MONGO_URL, "postgres": POSTGRES_URL}
Settings: TypeAlias = dict[str, object]


class Source(StrEnum):
    """Who runs the servers."""

    URLS = "urls"
    CONTAINERS = "containers"
    PODMAN = "podman"
    EMBEDDED = "embedded"


@dataclass(frozen=True, slots=True)
class ServerUrls:
    """A MongoDB replica set, and PostgreSQL as its superuser; empty for one that the run leaves out."""

    mongo: str = ""
    postgres: str = ""

    def __getitem__(self, kind: str) -> str:
        """Return the URL of one server.

        Raises:
            LookupError: this run leaves it out.
        """
        url = {"mongo": self.mongo, "postgres": self.postgres}[kind]
        if not url:
            raise LookupError(f"This run has no {kind} server, because {ONLY} names another one.")
        return url


def kinds_of_run(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return which servers the run has."""
    only = environ.get(ONLY)
    if only and only not in KINDS:
        raise ValueError(f"{ONLY}={only!r} is unknown: use {' or '.join(map(repr, KINDS))}")
    return (only,) if only else tuple(KINDS)


def choose_source(environ: Mapping[str, str]) -> Source:
    """Return who runs the servers; a contradiction is an error, never a guess."""
    wanted_urls = [KINDS[kind] for kind in kinds_of_run(environ)]
    given = [name for name in wanted_urls if environ.get(name)]
    if len(given) < len(wanted_urls) and given:
        raise ValueError(f"{given[0]} is set alone: set both {MONGO_URL} and {POSTGRES_URL}, or neither")
    if given:
        return Source.URLS
    wanted = environ.get(SERVERS) or Source.EMBEDDED
    if wanted not in {Source.CONTAINERS, Source.PODMAN, Source.EMBEDDED}:
        raise ValueError(f"{SERVERS}={wanted!r} is unknown: use 'containers', 'podman' or 'embedded'")
    return Source(wanted)


def given_urls(environ: Mapping[str, str]) -> ServerUrls:
    """Return the servers that the environment names."""
    return ServerUrls(**{kind: environ[KINDS[kind]] for kind in kinds_of_run(environ)})


def postgres_url(base: str, **changes: str) -> str:
    """Return a PostgreSQL URL with another ``user``, ``password`` or ``dbname``; the rest stays."""
    parts = {name: str(value) for name, value in conninfo_to_dict(base).items()} | changes
    user, password, database = (
        quote(parts.pop(name, ""), safe="") for name in ("user", "password", "dbname")
    )
    host = "" if parts.get("host", "/").startswith("/") else parts.pop("host")
    port = f":{parts.pop('port')}" if host and "port" in parts else ""
    query = f"?{urlencode(parts, quote_via=quote)}" if parts else ""
    return f"postgresql://{user}:{password}@{host}{port}/{database}{query}"


def mongo_config(url: str, database: str) -> Settings:
    """Return the settings of a scheduler that is stored in one MongoDB database."""
    return {"Persistence": {"Scheduler": "Mongo", "Mongo": {"ConnectionString": url, "Database": database}}}


def postgres_config(app_url: str, owner_url: str) -> Settings:
    """Return the settings of a scheduler that is stored in one PostgreSQL database."""
    postgres = {
        "ConnectionString": app_url,
        "OwnerConnectionString": owner_url,
        "ApplicationRole": conninfo_to_dict(app_url)["user"],
    }
    return {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}


# A path, or an empty text for a run without.
VARIABLE: Final = "TWINSTORE_TEST_PODMAN"
SEARCHED: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
RUNC: Final = shutil.which("runc", path=SEARCHED)
PODMAN: Final = (
    shutil.which(os.environ.get(VARIABLE, "podman"), path=SEARCHED) if RUNC and os.geteuid() == 0 else None
)
WITHOUT_PODMAN: Final = (
    "There is no container engine (podman and runc, as root), so nothing was run in containers."
)
STORAGE: Final = Path(__file__).parents[2] / ".twinstore" / "podman"
SECONDS: Final = 30.0
# Enough for a server. Runc may not set as many as this process may have.
PROCESSES: Final = 1000
SHELL: Final = Path("/bin/sh")
ACCOUNTS: Final = b"root:x:0:0::/:/bin/sh\nserver:x:999:999::/data:/bin/sh\n"
# As the official image does: a database for the password that the environment names, open to other hosts.
POSTGRES_ENTRY: Final = """\
echo "$POSTGRES_PASSWORD" >/tmp/password
initdb --username=postgres --auth=scram-sha-256 --pwfile=/tmp/password --encoding=UTF8 --no-locale --no-sync
echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
exec "$@" --listen_addresses='*'
"""


def mongo_image() -> str:
    """Return an image that runs the command it gets, such as ``mongod``, as the official one does."""
    mongod = find_mongod()
    return image("mongo", mongod, [mongod], f"ENV PATH={mongod.parent}", "WORKDIR /data/db")


def postgres_image() -> str:
    """Return an image that makes a database before it runs the command it gets."""
    folder = find_postgres()
    programs = [SHELL, folder / "postgres", folder / "initdb"]
    entry = f"ENTRYPOINT {json.dumps([str(SHELL), '-ec', POSTGRES_ENTRY, 'sh'])}"
    changes = (f"ENV PATH={folder}", "ENV PGDATA=/data/postgres", "USER server", entry)
    return image("postgres", folder.parent, programs, *changes)


def image(kind: str, tree: Path, programs: list[Path], *changes: str) -> str:
    """Build an image from the tree of a server and what its programs load, unless it exists; return its name.

    The tag changes with the programs and with this file. The changes are lines of a Dockerfile.
    """
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in programs]
    digest = sha256(Path(__file__).read_bytes() + repr(files).encode()).hexdigest()
    name = f"localhost/twinstore-test/{kind}:{digest[:12]}"
    if subprocess.run(podman("image", "exists", name), check=False).returncode:
        with tempfile.TemporaryFile() as layer:
            write_layer(layer, {tree, *libraries(programs, tree)})
            layer.seek(0)
            command = podman("import", *(f"--change={change}" for change in changes), "-", name)
            subprocess.run(command, check=True, stdin=layer, stdout=sys.stderr)
    return name


def libraries(programs: list[Path], tree: Path) -> set[Path]:
    """Return the programs and the libraries that they load, without what is in the tree."""
    command = ["ldd", *map(str, programs)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    loaded = [Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]
    return {path for path in (*programs, *loaded) if not path.resolve().is_relative_to(tree)}


def write_layer(layer: IO[bytes], paths: set[Path]) -> None:
    """Write files under their own paths, two folders that everybody may write to, and the accounts."""
    with tarfile.open(fileobj=layer, mode="w", dereference=True) as tar:
        for name in ("data", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(folder)
        accounts = tarfile.TarInfo("etc/passwd")
        accounts.size = len(ACCOUNTS)
        tar.addfile(accounts, io.BytesIO(ACCOUNTS))
        for path in sorted(paths):
            tar.add(path)


def podman(*arguments: str) -> list[str]:
    """Return the command that runs podman on the storage of the tests, on a machine without systemd too."""
    folders = ["--root", str(STORAGE / "storage"), "--runroot", str(STORAGE / "run")]
    drivers = ["--storage-driver", "vfs", "--runtime", str(RUNC), "--cgroup-manager", "cgroupfs"]
    return [str(PODMAN), *folders, *drivers, *arguments]


def limit_containers(directory: Path) -> None:
    """Let podman set limits that this process may set; its defaults may be higher."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    ulimits = [f"nofile={files}:{files}", f"nproc={PROCESSES}:{PROCESSES}"]
    file = directory / "containers.conf"
    file.write_text(f"[containers]\ndefault_ulimits = {json.dumps(ulimits)}\n")
    os.environ["CONTAINERS_CONF"] = str(file)


@contextmanager
def running_podman(directory: Path) -> Iterator[None]:
    """Let testcontainers in this process start containers of our images, until the block ends.

    It reads these settings when it is imported, so this comes first.
    """
    limit_containers(directory)
    for variable, build in {MONGO_IMAGE: mongo_image, POSTGRES_IMAGE: postgres_image}.items():
        if not os.environ.get(variable):
            os.environ[variable] = build()
    socket = directory / "podman.sock"
    os.environ |= {
        "DOCKER_HOST": f"unix://{socket}",
        # In a container itself, this process would look for the network between the two.
        "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
        # What removes containers after a crash is one more image. The keeper outlives a crash of the run.
        "TESTCONTAINERS_RYUK_DISABLED": "true",
    }
    service = subprocess.Popen(podman("system", "service", "-t", "0", f"unix://{socket}"), stdout=sys.stderr)
    try:
        if not wait_until(socket.exists, SECONDS):
            raise RuntimeError(f"podman did not start a service within {SECONDS} s")
        yield
    finally:
        service.terminate()
        service.wait()


def keep_port() -> socket.socket:
    """Return a socket that keeps a port of 127.0.0.1 until it is closed.

    It does not listen, so connections are refused. A server that sets ``SO_REUSEADDR``, as all of ours do,
    may listen on the port. The system does not assign it to a process that requests any port, nor to a
    client as its local port. Either could take a port that was merely free before the server has it.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


@contextmanager
def kept_port() -> Iterator[int]:
    """Keep a port for the length of the block."""
    with keep_port() as kept:
        port: int = kept.getsockname()[1]
        yield port

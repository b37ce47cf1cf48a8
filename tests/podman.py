"""Starts Debian's podman as a container engine, with images of both servers that are built here.

    service     answers on a socket as long as the keeper of the run; testcontainers uses it like Docker
    images      the programs of the embedded servers and the libraries that they load; built once, no download
    storage     .twinstore/podman keeps the images; the storage of the user's podman is not touched

It needs root, podman and runc. A machine without them skips the tests that need it, and the summary of the
run says so.
"""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from tests.servers import MONGO_IMAGE, POSTGRES_IMAGE
from twinstore_embedded.binaries import find_mongod, find_postgres
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

# A path, or an empty text for a run without.
VARIABLE: Final = "TWINSTORE_TEST_PODMAN"
SEARCHED: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
RUNC: Final = shutil.which("runc", path=SEARCHED)
PROGRAM: Final = (
    shutil.which(os.environ.get(VARIABLE, "podman"), path=SEARCHED) if RUNC and os.geteuid() == 0 else None
)
LEFT_OUT: Final = "There is no container engine (podman and runc, as root), so nothing was run in containers."
STORAGE: Final = Path(__file__).parent.parent / ".twinstore" / "podman"
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
    return [str(PROGRAM), *folders, *drivers, *arguments]


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

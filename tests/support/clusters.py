"""Clusters of Dask and Ray on this host, of the programs that their users start."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS: Final = Path(sys.executable).parent
HOST: Final = "127.0.0.1"
C = TypeVar("C", "DaskCluster", "RayCluster")


def free_ports(number: int) -> list[int]:
    """Return ports that nothing listens on."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Programs:
    """Processes of a cluster, which are killed with all that they have started."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        """Start one."""
        with self._log.open("ab") as log:
            found = subprocess.Popen(command, stdout=log, stderr=log)
        self._running.append(found)
        return found

    def kill(self, program: subprocess.Popen[bytes] | None = None) -> None:
        """Kill one, or all."""
        for each in [program] if program else list(self._running):
            self._running.remove(each)
            top = psutil.Process(each.pid)
            for process in [top, *top.children(recursive=True)]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            each.wait()


class DaskCluster:
    """A scheduler, and workers of one thread each, as `dask scheduler` and `dask worker` start them.

    Args:
        words: more options of both.
    """

    def __init__(self, directory: Path, slots: int, *words: str) -> None:
        self._words = words
        self._log = directory / "log"
        self._programs = Programs(self._log)
        self._directory, self._slots = directory, slots
        self._port = str(free_ports(1)[0])
        self.url = f"dask://{HOST}:{self._port}"
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both."""
        self._scheduler = self._dask("scheduler", "--host", HOST, "--port", self._port)
        self.resize(self._slots)

    def kill(self) -> None:
        """Kill both."""
        self._programs.kill()
        self._workers.clear()

    def resize(self, slots: int) -> None:
        """Start workers, or kill some."""
        while len(self._workers) > slots:
            self._programs.kill(self._workers.pop())
        while len(self._workers) < slots:
            scheme = "tls" if "tls" in self._words else "tcp"
            place = f"{scheme}://{HOST}:{self._port}", "--local-directory", str(self._directory)
            self._workers.append(self._dask("worker", *place, "--nthreads", "1"))

    def holds(self, text: bytes) -> bool:
        """Whether the memory of the scheduler or a log has a text."""
        found = text in self._log.read_bytes()
        memory = Path(f"/proc/{self._scheduler.pid}")
        with (memory / "mem").open("rb", 0) as content:
            for line in (memory / "maps").read_text().splitlines():
                limits, rights = line.split()[:2]
                first, end = (int(limit, 16) for limit in limits.split("-"))
                # Some of the kernel's own cannot be read, nor be seeked to.
                with suppress(OSError, OverflowError):
                    content.seek(first)
                    found = found or ("r" in rights and text in content.read(end - first))
        return found

    def processes(self) -> list[psutil.Process]:
        """Return the processes that run functions, each of which its nanny starts again."""
        found: list[psutil.Process] = []
        for worker in self._workers:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(worker.pid).children()
                found += [item for item in children if "spawn_main" in " ".join(item.cmdline())]
        return found

    def _dask(self, *words: str) -> subprocess.Popen[bytes]:
        return self._programs.run(str(SCRIPTS / "dask"), *words, "--no-dashboard", *self._words)


class RayCluster:
    """The head node of a cluster, with the server for clients."""

    def __init__(self, directory: Path, slots: int, *words: str) -> None:
        self._words = words
        self._programs = Programs(directory / "log")
        self._directory, self._slots = directory, slots
        self._port, client = free_ports(2)
        self._client = str(client)
        self.url = f"ray://{HOST}:{client}"

    def start(self) -> None:
        """Start the node."""
        self._programs.run(
            str(SCRIPTS / "ray"), "start", "--head", "--block", "--disable-usage-stats",
            "--include-dashboard=false", f"--temp-dir={self._directory}", f"--num-cpus={self._slots}",
            f"--port={self._port}", f"--ray-client-server-port={self._client}", *self._words,
        )  # fmt: skip

    def kill(self) -> None:
        """Kill all its processes."""
        self._programs.kill()

    def resize(self, slots: int) -> None:
        """Do nothing: a node has the CPUs with which it began."""


@contextmanager
def running(kind: type[C], slots: int, *words: str) -> Iterator[C]:
    """Run a cluster in a directory with a short name, which the addresses of sockets need."""
    directory = Path(tempfile.mkdtemp(prefix="e"))
    found = kind(directory, slots, *words)
    try:
        found.start()
        yield found
    finally:
        found.kill()
        shutil.rmtree(directory, ignore_errors=True)

"""Every engine keeps the contract of engines; those of clusters on real ones, which run on this host."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pytest
from typing_extensions import override

from twinstore_backfill.engines.testing import EngineContract, Lender

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPTS: Final = Path(sys.executable).parent
HOST: Final = "127.0.0.1"


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
    """A scheduler, and workers of one thread each, as `dask scheduler` and `dask worker` start them."""

    def __init__(self, directory: Path, slots: int) -> None:
        self._programs = Programs(directory / "log")
        self._directory, self._slots = directory, slots
        self._address = f"{HOST}:{free_ports(1)[0]}"
        self.url = f"dask://{self._address}"
        self._workers: list[subprocess.Popen[bytes]] = []
        self.start()

    def start(self) -> None:
        """Start both."""
        host, _, port = self._address.partition(":")
        self.scheduler = self._dask("scheduler", "--host", host, "--port", port)
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
            place = ("--local-directory", str(self._directory))
            self._workers.append(self._dask("worker", self._address, "--nthreads", "1", *place))

    def _dask(self, *words: str) -> subprocess.Popen[bytes]:
        return self._programs.run(str(SCRIPTS / "dask"), *words, "--no-dashboard")


class RayCluster:
    """The head node of a cluster, with the server for clients."""

    def __init__(self, directory: Path, slots: int) -> None:
        self._programs = Programs(directory / "log")
        self._directory, self._slots = directory, slots
        self._port, client = free_ports(2)
        self._client = str(client)
        self.url = f"ray://{HOST}:{client}"
        self.start()

    def start(self) -> None:
        """Start the node."""
        self._programs.run(
            str(SCRIPTS / "ray"), "start", "--head", "--block", "--disable-usage-stats",
            "--include-dashboard=false", f"--temp-dir={self._directory}", f"--num-cpus={self._slots}",
            f"--port={self._port}", f"--ray-client-server-port={self._client}",
        )  # fmt: skip

    def kill(self) -> None:
        """Kill all its processes."""
        self._programs.kill()

    def resize(self, slots: int) -> None:
        """Do nothing: a node has the CPUs with which it began."""


class Always:
    """What is no process, or belongs to the engine."""

    def __init__(self, url: str) -> None:
        self.url = url

    def kill(self) -> None:
        """Do nothing."""

    start = kill

    def resize(self, slots: int) -> None:
        """Do nothing."""


@contextmanager
def cluster(kind: type[DaskCluster | RayCluster], slots: int) -> Iterator[Lender]:
    """Run a cluster in a directory with a short name, as its sockets have one."""
    directory = Path(tempfile.mkdtemp(prefix="e"))
    found = kind(directory, slots)
    try:
        yield found
    finally:
        found.kill()
        shutil.rmtree(directory, ignore_errors=True)


class TestProcesses(EngineContract):
    @override
    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Lender:
        return Always("processes://2")


class TestWorkers(EngineContract):
    slots = 0

    @override
    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Lender:
        return Always("workers://")


class OnDask:
    slots = 2

    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Iterator[Lender]:
        with cluster(DaskCluster, cls.slots) as found:
            yield found


class TestDask(OnDask, EngineContract):
    repeats = True


@pytest.mark.long
class TestDaskWhoseProgramsComeAndGo(OnDask, EngineContract):
    repeats = restarts = resizes = True


@pytest.mark.long
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed, so nothing was run on it.")
class TestRay(EngineContract):
    restarts = True
    # Its client tries for half a minute to connect again.
    seconds = 240

    @override
    @pytest.fixture(scope="class")
    @classmethod
    def lender(cls) -> Iterator[Lender]:
        with cluster(RayCluster, cls.slots) as found:
            yield found

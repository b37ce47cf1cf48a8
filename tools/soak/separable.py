"""A replica set of three whose members can be separated from each other, each in a separate network.

Each member runs in a network namespace with a link to one bridge, as if on a separate machine; a route that
leads nowhere separates two of them, and clients still reach both. Root and ``ip`` are needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from twinstore_embedded.binaries import find_mongod
from twinstore_embedded.replica_set import SET_NAME
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MEMBERS: Final = 3
PORT: Final = 27017
READY_SECONDS: Final = 90.0
HEARTBEAT_MS: Final = 200
OPLOG_MB: Final = 256
FOLLOWING: Final = frozenset({"PRIMARY", "SECONDARY"})


@dataclass(slots=True)
class SeparableSet:
    """The running set.

    Attributes:
        directory: of the data.
        election_ms: for how long a primary may be silent.
        names: of the namespaces.
        addresses: of the members, in the same order.
    """

    directory: Path
    election_ms: int
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list[subprocess.Popen[bytes]])

    @property
    def url(self) -> str:
        """The connection string, which names every member."""
        members = ",".join(f"{address}:{PORT}" for address in self.addresses)
        return f"mongodb://{members}/?replicaSet={SET_NAME}"

    @property
    def kinds(self) -> dict[str, Callable[[Callable[[], object]], None]]:
        """What may happen; each calls what it is given meanwhile, and ends when all members follow again."""
        return {
            "primary apart": lambda meanwhile: self._apart(self.primary(), meanwhile),
            "secondary apart": lambda meanwhile: self._apart((self.primary() + 1) % MEMBERS, meanwhile),
            "all apart": lambda meanwhile: self._without(list(permutations(range(MEMBERS), 2)), meanwhile),
            "primary gone": lambda meanwhile: self._gone([self.primary()], meanwhile),
            "all gone": lambda meanwhile: self._gone(range(MEMBERS), meanwhile),
        }

    def start(self) -> None:
        """Start the members and make them a set."""
        self._processes = [self._started(number) for number in range(MEMBERS)]
        with self._client(0) as client:
            self._await(lambda: _answers(client), "does not answer")
            members = [
                {"_id": number, "host": f"{address}:{PORT}"} for number, address in enumerate(self.addresses)
            ]
            settings = {"electionTimeoutMillis": self.election_ms, "heartbeatIntervalMillis": HEARTBEAT_MS}
            config = {"_id": SET_NAME, "members": members, "settings": settings}
            client.admin.command("replSetInitiate", config)
        self.await_all()

    def stop(self) -> None:
        """End the members."""
        for process in self._processes:
            process.kill()
            process.wait()

    def primary(self) -> int:
        """Return the number of the primary; wait until there is one."""
        with MongoClient[dict[str, Any]](self.url) as client:
            self._await(lambda: _answers(client) and client.primary is not None, "has no primary")
            address = client.primary
        assert address is not None
        return self.addresses.index(address[0])

    def await_all(self) -> None:
        """Wait until all members follow the primary; start one that hangs in its rollback again."""
        self.primary()
        if wait_until(self._all_follow, READY_SECONDS):
            return
        for number in range(MEMBERS):
            with self._client(number) as client:
                state = client.admin.command("hello")
            if not state["secondary"] and not state["isWritablePrimary"]:
                sys.stderr.write(f"Member {number} of the replica set hangs and is started again.\n")
                self._processes[number].kill()
                self._processes[number].wait()
                self._processes[number] = self._started(number)
        self._await(self._all_follow, "has a member that does not follow")

    def _all_follow(self) -> bool:
        with closing(MongoClient[dict[str, Any]](self.url, timeoutMS=2000)) as client:
            try:
                members = client.admin.command("replSetGetStatus")["members"]
            except PyMongoError:
                return False
        return all(member["stateStr"] in FOLLOWING for member in members)

    def _client(self, number: int) -> MongoClient[dict[str, Any]]:
        return MongoClient(self.addresses[number], PORT, directConnection=True, timeoutMS=5000)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        if not wait_until(condition, READY_SECONDS):
            raise RuntimeError(f"The replica set in {self.directory} {what} after {READY_SECONDS:.0f} s.")

    def _started(self, number: int) -> subprocess.Popen[bytes]:
        home = self.directory / f"member-{number}"
        (home / "data").mkdir(parents=True, exist_ok=True)
        words = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self.names[number]]
        words += [str(find_mongod()), "--dbpath", str(home / "data"), "--replSet", SET_NAME]
        words += ["--bind_ip_all", "--port", str(PORT), "--wiredTigerCacheSizeGB", "0.25", "--nounixsocket"]
        words += ["--oplogSize", str(OPLOG_MB), "--setParameter", "diagnosticDataCollectionEnabled=false"]
        with (home / "server.log").open("ab") as log:
            return subprocess.Popen(words, stdout=log, stderr=log)

    def _apart(self, number: int, meanwhile: Callable[[], object]) -> None:
        """Separate a member from the others in both directions; clients still reach all."""
        self._without([pair for pair in permutations(range(MEMBERS), 2) if number in pair], meanwhile)

    def _without(self, pairs: list[tuple[int, int]], meanwhile: Callable[[], object]) -> None:
        for one, other in pairs:
            _ip("-n", self.names[one], "route", "add", "blackhole", f"{self.addresses[other]}/32")
        try:
            meanwhile()
        finally:
            for one, other in pairs:
                _ip("-n", self.names[one], "route", "del", "blackhole", f"{self.addresses[other]}/32")
        self.await_all()

    def _gone(self, numbers: list[int] | range, meanwhile: Callable[[], object]) -> None:
        """Take the links of members away; nobody reaches them."""
        for number in numbers:
            _ip("link", "set", self.names[number], "down")
        try:
            meanwhile()
        finally:
            for number in numbers:
                _ip("link", "set", self.names[number], "up")
        self.await_all()


def can_separate() -> bool:
    """Answer whether this process may make networks."""
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "setpriv")))


@contextmanager
def separable_set(directory: Path, *, election_ms: int) -> Iterator[SeparableSet]:
    """Run a set for the length of the block."""
    # By the process, so that several of them do not meet.
    own, network = f"tw{os.getpid()}", f"10.213.{os.getpid() % 250}"
    names = tuple(f"{own}-{number}" for number in range(MEMBERS))
    addresses = tuple(f"{network}.{number + 2}" for number in range(MEMBERS))
    with ExitStack() as stack:
        _ip("link", "add", own, "type", "bridge")
        stack.callback(_ip, "link", "del", own)
        _ip("address", "add", f"{network}.1/24", "dev", own)
        _ip("link", "set", own, "up")
        for name, address in zip(names, addresses, strict=True):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", name, "master", own, "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", "eth0", "up")
        found = SeparableSet(directory, election_ms, names, addresses)
        stack.callback(found.stop)
        found.start()
        yield found


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)  # noqa: S607  # found where the system has it


def _answers(client: MongoClient[dict[str, Any]]) -> bool:
    try:
        client.admin.command("ping")
    except PyMongoError:
        return False
    return True

"""A replica set of several mongods on 127.0.0.1, whose members can be halted and resumed one by one.

It shows what clients see when a primary is lost. If you only need transactions, use the set of one node.

    members = start_mongo_set(directory)
    members.halt(members.primary())       # the others elect another one
"""

from __future__ import annotations

import itertools
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from twinstore.errors import Outcome, UnavailableError
from twinstore_embedded import owners
from twinstore_embedded.binaries import find_mongod
from twinstore_embedded.mongod import CACHE_GB, READY_SECONDS, find_home, fork, stop_home
from twinstore_embedded.ports import HOST, on_free_port, on_port
from twinstore_embedded.processes import end, rotate_log
from twinstore_embedded.replica_set import NOT_YET_INITIALIZED, SET_NAME, Client, client_of, is_writable
from twinstore_embedded.state import (
    ServerState,
    exclusive,
    existing_home,
    load_state,
    open_home,
    save_state,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTORY = "mongo-set"
MEMBERS = 3
# Enough for a member that was away for minutes; each has its own, so it is far below that of a single node.
OPLOG_MB = 128
STOP_SECONDS = 30.0
ELECTION_MS = 1000
# Several within the time after which a primary counts as lost.
HEARTBEAT_MS = 200
# A new primary takes what it can get from the others at once, and does not wait for those that are gone.
CATCH_UP_MS = 1000
FOLLOWING = {"PRIMARY", "SECONDARY"}
# How long a member that stepped down is not a candidate again.
STEPPED_DOWN_SECONDS = 3


@dataclass(frozen=True)
class MongoSet:
    """A running replica set.

    Attributes:
        homes: of each member the directory with its data, state and log.
        ports: where each listens on 127.0.0.1; a member keeps its port.
        owned: whether it belongs to this process, which then has to stop it.
    """

    homes: tuple[Path, ...]
    ports: tuple[int, ...]
    owned: bool = False

    @property
    def url(self) -> str:
        """The connection string, which names every member."""
        return f"mongodb://{','.join(f'{HOST}:{port}' for port in self.ports)}/?replicaSet={SET_NAME}"

    def primary(self) -> int:
        """Return the number of the primary; wait until there is one whose writes reach a majority.

        Raises:
            UnavailableError: there was none for a minute.
        """
        found: list[int] = []
        with closing(self._client()) as client:
            if not wait_until(lambda: self._find_primary(client, found), READY_SECONDS):
                raise UnavailableError(
                    f"The replica set in {self.homes[0].parent} has no primary that a majority follows after "
                    f"{READY_SECONDS:.0f} s; its members keep their logs there.",
                    outcome=Outcome.NOT_APPLIED,
                )
        return found[-1]

    def _find_primary(self, client: Client, found: list[int]) -> bool:
        note = {"appendOplogNote": 1, "data": {"is": "read by a majority"}}
        try:
            client.admin.command(note, writeConcern={"w": "majority", "wtimeout": 1000})
            address = client.primary
        except PyMongoError:  # an election is under way; asked again until the time is over
            return False
        if address is None:
            return False
        found.append(self.ports.index(address[1] or 0))
        return True

    def await_all(self) -> None:
        """Wait until every member follows the primary, also those that were resumed a moment ago.

        Raises:
            UnavailableError: a member did not follow it within a minute.
        """
        self.primary()
        with closing(self._client()) as client:
            if not wait_until(lambda: _all_follow(client, len(self.ports)), READY_SECONDS):
                raise UnavailableError(
                    f"A member of the replica set in {self.homes[0].parent} does not follow its primary "
                    f"after {READY_SECONDS:.0f} s; the members keep their logs there.",
                    outcome=Outcome.NOT_APPLIED,
                )

    def _client(self) -> Client:
        # Short, because the caller retries.
        return MongoClient(self.url, serverSelectionTimeoutMS=1000, socketTimeoutMS=5000)

    def step_down(self) -> None:
        """Make the primary step down without waiting for the others, so that one of them takes over."""
        port = self.ports[self.primary()]
        command = {
            "replSetStepDown": STEPPED_DOWN_SECONDS,
            "secondaryCatchUpPeriodSecs": 1,
            "force": True,
        }
        try:
            with client_of(port) as client:
                client.admin.command(command)
        except (AutoReconnect, OperationFailure):
            # Another member was elected meanwhile, or this very election has closed the connection.
            return

    def halt(self, number: int, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process of a member and nothing else: the owner of the set stays its owner."""
        home = self.homes[number]
        with exclusive(home):
            pid = find_home(home)
            if pid is not None:
                end(pid, how, timeout=STOP_SECONDS)

    def resume(self, number: int) -> None:
        """Start the process of a member again on its port; it follows the primary soon after.

        Raises:
            UnavailableError: it did not start, or its port is taken; the message says which.
        """
        home = self.homes[number]
        with exclusive(home):
            if find_home(home) is None:
                rotate_log(home / "server.log")
                on_port(self.ports[number], lambda port: _fork(home, port))

    def stop(self) -> None:
        """Stop all members; the data stays."""
        _stop_homes(self.homes)


def start_mongo_set(
    directory: str | Path, *, members: int = MEMBERS, election_ms: int = ELECTION_MS, owned: bool = False
) -> MongoSet:
    """Start the replica set of a data directory, or return the one that runs there already.

    Args:
        directory: the data directory; created if needed.
        members: how many nodes it has; the first start decides.
        election_ms: how long a primary may be silent before the others elect another one; as above.
        owned: stop the set when this process ends, however it ends. Whatever ran before stays.

    Raises:
        ConfigurationError: no mongod on this machine, or the directory cannot be used.
        UnavailableError: the set did not come up; the message says which member, or that none is primary.
    """
    root = open_home(directory, DIRECTORY)
    with exclusive(root):
        homes = tuple(open_home(root, f"member-{number}") for number in range(members))
        with ThreadPoolExecutor(members) as pool:
            started = list(pool.map(_started, homes))
        # Under the lock of the directory: two processes must not both think that a member is theirs.
        mine = [
            owners.decide_owner(home, owned=owned, launched=launched)
            for home, (_, launched) in zip(homes, started, strict=True)
        ]
        ports = tuple(port for port, _ in started)
        _initiate(ports, election_ms)
    for home in itertools.compress(homes, mine):
        owners.watch(home)
    found = MongoSet(homes, ports, owned=all(mine))
    found.primary()
    return found


def stop_mongo_set(directory: str | Path) -> bool:
    """Stop all members of the set of a data directory; answer whether one was running. The data stays."""
    root = existing_home(directory, DIRECTORY)
    return root is not None and _stop_homes(sorted(root.glob("member-*")))


def _stop_homes(homes: Sequence[Path]) -> bool:
    with ThreadPoolExecutor(max(len(homes), 1)) as pool:
        return any(list(pool.map(stop_home, homes)))


def _started(home: Path) -> tuple[int, bool]:
    """Return the port of a member, and whether it was started just now."""
    with exclusive(home):
        state = load_state(home)
        known = None if state is None else state.port
        if known is not None and find_home(home) is not None:
            return known, False
        (home / "data").mkdir(mode=0o700, exist_ok=True)
        rotate_log(home / "server.log")
        if known is not None:
            # The others look for it there.
            return on_port(known, lambda port: _fork(home, port)), True
        return on_free_port(None, lambda port: _first_fork(home, port)), True


def _first_fork(home: Path, port: int) -> bool:
    # Written before the start: a process that finds the server after a crash must know its port.
    save_state(home, ServerState(port=port))
    return _fork(home, port)


def _fork(home: Path, port: int) -> bool:
    options = ["--replSet", SET_NAME, "--oplogSize", str(OPLOG_MB)]
    return fork(find_mongod(), home, port, options, cache_gb=CACHE_GB, parameters={})


def _initiate(ports: Sequence[int], election_ms: int) -> None:
    """Give the set its configuration, unless it has one."""
    config = {
        "_id": SET_NAME,
        "members": [{"_id": number, "host": f"{HOST}:{port}"} for number, port in enumerate(ports)],
        "settings": {
            "electionTimeoutMillis": election_ms,
            "heartbeatIntervalMillis": HEARTBEAT_MS,
            "catchUpTimeoutMillis": CATCH_UP_MS,
        },
    }
    with client_of(ports[0]) as client:
        if not wait_until(lambda: _is_up(client), READY_SECONDS):
            raise UnavailableError(
                f"The member on port {ports[0]} does not answer after {READY_SECONDS:.0f} s.",
                outcome=Outcome.NOT_APPLIED,
            )
        if not is_writable(client) and _lacks_config(client):
            client.admin.command("replSetInitiate", config)


def _all_follow(client: Client, number: int) -> bool:
    try:
        members = client.admin.command("replSetGetStatus")["members"]
    except PyMongoError:  # as above
        return False
    return sum(member["stateStr"] in FOLLOWING for member in members) == number


def _is_up(client: Client) -> bool:
    try:
        client.admin.command("ping")
    except AutoReconnect:
        return False
    return True


def _lacks_config(client: Client) -> bool:
    try:
        client.admin.command("replSetGetStatus")
    except OperationFailure as error:
        return error.code == NOT_YET_INITIALIZED
    return False

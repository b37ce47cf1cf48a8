"""A mongod on 127.0.0.1: a replica set of one node, or a standalone server."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from twinstore.errors import ConfigurationError, Outcome, UnavailableError
from twinstore_embedded import owners
from twinstore_embedded.binaries import find_mongod
from twinstore_embedded.ports import HOST, on_free_port
from twinstore_embedded.processes import end, find_server, log_tail, rotate_log, run
from twinstore_embedded.replica_set import SET_NAME, is_primary, is_standalone
from twinstore_embedded.state import (
    State,
    exclusive,
    existing_home,
    load_state,
    open_home,
    save_state,
    wait_until,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ROOMS", "MongoServer", "find_mongo", "start_mongo", "stop_home", "stop_mongo"]

# A standalone server has a directory of its own: it must not write to the data of a replica set.
REPLICA_SET_ROOM = "mongo"
STANDALONE_ROOM = "mongo-standalone"
ROOMS = (REPLICA_SET_ROOM, STANDALONE_ROOM)
CACHE_GB = 0.25
OPLOG_MB = 1024
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
EXIT_PORT_TAKEN = 48
ADDRESS_IN_USE = re.compile(r"Address already in use")


@dataclass(frozen=True)
class MongoServer:
    """A running mongod.

    Attributes:
        home: the directory that holds its data, state and log.
        port: where it listens on 127.0.0.1.
        pid: its process.
        replica_set: whether it is a replica set, which has transactions and change streams.
        owned: whether it belongs to this process, which then has to stop it.
    """

    home: Path
    port: int
    pid: int
    replica_set: bool
    owned: bool = False

    @property
    def url(self) -> str:
        """The connection string."""
        option = f"replicaSet={SET_NAME}" if self.replica_set else "directConnection=true"
        return f"mongodb://{HOST}:{self.port}/?{option}"

    @property
    def log(self) -> Path:
        """The log file of this run."""
        return _log(self.home)

    def stop(self) -> None:
        """Stop the server; the data stays."""
        stop_home(self.home)


def start_mongo(
    directory: str | Path, *, replica_set: bool = True, cache_gb: float = CACHE_GB, owned: bool = False
) -> MongoServer:
    """Start the mongod of a data directory, or return the one that runs there already.

    Several processes may call this at once; one server results. A server left behind by a crash is
    reused, and data left behind by a crashed server is recovered.

    Args:
        directory: the data directory; created if needed.
        replica_set: one-node replica set, or a standalone server beside it.
        cache_gb: size of the WiredTiger cache, used when the server has to be started.
        owned: stop the server when this process ends, however it ends. Whatever ran before stays.

    Raises:
        ConfigurationError: no mongod on this machine, or the directory cannot be used.
        UnavailableError: the server did not come up; the message ends with its log.
    """
    home = open_home(directory, _room(replica_set=replica_set))
    with exclusive(home):
        server = _ready(home, replica_set=replica_set)
        launched = server is None
        if server is None:
            _launch(home, replica_set=replica_set, cache_gb=cache_gb)
            server = _ready(home, replica_set=replica_set)
        if server is None:
            raise _failed(home, "ended right after its start")
        mine = owners.claim(home, owned=owned, launched=launched)
    if mine:
        owners.watch(home)
    return replace(server, owned=mine)


def find_mongo(directory: str | Path, *, replica_set: bool = True) -> MongoServer | None:
    """Return the mongod that runs in a data directory, without starting one."""
    home = existing_home(directory, _room(replica_set=replica_set))
    return None if home is None else _running(home, replica_set=replica_set)


def stop_mongo(directory: str | Path, *, replica_set: bool = True) -> bool:
    """Stop the mongod of a data directory; answer whether one was running. The data stays."""
    home = existing_home(directory, _room(replica_set=replica_set))
    return home is not None and stop_home(home)


def stop_home(home: Path, *, owner: int | None = None) -> bool:
    """Stop the server of one home; with ``owner`` only while it still belongs to that process."""
    owners.unwatch(home)
    with exclusive(home):
        if owner is not None and not owners.is_mine(home, owner):
            return False
        pid = _find(home)
        if pid is not None:
            end(pid, signal.SIGTERM, timeout=STOP_SECONDS)
        owners.disown(home)
    return pid is not None


def _room(*, replica_set: bool) -> str:
    return REPLICA_SET_ROOM if replica_set else STANDALONE_ROOM


def _find(home: Path) -> int | None:
    return find_server(_data(home) / "mongod.lock", _data(home))


def _running(home: Path, *, replica_set: bool) -> MongoServer | None:
    pid, state = _find(home), load_state(home)
    if pid is None:
        return None
    if state is None or state.port is None:
        message = f"A mongod (pid {pid}) uses {_data(home)}, but its port is unknown; end it and try again."
        raise ConfigurationError(message)
    return MongoServer(home, state.port, pid, replica_set)


def _ready(home: Path, *, replica_set: bool) -> MongoServer | None:
    """Return the running server once it takes writes; ``None`` when none runs or it dies meanwhile."""
    server = _running(home, replica_set=replica_set)
    if server is None:
        return None
    takes_writes = is_primary if replica_set else is_standalone
    if not wait_until(lambda: _find(home) is None or takes_writes(server.port), READY_SECONDS):
        raise _failed(home, f"(pid {server.pid}) takes no writes after {READY_SECONDS:.0f} s")
    return server if _find(home) == server.pid else None


def _launch(home: Path, *, replica_set: bool, cache_gb: float) -> None:
    mongod = find_mongod()
    _data(home).mkdir(mode=0o700, exist_ok=True)
    rotate_log(_log(home))
    state = load_state(home) or State()

    def attempt(port: int) -> bool:
        # Written before the start: whoever finds the server after a crash must know its port.
        save_state(home, state.model_copy(update={"port": port}))
        return _fork(mongod, home, port, replica_set=replica_set, cache_gb=cache_gb)

    on_free_port(state.port, attempt)


def _fork(mongod: Path, home: Path, port: int, *, replica_set: bool, cache_gb: float) -> bool:
    """Start a mongod in the background; answer ``False`` when the port was taken."""
    command: list[str | Path] = [
        mongod,
        "--fork",
        "--dbpath",
        _data(home),
        "--logpath",
        _log(home),
        "--logappend",
    ]
    command += ["--bind_ip", HOST, "--port", str(port), "--nounixsocket"]
    command += ["--wiredTigerCacheSizeGB", str(cache_gb)]
    command += ["--setParameter", "diagnosticDataCollectionEnabled=false"]
    # Nobody takes over from a set of one node, so there is nothing to wait for when it stops.
    command += ["--setParameter", "shutdownTimeoutMillisForSignaledShutdown=0"]
    if replica_set:
        command += ["--replSet", SET_NAME, "--oplogSize", str(OPLOG_MB)]
    finished = run(command, account=None, cwd=home)
    if finished.code == 0:
        return True
    if finished.code == EXIT_PORT_TAKEN or ADDRESS_IN_USE.search(log_tail(_log(home))):
        return False
    raise _failed(home, f"ended with exit code {finished.code}", finished.output)


def _failed(home: Path, what: str, output: str = "") -> UnavailableError:
    tail = log_tail(_log(home)) if _log(home).exists() else output
    message = f"The mongod in {home} {what}. Its log {_log(home)} ends with:\n{tail}"
    return UnavailableError(message, outcome=Outcome.NOT_APPLIED)


def _data(home: Path) -> Path:
    return home / "data"


def _log(home: Path) -> Path:
    return home / "server.log"

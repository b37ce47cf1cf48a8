"""A mongod on 127.0.0.1: a replica set of one node, with or without users, or a standalone server.

    lock its directory -> reuse the server that runs there, else launch one on a free port
    -> wait until it takes writes -> decide who owns it -> watch over it for its owner

PostgreSQL goes the same way; see :mod:`twinstore_embedded.postgres`.
"""

from __future__ import annotations

import re
import secrets
import signal
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from twinstore.errors import ConfigurationError, Outcome, UnavailableError
from twinstore_embedded import owners
from twinstore_embedded.binaries import find_mongod
from twinstore_embedded.mongo_users import (
    ADMIN,
    PASSWORD_BYTES,
    add_user,
    is_primary_with_users,
    key_file,
    login_part,
)
from twinstore_embedded.ports import HOST, on_free_port, on_port
from twinstore_embedded.processes import end, find_server, log_tail, rotate_log, run
from twinstore_embedded.replica_set import SET_NAME, Login, is_primary, is_standalone
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
    from collections.abc import Mapping, Sequence

# The smallest that a mongod admits; the default would take half of the memory of a laptop.
CACHE_GB = 0.25
# Reads at a point in time and change streams need some history; the default is 5 % of the disk.
OPLOG_MB = 1024
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # only inspected
# What mongod says of its journal, but for the last two: without them it sets 300 MB aside, there of memory.
SMALL_JOURNAL = "log=(enabled=true,remove=true,path=journal,compressor=snappy,file_max=16MB,prealloc=false)"
# An election takes a moment, the recovery after a crash on a busy machine may take long.
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
EXIT_PORT_TAKEN = 48
ADDRESS_IN_USE = re.compile(r"Address already in use")


class MongodKind(Enum):
    """What a mongod is. Each kind has its own directory, which has its name.

    A standalone server must not write to the data of a replica set, and data with users needs its key file.
    """

    REPLICA_SET = "mongo"
    STANDALONE = "mongo-standalone"
    WITH_USERS = "mongo-users"

    @classmethod
    def of(cls, *, replica_set: bool, users: bool) -> MongodKind:
        """Return the kind that a caller asks for."""
        if not users:
            return cls.REPLICA_SET if replica_set else cls.STANDALONE
        if not replica_set:
            raise ValueError("a mongod with users is a replica set")  # a programmer's mistake
        return cls.WITH_USERS


@dataclass(frozen=True)
class MongoServer:
    """A running mongod.

    Attributes:
        home: the directory that holds its data, state and log.
        port: where it listens on 127.0.0.1.
        pid: its process.
        replica_set: whether it is a replica set, which has transactions and change streams.
        owned: whether it belongs to this process, which then has to stop it.
        passwords: by name; only the first user of a server with users is among them.
    """

    home: Path
    port: int
    pid: int
    replica_set: bool
    owned: bool = False
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def url(self) -> str:
        """The connection string; on a server with users that of the first one, who may do everything."""
        login = login_part(ADMIN, self.passwords[ADMIN]) if self.passwords else ""
        return f"mongodb://{login}{HOST}:{self.port}/{self._options}"

    @property
    def _options(self) -> str:
        return f"?replicaSet={SET_NAME}" if self.replica_set else "?directConnection=true"

    def user_url(self, database: str, user: str, *roles: str) -> str:
        """Create a user with some roles on one database, in that database; return its connection string.

        An existing user of that name gets a new password and these roles in place of the old ones.
        """
        login = login_part(user, add_user(self.url, database, user, roles))
        return f"mongodb://{login}{HOST}:{self.port}/{database}{self._options}"

    @property
    def log(self) -> Path:
        """The log file of this run."""
        return _log(self.home)

    def stop(self) -> None:
        """Stop the server; the data stays."""
        stop_home(self.home)

    def halt(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process and nothing else: the owner of the server stays its owner."""
        with exclusive(self.home):
            pid = find_home(self.home)
            if pid is not None:
                end(pid, how, timeout=STOP_SECONDS)

    def resume(self) -> None:
        """Start the process again on its port, unless it runs, and return when it takes writes.

        Raises:
            UnavailableError: it did not come up, or its port is taken; the message ends with its log.
        """
        kind = MongodKind.of(replica_set=self.replica_set, users=bool(self.passwords))
        with exclusive(self.home):
            if find_home(self.home) is None:
                rotate_log(_log(self.home))
                on_port(self.port, lambda port: _fork(find_mongod(), self.home, port, kind))
            server = _ready(self.home, kind)
        if server is None:
            raise _failed(self.home, "ended right after its start")


def start_mongo(
    directory: str | Path,
    *,
    replica_set: bool = True,
    users: bool = False,
    cache_gb: float = CACHE_GB,
    parameters: Mapping[str, object] | None = None,
    owned: bool = False,
) -> MongoServer:
    """Start the mongod of a data directory, or return the one that runs there already.

    Several processes may call this at once; they get the same server. A server left behind by a crash is
    reused, and data left behind by a crashed server is recovered.

    Args:
        directory: the data directory; created if needed.
        replica_set: one-node replica set, or else a standalone server next to it.
        users: a replica set that requires a login (``--keyFile``), next to the others.
        cache_gb: size of the WiredTiger cache, used when the server has to be started.
        parameters: more parameters of the server by name, used when it has to be started.
        owned: stop the server when this process ends, however it ends. Whatever ran before stays.

    Raises:
        ConfigurationError: no mongod on this machine, or the directory cannot be used.
        UnavailableError: the server did not come up; the message ends with its log.
    """
    kind = MongodKind.of(replica_set=replica_set, users=users)
    home = open_home(directory, kind.value)
    with exclusive(home):
        server = _ready(home, kind)
        launched = server is None
        if server is None:
            _launch(home, kind, cache_gb=cache_gb, parameters=parameters or {})
            server = _ready(home, kind)
        if server is None:
            raise _failed(home, "ended right after its start")
        # Under the lock of the directory: two processes must not both think that the server is theirs.
        mine = owners.decide_owner(home, owned=owned, launched=launched)
    if mine:
        owners.watch(home)
    return replace(server, owned=mine)


def find_mongo(directory: str | Path, *, replica_set: bool = True, users: bool = False) -> MongoServer | None:
    """Return the mongod that runs in a data directory, without starting one."""
    kind = MongodKind.of(replica_set=replica_set, users=users)
    home = existing_home(directory, kind.value)
    return None if home is None else _running(home, kind)


def stop_mongo(directory: str | Path, *, replica_set: bool = True, users: bool = False) -> bool:
    """Stop the mongod of a data directory; answer whether one was running. The data stays."""
    home = existing_home(directory, MongodKind.of(replica_set=replica_set, users=users).value)
    return home is not None and stop_home(home)


def stop_home(home: Path, *, owner: int | None = None) -> bool:
    """Stop the server of one home; with ``owner`` only while it still belongs to that process."""
    owners.unwatch(home)
    with exclusive(home):
        if owner is not None and not owners.is_mine(home, owner):
            return False
        pid = find_home(home)
        if pid is not None:
            end(pid, signal.SIGTERM, timeout=STOP_SECONDS)
        owners.disown(home)
    return pid is not None


def find_home(home: Path) -> int | None:
    """Return the process that runs in one home; ``None`` where none does."""
    return find_server(_data(home) / "mongod.lock", _data(home))


def _running(home: Path, kind: MongodKind) -> MongoServer | None:
    pid, state = find_home(home), load_state(home)
    if pid is None:
        return None
    # The lock file of a mongod names its process, not its port.
    if state is None or state.port is None:
        message = f"A mongod (pid {pid}) uses {_data(home)}, but its port is unknown; end it and try again."
        raise ConfigurationError(message)
    replica_set = kind is not MongodKind.STANDALONE
    return MongoServer(home, state.port, pid, replica_set, passwords=state.passwords)


def _ready(home: Path, kind: MongodKind) -> MongoServer | None:
    """Return the running server once it takes writes; ``None`` when none runs or it dies meanwhile."""
    server = _running(home, kind)
    if server is None:
        return None
    if not wait_until(lambda: find_home(home) is None or _takes_writes(server, kind), READY_SECONDS):
        raise _failed(home, f"(pid {server.pid}) does not accept writes after {READY_SECONDS:.0f} s")
    return server if find_home(home) == server.pid else None


def _takes_writes(server: MongoServer, kind: MongodKind) -> bool:
    match kind:
        case MongodKind.REPLICA_SET:
            return is_primary(server.port)
        case MongodKind.STANDALONE:
            return is_standalone(server.port)
        case MongodKind.WITH_USERS:
            login = Login(ADMIN, server.passwords[ADMIN])
            return is_primary_with_users(server.port, login, server.home)


def _launch(home: Path, kind: MongodKind, *, cache_gb: float, parameters: Mapping[str, object]) -> None:
    mongod = find_mongod()
    _data(home).mkdir(mode=0o700, exist_ok=True)
    rotate_log(_log(home))
    state = load_state(home) or ServerState()
    if kind is MongodKind.WITH_USERS and ADMIN not in state.passwords:
        state = state.model_copy(update={"passwords": {ADMIN: secrets.token_urlsafe(PASSWORD_BYTES)}})

    def attempt(port: int) -> bool:
        # Written before the start: a process that finds the server after a crash must know its port.
        save_state(home, state.model_copy(update={"port": port}))
        return _fork(mongod, home, port, kind, cache_gb=cache_gb, parameters=parameters)

    on_free_port(state.port, attempt)


def _fork(
    mongod: Path,
    home: Path,
    port: int,
    kind: MongodKind,
    *,
    cache_gb: float = CACHE_GB,
    parameters: Mapping[str, object] | None = None,
) -> bool:
    """Start a mongod in the background; answer ``False`` when the port was taken."""
    options: list[str | Path] = []
    if kind is not MongodKind.STANDALONE:
        options += ["--replSet", SET_NAME, "--oplogSize", str(OPLOG_MB)]
    if kind is MongodKind.WITH_USERS:
        options += ["--keyFile", key_file(home)]
    return fork(mongod, home, port, options, cache_gb=cache_gb, parameters=parameters or {})


def fork(
    mongod: Path,
    home: Path,
    port: int,
    options: Sequence[str | Path],
    *,
    cache_gb: float,
    parameters: Mapping[str, object],
) -> bool:
    """Start a mongod with more options in the background; answer ``False`` when the port was taken.

    Raises:
        UnavailableError: it did not start; the message ends with its log.
    """
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
    if home.is_relative_to(IN_MEMORY):
        command += ["--wiredTigerEngineConfigString", SMALL_JOURNAL]
    command += ["--setParameter", "diagnosticDataCollectionEnabled=false"]
    # No member takes over from a set of one node, so there is nothing to wait for when it stops.
    command += ["--setParameter", "shutdownTimeoutMillisForSignaledShutdown=0"]
    for name, value in parameters.items():
        command += ["--setParameter", f"{name}={value}"]
    finished = run([*command, *options], account=None, cwd=home)
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

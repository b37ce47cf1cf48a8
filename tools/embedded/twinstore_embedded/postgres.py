"""A PostgreSQL on 127.0.0.1 with passwords (scram-sha-256), an owner role and an application role."""

from __future__ import annotations

import secrets
import signal
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING
from urllib.parse import quote

from twinstore.errors import Outcome, UnavailableError
from twinstore_embedded import cluster, owners
from twinstore_embedded.accounts import account_for, grant_search
from twinstore_embedded.binaries import find_postgres
from twinstore_embedded.ports import HOST, on_free_port, on_port
from twinstore_embedded.processes import end, find_server, log_tail, rotate_log
from twinstore_embedded.roles import APP, DATABASE, OWNER, ROLES, SUPERUSER, ensure_roles, is_ready
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
    from collections.abc import Mapping
    from pathlib import Path

DIRECTORY = "postgres"
READY_SECONDS = 60.0
STOP_SECONDS = 30.0
PASSWORD_BYTES = 24


class Shutdown(Enum):
    """How a server is stopped.

    Fast: sessions are rolled back, the data is flushed. Immediate: as after a crash, but the clients are
    notified. Killed: a crash of the postmaster, after which its children end by themselves.
    """

    FAST = signal.SIGINT
    IMMEDIATE = signal.SIGQUIT
    KILLED = signal.SIGKILL


@dataclass(frozen=True)
class PostgresServer:
    """A running PostgreSQL.

    Attributes:
        home: the directory that holds its data, state and log.
        port: where it listens on 127.0.0.1.
        pid: the postmaster.
        owned: whether it belongs to this process, which then has to stop it.
    """

    home: Path
    port: int
    pid: int
    owned: bool = False
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)

    def superuser_url(self, *, database: str = "postgres") -> str:
        """Connection string of the superuser ``postgres``."""
        return self._url(SUPERUSER, database)

    def owner_url(self, *, database: str = DATABASE) -> str:
        """Connection string of the role that owns the database and runs migrations."""
        return self._url(OWNER, database)

    def app_url(self, *, database: str = DATABASE) -> str:
        """Connection string of the application role: no owner, no superuser, bound by row-level security."""
        return self._url(APP, database)

    def _url(self, role: str, database: str) -> str:
        return f"postgresql://{role}:{self.passwords[role]}@{HOST}:{self.port}/{quote(database, safe='')}"

    @property
    def log(self) -> Path:
        """The log file of this run."""
        return cluster.log_of(self.home)

    def stop(self) -> None:
        """Stop the server; the data stays."""
        stop_home(self.home)

    def halt(self, how: Shutdown) -> None:
        """End the process and nothing else: the owner of the server stays its owner."""
        with exclusive(self.home):
            _end(self.home, how)

    def resume(self, *, durable: bool = True) -> None:
        """Start the process again on its port, and return when it answers.

        Raises:
            UnavailableError: it did not come up, or its port is taken; the message ends with its log.
        """
        with exclusive(self.home):
            if _find(self.home) is None:
                _launch(self.home, durable=durable, fixed_port=self.port)
            server = _ready(self.home)
        if server is None:
            raise _failed(self.home, "ended right after its start")


def start_postgres(directory: str | Path, *, durable: bool = True, owned: bool = False) -> PostgresServer:
    """Start the PostgreSQL of a data directory, or return the one that runs there already.

    Several processes may call this at once; they get the same server. A server left behind by a crash is
    reused, and data left behind by a crashed server is recovered. The database ``twinstore``, its owner
    ``twinstore_owner`` and the role ``twinstore_app`` exist afterwards.

    Args:
        directory: the data directory; created if needed.
        durable: ``False`` trades crash safety for speed (tests); used when the server has to be started.
        owned: stop the server when this process ends, however it ends. Whatever ran before stays.

    Raises:
        ConfigurationError: no PostgreSQL on this machine, or the directory cannot be used.
        UnavailableError: the server did not come up; the message ends with its log.
    """
    home = open_home(directory, DIRECTORY)
    with exclusive(home):
        server = _ready(home)
        launched = server is None
        if server is None:
            _launch(home, durable=durable)
            server = _ready(home)
        if server is None:
            raise _failed(home, "ended right after its start")
        # At each start: a process may have been killed between the cluster and its roles.
        ensure_roles(server.superuser_url(), server.passwords)
        mine = owners.decide_owner(home, owned=owned, launched=launched)
    if mine:
        owners.watch(home)
    return replace(server, owned=mine)


def find_postgres_server(directory: str | Path) -> PostgresServer | None:
    """Return the PostgreSQL that runs in a data directory, without starting one."""
    home = existing_home(directory, DIRECTORY)
    return None if home is None else _running(home)


def stop_postgres(directory: str | Path) -> bool:
    """Stop the PostgreSQL of a data directory; answer whether one was running. The data stays."""
    home = existing_home(directory, DIRECTORY)
    return home is not None and stop_home(home)


def stop_home(home: Path, *, owner: int | None = None) -> bool:
    """Stop the server of one home; with ``owner`` only while it still belongs to that process."""
    owners.unwatch(home)
    with exclusive(home):
        if owner is not None and not owners.is_mine(home, owner):
            return False
        stopped = _end(home)
        owners.disown(home)
    return stopped


def _end(home: Path, how: Shutdown = Shutdown.FAST) -> bool:
    pid = _find(home)
    if pid is not None:
        end(pid, how.value, timeout=STOP_SECONDS)
    return pid is not None


def _find(home: Path) -> int | None:
    data = cluster.data_of(home)
    return find_server(data / "postmaster.pid", data)


def _running(home: Path) -> PostgresServer | None:
    pid, state = _find(home), load_state(home)
    if pid is None or state is None or state.port is None:
        return None
    return PostgresServer(home, state.port, pid, passwords=state.passwords)


def _ready(home: Path) -> PostgresServer | None:
    """Return the running server once it answers; ``None`` when none runs or it dies meanwhile."""
    server = _running(home)
    if server is None:
        return None
    url = server.superuser_url()
    if not wait_until(lambda: _find(home) is None or is_ready(url), READY_SECONDS):
        raise _failed(home, f"(pid {server.pid}) does not answer after {READY_SECONDS:.0f} s")
    return server if _find(home) == server.pid else None


def _launch(home: Path, *, durable: bool, fixed_port: int | None = None) -> None:
    binaries = find_postgres()
    account = account_for(cluster.data_of(home))
    for path in (binaries / "postgres", cluster.data_of(home)):
        grant_search(path, account)
    rotate_log(cluster.log_of(home))
    place = cluster.Cluster(home, binaries, account)
    state = _prepare(place, durable=durable)

    def attempt(port: int) -> bool:
        # Written before the start: a process that finds the server after a crash must know its port.
        save_state(home, state.model_copy(update={"port": port}))
        started = cluster.start(place, port, durable=durable)
        if started is cluster.StartOutcome.FAILED:
            raise _failed(home, "did not start")
        return started is cluster.StartOutcome.DONE

    if fixed_port is None:
        on_free_port(state.port, attempt)
    else:
        on_port(fixed_port, attempt)


def _prepare(place: cluster.Cluster, *, durable: bool) -> ServerState:
    """Return the state of a cluster that exists and whose passwords are known."""
    state = load_state(place.home)
    known = state if state and set(ROLES) <= set(state.passwords) else None
    if known is None:
        known = ServerState(passwords={role: secrets.token_urlsafe(PASSWORD_BYTES) for role in ROLES})
        # The passwords are lost, and a new one can be set in a stopped cluster only.
        _end(place.home)
    if not cluster.exists(place.home):
        cluster.create(place, known.passwords[SUPERUSER], durable=durable)
    elif state is not known:
        cluster.reset_password(place, known.passwords[SUPERUSER])
    save_state(place.home, known)
    return known


def _failed(home: Path, what: str) -> UnavailableError:
    log = cluster.log_of(home)
    message = f"The PostgreSQL in {home} {what}. Its log {log} ends with:\n{log_tail(log)}"
    return UnavailableError(message, outcome=Outcome.NOT_APPLIED)

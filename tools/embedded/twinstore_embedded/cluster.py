"""The data directory of PostgreSQL: initdb, settings, pg_ctl."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from twinstore.errors import ConfigurationError
from twinstore_embedded.ports import HOST
from twinstore_embedded.processes import find_server, log_tail, run
from twinstore_embedded.roles import SUPERUSER
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from twinstore_embedded.accounts import Account

SETTINGS_FILE = "twinstore.conf"
START_SECONDS = 60
ORPHAN_SECONDS = 15.0
ADDRESS_IN_USE = "could not bind"
# Backends of a killed postmaster notice its death and go, but not in the same instant.
ORPHANS = "shared memory block"
# For tests: after a crash of the machine the data may be broken, but it is not needed then.
VOLATILE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


class StartOutcome(Enum):
    """How an attempt to start ended."""

    DONE = auto()
    PORT_TAKEN = auto()
    FAILED = auto()


@dataclass(frozen=True)
class Cluster:
    """A data directory, the programs for it, and the account that they run as."""

    home: Path
    binaries: Path
    account: Account | None


def data_of(home: Path) -> Path:
    """Return the data directory."""
    return home / "data"


def log_of(home: Path) -> Path:
    """Return the log file."""
    return home / "server.log"


def exists(home: Path) -> bool:
    """Return whether the cluster was created completely."""
    return (data_of(home) / "PG_VERSION").exists()


def create(place: Cluster, password: str, *, durable: bool) -> None:
    """Create the cluster next to its final place and move it there, so that it is complete or absent."""
    for left in place.home.glob("data.new*"):
        shutil.rmtree(left, ignore_errors=True)
    for password_left in place.home.glob(".password.*"):
        password_left.unlink(missing_ok=True)
    # A separate name: the initdb of a process that was killed may still be writing.
    unfinished = Path(tempfile.mkdtemp(prefix="data.new.", dir=place.home))
    _give(unfinished, place.account)
    command: list[str | Path] = [
        place.binaries / "initdb",
        "-D",
        unfinished,
        "-U",
        SUPERUSER,
        "--auth=scram-sha-256",
    ]
    # In the C locale text sorts by code point, as every list of the library promises.
    command += ["--encoding=UTF8", "--locale=C", "--no-instructions"]
    command += [] if durable else ["--no-sync"]
    with _password_file(place, password) as file:
        finished = run([*command, f"--pwfile={file}"], account=place.account, cwd=unfinished)
    if finished.code != 0:
        message = f"initdb could not create a PostgreSQL cluster in {unfinished}:\n{finished.output}"
        raise ConfigurationError(message)
    with (unfinished / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"\ninclude_if_exists = '{SETTINGS_FILE}'\n")
    # The last step, and a single one: a process that is killed before leaves nothing that looks complete.
    unfinished.rename(data_of(place.home))


@contextmanager
def _password_file(place: Cluster, password: str) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile("w", dir=place.home, prefix=".password.") as file:
        file.write(password)
        file.flush()
        _give(Path(file.name), place.account)
        yield Path(file.name)


def reset_password(place: Cluster, password: str) -> None:
    """Give the superuser of a stopped cluster a new password, because the old one is lost.

    Raises:
        ConfigurationError: the cluster cannot be opened, for instance after a damage.
    """
    command: list[str | Path] = [
        place.binaries / "postgres",
        "--single",
        "-D",
        data_of(place.home),
        "postgres",
    ]
    statement = f"ALTER ROLE {SUPERUSER} PASSWORD '{password}'\n"
    finished = run(command, account=place.account, cwd=data_of(place.home), text=statement)
    if finished.code != 0 or "ERROR:" in finished.output:
        message = f"The passwords of {place.home} are lost and cannot be reset; delete it to start over."
        raise ConfigurationError(message)


def start(place: Cluster, port: int, *, durable: bool) -> StartOutcome:
    """Start the postmaster in the background and wait until it accepts connections."""
    _write_settings(place, port, durable=durable)
    _drop_stale_pid(data_of(place.home))
    outcome = StartOutcome.FAILED

    def attempt() -> bool:
        nonlocal outcome
        outcome = _pg_ctl_start(place)
        return outcome is not StartOutcome.FAILED or ORPHANS not in log_tail(log_of(place.home))

    wait_until(attempt, ORPHAN_SECONDS)
    return outcome


def _pg_ctl_start(place: Cluster) -> StartOutcome:
    log = log_of(place.home)
    # It must contain only this attempt: its content decides whether another port may help.
    log.unlink(missing_ok=True)
    log.touch(mode=0o600)
    _give(log, place.account)
    command: list[str | Path] = [place.binaries / "pg_ctl", "start", "-w", "-t", str(START_SECONDS), "-s"]
    command += ["-D", data_of(place.home), "-l", log]
    if run(command, account=place.account, cwd=data_of(place.home)).code == 0:
        return StartOutcome.DONE
    return StartOutcome.PORT_TAKEN if ADDRESS_IN_USE in log_tail(log) else StartOutcome.FAILED


def _write_settings(place: Cluster, port: int, *, durable: bool) -> None:
    settings = {
        "listen_addresses": f"'{HOST}'",
        "port": str(port),
        # No socket file: its path would be limited to about a hundred characters.
        "unix_socket_directories": "''",
        "max_connections": "200",
        "shared_buffers": "64MB",
        "timezone": "'UTC'",
        "log_timezone": "'UTC'",
        **({} if durable else VOLATILE),
    }
    path = data_of(place.home) / SETTINGS_FILE
    path.write_text(_render(settings), encoding="utf-8")
    _give(path, place.account)


def _render(settings: Mapping[str, str]) -> str:
    return "".join(f"{name} = {value}\n" for name, value in settings.items())


def _drop_stale_pid(data: Path) -> None:
    """Remove the pid file of a server that is gone.

    Its number may belong to another program by now, or to a zombie that is never reaped (a container without
    an init), and PostgreSQL would refuse to start. Remaining backends hold the shared memory, which
    PostgreSQL checks too.
    """
    pid_file = data / "postmaster.pid"
    if find_server(pid_file, data) is None:
        pid_file.unlink(missing_ok=True)


def _give(path: Path, account: Account | None) -> None:
    if account is not None:
        os.chown(path, account.uid, account.gid)

"""A pgbouncer in transaction mode before the PostgreSQL of this run, where the machine has one.

It is no wheel, so a machine without it leaves out what needs it, and the summary of the run says so.
``apt-get install pgbouncer`` brings it; ``TWINSTORE_TEST_PGBOUNCER`` is the path of another one.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.support.databases import APP_ROLE, OWNER_ROLE, PASSWORD
from tests.support.servers import postgres_url
from twinstore_embedded.accounts import account_for
from twinstore_embedded.ports import HOST, on_free_port, on_port
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresDatabase
    from tests.support.servers import Settings

SECONDS: Final = 10.0
# The package of Debian puts it where only root looks.
# A path, or an empty text for a run without.
VARIABLE: Final = "TWINSTORE_TEST_PGBOUNCER"
PROGRAM: Final = shutil.which(
    os.environ.get(VARIABLE, "pgbouncer"), path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
)
SKIP_NOTE: Final = "pgbouncer is not installed, so nothing was run through a transaction pooler."
# Few connections of the server, which all clients share, and refusals within seconds instead of minutes.
OPTIONS: Final[dict[str, object]] = {
    "pool_mode": "transaction",
    "default_pool_size": 2,
    # For cases that hold more units open at a time than that.
    "reserve_pool_size": 10,
    "reserve_pool_timeout": 0.5,
    "max_client_conn": 400,
    "query_wait_timeout": 20,
    "server_login_retry": 0.1,
    "server_connect_timeout": 5,
}


@dataclass
class Pooler:
    """One pgbouncer.

    Attributes:
        server: URL of the PostgreSQL behind it.
        home: its directory.
        options: of its section ``[pgbouncer]``.
        port: where it listens.
    """

    server: str
    home: Path
    options: dict[str, object]
    port: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def log(self) -> Path:
        """What it has said since it was first started."""
        return self.home / "pgbouncer.log"

    def url(self, direct: str) -> str:
        """Return the URL of a database through the pooler."""
        return postgres_url(direct, host=HOST, port=str(self.port))

    def before(self, database: PostgresDatabase) -> PostgresDatabase:
        """Return a database whose application goes through the pooler."""
        return replace(database, app_url=self.url(database.app_url))

    def config(self, database: PostgresDatabase, **changes: object) -> Settings:
        """Return settings for ``open_storage``: requests through the pooler, all else past it."""
        postgres = {
            "ConnectionString": self.url(database.app_url),
            "DirectConnectionString": database.app_url,
            "OwnerConnectionString": database.owner_url,
            "ApplicationRole": APP_ROLE,
            "TransactionPooler": True,
            **changes,
        }
        return {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}

    def ask(self, command: str) -> list[tuple[object, ...]]:
        """Return what the console of the pooler answers."""
        url = postgres_url(self.server, host=HOST, port=str(self.port), dbname="pgbouncer", user=OWNER_ROLE)
        with psycopg.Connection.connect(url, autocommit=True, prepare_threshold=None) as console:
            cursor = psycopg.ClientCursor(console)
            cursor.execute(command.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self) -> None:
        """Start it, on the port of the last time if it had one: its clients look for it there."""
        self.port = on_port(self.port, self._launch) if self.port else on_free_port(None, self._launch)

    def stop(self) -> None:
        """End it at once, with every connection it has."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """End it and start it again on the same port."""
        self.stop()
        self.start()

    def _launch(self, port: int) -> bool:
        """Start it on a port; return ``False`` when another process has taken that meanwhile."""
        self._configure(port)
        account = account_for(self.home / "none")
        with self.log.open("ab") as output:
            self._process = process = subprocess.Popen(
                [str(PROGRAM), str(self.home / "pgbouncer.ini")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        if not wait_until(lambda: process.poll() is not None or answers(port), SECONDS):
            raise TimeoutError(f"pgbouncer does not listen after {SECONDS} s:\n{self.log.read_text()}")
        return process.poll() is None

    def _configure(self, port: int) -> None:
        parts = conninfo_to_dict(self.server)
        section = {
            "listen_addr": HOST,
            "listen_port": port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": self.home / "users.txt",
            "admin_users": OWNER_ROLE,
            **self.options,
        }
        lines = [
            "[databases]",
            f"* = host={parts['host']} port={parts.get('port', 5432)}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in section.items()),
        ]
        (self.home / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        (self.home / "users.txt").write_text(
            "".join(f'"{role}" "{PASSWORD}"\n' for role in (APP_ROLE, OWNER_ROLE))
        )


def answers(port: int) -> bool:
    """Return whether a process listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


@contextmanager
def pooler_before(server: str, **options: object) -> Iterator[Pooler]:
    """Run a pooler before a server until the block ends."""
    with tempfile.TemporaryDirectory(prefix="twinstore-pooler-") as name:
        home = Path(name)
        # It runs as another user than root, who has to read what is in there.
        home.chmod(0o755)
        pooler = Pooler(server, home, {**OPTIONS, **options})
        pooler.start()
        try:
            yield pooler
        finally:
            pooler.stop()

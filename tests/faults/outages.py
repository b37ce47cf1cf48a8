"""Servers of a test's own that are restarted, killed and stepped down in the middle of calls."""

from __future__ import annotations

import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import twinstore_embedded
from tests.servers import mongo_config, postgres_config
from tests.stores import kept
from twinstore_embedded import Shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.servers import Settings
    from twinstore_embedded import MongoSet, PostgresServer

__all__ = ["ELECTION_MS", "MongoOutages", "Outages", "PostgresOutages", "outages_of"]

IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the directory made there has a name of its own
DATABASE: Final = "outages"
# Several heartbeats.
ELECTION_MS: Final = 1000
# Shorter than an election takes, so that calls meet one as well as outlast it.
SELECTION_MS: Final = 1000


class Outages(Protocol):
    """A server, and what may happen to it."""

    @property
    def settings(self) -> Settings:
        """Those of a store on it."""
        ...

    @property
    def kinds(self) -> Mapping[str, Callable[[Callable[[], object]], None]]:
        """What may happen, by name.

        Each ends when the server serves again. It calls what it is given while the server is away, or while
        a member is.
        """
        ...


class PostgresOutages(Outages):
    """A PostgreSQL that is shut down or killed, and started again."""

    def __init__(self, server: PostgresServer) -> None:
        """Take a server that keeps what it confirmed over a crash."""
        self._server = server

    @property
    def settings(self) -> Settings:
        """Those of a store on it."""
        return kept(postgres_config(self._server.app_url(), self._server.owner_url()))

    @property
    def kinds(self) -> Mapping[str, Callable[[Callable[[], object]], None]]:
        """Fast and immediate shutdown, and the death of the postmaster."""
        return {how.name.lower(): partial(self._restart, how) for how in Shutdown}

    def _restart(self, how: Shutdown, meanwhile: Callable[[], object]) -> None:
        self._server.halt(how)
        meanwhile()
        self._server.resume()


class MongoOutages(Outages):
    """A replica set of three whose primary steps down or is killed, or which is killed as a whole."""

    def __init__(self, members: MongoSet) -> None:
        """Take the set."""
        self._set = members

    @property
    def settings(self) -> Settings:
        """Those of a store on it."""
        settings = mongo_config(f"{self._set.url}&serverSelectionTimeoutMS={SELECTION_MS}", DATABASE)
        return kept(settings)

    @property
    def kinds(self) -> Mapping[str, Callable[[Callable[[], object]], None]]:
        """A step down, the death of the primary, and that of all members."""
        return {
            "stepped down": self._step_down,
            "primary killed": self._lose_primary,
            "all killed": self._lose_all,
        }

    def _step_down(self, meanwhile: Callable[[], object]) -> None:
        self._set.await_all()
        self._set.step_down()
        meanwhile()
        self._set.primary()

    def _lose_primary(self, meanwhile: Callable[[], object]) -> None:
        self._set.await_all()
        lost = self._set.primary()
        self._set.halt(lost)
        meanwhile()
        self._set.primary()
        # After the others have gone on without it, so that it has to follow them.
        self._set.resume(lost)

    def _lose_all(self, meanwhile: Callable[[], object]) -> None:
        self._set.await_all()
        numbers = range(len(self._set.ports))
        for number in numbers:
            self._set.halt(number)
        meanwhile()
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._set.resume, numbers))
        self._set.primary()


@contextmanager
def outages_of(driver: str, *, election_ms: int = ELECTION_MS) -> Iterator[Outages]:
    """Run a server of this driver for the length of the block, its data in memory where there is room.

    Args:
        driver: whose server.
        election_ms: how long a primary may be silent; on a busy machine one that lives may be for a second.
    """
    parent = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    # Not tmp_path: pytest closes its parents to the user that PostgreSQL runs as under root.
    directory = Path(tempfile.mkdtemp(prefix="twinstore-outages-", dir=parent))
    directory.chmod(0o711)
    try:
        if driver == "mongo":
            members = twinstore_embedded.start_mongo_set(directory, election_ms=election_ms, owned=True)
            yield MongoOutages(members)
        else:
            yield PostgresOutages(twinstore_embedded.start_postgres(directory, owned=True))
    finally:
        twinstore_embedded.stop(directory)
        shutil.rmtree(directory)

"""Both servers together."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from twinstore_embedded import mongo_set, mongod, postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future
    from pathlib import Path

_logger = logging.getLogger("twinstore.embedded")


@dataclass(frozen=True)
class Servers:
    """A running mongod and a running PostgreSQL."""

    mongo: mongod.MongoServer
    postgres: postgres.PostgresServer

    def stop(self) -> None:
        """Stop both; the data stays."""
        with ThreadPoolExecutor() as pool:
            for task in [pool.submit(self.mongo.stop), pool.submit(self.postgres.stop)]:
                task.result()


def start(directory: str | Path, *, durable: bool = True, owned: bool = False) -> Servers:
    """Start both servers of a data directory at the same time, or return those that run already.

    Args:
        directory: the data directory; created if needed.
        durable: ``False`` trades crash safety of PostgreSQL for speed (tests).
        owned: stop servers started here when this process ends, however it ends.

    Raises:
        ConfigurationError: a program is missing, or the directory cannot be used.
        UnavailableError: a server did not come up. Servers started with ``owned`` are stopped again.
    """
    with ThreadPoolExecutor() as pool:
        mongo = pool.submit(mongod.start_mongo, directory, owned=owned)
        relational = pool.submit(postgres.start_postgres, directory, durable=durable, owned=owned)
    try:
        # After the block, so that both have started or failed by now.
        return Servers(mongo.result(), relational.result())
    except BaseException as error:
        _stop_owned(mongo, error)
        _stop_owned(relational, error)
        raise


def _stop_owned(
    task: Future[mongod.MongoServer] | Future[postgres.PostgresServer], raised: BaseException
) -> None:
    failure = task.exception()
    if failure is None:
        _release(task.result())
    elif failure is not raised:
        # Only one error can be raised, and the user would meet this one at the next attempt.
        _logger.warning("the other server did not start either: %s", failure)


def _release(server: mongod.MongoServer | postgres.PostgresServer) -> None:
    if server.owned:
        # As the watcher does it: only while the server still belongs to this process.
        stop_orphan(server.home, os.getpid())


@contextmanager
def servers(directory: str | Path, *, durable: bool = True) -> Iterator[Servers]:
    """Run both servers for the length of a ``with`` block.

    Servers that ran before keep running afterwards. Servers that this block started are stopped at its end,
    and also when the process is killed, unless ``twinstore up`` asked for them to stay meanwhile.
    """
    running = start(directory, durable=durable, owned=True)
    try:
        yield running
    finally:
        _release(running.mongo)
        _release(running.postgres)


def stop(directory: str | Path) -> tuple[str, ...]:
    """Stop all servers of a data directory; the data stays.

    Returns:
        the names of the servers that were running.
    """
    tasks = {
        "mongo": partial(mongod.stop_mongo, directory),
        "mongo-standalone": partial(mongod.stop_mongo, directory, replica_set=False),
        "mongo-users": partial(mongod.stop_mongo, directory, users=True),
        mongo_set.DIRECTORY: partial(mongo_set.stop_mongo_set, directory),
        "postgres": partial(postgres.stop_postgres, directory),
    }
    with ThreadPoolExecutor() as pool:
        stopped = {name: pool.submit(task) for name, task in tasks.items()}
    return tuple(name for name, task in stopped.items() if task.result())


def stop_orphan(home: Path, owner: int) -> None:
    """Stop the server of one home if it still belongs to a process that ends or has ended."""
    stop_home = postgres.stop_home if home.name == postgres.DIRECTORY else mongod.stop_home
    stop_home(home, owner=owner)

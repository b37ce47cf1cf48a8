"""Runs the test servers in containers: the official images, or those that the environment names.

testcontainers reads the settings of the engine when it is imported, so this file is imported after they are
set.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import psycopg
from pymongo import MongoClient
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tests.support.servers import MONGO_IMAGE, POSTGRES_IMAGE, ServerUrls

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFICIAL = {MONGO_IMAGE: "mongo:7.0", POSTGRES_IMAGE: "postgres:17"}
PASSWORD = "twinstore"
ELECTION_SECONDS = 30
START_SECONDS = 60
MONGO_PORT = 27017


def image_of(variable: str) -> str:
    """Return the image that a variable names, else the official one."""
    return os.environ.get(variable) or OFFICIAL[variable]


def mongo_container() -> DockerContainer:
    """Describe a mongod that waits to become a replica set of one member."""
    container = DockerContainer(image_of(MONGO_IMAGE), command="mongod --replSet rs0 --bind_ip_all")
    return container.with_exposed_ports(MONGO_PORT).waiting_for(
        LogMessageWaitStrategy("Waiting for connections")
    )


def postgres_container() -> DockerContainer:
    """Describe a PostgreSQL that trades durability, which no test needs, for speed."""
    container = DockerContainer(
        image_of(POSTGRES_IMAGE), command="postgres -c fsync=off -c max_connections=200"
    )
    ready = LogMessageWaitStrategy("database system is ready to accept connections")
    return container.with_env("POSTGRES_PASSWORD", PASSWORD).with_exposed_ports(5432).waiting_for(ready)


@contextmanager
def running_containers(kinds: tuple[str, ...]) -> Iterator[ServerUrls]:
    """Run the servers of these kinds; they end with the block."""
    urls: dict[str, str] = {}
    with ExitStack() as stack:
        if "mongo" in kinds:
            mongo = stack.enter_context(mongo_container())
            urls["mongo"] = f"mongodb://{_address(mongo, MONGO_PORT)}/?directConnection=true"
            initiate_replica_set(urls["mongo"])
        if "postgres" in kinds:
            postgres = stack.enter_context(postgres_container())
            urls["postgres"] = f"postgresql://postgres:{PASSWORD}@{_address(postgres, 5432)}/postgres"
            await_postgres(urls["postgres"])
        yield ServerUrls(**urls)


def initiate_replica_set(url: str) -> None:
    """Make a fresh mongod a replica set of one member and wait for its election."""
    with MongoClient[dict[str, object]](url) as client:
        # Under the address that it has for itself: it must find itself among the members.
        options = client.admin.command("getCmdLineOpts")["parsed"]
        member = {"_id": 0, "host": f"localhost:{options['net'].get('port', MONGO_PORT)}"}
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
        deadline = time.monotonic() + ELECTION_SECONDS
        while not client.admin.command("hello")["isWritablePrimary"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"mongod elected no primary in {ELECTION_SECONDS} s")
            time.sleep(0.05)


def await_postgres(url: str) -> None:
    """Wait until PostgreSQL answers.

    The image starts the server twice, first for its own set-up and out of reach. Its log says both times that
    the server is ready, and testcontainers always waits for the first time only.
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def _address(container: DockerContainer, port: int) -> str:
    return f"{container.get_container_host_ip()}:{container.get_exposed_port(port)}"

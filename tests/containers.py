"""Runs the test servers in containers, for those who prefer the official images."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pymongo import MongoClient
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tests.servers import ServerUrls

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "twinstore"
ELECTION_SECONDS = 30
MEMBER = {"_id": 0, "host": "localhost:27017"}


def mongo_container() -> DockerContainer:
    """Describe a mongod that waits to become a replica set of one member."""
    container = DockerContainer("mongo:7.0", command="mongod --replSet rs0 --bind_ip_all")
    return container.with_exposed_ports(27017).waiting_for(LogMessageWaitStrategy("Waiting for connections"))


def postgres_container() -> DockerContainer:
    """Describe a PostgreSQL that trades durability, which no test needs, for speed."""
    container = DockerContainer("postgres:17", command="postgres -c fsync=off -c max_connections=200")
    # The image starts the server twice: once for its own set-up, then for everybody.
    ready = LogMessageWaitStrategy("database system is ready to accept connections", times=2)
    return container.with_env("POSTGRES_PASSWORD", PASSWORD).with_exposed_ports(5432).waiting_for(ready)


@contextmanager
def running_containers(kinds: tuple[str, ...]) -> Iterator[ServerUrls]:
    """Run the servers of these kinds; they end with the block."""
    urls: dict[str, str] = {}
    with ExitStack() as stack:
        if "mongo" in kinds:
            mongo = stack.enter_context(mongo_container())
            urls["mongo"] = f"mongodb://{_address(mongo, 27017)}/?directConnection=true"
            initiate_replica_set(urls["mongo"])
        if "postgres" in kinds:
            postgres = stack.enter_context(postgres_container())
            urls["postgres"] = f"postgresql://postgres:{PASSWORD}@{_address(postgres, 5432)}/postgres"
        yield ServerUrls(**urls)


def initiate_replica_set(url: str) -> None:
    """Make a fresh mongod a replica set of one member and wait for its election."""
    with MongoClient[dict[str, object]](url) as client:
        client.admin.command("replSetInitiate", {"_id": "rs0", "members": [MEMBER]})
        deadline = time.monotonic() + ELECTION_SECONDS
        while not client.admin.command("hello")["isWritablePrimary"]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"mongod elected no primary in {ELECTION_SECONDS} s")
            time.sleep(0.05)


def _address(container: DockerContainer, port: int) -> str:
    return f"{container.get_container_host_ip()}:{container.get_exposed_port(port)}"

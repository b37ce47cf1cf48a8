"""The drivers under comparison, each on a store that every example starts with empty."""

from __future__ import annotations

import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

import hypothesis
import psycopg
import pytest
from psycopg import sql

import twinstore
from tests.support.pgbouncer import pooler_before
from tests.support.servers import postgres_config, postgres_url
from tools.differential.__main__ import EXAMPLES
from tools.differential.machine import Side, memory_side
from twinstore.clock import FixedClock
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing.instants import at
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.store import MemoryDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from tests.support.servers import Settings

# Instants that a service stamps must be the same on every side.
CLOCK: Final = FixedClock(at(10))
# No other writer proceeds while one waits, so every wait fails; long enough for the server's own locks.
LOCK_TIMEOUT_MS: Final = 100
BIG_EXAMPLES: Final = [
    hypothesis.HealthCheck.too_slow,
    hypothesis.HealthCheck.data_too_large,
    hypothesis.HealthCheck.large_base_example,
]

BOUNDED: Final = hypothesis.settings(
    max_examples=120,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    # Shrinking takes minutes on real servers; the command does it.
    phases=[hypothesis.Phase.generate],
    suppress_health_check=BIG_EXAMPLES,
)


@pytest.fixture(scope="session")
def profile() -> hypothesis.settings:
    """Return how long to search: as long as ``python -m tools.differential`` asks for, or not so long."""
    if EXAMPLES not in os.environ:
        return BOUNDED
    return hypothesis.settings(
        max_examples=int(os.environ[EXAMPLES]),
        stateful_step_count=40,
        deadline=None,
        derandomize=False,
        suppress_health_check=BIG_EXAMPLES,
    )


@pytest.fixture(scope="session")
def bounded_profile(profile: hypothesis.settings, *, long_form: bool) -> hypothesis.settings:
    """Return a twentieth of the search where every example is dear, unless a long one is asked for."""
    if long_form:
        return profile
    return hypothesis.settings(profile, max_examples=max(1, profile.max_examples // 20))


@pytest.fixture
def memory() -> Side:
    """Return the memory driver."""
    return memory_side("memory", MemoryBackend(MODULE), CLOCK)


@pytest.fixture
def mongo_config(empty_mongo_database: MongoDatabase) -> Settings:
    """Return the settings of a fresh database; retention is off, or it would remove old runs."""
    return {**empty_mongo_database.config, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}


@pytest.fixture
def mongo(
    mongo_server: MongoServer, empty_mongo_database: MongoDatabase, mongo_config: Settings
) -> Iterator[Side]:
    """Return the MongoDB driver on the shared server."""
    documents = mongo_server.client[empty_mongo_database.name]

    def wipe() -> None:
        for entity in SCHEDULER.entities:
            documents[entity.name].delete_many({})

    with twinstore.open_storage(mongo_config, clock=CLOCK) as storage:
        storage.scheduler.initializer.ensure_migrations()
        yield Side("mongo", storage.scheduler, wipe)


@pytest.fixture
def memory_pair() -> tuple[Side, Side]:
    """Return two storages on one store in memory."""
    store = MemoryDatabase()
    side = memory_side("memory", MemoryBackend(MODULE, store), CLOCK)
    return side, side.on_same_store(SchedulerStorage(MemoryBackend(MODULE, store), CLOCK))


@pytest.fixture
def mongo_pair(mongo: Side, mongo_config: Settings) -> Iterator[tuple[Side, Side]]:
    """Return two storages on one MongoDB."""
    with twinstore.open_storage(mongo_config, clock=CLOCK) as other:
        yield mongo, mongo.on_same_store(other.scheduler)


@pytest.fixture
def postgres_pair(postgres: Side, module_postgres_database: PostgresDatabase) -> Iterator[tuple[Side, Side]]:
    """Return two storages on one PostgreSQL whose waits fail at once: no other writer proceeds meanwhile."""
    url = postgres_url(module_postgres_database.app_url, options=f"-c lock_timeout={LOCK_TIMEOUT_MS}")
    config = postgres_config(url, module_postgres_database.owner_url)
    with (
        twinstore.open_storage(config, clock=CLOCK) as first,
        twinstore.open_storage(config, clock=CLOCK) as second,
    ):
        yield postgres.on_same_store(first.scheduler), postgres.on_same_store(second.scheduler)


@pytest.fixture
def postgres(module_postgres_database: PostgresDatabase) -> Iterator[Side]:
    """Return the PostgreSQL driver on the shared server."""
    with postgres_side(module_postgres_database, module_postgres_database.config) as side:
        yield side


@pytest.fixture
def pooled(postgres_server: PostgresServer, module_postgres_database: PostgresDatabase) -> Iterator[Side]:
    """Return the PostgreSQL driver behind a transaction pooler."""
    with (
        pooler_before(postgres_server.url) as pooler,
        postgres_side(module_postgres_database, pooler.config(module_postgres_database)) as side,
    ):
        yield side


@contextmanager
def postgres_side(database: PostgresDatabase, config: Settings) -> Iterator[Side]:
    """Open a database with some settings; the superuser may delete audit records."""
    tables = [sql.Identifier("scheduler", entity.name) for entity in SCHEDULER.entities]
    statement = sql.SQL("; ").join(sql.SQL("DELETE FROM {}").format(table) for table in tables)
    with (
        closing(psycopg.connect(database.superuser_url, autocommit=True)) as superuser,
        twinstore.open_storage(config, clock=CLOCK) as storage,
    ):
        yield Side("postgres", storage.scheduler, lambda: superuser.execute(statement))

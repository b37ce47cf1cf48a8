"""Fresh stores of tracking on any driver, and settings of a task runner on the databases of the tests."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import twinstore
from tests.support.servers import mongo_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from tests.support.servers import Settings
    from twinstore.clock import Clock
    from twinstore.tracking.storage import TrackingStorage


@contextmanager
def tracking_settings(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Give the settings of tracking on a driver, without a schema yet."""
    if driver == "memory":
        yield {"Persistence": {"Tracking": "Memory", "Memory": {"Store": f"test-{uuid4().hex}"}}}
    elif driver == "mongo":
        server: MongoServer = request.getfixturevalue("mongo_server")
        with server.database() as documents:
            yield tracking_instead(documents.config)
    else:
        tables: PostgresServer = request.getfixturevalue("postgres_server")
        with tables.empty_database() as database:
            yield tracking_instead(database.config)


def tracking_instead(settings: Settings) -> Settings:
    """Return settings of the scheduler with the switch of tracking instead."""
    persistence = dict(cast("dict[str, Any]", settings["Persistence"]))
    driver = persistence.pop("Scheduler")
    return {**settings, "Persistence": {**persistence, "Tracking": driver}}


@contextmanager
def tracking_on(
    settings: Settings, clock: Clock | None = None, options: Settings | None = None
) -> Iterator[TrackingStorage]:
    """Open tracking and migrate it."""
    with twinstore.add_tracking_storage(settings, clock=clock, options=options) as storage:
        storage.initializer.ensure_migrations()
        yield storage


@contextmanager
def fresh_tracking(
    driver: str,
    request: pytest.FixtureRequest,
    clock: Clock | None = None,
    options: Settings | None = None,
) -> Iterator[TrackingStorage]:
    """Open tracking on a driver, migrated and without a row."""
    with tracking_settings(driver, request) as settings, tracking_on(settings, clock, options) as storage:
        yield storage


def settings_of(url: str, database: str) -> Settings:
    """Return the settings of tracking on a separate MongoDB."""
    return tracking_instead(mongo_config(url, database))


def on_mongo(database: MongoDatabase, **options: object) -> Settings:
    """Return the settings of a task runner that is stored in one MongoDB database."""
    return switched(database.config, "Mongo", options)


def on_postgres(database: PostgresDatabase, **options: object) -> Settings:
    """Return the settings of a task runner that is stored in one PostgreSQL database."""
    return switched(database.config, "Postgres", options)


def switched(config: Settings, driver: str, options: Mapping[str, object]) -> Settings:
    """Return the settings of a database with the task runner on its driver, and options of that."""
    section = cast("dict[str, object]", config["Persistence"])
    return {"Persistence": {**section, "TaskRunner": driver}, "TaskRunner": {**options}}

"""Settings of a task runner on the databases of the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.databases import MongoDatabase, PostgresDatabase
    from tests.servers import Settings

__all__ = ["on_mongo", "on_postgres", "switched"]


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

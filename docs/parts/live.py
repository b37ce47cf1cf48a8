"""The parts that real servers decide, made on servers that live in a temporary directory."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import mongomock
import psycopg
from pymongo import MongoClient

from docs.parts import capabilities, schemas
from twinstore import open_storage
from twinstore.scheduler.catalog import SCHEDULER
from twinstore_embedded import servers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pymongo.database import Database

    from twinstore import Capabilities

__all__ = ["HOUSEKEEPING", "declared", "mongomock_settings", "schema_parts", "server_parts"]

ENTITIES: Final = tuple(entity.name for entity in SCHEDULER.entities)
HOUSEKEEPING: Final = "housekeeping"
MEMORY: Final = {"Persistence": {"Scheduler": "Memory"}}


def mongomock_settings() -> Mapping[str, object]:
    """Return settings that choose the test double of MongoDB."""
    mongo = {"Client": mongomock.MongoClient(), "Database": "docs", "AllowStandalone": True}
    return {"Persistence": {"Scheduler": "Mongo", "Mongo": mongo}}


def declared(settings: Mapping[str, object]) -> Capabilities:
    """Return what the driver of some settings can do."""
    with open_storage(settings) as storage:
        return storage.scheduler.capabilities


def capability_matrix(mongo: Mapping[str, object], postgres: Mapping[str, object]) -> str:
    """Return the matrix over all backends that we ship."""
    backends = {"Mongo": mongo, "Postgres": postgres, "Memory": MEMORY, "mongomock": mongomock_settings()}
    return capabilities.matrix({name: declared(settings) for name, settings in backends.items()})


def schema_parts(
    database: Database[dict[str, Any]], relational: schemas.Relational
) -> dict[str, Callable[[], str]]:
    """Return a part for each entity on each store, one for what is no entity, and the policies."""
    parts: dict[str, Callable[[], str]] = {"policies": partial(schemas.policy_part, relational)}
    for name in ENTITIES:
        parts[f"mongo.{name}"] = partial(schemas.collection_part, database, name)
        parts[f"postgres.{name}"] = partial(schemas.table_part, relational, name)
    parts[f"mongo.{HOUSEKEEPING}"] = lambda: "\n\n".join(
        schemas.collection_part(database, name)
        for name in schemas.collections(database)
        if name not in ENTITIES
    )
    parts[f"postgres.{HOUSEKEEPING}"] = lambda: "\n\n".join(
        schemas.table_part(relational, name) for name in schemas.tables(relational) if name not in ENTITIES
    )
    return parts


@contextmanager
def server_parts(directory: Path) -> Iterator[dict[str, Callable[[], str]]]:
    """Start both servers, apply the migrations, and give the parts while the servers run."""
    with ExitStack() as stack:
        running = stack.enter_context(servers(directory))
        mongo = {"Persistence": {"Scheduler": "Mongo", **_section("Mongo", running.mongo.url)}}
        owner = running.postgres.owner_url()
        postgres = {
            "Persistence": {
                "Scheduler": "Postgres",
                **_section("Postgres", running.postgres.app_url(), owner),
            }
        }
        for settings in (mongo, postgres):
            with open_storage(settings) as storage:
                storage.scheduler.initializer.ensure_migrations()
        client = stack.enter_context(closing(MongoClient[dict[str, Any]](running.mongo.url)))
        connection = stack.enter_context(closing(psycopg.connect(owner, autocommit=True)))
        relational = schemas.Relational(connection, "twinstore_app")
        matrix = partial(capability_matrix, mongo, postgres)
        yield {"matrix": matrix, **schema_parts(client["docs"], relational)}


def _section(driver: str, url: str, owner: str | None = None) -> dict[str, object]:
    if owner is None:
        return {driver: {"ConnectionString": url, "Database": "docs"}}
    return {driver: {"ConnectionString": url, "OwnerConnectionString": owner}}

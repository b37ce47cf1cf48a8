"""Parts of the pages that need real servers, and the schema that the shipped migrations create."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg
from pymongo import MongoClient

from docs.parts import capabilities, schemas
from docs.parts.entities import MODULES, entities_part
from docs.parts.shipped import schema_files
from twinstore import open_storage
from twinstore.plugins.modules import module_plugin
from twinstore_embedded.roles import APP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pymongo.database import Database

    from twinstore import Capabilities
    from twinstore.catalog.entity import Entity
    from twinstore_embedded import Servers

__all__ = [
    "HOUSEKEEPING",
    "declared",
    "schema_parts",
    "server_parts",
    "shipped_schemas",
]

# The sections of the modules begin with 3.1, that of the scheduler, to which the customer's pages link.
CHAPTER: Final = 3
HOUSEKEEPING: Final = "housekeeping"
MEMORY: Final = {"Persistence": {"Scheduler": "Memory"}}
# Nothing is read or written there: only the capabilities of the driver are queried.
FILES: Final = {"Persistence": {"TaskRunner": "Filesystem", "Filesystem": {"Root": "/nowhere"}}}


def declared(settings: Mapping[str, object]) -> Capabilities:
    """Return what the driver of some settings can do."""
    with open_storage(settings) as storage:
        module = storage.taskrunner if settings is FILES else storage.scheduler
        return module.capabilities


def capability_matrix(mongo: Mapping[str, object], postgres: Mapping[str, object]) -> str:
    """Return the matrix over all backends that we ship."""
    backends = {"Mongo": mongo, "Postgres": postgres, "Memory": MEMORY, "Filesystem": FILES}
    return capabilities.matrix({name: declared(settings) for name, settings in backends.items()})


def schema_parts(
    database: Database[dict[str, Any]], relational: schemas.Relational
) -> dict[str, Callable[[], str]]:
    """Return the part with all entities, one on each store for what is not an entity, and the policies."""
    described = [entity for module in MODULES for entity in module.catalog.entities]

    def held(entity: Entity) -> str:
        collection = schemas.collection_part(database, entity.collection)
        return f"{collection}\n\n{schemas.table_part(relational, entity.module, entity.name)}"

    def other_collections() -> str:
        known = {entity.collection for entity in described}
        names = [name for name in schemas.collections(database) if name not in known]
        return "\n\n".join(schemas.collection_part(database, name) for name in names)

    def other_tables() -> str:
        known = {(entity.module, entity.name) for entity in described}
        found = [
            (module.name, name) for module in MODULES for name in schemas.tables(relational, module.name)
        ]
        return "\n\n".join(schemas.table_part(relational, *place) for place in found if place not in known)

    return {
        **{
            f"entities.{module.name}": partial(entities_part, module, f"{CHAPTER}.{number}", held)
            for number, module in enumerate(MODULES, 1)
        },
        f"mongo.{HOUSEKEEPING}": other_collections,
        f"postgres.{HOUSEKEEPING}": other_tables,
        "policies": partial(schemas.policy_part, relational, [module.name for module in MODULES]),
    }


def shipped_schemas(running: Servers) -> dict[Path, str]:
    """Return the wanted text of each ``schema.txt``, read from a database that nothing else uses."""
    with closing(psycopg.connect(running.postgres.superuser_url(), autocommit=True)) as connection:
        return schema_files(connection, APP)


@contextmanager
def server_parts(running: Servers) -> Iterator[dict[str, Callable[[], str]]]:
    """Apply the migrations on both servers and give the parts, for as long as the servers run."""
    with ExitStack() as stack:
        owner = running.postgres.owner_url()
        mongo = _settings("Mongo", running.mongo.url)
        postgres = _settings("Postgres", running.postgres.app_url(), owner)
        for settings in (mongo, postgres):
            with open_storage(settings) as storage:
                for module in MODULES:
                    storage.module(module.name).initializer.ensure_migrations()
        client = stack.enter_context(closing(MongoClient[dict[str, Any]](running.mongo.url)))
        connection = stack.enter_context(closing(psycopg.connect(owner, autocommit=True)))
        relational = schemas.Relational(connection, APP)
        matrix = partial(capability_matrix, mongo, postgres)
        yield {"matrix": matrix, **schema_parts(client["docs"], relational)}


def _settings(driver: str, url: str, owner: str | None = None) -> dict[str, object]:
    """Return settings in which a driver answers for every module."""
    switches = {module_plugin(module.name).settings.section: driver for module in MODULES}
    reached = {"Database": "docs"} if owner is None else {"OwnerConnectionString": owner}
    return {"Persistence": {**switches, driver: {"ConnectionString": url, **reached}}}

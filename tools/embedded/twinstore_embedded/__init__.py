"""Real servers without an installation: a mongod and a PostgreSQL from pip wheels, in one directory.

The servers listen on 127.0.0.1 only. They are meant for development, tests and demonstrations.

    from twinstore_embedded import servers

    with servers(".twinstore") as running:
        running.mongo.url, running.postgres.app_url()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twinstore_embedded.appsettings import write_appsettings
    from twinstore_embedded.lifecycle import Servers, servers, start, stop
    from twinstore_embedded.mongo_set import MongoSet, start_mongo_set, stop_mongo_set
    from twinstore_embedded.mongod import MongoServer, start_mongo, stop_mongo
    from twinstore_embedded.postgres import PostgresServer, Shutdown, start_postgres, stop_postgres

__all__ = [
    "MongoServer",
    "MongoSet",
    "PostgresServer",
    "Servers",
    "Shutdown",
    "servers",
    "start",
    "start_mongo",
    "start_mongo_set",
    "start_postgres",
    "stop",
    "stop_mongo",
    "stop_mongo_set",
    "stop_postgres",
    "write_appsettings",
]

# The command line registers `up` and `down` also where the extra is missing, so the drivers load late.
_MODULES = {
    "MongoServer": "mongod",
    "MongoSet": "mongo_set",
    "PostgresServer": "postgres",
    "Servers": "lifecycle",
    "Shutdown": "postgres",
    "servers": "lifecycle",
    "start": "lifecycle",
    "start_mongo": "mongod",
    "start_mongo_set": "mongo_set",
    "start_postgres": "postgres",
    "stop": "lifecycle",
    "stop_mongo": "mongod",
    "stop_mongo_set": "mongo_set",
    "stop_postgres": "postgres",
    "write_appsettings": "appsettings",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

"""Migrated MongoDB databases that go from test to test: emptied, not dropped.

To make one and to drop it costs the server and its client a quarter of a second of processor time, to empty
one a tenth of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.stores import kept
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pymongo import MongoClient

    from tests.databases import MongoDatabase

__all__ = ["MigratedDatabases"]

LEDGER: Final = "_migrations"
# More than so many documents are dropped with their database sooner than removed one by one.
MOST_TO_REMOVE: Final = 1_000
LOOKS: Final = 3
# Sections of the status of the server that cost more than the one that is wanted.
LEFT_OUT: Final = dict.fromkeys(("repl", "metrics", "locks", "wiredTiger", "tcmalloc"), 0)


@dataclass(frozen=True, slots=True)
class Made:
    """What has to be as it was before a database is given again.

    Attributes:
        catalog: its collections and their indexes, as the server keeps them: options, identities, and
            whether an index has met an array, which changes how the server may use it ever after.
        ledger: which migrations are applied, and the lease of the last one.
    """

    catalog: list[dict[str, object]]
    ledger: list[dict[str, object]]

    @property
    def names(self) -> set[str]:
        """The names of the collections."""
        return {str(collection["name"]) for collection in self.catalog}


class MigratedDatabases:
    """The databases of this process with the schema of one module that no test holds.

    A test takes one from here and gives it back. What a test has changed besides its documents, whatever
    that is, is dropped with its database.
    """

    def __init__(
        self,
        client: MongoClient[dict[str, object]],
        name: Callable[[], MongoDatabase],
        module: str = "scheduler",
        options: Mapping[str, object] | None = None,
    ) -> None:
        """Take a client of the server, what names a database that does not exist yet, and the module."""
        self._client = client
        self._name = name
        self._module = module
        self._options = options
        self._made: dict[str, Made] = {}
        self._idle: list[MongoDatabase] = []

    def take(self) -> MongoDatabase:
        """Return a migrated database without a row: it keeps what becomes old, and has a ledger of copies."""
        if self._idle:
            return self._idle.pop()
        database = self._name()
        settings = kept(database.config)
        with open_module(self._module, "Mongo", settings, options=self._options) as storage:
            storage.initializer.ensure_migrations()
            storage.bulk.ledger_initializer.ensure_migrations()
        self._made[database.name] = self._seen(database.name)
        return database

    def give_back(self, database: MongoDatabase) -> bool:
        """Empty a database for the next test; return whether that was possible: else it is to be dropped.

        That a test has made collections beside those of the migrations does no harm, when they are dropped.
        """
        made, seen = self._made[database.name], self._seen(database.name)
        own = [collection for collection in seen.catalog if collection["name"] in made.names]
        if Made(own, seen.ledger) != made or not self._is_quiet() or self._is_large(database.name):
            del self._made[database.name]
            return False
        stored = self._client[database.name]
        for name in seen.names - made.names:
            stored.drop_collection(name)
        for name in made.names - {LEDGER}:
            stored[name].delete_many({})
        self._idle.append(database)
        return True

    def _is_quiet(self) -> bool:
        """Return whether at some look nobody has a transaction open.

        That of a killed process may hold documents here until the server ends it; those of the other tests
        are short.
        """
        return any(not self._open_transactions() for _ in range(LOOKS))

    def _open_transactions(self) -> int:
        status = self._client.admin.command({"serverStatus": 1, **LEFT_OUT})
        return int(status["transactions"]["currentOpen"])

    def _is_large(self, name: str) -> bool:
        """Return whether a database has too many documents to remove them."""
        return bool(self._client[name].command("dbStats")["objects"] > MOST_TO_REMOVE)

    def _seen(self, name: str) -> Made:
        """Return what there is besides the documents of the entities."""
        stages: list[dict[str, object]] = [
            {"$listCatalog": {}},
            {"$match": {"db": name}},
            {"$sort": {"name": 1}},
        ]
        catalog = list(self._client.admin.aggregate(stages))
        return Made(catalog, list(self._client[name][LEDGER].find(sort=[("_id", 1)])))

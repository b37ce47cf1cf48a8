"""The cost per row of the stages of a copy before writing: reading it, and checking and packing it.

Both are measured separately in this process, by the processor time of this process and of the server. The
rest of the cost of a copy is the writing, with everything that a copy records.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final, cast

from psycopg import sql
from pymongo import CursorType, MongoClient

from benchmarks.entities.filling import section_of
from benchmarks.schedule import Sample
from twinstore.catalog.keys import KeyRange
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from benchmarks.modules.stores import Stores
    from twinstore.catalog.entity import Entity
    from twinstore.tracking.storage import TrackingStorage

__all__ = ["MONGO", "POSTGRES", "Stages"]

MONGO, POSTGRES = "Mongo", "Postgres"
BATCH: Final = 1000


@dataclass(frozen=True, slots=True)
class Stages:
    """Reads an entity of one store, raw and as a copy does; ``driver`` says which store."""

    stores: Stores
    driver: str

    def read(self, entity: Entity) -> Sample:
        """Receive all rows and look into none."""
        return self._raw_mongo(entity) if self.driver == MONGO else self._raw_postgres(entity)

    def packed(self, entity: Entity) -> Sample:
        """Read all rows as a copy does: checked, and packed for the writer where native code can."""
        settings = self.stores.settings(section_of(entity.module), self.driver)
        with open_module(entity.module, config=settings) as opened:
            # Every storage has this; the type of the module does not matter here.
            storage = cast("TrackingStorage", opened)
            with storage.bulk.view() as view:
                # The first batch opens connections and derives what is kept.
                next(iter(view.packed(entity, KeyRange(), batch_size=1)), None)
            with storage.bulk.view() as view:
                batches = view.packed(entity, KeyRange(), batch_size=BATCH)
                return _measured(lambda: sum(len(batch) for batch in batches))

    def _raw_mongo(self, entity: Entity) -> Sample:
        with closing(MongoClient[dict[str, Any]](self.stores.servers.mongo.url)) as client:
            collection = client[self.stores.mongo_database][entity.collection]
            rows = collection.count_documents({})

            def receive() -> int:
                for _ in collection.find_raw_batches(batch_size=BATCH, cursor_type=CursorType.EXHAUST):
                    pass
                return rows

            return _measured(receive)

    def _raw_postgres(self, entity: Entity) -> Sample:
        statement = sql.SQL("COPY {} TO STDOUT (FORMAT binary)")
        table = sql.Identifier(entity.module, entity.name)
        with closing(self.stores.superuser()) as connection, connection.cursor() as cursor:

            def receive() -> int:
                with cursor.copy(statement.format(table)) as rows:
                    for _ in rows:
                        pass
                return cursor.rowcount

            return _measured(receive)


def _measured(work: Callable[[], int]) -> Sample:
    used, began = process_time(), perf_counter()
    units = work()
    seconds, used = perf_counter() - began, process_time() - used
    return Sample(units=units, seconds=seconds, client_seconds=used)

"""Fills MongoDB fast, and proves once that the repositories read what was filled in."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from benchmarks.data import documents, recent_start
from twinstore import add_scheduler_mongo_storage
from twinstore.scheduler import RunQueryOptions

if TYPE_CHECKING:
    from benchmarks.databases import BenchmarkDatabases

__all__ = ["load"]

BATCH: Final = 1000
CHECKED: Final = 20


def load(databases: BenchmarkDatabases, count: int) -> float:
    """Insert the runs and return their mean size in bytes of BSON."""
    collection = databases.runs()
    batch = []
    for document in documents(count, recent_start()):
        batch.append(document)
        if len(batch) == BATCH:
            collection.insert_many(batch, ordered=False)
            batch = []
    if batch:
        collection.insert_many(batch, ordered=False)
    _check(databases, count)
    return float(collection.database.command("collStats", "runs")["avgObjSize"])


def _check(databases: BenchmarkDatabases, count: int) -> None:
    """Read some of the runs one by one and in a list; a document of another form raises."""
    with add_scheduler_mongo_storage(databases.settings()) as storage:
        for document in islice(documents(count, recent_start()), CHECKED):
            storage.runs.get_required(str(document["tenantId"]), str(document["_id"]))
        page = storage.runs.list("tenant-0", RunQueryOptions(limit=200))
        if not page:
            raise RuntimeError("the repository lists none of the runs that were loaded")

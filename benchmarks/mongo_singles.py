"""Single calls of pymongo that do what the repositories do: same filters, same concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymongo import ReadPreference, WriteConcern
from pymongo.read_concern import ReadConcern

from benchmarks.singles import TENANT

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.collection import Collection

    from benchmarks.databases import BenchmarkDatabases

__all__ = ["BareMongo"]


class BareMongo:
    """Bare pymongo."""

    def __init__(self, databases: BenchmarkDatabases) -> None:
        """Take the collections with the concerns of the library."""
        self._runs = self._collection(databases, "runs")
        self._snapshots = self._collection(databases, "impact_snapshots")
        self._summaries = self._collection(databases, "run_summaries")

    @staticmethod
    def _collection(databases: BenchmarkDatabases, name: str) -> Collection[dict[str, Any]]:
        return (
            databases.runs()
            .database[name]
            .with_options(
                read_concern=ReadConcern("majority"),
                write_concern=WriteConcern("majority"),
                read_preference=ReadPreference.PRIMARY,
            )
        )

    def get_run(self, run_id: str) -> object:
        """Read one run by tenant and id."""
        return _present(self._runs.find_one({"_id": run_id, "tenantId": TENANT}))

    def learn_snapshot(self, snapshot_id: str) -> Callable[[], object]:
        """Return a call that stores what the snapshot is at present."""
        query = {"_id": snapshot_id, "_tenantId": TENANT}
        document = _present(self._snapshots.find_one(query))
        return lambda: self._snapshots.replace_one(query, document, upsert=True)

    def learn_summary(self, schedule_id: str) -> Callable[[], object]:
        """Return a call that stores what the summary is at present."""
        query = {"tenantId": TENANT, "scheduleId": schedule_id}
        document = _present(self._summaries.find_one(query))
        return lambda: self._summaries.replace_one(query, document, upsert=True)

    def learn_run(self, run_id: str) -> tuple[Callable[[str], object], Callable[[str], object]]:
        """Return calls that insert such a run under an id, and that replace it if it did not change."""
        document = _present(self._runs.find_one({"_id": run_id}))

        def insert(new_id: str) -> object:
            return self._runs.insert_one({**document, "_id": new_id})

        def replace(old_id: str) -> object:
            stored = _present(self._runs.find_one({"_id": old_id, "tenantId": TENANT}))
            version = stored["_version"]
            query = {"_id": old_id, "tenantId": TENANT, "_version": version}
            return self._runs.replace_one(query, {**stored, "_version": version + 1})

        return insert, replace


def _present(document: dict[str, Any] | None) -> dict[str, Any]:
    if document is None:
        raise RuntimeError("the document to measure is not stored")
    return document

"""A row that somebody else has locked on a real server, and what the server says of those who wait for it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

import psycopg
from pymongo import MongoClient
from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.databases import MongoDatabase, PostgresDatabase
    from tests.servers import Settings

__all__ = ["HeldRows", "MongoRows", "PostgresRows", "eventually"]

PATIENCE_SECONDS: Final = 30.0
NAME: Final = "twinstore-test-calls"
ACTIVITY: Final = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s AND state = ANY (%s)"


class HeldRows(Protocol):
    """The side of the server."""

    def settings(self, **changes: object) -> Settings:
        """Return settings whose calls the server can tell from those of others."""
        ...

    def held(self, run_id: str) -> AbstractContextManager[None]:
        """Lock a run for the length of the block."""
        ...

    def at_work(self) -> int:
        """Return how many calls the server works on or waits with at this moment."""
        ...

    def open_transactions(self) -> int:
        """Return how many transactions of such calls are open."""
        ...


class PostgresRows(HeldRows):
    """On PostgreSQL."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    @override
    def settings(self, **changes: object) -> Settings:
        found = self._database.config["Persistence"]
        assert isinstance(found, dict)
        url = (
            f"{self._database.app_url}{'&' if '?' in self._database.app_url else '?'}application_name={NAME}"
        )
        postgres = {**found["Postgres"], "ConnectionString": url, "PoolMin": 0, **changes}
        return {"Persistence": {"Scheduler": "Postgres", "Postgres": postgres}}

    @contextmanager
    @override
    def held(self, run_id: str) -> Iterator[None]:
        with psycopg.connect(self._database.superuser_url) as connection, connection.transaction():
            connection.execute("SELECT 1 FROM scheduler.runs WHERE id = %s FOR UPDATE", (run_id,))
            yield

    @override
    def at_work(self) -> int:
        return self._count("active")

    @override
    def open_transactions(self) -> int:
        return self._count("active", "idle in transaction", "idle in transaction (aborted)")

    def connections(self) -> int:
        """Return how many connections the calls have."""
        return self._count("active", "idle", "idle in transaction", "idle in transaction (aborted)")

    def _count(self, *states: str) -> int:
        with psycopg.connect(self._database.superuser_url, autocommit=True) as connection:
            found = connection.execute(ACTIVITY, (NAME, list(states))).fetchone()
        assert found is not None
        return int(found[0])


class MongoRows(HeldRows):
    """On MongoDB."""

    def __init__(self, database: MongoDatabase) -> None:
        self._database = database

    @override
    def settings(self, **changes: object) -> Settings:
        del changes  # of PostgreSQL
        url = f"{self._database.url}{'&' if '?' in self._database.url else '/?'}appname={NAME}"
        mongo = {"ConnectionString": url, "Database": self._database.name}
        return {
            "Persistence": {"Scheduler": "Mongo", "Mongo": mongo},
            "Scheduler": {"Storage": {"RunRetentionDays": 0}},
        }

    @contextmanager
    @override
    def held(self, run_id: str) -> Iterator[None]:
        with (
            MongoClient[dict[str, object]](self._database.url) as client,
            client.start_session() as session,
            session.start_transaction(),
        ):
            runs = client[self._database.name]["runs"]
            runs.update_one({"_id": run_id}, {"$inc": {"_version": 1}}, session=session)
            yield
            session.abort_transaction()

    @override
    def at_work(self) -> int:
        return len(
            self._operations({"type": "op", "active": True, "ns": {"$regex": f"^{self._database.name}\\."}})
        )

    @override
    def open_transactions(self) -> int:
        return len(self._operations({"transaction": {"$exists": True}}))

    def _operations(self, which: dict[str, object]) -> list[dict[str, object]]:
        with MongoClient[dict[str, object]](self._database.url) as client:
            stages: list[dict[str, object]] = [
                {"$currentOp": {"allUsers": True, "idleSessions": True}},
                {"$match": {"appName": NAME, **which}},
            ]
            return list(client.admin.aggregate(stages))


def eventually(holds: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Whether something comes to hold before the patience ends."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return holds()

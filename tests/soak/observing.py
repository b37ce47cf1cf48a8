"""What a server tells of those who use it: connections, transactions that are open, statements that run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg
from pymongo import MongoClient

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Watch", "mongo_watch", "postgres_watch"]

LOOK_SECONDS: Final = 0.1
POSTGRES: Final = """
    SELECT state, coalesce(xact_start IS NOT NULL, false), left(query, 100)
    FROM pg_stat_activity
    WHERE application_name = 'twinstore' AND datname = current_database() AND pid <> pg_backend_pid()
"""
MONGO: Final = {"$currentOp": {"allUsers": True, "idleSessions": True, "idleConnections": True}}


@dataclass(frozen=True, slots=True)
class Watch:
    """Questions to a server.

    Attributes:
        connections: each connection, in words.
        open_work: each transaction or statement of a client that lives, in words.
    """

    connections: Callable[[], list[str]]
    open_work: Callable[[], list[str]]


def settled(look: Callable[[], list[str]], seconds: float) -> list[str]:
    """Ask until the answer is empty or the time is over; return the last answer."""
    deadline = time.monotonic() + seconds
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    return found


def postgres_watch(url: str) -> Watch:
    """Ask a PostgreSQL."""

    def rows() -> list[tuple[Any, ...]]:
        with psycopg.connect(url, application_name="soak") as connection:
            return connection.execute(POSTGRES).fetchall()

    return Watch(
        connections=lambda: [f"a connection that is {row[0]} ({row[2]})" for row in rows()],
        open_work=lambda: [f"a transaction that is {row[0]} ({row[2]})" for row in rows() if row[1]],
    )


def mongo_watch(url: str) -> Watch:
    """Ask a MongoDB."""

    def items() -> list[dict[str, Any]]:
        with MongoClient[dict[str, Any]](url, appname="soak") as client:
            found = list(client.admin.aggregate([MONGO]))
        return [item for item in found if item.get("appName") == "twinstore"]

    return Watch(
        connections=lambda: [
            f"a connection from {item['client']}"
            for item in items()
            if item["type"] == "op" and "client" in item
        ],
        open_work=lambda: open_transactions(items()),
    )


def open_transactions(items: list[dict[str, Any]]) -> list[str]:
    """Return the transactions whose client is connected.

    Those of killed processes stay until the server ends them.
    """
    connected = {item["connectionId"] for item in items if item["type"] == "op" and "connectionId" in item}
    return [
        f"a transaction of {item.get('client')} ({item.get('desc')})"
        for item in items
        if "transaction" in item and item.get("connectionId") in connected
    ]

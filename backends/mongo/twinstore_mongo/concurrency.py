"""How many calls a client can serve at the same time, without asking it to connect."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from pymongo import MongoClient

__all__ = ["MOST_CALLS", "calls_at_once"]

# Fewer than the 100 connections that a client may open: threads of one process hinder each other.
MOST_CALLS: Final = 40


def calls_at_once(client: object, url: str | None) -> int:
    """Return how many, by the client of a caller or else by a connection string."""
    if isinstance(client, MongoClient):
        # Infinite where the client has no limit.
        return int(min(client.options.pool_options.max_pool_size or MOST_CALLS, MOST_CALLS))
    return min(pool_size_of(url or "") or MOST_CALLS, MOST_CALLS)


def pool_size_of(url: str) -> int | None:
    """Return how many connections a connection string allows; ``None`` where it does not say, or no limit.

    Not by pymongo, which would look for the hosts of some connection strings.
    """
    for name, value in parse_qsl(url.partition("?")[2]):
        if name.lower() == "maxpoolsize" and value.isdecimal():
            return int(value) or None
    return None

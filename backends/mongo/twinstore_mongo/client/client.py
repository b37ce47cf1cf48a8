"""Clients: made of the settings, or given by the caller."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import pymongo
from pymongo import MongoClient
from pymongo.monitoring import ServerHeartbeatListener
from pymongo.uri_parser import parse_uri
from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.runtime.service_log import log_recovered
from twinstore_mongo.client.errors import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo.monitoring import (
        ServerHeartbeatFailedEvent,
        ServerHeartbeatStartedEvent,
        ServerHeartbeatSucceededEvent,
    )

    from twinstore_mongo.client.types import Client
    from twinstore_mongo.settings import MongoSettings

# As long as a statement may take on PostgreSQL by default, so that the switch changes no limit.
CALL_TIMEOUT_MS: Final = 30_000
# For the last message to a server, that sessions have ended; no caller waits for its answer.
CLOSE_SECONDS: Final = 2.0


def checked_client(client: object) -> Client:
    """Return a client of the application.

    Raises:
        ConfigurationError: it is another object, such as the client of pymongo for asyncio, or its server
            refuses commands that the driver needs.
    """
    if not isinstance(client, MongoClient):
        kind = type(client)
        raise ConfigurationError(
            f"Client is a {kind.__module__}.{kind.__qualname__}; pass a pymongo.MongoClient.", driver=DRIVER
        )
    api = client.options.pool_options.server_api
    if api is not None and api.strict:
        raise ConfigurationError(
            "Client was created with ServerApi(strict=True), so MongoDB refuses commands that twinstore "
            "needs, such as buildInfo; pass a pymongo.MongoClient without it.",
            driver=DRIVER,
        )
    return client


def new_client(settings: MongoSettings) -> Client:
    """Return a client whose every call is bounded in time; what the connection string says wins."""
    url = url_of(settings) or ""
    selection_ms = settings.server_selection_timeout_ms
    primaries = Primaries()
    given = {name.lower() for name in parse_uri(url)["options"]}
    defaults: dict[str, Any] = {
        "appname": "twinstore",
        "timeoutMS": CALL_TIMEOUT_MS,
        "serverSelectionTimeoutMS": selection_ms,
        "connectTimeoutMS": selection_ms,
        "retryWrites": True,
        "retryReads": True,
        "event_listeners": [primaries],
    }
    client = MongoClient[Any](
        url, **{name: value for name, value in defaults.items() if name.lower() not in given}
    )
    primaries.watch(client)
    return client


def close_client(client: Client) -> None:
    """Close a client; a server that is silent delays that no longer than a moment."""
    # A process that receives a stop signal has little time, and the server drops sessions by itself.
    with pymongo.timeout(CLOSE_SECONDS):
        client.close()


def url_of(settings: MongoSettings) -> str | None:
    """Return the connection string with its password; only for what connects with it."""
    secret = settings.connection_string
    return None if secret is None else secret.get_secret_value()


def hosts_of(client: Client, settings: MongoSettings) -> str:
    """Return ``host:port`` of every seed, without user and password."""
    if (url := url_of(settings)) is not None:
        return ",".join(
            host if port is None else f"{host}:{port}" for host, port in parse_uri(url)["nodelist"]
        )
    address = client.address
    return f"{address[0]}:{address[1]}" if address else ""


class Primaries(ServerHeartbeatListener):
    """Says when a server that accepts writes is known again; a thread of the client notifies it.

    Not a listener for topologies: for those pymongo has a thread that polls every half second, and closing
    the client waits for it.
    """

    def __init__(self) -> None:
        self._client: Callable[[], MongoClient[Any] | None] = lambda: None

    def watch(self, client: MongoClient[Any]) -> None:
        """Learn whose servers these are."""
        self._client = weakref.ref(client)

    @override
    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        """Do nothing."""

    @override
    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        """Say that the servers are reached again, where calls have met their absence."""
        client = self._client()
        if client is None or not event.reply.is_writable:
            return
        # The client learns what was answered a moment after this.
        known = client.topology_description
        if not known.has_writable_server():
            places = known.server_descriptions()
            log_recovered(DRIVER, lambda: ",".join(f"{host}:{port}" for host, port in places))

    @override
    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        """Do nothing."""


# How many calls a client can serve at the same time, without asking it to connect.


# Fewer than the 100 connections that a client may open: threads of one process hinder each other.
MOST_CALLS: Final = 40


def max_concurrent_calls(client: object, url: str | None) -> int:
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

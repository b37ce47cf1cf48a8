"""Clients: made of the settings, or given by the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pymongo
from pymongo import MongoClient
from pymongo.uri_parser import parse_uri

from twinstore.errors import ConfigurationError
from twinstore_mongo.error_messages import DRIVER
from twinstore_mongo.primaries import Primaries

if TYPE_CHECKING:
    from twinstore_mongo.connection import Client
    from twinstore_mongo.settings import MongoSettings

__all__ = ["CALL_TIMEOUT_MS", "checked_client", "close_client", "hosts_of", "new_client", "url_of"]

# As long as a statement may take on PostgreSQL by default, so that the switch changes no limit.
CALL_TIMEOUT_MS: Final = 30_000
# For the last word to a server, which nobody waits for: that sessions have ended.
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
    # A process that is told to stop has little time, and the server forgets sessions by itself.
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

"""What the client notices of its servers by itself: that there is a primary again after one was lost."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from pymongo.monitoring import ServerHeartbeatListener
from typing_extensions import override

from twinstore.servicelog import note_back
from twinstore_mongo.error_messages import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymongo import MongoClient
    from pymongo.monitoring import (
        ServerHeartbeatFailedEvent,
        ServerHeartbeatStartedEvent,
        ServerHeartbeatSucceededEvent,
    )

__all__ = ["Primaries"]


class Primaries(ServerHeartbeatListener):
    """Says when a server that takes writes is known again; told by a thread of the client.

    Not a listener for topologies: for those pymongo has a thread that looks every half second, and whoever
    closes the client waits for it.
    """

    def __init__(self) -> None:
        """Know no client yet."""
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
            note_back(DRIVER, lambda: ",".join(f"{host}:{port}" for host, port in places))

    @override
    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        """Do nothing."""

"""What the client notices of its servers by itself: that there is a primary again after one was lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymongo.monitoring import TopologyListener
from typing_extensions import override

from twinstore.servicelog import note_back
from twinstore_mongo.error_messages import DRIVER

if TYPE_CHECKING:
    from pymongo.monitoring import TopologyClosedEvent, TopologyDescriptionChangedEvent, TopologyOpenedEvent

__all__ = ["Primaries"]


class Primaries(TopologyListener):
    """Says when a server that takes writes is known again; told by a thread of the client, and rarely."""

    @override
    def opened(self, event: TopologyOpenedEvent) -> None:
        """Do nothing."""

    @override
    def description_changed(self, event: TopologyDescriptionChangedEvent) -> None:
        """Say that the servers are reached again, where calls have met their absence."""
        found = event.new_description
        if found.has_writable_server() and not event.previous_description.has_writable_server():
            places = found.server_descriptions()
            note_back(DRIVER, lambda: ",".join(f"{host}:{port}" for host, port in places))

    @override
    def closed(self, event: TopologyClosedEvent) -> None:
        """Do nothing."""

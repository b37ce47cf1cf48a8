"""The database of a storage: opened at first use, shared by the modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import pymongo
from bson.codec_options import CodecOptions
from pymongo import ReadPreference

from twinstore.plugins.backend import Capabilities
from twinstore_mongo.client.client import CALL_TIMEOUT_MS, checked_client
from twinstore_mongo.client.errors import Where
from twinstore_mongo.client.types import AWARE, DECODING, MAJORITY_READ, MAJORITY_WRITE, Client, Document

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection
    from pymongo.database import Database


# Building an index takes as long as it takes; a day would be a sign of trouble.
INDEX_SECONDS: Final = 86_400
UNLIMITED: Final = nullcontext()
WITH_PRIMARY: Final = "ReplicaSetWithPrimary"


@dataclass(frozen=True, slots=True)
class OpenDatabase:
    """An open database: the client, what it can do, and how errors name it.

    Attributes:
        own_timeout: seconds to add to every call because the client itself has no ``timeoutMS``.
        sizes: by name of collection, until when it is known how many bytes its documents have on average.
    """

    client: Client
    database: Database[Document]
    capabilities: Capabilities
    where: Where
    own_timeout: float | None = None
    collections: dict[str, Collection[Document]] = field(default_factory=dict)
    sizes: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])

    def limited(self) -> AbstractContextManager[object]:
        """Bound everything inside by the time limit of one call; raises when there is no server."""
        self.await_primary()
        return UNLIMITED if self.own_timeout is None else pymongo.timeout(self.own_timeout)

    def with_index_timeout(self) -> AbstractContextManager[object]:
        """Bound everything inside by a limit that building an index keeps."""
        self.await_primary()
        return pymongo.timeout(INDEX_SECONDS)

    def await_primary(self) -> None:
        """Wait for a primary as long as the settings say.

        Under ``timeoutMS`` pymongo would wait for a server as long as the whole call may take.
        """
        known = self.client.topology_description
        if known.topology_type_name != WITH_PRIMARY and not known.has_writable_server():
            _ = self.client.is_primary

    def joined(self, session: ClientSession) -> OpenDatabase:
        """Return the same database seen through the client of a caller's own session."""
        # A session works with the client that began it, and with no other.
        if session.client is self.client:
            return self
        client = checked_client(session.client)
        database = open_database(client, self.database.name)
        return OpenDatabase(client, database, self.capabilities, self.where, own_timeout_of(client))

    def now(self) -> datetime:
        """Return the time by the clock that decides about leases: that of the server."""
        # A command ignores how its database decodes, and types of ours in any case.
        hello = self.database.command("hello", codec_options=AWARE)
        answer: datetime = hello["localTime"]
        return answer

    def next_batch(self, cursor: Iterator[Any]) -> bytes | None:
        """Ask a raw cursor for one batch within the time limit of one call; ``None`` at the end."""
        with self.limited():
            return next(cursor, None)

    def collection(self, name: str) -> Collection[Document]:
        """Return a collection; documents are plain dictionaries, instants naive until they are converted."""
        # Making one costs as much as a tenth of a small read.
        found = self.collections.get(name)
        return self.collections.setdefault(name, self.database[name]) if found is None else found


def open_database(client: Client, name: str) -> Database[Document]:
    """Return a database with the concerns and the decoding that every call of the driver relies on."""
    return client.get_database(
        name,
        codec_options=cast("CodecOptions[Document]", DECODING),
        # A secondary may not have what this process wrote a moment ago.
        read_preference=ReadPreference.PRIMARY,
        write_concern=MAJORITY_WRITE,
        read_concern=MAJORITY_READ,
    )


def own_timeout_of(client: Client) -> float | None:
    """Return the seconds to add to every call of a client that bounds none itself."""
    return None if client.options.timeout else CALL_TIMEOUT_MS / 1000

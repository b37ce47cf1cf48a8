"""The client, what its server can do, and the database: opened at first use, shared by the modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo import MongoClient, ReadPreference
from pymongo.errors import InvalidURI
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri
from pymongo.write_concern import WriteConcern
from typing_extensions import override

from twinstore.attempts import SharedAttempt
from twinstore.backend import Capabilities
from twinstore.errors import ConfigurationError
from twinstore.forgetting import without_locals
from twinstore.forks import Renewable, renew_in_child
from twinstore.redaction import digest_of_secret
from twinstore.servicelog import note_connected
from twinstore_mongo.clients import (
    CALL_TIMEOUT_MS,
    checked_client,
    close_client,
    hosts_of,
    new_client,
    url_of,
)
from twinstore_mongo.concurrency import calls_at_once
from twinstore_mongo.error_messages import unreadable_file
from twinstore_mongo.errors import CLIENT_ERRORS, DRIVER, STANDALONE_REMEDY, Where, translate
from twinstore_mongo.shared_database import check_collections, check_module

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pymongo.client_session import ClientSession
    from pymongo.collection import Collection
    from pymongo.database import Database

    from twinstore.backend import SharedResources
    from twinstore.catalog import Entity
    from twinstore_mongo.settings import MongoSettings

__all__ = [
    "DECODING",
    "MAJORITY_READ",
    "MAJORITY_WRITE",
    "Client",
    "Connection",
    "Document",
    "OpenDatabase",
]

Document: TypeAlias = dict[str, Any]
Client: TypeAlias = "MongoClient[Document]"

# Building an index takes as long as it takes; a day would be a sign of trouble.
INDEX_SECONDS: Final = 86_400
UNLIMITED: Final = nullcontext()
WITH_PRIMARY: Final = "ReplicaSetWithPrimary"
OLDEST_SERVER: Final = (6, 0)
# What a majority has is neither lost nor undone by a failover, whether it is written or read. Written out,
# because the concerns of a client or of a deployment may be weaker.
MAJORITY_WRITE: Final = WriteConcern("majority")
MAJORITY_READ: Final = ReadConcern("majority")
# All reads of a transaction are of one state.
SNAPSHOT_READ: Final = ReadConcern("snapshot")
# Dates beyond year 9999 come as numbers of milliseconds instead of failing the whole batch. Without a type
# registry: with one, pymongo fails with an AttributeError where a primary that steps down answers that it has
# changed a document and no majority has it yet. The codec converts what it reads.
DECODING: Final = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO, document_class=dict)
AWARE: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OpenDatabase:
    """An open database: the client, what it can do, and how errors name it.

    Attributes:
        own_timeout: seconds to add to every call because the client has no ``timeoutMS`` of its own.
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


class Connection(Renewable):
    """Opens the store at first use."""

    def __init__(self, settings: MongoSettings, resources: SharedResources) -> None:
        """Take the settings and the place for what modules share; nothing is opened yet."""
        self._settings = settings
        self._resources = resources
        self._opening: SharedAttempt[OpenDatabase] = SharedAttempt()
        self._store: OpenDatabase | None = None
        self._closed = False
        renew_in_child(self)

    @property
    def store(self) -> OpenDatabase:
        """The open store; the first access connects.

        Raises:
            ConfigurationError: malformed settings, a refused login, a server without transactions, or the
                storage is closed.
            UnavailableError: no server answers.
        """
        return self._store or self._opening.run(self._opened)

    def store_within(self, seconds: float) -> OpenDatabase:
        """Return the open store, for a caller who does not wait for long.

        Raises:
            TimeoutError: the first connection takes longer; it is waited for by those who come next.
        """
        return self._store or self._opening.run(self._opened, seconds)

    def _opened(self) -> OpenDatabase:
        self._check_open()
        if self._store is None:
            store = self._open()
            # It may have been closed while this connected, and then nobody would close what came of it.
            self._check_open()
            self._store = store
        return self._store

    def _check_open(self) -> None:
        if self._closed:
            raise ConfigurationError("This storage is closed; open a new one.", driver=DRIVER)

    def check_names(self, entities: Iterable[Entity]) -> None:
        """Refuse another name for a collection whose description allows none, or that cannot be.

        Raises:
            ConfigurationError: the settings have one.
        """
        entities = tuple(entities)
        for entity in entities:
            if entity.collection_setting is None and entity.name in self._settings.collections:
                raise ConfigurationError(
                    f"The collection of {entity.name} is always called {entity.collection}; remove the key "
                    f"{entity.name} below Collections from the settings of MongoDB.",
                    driver=DRIVER,
                )
        names = {entity.name: self.collection_name(entity) for entity in entities}
        check_collections(names)
        if entities:
            check_module(names, entities[0].module, self._open_modules())

    def _open_modules(self) -> dict[str, frozenset[str]]:
        """Return the collections of the modules that this storage has open in the database, by module."""
        server = digest_of_secret(self._settings.connection_string) or id(self._settings.client)
        place = (DRIVER, "collections", server, self._settings.database)
        return self._resources.share(place, dict[str, frozenset[str]], lambda _: None, renews_itself=True)

    def collection_name(self, entity: Entity) -> str:
        """Return the name of the collection of an entity; the settings may replace what has a setting."""
        if entity.collection_setting is None:
            return entity.collection
        return self._settings.collections.get(entity.name, entity.collection)

    @property
    def concurrency(self) -> int:
        """How many calls the client can serve at the same time; it is not opened for that."""
        return calls_at_once(self._settings.client, url_of(self._settings))

    @property
    def validators(self) -> bool:
        """Whether collections get validators."""
        return self._settings.validators

    @override
    def renew(self) -> None:
        """Start without a store in a forked child, where it gets a client of its own.

        A client of the caller is taken again: pymongo gives it connections of its own there, and warns.
        """
        self._store = None

    def close(self) -> None:
        """Forget the store and open no other; the client belongs to the shared resources or the caller."""
        self._closed = True
        self._store = None

    @without_locals
    def _open(self) -> OpenDatabase:
        where = Where(timeout_ms=self._settings.server_selection_timeout_ms)
        try:
            name = self._database_name()
            client = self._client()
            # What the connection string says wins over the settings.
            waited = round(1000 * client.options.server_selection_timeout)
            where = replace(where, hosts=hosts_of(client, self._settings), timeout_ms=waited)
            return self._probed(client, name, where)
        except CLIENT_ERRORS as error:
            if not isinstance(error, InvalidURI):
                raise translate(error, where) from error
        except OSError as error:
            # The client reads the files of TLS when it is made; what it does on the network it raises itself.
            raise unreadable_file(error, where) from error
        except ValueError:
            # The port, or an option of the connection string, is none.
            pass
        # Outside the handler: the exception may quote a part of the password, and must not be its context.
        withheld = InvalidURI("withheld, because it may quote a part of the password")
        raise translate(withheld, where) from withheld

    def _probed(self, client: Client, name: str, where: Where) -> OpenDatabase:
        return probed(client, name, where, allow_standalone=self._settings.allow_standalone)

    def _database_name(self) -> str:
        secret = self._settings.connection_string
        name = self._settings.database or (secret and parse_uri(secret.get_secret_value())["database"])
        if not name:
            raise ConfigurationError(
                "No MongoDB database is named; set Persistence:Mongo:Database, or put its name behind the "
                "last slash of the connection string.",
                driver=DRIVER,
            ) from InvalidURI("it names no database")  # a cause tells wrong settings from a wrong server
        return str(name)

    def _client(self) -> Client:
        if self._settings.client is not None:
            return checked_client(self._settings.client)
        key = (
            DRIVER,
            digest_of_secret(self._settings.connection_string),
            self._settings.server_selection_timeout_ms,
        )
        return self._resources.share(key, partial(new_client, self._settings), close_client)


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


def probed(client: Client, name: str, where: Where, *, allow_standalone: bool) -> OpenDatabase:
    """Ask the server what it is; refuse one without transactions unless that is allowed."""
    database = open_database(client, name)
    # Waits for a server as long as the settings say; a command would wait as long as any call may take.
    _ = client.is_primary
    hello = database.command("hello")
    version = client.server_info()
    check_version(tuple(version["versionArray"][:2]), where)
    # A router has no set of its own, and transactions all the same.
    replicated = "setName" in hello or hello.get("msg") == "isdbgrid"
    if not replicated and not allow_standalone:
        raise ConfigurationError(
            f"{where.server} is a standalone server without transactions. {STANDALONE_REMEDY}", driver=DRIVER
        )
    capabilities = Capabilities(
        backend=DRIVER,
        server_version=str(version["version"]),
        transactions=replicated,
        sessions=replicated,
        server_ttl=True,
        server_clock=True,
        cross_process_locks=True,
        point_in_time_reads=replicated,
        change_stream=replicated,
        bulk=True,
        largest_document_bytes=hello["maxBsonObjectSize"],
        remedy=STANDALONE_REMEDY if not replicated else "Use the Postgres driver for it.",
    )
    note_connected(DRIVER, capabilities.server_version, name, where.hosts)
    return OpenDatabase(client, database, capabilities, where, own_timeout_of(client))


def own_timeout_of(client: Client) -> float | None:
    """Return the seconds to add to every call of a client that bounds none itself."""
    return None if client.options.timeout else CALL_TIMEOUT_MS / 1000


def check_version(version: tuple[int, ...], where: Where) -> None:
    """Refuse a server that is too old."""
    if version < OLDEST_SERVER:
        found, needed = (".".join(map(str, numbers)) for numbers in (version, OLDEST_SERVER))
        raise ConfigurationError(
            f"{where.server} runs MongoDB {found}; twinstore needs {needed} or newer.", driver=DRIVER
        )

"""The client, what its server can do, and the database: opened at first use, shared by the modules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pymongo.errors import InvalidURI
from pymongo.uri_parser import parse_uri
from typing_extensions import override

from twinstore.errors import ConfigurationError
from twinstore.plugins.backend import Capabilities
from twinstore.runtime.forks import Renewable, renew_in_child
from twinstore.runtime.secrets import digest_of_secret, without_locals
from twinstore.runtime.service_log import log_connected
from twinstore.runtime.single_flight import SingleFlight
from twinstore_mongo.client.client import (
    checked_client,
    close_client,
    hosts_of,
    max_concurrent_calls,
    new_client,
    url_of,
)
from twinstore_mongo.client.collection_names import check_collections, check_module
from twinstore_mongo.client.database import OpenDatabase, open_database, own_timeout_of
from twinstore_mongo.client.errors import (
    CLIENT_ERRORS,
    DRIVER,
    STANDALONE_REMEDY,
    Where,
    translate,
    unreadable_file,
)
from twinstore_mongo.client.types import Client

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.plugins.resources import SharedResources
    from twinstore_mongo.settings import MongoSettings

OLDEST_SERVER: Final = (6, 0)


class Connection(Renewable):
    """Opens the store at first use."""

    def __init__(self, settings: MongoSettings, resources: SharedResources) -> None:
        self._settings = settings
        self._resources = resources
        self._opening: SingleFlight[OpenDatabase] = SingleFlight()
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
            # It may have been closed while this connected; then the new connection would never be closed.
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
        return max_concurrent_calls(self._settings.client, url_of(self._settings))

    @property
    def validators(self) -> bool:
        """Whether collections get validators."""
        return self._settings.validators

    @override
    def renew(self) -> None:
        """Start without a store in a forked child, where it gets a separate client.

        A client of the caller is used again: pymongo opens new connections for it there, and warns.
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
            ) from InvalidURI("it names no database")  # a cause marks wrong settings, not a wrong server
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


def probed(client: Client, name: str, where: Where, *, allow_standalone: bool) -> OpenDatabase:
    """Ask the server what it is; refuse one without transactions unless that is allowed."""
    database = open_database(client, name)
    # Waits for a server as long as the settings say; a command would wait as long as any call may take.
    _ = client.is_primary
    hello = database.command("hello")
    version = client.server_info()
    check_version(tuple(version["versionArray"][:2]), where)
    # A router is not in a replica set, but supports transactions.
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
    log_connected(DRIVER, capabilities.server_version, name, where.hosts)
    return OpenDatabase(client, database, capabilities, where, own_timeout_of(client))


def check_version(version: tuple[int, ...], where: Where) -> None:
    """Refuse a server that is too old."""
    if version < OLDEST_SERVER:
        found, needed = (".".join(map(str, numbers)) for numbers in (version, OLDEST_SERVER))
        raise ConfigurationError(
            f"{where.server} runs MongoDB {found}; twinstore needs {needed} or newer.", driver=DRIVER
        )

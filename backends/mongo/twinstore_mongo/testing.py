"""Throw-away databases for the tests of a host, on a MongoDB server that the host names.

For each installed module ``library`` there is a class ``MongoLibraryTestContext``: a context manager with a
migrated storage of that module on a database for this test alone, which is dropped at the end.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, ClassVar, Final, Self
from uuid import uuid4

from pymongo import MongoClient

from twinstore.errors import ConfigurationError
from twinstore.plugins.modules import module_plugins
from twinstore.storage.open import open_module
from twinstore_mongo.client.errors import DRIVER

if TYPE_CHECKING:
    from types import TracebackType

    from twinstore.clock import Clock
    from twinstore.storage.module import ModuleStorage

NAME: Final = re.compile(r"Mongo(?P<title>\w+)TestContext")
SERVER: Final = "TWINSTORE_TEST_MONGO_URL"
PREFIX: Final = "twinstore_test_"
# What was made, so that two files of a host that import a name have one class.
_classes: dict[str, type[MongoTestContext]] = {}


class MongoTestContext:
    """A migrated storage of one module on a database that is dropped at the end.

    Attributes:
        connection_string: of the server.
        database: the name of the database.
    """

    module: ClassVar[str]

    def __init__(
        self,
        connection_string: str | None = None,
        *,
        clock: Clock | None = None,
        options: dict[str, object] | None = None,
    ) -> None:
        """Take the server; nothing is connected yet.

        Args:
            connection_string: of the server; default: what ``TWINSTORE_TEST_MONGO_URL`` holds.
            clock: the clock of the storage.
            options: options of the module by name.

        Raises:
            ConfigurationError: neither names a server.
        """
        found = connection_string or os.environ.get(SERVER)
        if not found:
            raise ConfigurationError(
                f"{type(self).__name__} needs a server: give its connection string, or set {SERVER}.",
                driver=DRIVER,
            )
        self.connection_string = found
        self.database = f"{PREFIX}{uuid4().hex}"
        self._clock = clock
        self._options = options
        self._stack = ExitStack()
        self._storage: ModuleStorage[object, object] | None = None

    @property
    def storage(self) -> ModuleStorage[object, object]:
        """The storage of the module, such as a ``LibraryStorage``.

        Raises:
            ConfigurationError: the context is not entered.
        """
        if self._storage is None:
            raise ConfigurationError(
                f"{type(self).__name__} is not entered; write `with {type(self).__name__}(...) as context:`.",
                driver=DRIVER,
            )
        return self._storage

    def __enter__(self) -> Self:
        """Make the database with everything of the module."""
        with ExitStack() as stack:
            client = stack.enter_context(MongoClient[dict[str, object]](self.connection_string))
            # Named before anything is made in it: a migration that fails leaves none behind either.
            stack.callback(client.drop_database, self.database)
            settings = {"ConnectionString": self.connection_string, "Database": self.database}
            config = {"Persistence": {DRIVER: settings}}
            storage = stack.enter_context(
                open_module(self.module, DRIVER, config, clock=self._clock, options=self._options)
            )
            storage.initializer.ensure_migrations()
            self._storage = storage
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the storage and drop the database."""
        self._storage = None
        self._stack.close()


def __getattr__(name: str) -> type[MongoTestContext]:
    """Return the context of an installed module by the name of its class."""
    match = NAME.fullmatch(name)
    for plugin in module_plugins().values() if match else ():
        if match is not None and plugin.title == match["title"]:
            if name not in _classes:
                doc = f"A migrated storage of {plugin.name} on a database that is dropped at the end."
                members = {"module": plugin.name, "__doc__": doc, "__module__": __name__}
                # Of two threads that make it, one is right.
                _classes.setdefault(name, type(name, (MongoTestContext,), members))
            return _classes[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

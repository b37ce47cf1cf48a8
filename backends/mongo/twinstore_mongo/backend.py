"""The MongoDB driver: any module, in one database."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar, cast

import pymongo
from pymongo.client_session import ClientSession
from typing_extensions import override

from twinstore.access.scope import UNBOUND
from twinstore.access.unit_state import ReadyWithin, UnitState, wrong_handle
from twinstore.errors import Outcome, TimeoutExceededError
from twinstore.plugins.access_backend import AccessBackend
from twinstore.plugins.backend import ModuleBackend
from twinstore_mongo.access.access import MongoAccess
from twinstore_mongo.access.execution import RepositoryContext, client_session, transaction, translating
from twinstore_mongo.client.connection import Connection
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.special import specials_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.access.protocol import Access
    from twinstore.access.scope import Scope
    from twinstore.plugins.backend import Capabilities, OpenRequest
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.plugins.options import ModuleOptions
    from twinstore_mongo.bulk.port import MongoBulk
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.schema.migrator import MongoInitializer
    from twinstore_mongo.settings import MongoSettings

R = TypeVar("R")

LEAST_SECONDS: Final = 0.001
READY_MS: Final = 5000


class MongoBackend(AccessBackend[R], ModuleBackend[R], ReadyWithin):
    """Implements :class:`~twinstore.plugins.backend.ModuleBackend` for any module."""

    def __init__(
        self,
        module: ModuleSpec[R],
        connection: Connection,
        options: ModuleOptions,
        *,
        validators: bool = True,
        special: bool = True,
    ) -> None:
        super().__init__(module)
        self._specials = specials_of(module.name) if special else {}
        connection.check_names(module.catalog.entities)
        self._connection = connection
        self._options = options
        self._validators = validators

    @property
    @override
    def driver(self) -> str:
        return DRIVER

    @property
    def concurrency(self) -> int:
        """How many calls it can serve at the same time; it does not connect."""
        return self._connection.concurrency

    @property
    @override
    def capabilities(self) -> Capabilities:
        return self._connection.store.capabilities

    @property
    @override
    def initializer(self) -> MongoInitializer:
        return self._initializer

    @cached_property
    def _initializer(self) -> MongoInitializer:
        from twinstore_mongo.schema.migrator import initializer_class  # noqa: PLC0415  # no call needs it

        kind = initializer_class(self._module)
        return kind.of(self._connection, self._module, self._options, validators=self._validators)

    @property
    @override
    def bulk(self) -> MongoBulk:
        return self._bulk

    @cached_property
    def _bulk(self) -> MongoBulk:
        from twinstore_mongo.bulk.port import MongoBulk  # noqa: PLC0415  # for tools only

        return MongoBulk(self._connection, self._module.catalog)

    @override
    def unbound(self) -> Access:
        return self._access(RepositoryContext(self._connection, UNBOUND, UnitState(unbound=True)))

    @contextmanager
    @override
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[Access]:
        self.capabilities.require("sessions")
        store = self._connection.store
        with client_session(store, causal_consistency=causal_consistency) as session:
            context = replace(self._fresh(scope), bound=session, joined=store)
            try:
                yield self._access(context)
            finally:
                context.state.closed = True

    @contextmanager
    @override
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Iterator[Access]:
        self.capabilities.require("transactions")
        store = self._connection.store
        with client_session(store) as session:
            context = replace(self._fresh(scope), bound=session, joined=store, read_only=read_only)
            try:
                with transaction(session, store):
                    yield self._access(context)
                    # An error that the caller caught inside has ended the transaction on the server already.
                    context.state.check_commit()
            finally:
                context.state.closed = True

    @override
    def join(self, handle: object, scope: Scope) -> Access:
        if not isinstance(handle, ClientSession):
            raise wrong_handle(handle, "a pymongo ClientSession", DRIVER)
        store = self._connection.store.joined(handle)
        return self._access(replace(self._fresh(scope), bound=handle, joined=store))

    @override
    def check_ready(self) -> None:
        """Connect and check server and schema; see :meth:`ModuleBackend.check_ready`."""
        self._inspect(self._connection.store)

    @override
    def check_ready_within(self, timeout_ms: int) -> None:
        """Do the same; stop waiting for an answer when the time is over."""
        end = monotonic() + timeout_ms / 1000
        server = "MongoDB"
        try:
            store = self._connection.store_within(timeout_ms / 1000)
            server = store.where.server
            # To the client nothing left would mean no limit.
            with pymongo.timeout(max(LEAST_SECONDS, end - monotonic())):
                self._inspect(store)
        except (TimeoutError, TimeoutExceededError) as error:
            raise TimeoutExceededError(
                f"{server} did not answer within {timeout_ms} ms; check that it runs, can be reached and has "
                "a primary.",
                outcome=Outcome.NOT_APPLIED,
                driver=DRIVER,
            ) from error

    def _inspect(self, store: OpenDatabase) -> None:
        # A silent server is reported as soon as one that cannot be found.
        seconds = (store.where.timeout_ms or READY_MS) / 1000
        with translating(store.where.reading), pymongo.timeout(seconds), store.limited():
            store.client.server_info()
        self._initializer.check_applied()

    @override
    def close(self) -> None:
        """Forget the connection and refuse every later call; shared clients are closed with the storage."""
        super().close()
        self._connection.close()

    def _fresh(self, scope: Scope) -> RepositoryContext:
        return RepositoryContext(self._connection, scope)

    def _access(self, context: RepositoryContext) -> Access:
        return MongoAccess(context, self._module.catalog.entities, self._specials)


def open_backend(request: OpenRequest) -> MongoBackend[object]:
    """Open a module with the settings of the request; connects on first use."""
    settings = cast("MongoSettings", request.settings)
    connection = Connection(settings, request.resources)
    return MongoBackend(
        request.module,
        connection,
        request.options,
        validators=settings.validators,
        special=request.special,
    )

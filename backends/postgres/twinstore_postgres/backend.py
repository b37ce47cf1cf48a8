"""A module on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import psycopg
from typing_extensions import override

from twinstore.access.scope import UNBOUND
from twinstore.access.unit_state import ReadyWithin, UnitState, wrong_handle
from twinstore.errors import ConfigurationError, Outcome
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.plugins.access_backend import AccessBackend
from twinstore.plugins.backend import Capabilities, ModuleBackend
from twinstore_postgres.access.access import PostgresAccess
from twinstore_postgres.access.execution import (
    JoinedExecution,
    SessionExecution,
    UnboundExecution,
    UnitExecution,
)
from twinstore_postgres.bulk.connections import BulkConnections, RoleConnections
from twinstore_postgres.connection.cursors import own_cursor
from twinstore_postgres.connection.deadlines import until
from twinstore_postgres.connection.direct import DedicatedConnections
from twinstore_postgres.connection.errors import translated
from twinstore_postgres.connection.pool import ServerConnections
from twinstore_postgres.connection.transaction import OWN, UNIT, Transaction, joined_transport
from twinstore_postgres.mapping.tenancy import NO_TENANT_SETTING
from twinstore_postgres.settings import DRIVER, PostgresSettings
from twinstore_postgres.special import specials_of

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.access.scope import Scope
    from twinstore.plugins.backend import OpenRequest
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.access.execution import Execution
    from twinstore_postgres.bulk.port import PostgresBulk
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.schema.initializer import PostgresInitializer

R = TypeVar("R")

# The size field of a JSONB value has 28 bits.
LARGEST_JSONB: Final = 268_435_455
# As long as MongoDB is looked for by default, so that the switch changes nothing for a probe.
READY_SECONDS: Final = 5.0


class PostgresBackend(AccessBackend[R], ModuleBackend[R], ReadyWithin):
    """Implements :class:`~twinstore.plugins.backend.ModuleBackend` for any module."""

    def __init__(self, module: ModuleSpec[R], request: OpenRequest) -> None:
        """Take the module and the settings; nothing is connected yet.

        Raises:
            ConfigurationError: settings of another driver, or neither connection string nor pool.
        """
        if not isinstance(request.settings, PostgresSettings):
            raise ConfigurationError(
                f"{DRIVER} needs its own settings, not {type(request.settings).__name__}.", driver=DRIVER
            )
        super().__init__(module)
        settings = request.settings
        self._allow_unsafe = settings.allow_unsafe_role
        self._joined = joined_transport(settings)
        self._server = request.resources.share(
            ("postgres", settings.fingerprint, request.read_only),
            lambda: ServerConnections(settings, read_only=request.read_only),
            ServerConnections.close,
            renews_itself=True,
        )
        self._server.guard(module)
        self._dedicated = DedicatedConnections(settings, self._server.direct, module)
        self._specials = specials_of(module.name) if request.special else {}
        self._settings = settings
        secret = settings.bulk_connection_string
        self._bulk_connections = BulkConnections(self._server)
        # A source is only read.
        self._bulk_role = (
            None if secret is None or request.read_only else RoleConnections(self._server, settings, secret)
        )

    @property
    @override
    def driver(self) -> str:
        return DRIVER

    @property
    def concurrency(self) -> int:
        """How many calls it can serve at the same time: one on each connection of the pool."""
        return self._server.most

    @property
    @override
    def capabilities(self) -> Capabilities:
        """What the driver can do; connects at the first call to learn the version of the server."""
        version = self._server.version
        return Capabilities(
            backend=DRIVER,
            server_version=f"{version // 10000}.{version % 10000}",
            transactions=True,
            sessions=True,
            row_level_security=True,
            server_clock=True,
            cross_process_locks=True,
            bulk=True,
            largest_document_bytes=LARGEST_JSONB,
        )

    @property
    @override
    def initializer(self) -> PostgresInitializer:
        return self._initializer

    @cached_property
    def _initializer(self) -> PostgresInitializer:
        from twinstore_postgres.schema.initializer import initializer_class  # noqa: PLC0415  # no call needs it

        return initializer_class(self._module)(self._settings, self._server)

    @property
    @override
    def bulk(self) -> PostgresBulk:
        """Whole entities, in system scope."""
        return self._bulk

    @cached_property
    def _bulk(self) -> PostgresBulk:
        from twinstore_postgres.bulk.inventory import LedgerInitializer  # noqa: PLC0415  # for tools only
        from twinstore_postgres.bulk.port import PostgresBulk  # noqa: PLC0415  # the same

        ledger = LedgerInitializer(self._settings, self._server)
        return PostgresBulk(
            self._bulk_connections, lambda: self.capabilities, self._module, ledger, self._bulk_role
        )

    @override
    def unbound(self) -> Access:
        return self._access(UnboundExecution(self._server, UNBOUND, self._dedicated))

    @override
    @contextmanager
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[Access]:
        del causal_consistency  # one connection to the primary cannot do otherwise
        state = UnitState()
        with self._server.connection() as connection:
            try:
                yield self._access(SessionExecution(connection, scope, state, self._server.transport))
            finally:
                state.closed = True

    @override
    @contextmanager
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Iterator[Access]:
        tenant = NO_TENANT_SETTING if scope.without_tenant else scope.tenant_id or SYSTEM_TENANT
        state = UnitState()
        with self._server.connection() as connection:
            transport = self._server.transport
            try:
                with Transaction(
                    connection, tenant, begin=UNIT[read_only], transport=transport
                ) as transaction:
                    # Nothing is sent yet: the unit sees the state of its first call.
                    yield self._access(UnitExecution(transaction, scope, state, read_only=read_only))
                    state.check_commit()
            finally:
                state.closed = True

    @override
    def join(self, handle: object, scope: Scope) -> Access:
        if not isinstance(handle, psycopg.Connection):
            raise wrong_handle(handle, "a psycopg.Connection", DRIVER)
        execution = JoinedExecution(
            handle, scope, UnitState(), self._joined, module=self._module, safe=self._allow_unsafe
        )
        return self._access(execution)

    @override
    def check_ready(self) -> None:
        """Connect, check the role, and compare the ledger with the shipped migrations."""
        self._inspect(READY_SECONDS, None)

    @override
    def check_ready_within(self, timeout_ms: int) -> None:
        """Do the same; stop waiting for an answer when the time is over."""
        seconds = timeout_ms / 1000
        self._inspect(seconds, monotonic() + seconds)

    def _inspect(self, seconds: float, end: float | None) -> None:
        """Look at server, role and schema: ``seconds`` for a first answer, until ``end`` for all."""
        with self._server.connection(seconds) as connection, translated(outcome=Outcome.NOT_APPLIED):
            with until(connection, monotonic() + seconds if end is None else end):
                own_cursor(connection).execute("SELECT 1", prepare=False)
            with until(connection, end):
                self._check_defaults(connection)
            with until(connection, end), self._server.transport.with_our_settings(connection):
                self._initializer.check_applied(connection)

    def _check_defaults(self, connection: Connection) -> None:
        """Refuse sessions that begin with unsafe settings; of our own pool none that does is used again."""
        try:
            self._initializer.check_defaults(connection)
        except ConfigurationError:
            if self._server.transport is OWN:
                connection.close()
            raise

    @override
    def close(self) -> None:
        """Refuse every later call, and release what this module does not share: not the pool."""
        super().close()
        self._dedicated.close()
        self._bulk_connections.close()
        if self._bulk_role is not None:
            self._bulk_role.close()

    def _access(self, execution: Execution) -> PostgresAccess:
        return PostgresAccess(execution, self._specials)

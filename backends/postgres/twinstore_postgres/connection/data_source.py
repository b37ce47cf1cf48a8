"""Connections for statements of the host's own, each scoped to one tenant."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Self, cast

from psycopg import IsolationLevel
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from typing_extensions import override

from twinstore.access.scope import record_system_scope, tenant_argument
from twinstore.config import load_settings
from twinstore.errors import Outcome
from twinstore.models.fields import SYSTEM_TENANT
from twinstore.plugins.drivers import load_backend
from twinstore.plugins.modules import complete_modules
from twinstore_postgres.connection.cursors import own_cursor
from twinstore_postgres.connection.deadlines import Connection, LongRunningConnection, TimedConnection
from twinstore_postgres.connection.errors import translated
from twinstore_postgres.connection.pool import ServerConnections
from twinstore_postgres.settings import DRIVER, PostgresSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from twinstore.config import ConfigSource
    from twinstore.plugins.module_spec import ModuleSpec

PURPOSE = "open_connection"


class ApplicationConnections(ServerConnections):
    """Connections as psycopg makes them: what a host reads must not depend on how our repositories read.

    So they have a separate pool, in addition to that of the repositories.
    """

    _adapters = None

    @property
    @override
    def _kind(self) -> type[TimedConnection]:
        return LongRunningConnection

    @override
    def _configure(self, connection: Connection) -> None:
        super()._configure(connection)
        if isinstance(connection, LongRunningConnection):  # a host may lift the limit of its statements
            connection.is_executing = self.target.is_executing
        if self.pooled:
            # Of the transactions that psycopg begins; the pooler has passed on no such option.
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            connection.read_only = False

    @property
    @override
    def _cleaner(self) -> Callable[[Connection], None]:
        return forget_rows if self.pooled else clean


class PostgresDataSource:
    """The connection source of a module on PostgreSQL; see :func:`source_class` for its module.

    It connects on first use, with the settings that the repositories use, whatever the switch says.
    """

    module: ClassVar[ModuleSpec[object]]

    def __init__(self, config: ConfigSource = None) -> None:
        """Take the settings; nothing is connected yet.

        Args:
            config: as for :func:`twinstore.open_storage`.

        Raises:
            ConfigurationError: unreadable settings, or neither connection string nor pool.
        """
        spec = load_backend(DRIVER, module=self.module.name)
        settings = load_settings(config).backend_settings(self.module.name, spec)
        self._server = ApplicationConnections(cast("PostgresSettings", settings))
        self._server.guard(self.module)

    @contextmanager
    def open_connection(self, tenant_id: str) -> Iterator[Connection]:
        """Check out a connection inside one transaction in which row-level security shows one tenant.

        The transaction commits at normal exit and is rolled back on any exception. The tenant ends with it,
        so no client gets a connection with the tenant of another one, even behind a transaction pooler.
        psycopg therefore refuses ``commit()`` inside; ``connection.transaction()`` makes a savepoint.
        Statements are the host's own: their errors are those of psycopg. Behind a transaction pooler they
        use ``SET LOCAL``, because whatever else they set stays on a connection that others get.

        Args:
            tenant_id: the tenant; ``"system"`` shows the rows of all tenants, which is logged and counted.

        Raises:
            ValidationError: not an acceptable tenant id.
            ConfigurationError: wrong password or database, unsafe role, closed source.
            UnavailableError: the server does not answer, or all connections are in use.
        """
        tenant = scoped_tenant(tenant_id)
        with self._server.connection() as connection, ExitStack() as ending:
            with translated(outcome=Outcome.NOT_APPLIED):
                ending.enter_context(connection.transaction())
                own_cursor(connection).execute(self._server.transport.setup, [tenant])
            yield connection
            if self._server.pooled and connection.info.transaction_status == TransactionStatus.INTRANS:
                # Of all that may stay on the server's connection, what would open the rows of all tenants.
                own_cursor(connection).execute("RESET ROLE", prepare=False)

    def close(self) -> None:
        """Close the connections, except a pool of the host; a second call does nothing."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def clean(connection: Connection) -> None:
    """Undo what a host has done to a connection.

    The next one must find neither what this one set on the server nor how it read rows.
    """
    connection.execute("RESET ROLE; RESET ALL", prepare=False)
    forget_rows(connection)


def forget_rows(connection: Connection) -> None:
    """Undo what a host has done to how a connection reads; behind a pooler it has no settings to undo."""
    connection.row_factory = tuple_row


def scoped_tenant(tenant_id: str) -> str:
    """Return the setting of a connection; system scope is logged and counted as everywhere."""
    if tenant_id == SYSTEM_TENANT:
        record_system_scope(PURPOSE)
        return SYSTEM_TENANT
    return tenant_argument(tenant_id)


@cache
def source_class(module: ModuleSpec[object]) -> type[PostgresDataSource]:
    """Return the connection source of a module: a separate class under the name that hosts know."""
    return type(
        f"{module.title}DataSource",
        (PostgresDataSource,),
        {
            "__doc__": f"Connections to PostgreSQL for statements next to the repositories of {module.name}.",
            "__module__": __name__,
            "module": module,
        },
    )


def __getattr__(name: str) -> type[PostgresDataSource]:
    """Return the connection source of a module by the name that hosts know, with its type."""
    if name.endswith("DataSource"):
        for module in complete_modules():
            if name == f"{module.title}DataSource":
                return source_class(module)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

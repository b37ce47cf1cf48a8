"""The initialiser of the scheduler: migrations as the owner role, and what is said about their state."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Final

from twinstore.errors import MigrationError
from twinstore.migrations import MigrationReport, consent_required, unsettled
from twinstore_postgres import migrator
from twinstore_postgres.connecting import target_of
from twinstore_postgres.errors import translated
from twinstore_postgres.schema import schema_differences, shape_differences
from twinstore_postgres.script import script
from twinstore_postgres.settings import DRIVER
from twinstore_postgres.takeover import check_takeover, hidden_rows, taken_over

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from twinstore.migrations import Consent, Effect, MigrationStatus
    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.migrator import Applied, Migration
    from twinstore_postgres.server import PostgresServer
    from twinstore_postgres.settings import PostgresSettings

__all__ = ["SchedulerPostgresInitializer"]

MODULE: Final = "scheduler"
SHOWN: Final = 10


class SchedulerPostgresInitializer:
    """Implements :class:`~twinstore.migrations.Initializer` for the scheduler."""

    def __init__(self, settings: PostgresSettings, server: PostgresServer) -> None:
        """Take the settings; nothing is connected yet."""
        self._settings = settings
        self._server = server

    def ensure_migrations(
        self, *, release: bool = False, accept: AbstractSet[Consent] = frozenset()
    ) -> MigrationReport:
        """Apply what is pending; see the Protocol.

        Args:
            release: also apply the files 100-199, which run only on request of an operator.
            accept: the tables whose rows may be hidden behind row-level security.
        """
        with closing(self._connect()) as connection, translated():
            known = migrator.applied_migrations(connection, MODULE)
            pending = self._pending(connection, known, release=release)
            check_consent(connection, pending, accept)
            if pending:
                self._check_role(connection)
            role = self._settings.application_role
            # Once more under the lock of each file: rows may have come, or tables of somebody else.
            done = [
                item.name
                for item in pending
                if migrator.apply(
                    connection, MODULE, item, role, partial(check_one, connection, item, accept)
                )
            ]
        return MigrationReport(
            module=MODULE,
            backend=DRIVER,
            applied=tuple(done),
            already_applied=tuple(
                sorted(known | dict.fromkeys(item.name for item in pending if item.name not in done))
            ),
        )

    def effects(self, *, release: bool = False) -> tuple[Effect, ...]:
        """Return the tables whose rows would be hidden; see the Protocol.

        Raises:
            MigrationError: tables of somebody else stand where ours should be.
        """
        with closing(self._connect()) as connection, translated():
            known = migrator.applied_migrations(connection, MODULE)
            return hidden_rows(connection, MODULE, self._pending(connection, known, release=release))

    def status(self) -> tuple[MigrationStatus, ...]:
        """Return the shipped and the applied migrations; see the Protocol."""
        with closing(self._connect()) as connection, translated():
            applied = migrator.applied_migrations(connection, MODULE)
            adopted = [item for item in migrator.shipped_migrations(MODULE) if item.name in applied]
            foreign = bool(taken_over(connection, MODULE, applied, adopted))
            return migrator.statuses(MODULE, applied, foreign=foreign)

    def verify(self) -> tuple[str, ...]:
        """Return the differences between the real schema and the wanted one; see the Protocol."""
        with closing(self._connect()) as connection, translated():
            return schema_differences(connection, MODULE, self._settings.application_role)

    def export(self) -> str:
        """Return the migrations as SQL for an administrator; see the Protocol."""
        return script(MODULE, self._settings.application_role)

    def check_applied(self, connection: Connection) -> None:
        """Raise ``MigrationError`` while a migration is pending, changed or unknown, or its work undone.

        A table without its row-level security, column or key is undone work; what is missing otherwise, such
        as an index for speed, only ``verify`` tells.
        """
        with translated():
            applied = migrator.applied_migrations(connection, MODULE)
        migrator.check_history(MODULE, applied)
        pending = [
            item.name
            for item in migrator.shipped_migrations(MODULE)
            if item.name not in applied and _wanted(item, release=False)
        ]
        if pending:
            raise MigrationError(
                f"Migrations of schema {MODULE} are pending: {', '.join(pending)}. "
                "Run: twinstore migrate run",
                module=MODULE,
                driver=DRIVER,
            )
        with translated():
            differences = shape_differences(connection, MODULE)
        if differences:
            more = len(differences) - SHOWN
            raise MigrationError(
                f"The schema {MODULE} is not as its migrations made it. {' '.join(differences[:SHOWN])}"
                f"{f' And {more} more.' if more > 0 else ''} Restore it; `twinstore migrate verify --module "
                f"{MODULE}` lists every difference.",
                module=MODULE,
                driver=DRIVER,
            )

    def _pending(
        self, connection: Connection, known: dict[str, Applied], *, release: bool
    ) -> list[Migration]:
        """Return what would be applied, after a look at the tables that stand in its place already."""
        shipped = migrator.shipped_migrations(MODULE)
        migrator.check_history(MODULE, known)
        wanted = [item for item in shipped if item.name in known or _wanted(item, release=release)]
        check_takeover(connection, MODULE, known, wanted)
        return [item for item in wanted if item.name not in known]

    def _connect(self) -> Connection:
        settings = self._settings
        secret = settings.owner_connection_string or settings.connection_string
        if secret is None and settings.pool is not None:
            return self._server.target.connect()
        return target_of(secret, settings, purpose="The connection string of the owner role").connect()

    def _check_role(self, connection: Connection) -> None:
        role = self._settings.application_role
        if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).rowcount == 0:
            raise MigrationError(
                f"The application role {role!r} does not exist, so nothing can be granted to it. "
                f"An administrator must run: {migrator.create_role(role)}",
                module=MODULE,
                driver=DRIVER,
            )


def check_one(connection: Connection, migration: Migration, accept: AbstractSet[Consent]) -> None:
    """Refuse to apply one file over tables of somebody else, or without consent to what it hides."""
    check_takeover(connection, MODULE, {}, [migration])
    check_consent(connection, [migration], accept)


def check_consent(connection: Connection, pending: Iterable[Migration], accept: AbstractSet[Consent]) -> None:
    """Refuse to hide rows of tables that nobody has named."""
    missing = unsettled(hidden_rows(connection, MODULE, pending), accept)
    if missing:
        raise consent_required(missing, "Nothing was changed.", module=MODULE, driver=DRIVER)


def _wanted(migration: Migration, *, release: bool) -> bool:
    return release or migration.category != "release"

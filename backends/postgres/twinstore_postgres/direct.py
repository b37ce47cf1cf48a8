"""Connections past the pool, and past a transaction pooler: for bulk work, locks and migrations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twinstore.errors import Outcome
from twinstore_postgres.deadlines import PatientConnection
from twinstore_postgres.defaults import refuse_unsafe
from twinstore_postgres.errors import translated
from twinstore_postgres.roles import RoleGuard
from twinstore_postgres.targets import BULK, MIGRATIONS, direct_target

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection, Target
    from twinstore_postgres.settings import PostgresSettings
    from twinstore_postgres.targets import Use

__all__ = ["Direct"]


class Direct:
    """Where the server itself is, as the settings give it."""

    def __init__(self, settings: PostgresSettings, pooled: Target, *, read_only: bool) -> None:
        """Take the settings and where the pool connects to.

        Raises:
            ConfigurationError: a connection string that cannot be read, or that leads to the pooler.
        """
        self._settings = settings
        self._pooled = pooled
        self._guard = RoleGuard()
        self._bulk = self.target_for(BULK, None, read_only=read_only)

    @property
    def place(self) -> str:
        """Host and database of bulk work, without anything secret; those of the pool where it has none."""
        settings = self._settings
        given = not settings.transaction_pooler or settings.direct_connection_string is not None
        return (self._bulk() if given else self._pooled).place

    def guard(self, module: ModuleSpec[object]) -> None:
        """Check before the next use that row-level security of a module is in force and binds the role."""
        # Also where it is the role of the pool: what the pool has checked may have been another module.
        self._guard.add(module)

    def target_for(self, use: Use, own: SecretStr | None, *, read_only: bool = False) -> Callable[[], Target]:
        """Return what tells where to connect for what a transaction pooler cannot carry.

        What is given is looked at here, and what is missing only told when somebody asks for it: a service
        without locks needs no address for them.

        Raises:
            ConfigurationError: a connection string that cannot be read, or that leads to the pooler.
        """
        settings = self._settings
        if own is None and settings.direct_connection_string is None:
            # Not for migrations, because the pool may be that of a source, which is only read.
            shared = use is not MIGRATIONS or settings.connection_string is None
            if shared and not settings.transaction_pooler:
                return lambda: self._pooled
            return partial(direct_target, use, settings, None, pooled=self._pooled)
        target = direct_target(use, settings, own, pooled=self._pooled, read_only=read_only)
        return lambda: target

    def refuse_missing(self) -> None:
        """Refuse bulk work before anything is done.

        Raises:
            ConfigurationError: behind a transaction pooler no other address is given.
        """
        self._bulk()

    def connect(self) -> Connection:
        """Open a connection for bulk work; the caller closes it."""
        connection = self._bulk().connect(PatientConnection, qualified=True)
        if self._guard.schemas:
            try:
                with translated(outcome=Outcome.NOT_APPLIED):
                    self._guard.check(connection)
                refuse_unsafe(self._guard.unsafe)
            except BaseException:
                connection.close()
                raise
        return connection

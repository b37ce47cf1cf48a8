"""The scheduler on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import psycopg

from twinstore.backend import Capabilities, UnitState, wrong_handle
from twinstore.errors import ConfigurationError
from twinstore.scope import SYSTEM_TENANT, UNBOUND
from twinstore_postgres.bulk.port import PostgresBulk
from twinstore_postgres.initializer import SchedulerPostgresInitializer
from twinstore_postgres.scheduler.audit import PostgresAuditRepository
from twinstore_postgres.scheduler.impact_snapshots import PostgresImpactSnapshotRepository
from twinstore_postgres.scheduler.run_summaries import PostgresRunSummaryRepository
from twinstore_postgres.scheduler.runs import PostgresRunRepository
from twinstore_postgres.scheduler.schedules import PostgresScheduleRepository
from twinstore_postgres.scheduler.triggers import PostgresTriggerRepository
from twinstore_postgres.server import PostgresServer
from twinstore_postgres.settings import DRIVER, PostgresSettings
from twinstore_postgres.work import Joined, SessionWork, Transaction, Unbound, Unit, own_unit

if TYPE_CHECKING:
    from twinstore.backend import OpenRequest
    from twinstore.scope import Scope
    from twinstore_postgres.work import Work

__all__ = ["PostgresSchedulerBackend", "PostgresSchedulerRepositories"]

# The size field of a JSONB value has 28 bits.
LARGEST_JSONB: Final = 268_435_455


@dataclass(frozen=True, slots=True)
class PostgresSchedulerRepositories:
    """The repositories of the scheduler over one access to the server."""

    schedules: PostgresScheduleRepository
    triggers: PostgresTriggerRepository
    runs: PostgresRunRepository
    impact_snapshots: PostgresImpactSnapshotRepository
    audit: PostgresAuditRepository
    run_summaries: PostgresRunSummaryRepository

    @classmethod
    def over(cls, work: Work) -> Self:
        """Return the repositories that use this access."""
        return cls(
            schedules=PostgresScheduleRepository(work),
            triggers=PostgresTriggerRepository(work),
            runs=PostgresRunRepository(work),
            impact_snapshots=PostgresImpactSnapshotRepository(work),
            audit=PostgresAuditRepository(work),
            run_summaries=PostgresRunSummaryRepository(work),
        )


class PostgresSchedulerBackend:
    """Implements :class:`~twinstore.backend.ModuleBackend` for the scheduler."""

    def __init__(self, request: OpenRequest) -> None:
        """Take the settings; nothing is connected yet.

        Raises:
            ConfigurationError: settings of another driver, or neither connection string nor pool.
        """
        if not isinstance(request.settings, PostgresSettings):
            raise ConfigurationError(
                f"{DRIVER} needs its own settings, not {type(request.settings).__name__}.", driver=DRIVER
            )
        settings = request.settings
        self._allow_unsafe = settings.allow_unsafe_role
        self._server = request.resources.share(
            ("postgres", settings.fingerprint), lambda: PostgresServer(settings), PostgresServer.close
        )
        self._initializer = SchedulerPostgresInitializer(settings, self._server)
        self._bulk = PostgresBulk(self._server, lambda: self.capabilities)
        self._repositories = PostgresSchedulerRepositories.over(Unbound(self._server, UNBOUND))

    @property
    def driver(self) -> str:
        """The name of the driver."""
        return DRIVER

    @property
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
    def repositories(self) -> PostgresSchedulerRepositories:
        """The repositories, each call on its own."""
        return self._repositories

    @property
    def initializer(self) -> SchedulerPostgresInitializer:
        """Creates and upgrades the schema, as the owner role."""
        return self._initializer

    @property
    def bulk(self) -> PostgresBulk:
        """Export, import and scan, in system scope."""
        return self._bulk

    @contextmanager
    def session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[PostgresSchedulerRepositories]:
        """Open repositories on one connection; it always reads its own writes."""
        del causal_consistency  # one connection to the primary cannot do otherwise
        state = UnitState()
        with self._server.connection() as connection:
            try:
                work = SessionWork(connection, scope, state, foreign=self._server.borrowed)
                yield PostgresSchedulerRepositories.over(work)
            finally:
                state.closed = True

    @contextmanager
    def transaction(self, scope: Scope, *, read_only: bool) -> Iterator[PostgresSchedulerRepositories]:
        """Open repositories in one transaction; commit at normal exit, roll back on any exception."""
        tenant = scope.tenant_id or SYSTEM_TENANT
        state = UnitState()
        with self._server.connection() as connection:
            transaction = Transaction(connection, tenant, read_only=read_only, foreign=self._server.borrowed)
            try:
                with contextmanager(own_unit)(transaction):
                    yield PostgresSchedulerRepositories.over(
                        Unit(transaction, scope, state, read_only=read_only)
                    )
                    state.check_commit()
            finally:
                state.closed = True

    def bind(self, handle: object, scope: Scope) -> PostgresSchedulerRepositories:
        """Return repositories that join the transaction of a caller's connection."""
        if not isinstance(handle, psycopg.Connection):
            raise wrong_handle(handle, "a psycopg.Connection", DRIVER)
        return PostgresSchedulerRepositories.over(Joined(handle, scope, UnitState(), safe=self._allow_unsafe))

    def check_ready(self) -> None:
        """Connect, check the role, and compare the ledger with the shipped migrations."""
        with self._server.connection() as connection:
            self._initializer.check_applied(connection)

    def close(self) -> None:
        """Release what this module does not share; the pool is closed with the shared resources."""
        self._bulk.close()

"""The storage of the scheduler: repositories, services, sessions and units of work over one driver."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from twinstore.backend import Lifetime
from twinstore.retrying import repeat
from twinstore.scheduler.services import AuditService, SummaryService
from twinstore.scope import bound_scope
from twinstore.units import OpenUnits

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType

    from twinstore.backend import Capabilities, ModuleBackend, SharedResources
    from twinstore.bulk import BulkPort
    from twinstore.clock import Clock
    from twinstore.migrations import Initializer
    from twinstore.scheduler.audit import AuditRepository, SchedulerAuditService
    from twinstore.scheduler.impact_snapshots import ImpactSnapshotRepository
    from twinstore.scheduler.repositories import Repositories
    from twinstore.scheduler.run_summaries import RunSummaryRepository, RunSummaryService
    from twinstore.scheduler.runs import RunRepository
    from twinstore.scheduler.schedules import ScheduleRepository
    from twinstore.scheduler.triggers import TriggerRepository
    from twinstore.scheduler.workers import WorkerRepository

__all__ = ["SchedulerSession", "SchedulerSessions", "SchedulerStorage"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SchedulerSession:
    """The repositories and services of the scheduler, bound to one session or unit of work, or unbound."""

    schedules: ScheduleRepository
    triggers: TriggerRepository
    runs: RunRepository
    impact_snapshots: ImpactSnapshotRepository
    audit: AuditRepository
    run_summaries: RunSummaryRepository
    workers: WorkerRepository
    run_summary_service: RunSummaryService
    audit_service: SchedulerAuditService

    @classmethod
    def over(cls, repositories: Repositories, clock: Clock, *, in_unit: bool = False) -> Self:
        """Return the repositories of a driver with the services over them.

        Args:
            repositories: those of the driver.
            clock: the clock of the services.
            in_unit: they belong to a transaction, in which nothing can be repeated after it lost.
        """
        return cls(
            schedules=repositories.schedules,
            triggers=repositories.triggers,
            runs=repositories.runs,
            impact_snapshots=repositories.impact_snapshots,
            audit=repositories.audit,
            run_summaries=repositories.run_summaries,
            workers=repositories.workers,
            run_summary_service=SummaryService(
                repositories.run_summaries, repositories.runs, clock, in_unit=in_unit
            ),
            audit_service=AuditService(repositories.audit, clock),
        )


class SchedulerSessions:
    """The session factory."""

    def __init__(self, backend: ModuleBackend[Repositories], clock: Clock, lifetime: Lifetime) -> None:
        """Take the driver, the clock of the services, and whether the storage is open."""
        self._backend = backend
        self._clock = clock
        self._lifetime = lifetime

    @contextmanager
    def open(
        self, tenant_id: str | None = None, *, causal_consistency: bool = True, purpose: str | None = None
    ) -> Generator[SchedulerSession]:
        """Open a session: a read through it sees every earlier write through it. Not thread-safe.

        Args:
            tenant_id: the one tenant of the session.
            causal_consistency: accepted and without effect on drivers that always read their writes.
            purpose: why all tenants are needed; opens system scope and excludes ``tenant_id``.

        Raises:
            TenantScopeError: both or neither of tenant and purpose are given.
            UnsupportedCapabilityError: the server has no sessions.
        """
        self._lifetime.check()
        scope = bound_scope(tenant_id, purpose)
        with self._backend.session(scope, causal_consistency=causal_consistency) as repositories:
            yield SchedulerSession.over(repositories, self._clock)


class SchedulerStorage:
    """What a host holds. It connects on first use and closes only what it opened."""

    def __init__(
        self,
        backend: ModuleBackend[Repositories],
        clock: Clock,
        owned: SharedResources | None = None,
    ) -> None:
        """Take the driver, the clock, and the resources to close with this storage (``None``: none)."""
        self._backend = backend
        self._clock = clock
        self._owned = owned
        self._unbound = SchedulerSession.over(backend.repositories, clock)
        self._lifetime = Lifetime(backend.driver)
        self.sessions = SchedulerSessions(backend, clock, self._lifetime)
        self.open_units = OpenUnits()

    @property
    def driver(self) -> str:
        """The name of the driver."""
        return self._backend.driver

    @property
    def _open(self) -> ModuleBackend[Repositories]:
        """The driver, while the storage is open."""
        self._lifetime.check()
        return self._backend

    @property
    def unbound(self) -> SchedulerSession:
        """The repositories and services; each call stands on its own."""
        self._lifetime.check()
        return self._unbound

    @property
    def schedules(self) -> ScheduleRepository:
        """Schedules."""
        return self.unbound.schedules

    @property
    def triggers(self) -> TriggerRepository:
        """Triggers."""
        return self.unbound.triggers

    @property
    def runs(self) -> RunRepository:
        """Runs."""
        return self.unbound.runs

    @property
    def impact_snapshots(self) -> ImpactSnapshotRepository:
        """Impact snapshots."""
        return self.unbound.impact_snapshots

    @property
    def audit(self) -> AuditRepository:
        """Audit records."""
        return self.unbound.audit

    @property
    def run_summaries(self) -> RunSummaryRepository:
        """Run summaries."""
        return self.unbound.run_summaries

    @property
    def workers(self) -> WorkerRepository:
        """Workers."""
        return self.unbound.workers

    @property
    def run_summary_service(self) -> RunSummaryService:
        """Projects run updates into run summaries."""
        return self.unbound.run_summary_service

    @property
    def audit_service(self) -> SchedulerAuditService:
        """Stamps and writes audit records."""
        return self.unbound.audit_service

    @property
    def capabilities(self) -> Capabilities:
        """What the driver can do on the connected server."""
        return self._open.capabilities

    @property
    def initializer(self) -> Initializer:
        """Creates and upgrades the schema."""
        return self._open.initializer

    @property
    def bulk(self) -> BulkPort:
        """Export, import and scan for tools, in system scope.

        Raises:
            UnsupportedCapabilityError: the driver does without.
        """
        return self._open.bulk

    @contextmanager
    def transaction(
        self, tenant_id: str | None = None, *, purpose: str | None = None, read_only: bool = False
    ) -> Generator[SchedulerSession]:
        """Open a unit of work: commit at normal exit, roll back on any exception.

        It reads one state, that of its first call, and its own writes. Whoever writes a row first wins: a
        write of a row that somebody else has written meanwhile is refused, so no update is lost. Two units
        that read the same rows and write different ones may both commit (write skew): let them write a common
        row.

        Units do not nest. A call past the unit, on the storage itself, does not see what the unit wrote, and
        one that writes the same row waits for the unit until the limit of a statement.

        Raises:
            TenantScopeError: both or neither of tenant and purpose are given.
            TransactionAbortedError: an error of the store was caught inside and the unit went on.
            ValidationError: this thread or task has a unit of this storage open; or inside, at a write in a
                unit opened with ``read_only``.
            ConcurrencyError: the unit lost against another one; repeat it as a whole, or use ``transact``.
            UnsupportedCapabilityError: the server has no transactions.
        """
        scope = bound_scope(tenant_id, purpose)
        with self.open_units.opened(), self._open.transaction(scope, read_only=read_only) as repositories:
            yield SchedulerSession.over(repositories, self._clock, in_unit=True)

    def transact(
        self,
        fn: Callable[[SchedulerSession], T],
        *,
        tenant_id: str | None = None,
        purpose: str | None = None,
        attempts: int | None = None,
    ) -> T:
        """Run ``fn`` in a unit of work and repeat both after ``ConcurrencyError``, with growing pauses.

        ``fn`` may run more than once; its effects outside the unit must bear that. What it reads and writes
        back changed is never lost.

        Args:
            fn: gets the unit.
            tenant_id: the one tenant of the unit.
            purpose: as for :meth:`transaction`.
            attempts: at most so many; the repetitions end after 10 s in any case.

        Raises:
            ConcurrencyError: the unit lost against others at every attempt.
            ValidationError: ``attempts`` is less than 1, or units would nest.
        """

        def once() -> T:
            with self.transaction(tenant_id, purpose=purpose) as unit:
                return fn(unit)

        return repeat(once, attempts=attempts)

    def bind(self, handle: object, tenant_id: str) -> SchedulerSession:
        """Join a caller's own psycopg connection or pymongo client session, inside its transaction.

        The handle is never committed or closed.
        """
        repositories = self._open.bind(handle, bound_scope(tenant_id, None))
        return SchedulerSession.over(repositories, self._clock, in_unit=True)

    def check_ready(self) -> None:
        """Connect and check server, roles and schema; see :meth:`ModuleBackend.check_ready`."""
        self._open.check_ready()

    def close(self) -> None:
        """Close what this storage opened; a second call does nothing, another one is refused."""
        self._lifetime.closed = True
        self._backend.close()
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        """Return the storage."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what this storage opened."""
        self.close()

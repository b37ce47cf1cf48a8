"""The MongoDB driver of the scheduler."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self, cast

from pymongo.client_session import ClientSession

from twinstore.backend import UnitState, wrong_handle
from twinstore.options import SchedulerOptions
from twinstore.scope import UNBOUND
from twinstore_mongo.bulk import MongoBulk
from twinstore_mongo.connection import Connection
from twinstore_mongo.errors import CLIENT_ERRORS, DRIVER, translate
from twinstore_mongo.migrator import MongoInitializer
from twinstore_mongo.scheduler.audit import MongoAuditRepository
from twinstore_mongo.scheduler.impact_snapshots import MongoImpactSnapshotRepository
from twinstore_mongo.scheduler.run_summaries import MongoRunSummaryRepository
from twinstore_mongo.scheduler.runs import MongoRunRepository
from twinstore_mongo.scheduler.schedules import MongoScheduleRepository
from twinstore_mongo.scheduler.triggers import MongoTriggerRepository
from twinstore_mongo.settings import MongoSettings
from twinstore_mongo.units import Unit, client_session, transaction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.backend import Capabilities, OpenRequest
    from twinstore.scope import Scope

__all__ = ["MongoBackend", "MongoRepositories"]


@dataclass(frozen=True, slots=True)
class MongoRepositories:
    """The repositories of the scheduler over one unit."""

    schedules: MongoScheduleRepository
    triggers: MongoTriggerRepository
    runs: MongoRunRepository
    impact_snapshots: MongoImpactSnapshotRepository
    audit: MongoAuditRepository
    run_summaries: MongoRunSummaryRepository

    @classmethod
    def over(cls, unit: Unit) -> Self:
        """Return the repositories that share a unit."""
        return cls(
            schedules=MongoScheduleRepository(unit),
            triggers=MongoTriggerRepository(unit),
            runs=MongoRunRepository(unit),
            impact_snapshots=MongoImpactSnapshotRepository(unit),
            audit=MongoAuditRepository(unit),
            run_summaries=MongoRunSummaryRepository(unit),
        )


class MongoBackend:
    """Implements :class:`~twinstore.backend.ModuleBackend` for the scheduler."""

    def __init__(self, connection: Connection, options: SchedulerOptions, *, validators: bool = True) -> None:
        """Take the connection, the options of the module, and whether collections get validators."""
        self._connection = connection
        self.repositories = MongoRepositories.over(Unit(connection, UNBOUND, UnitState(unbound=True)))
        self.initializer = MongoInitializer(connection, options, validators=validators)
        self.bulk = MongoBulk(connection)

    @classmethod
    def of(cls, request: OpenRequest) -> Self:
        """Open the scheduler with the settings of the request."""
        settings = cast("MongoSettings", request.settings)
        options = cast("SchedulerOptions", request.options)
        return cls(Connection(settings, request.resources), options, validators=settings.validators)

    @property
    def driver(self) -> str:
        """The name of the driver, for messages."""
        return DRIVER

    @property
    def capabilities(self) -> Capabilities:
        """What the connected server can do."""
        return self._connection.store.capabilities

    @contextmanager
    def session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[MongoRepositories]:
        """Open repositories bound to one client session; see :meth:`ModuleBackend.session`."""
        self.capabilities.require("sessions")
        store = self._connection.store
        with client_session(store, causal_consistency=causal_consistency) as session:
            unit = replace(self._fresh(scope), session=session, joined=store)
            try:
                yield MongoRepositories.over(unit)
            finally:
                unit.state.closed = True

    @contextmanager
    def transaction(self, scope: Scope, *, read_only: bool) -> Iterator[MongoRepositories]:
        """Open a unit of work; see :meth:`ModuleBackend.transaction`."""
        self.capabilities.require("transactions")
        store = self._connection.store
        with client_session(store) as session:
            unit = replace(self._fresh(scope), session=session, joined=store, read_only=read_only)
            try:
                with transaction(session, store):
                    yield MongoRepositories.over(unit)
                    unit.state.check_commit()
            finally:
                unit.state.closed = True

    def bind(self, handle: object, scope: Scope) -> MongoRepositories:
        """Join a caller's own client session; see :meth:`ModuleBackend.bind`."""
        if not isinstance(handle, ClientSession):
            raise wrong_handle(handle, "a pymongo ClientSession", DRIVER)
        store = self._connection.store.joined(handle)
        return MongoRepositories.over(replace(self._fresh(scope), session=handle, joined=store))

    def check_ready(self) -> None:
        """Connect and check server and schema; see :meth:`ModuleBackend.check_ready`."""
        store = self._connection.store
        try:
            store.client.server_info()
        except CLIENT_ERRORS as error:
            raise translate(error, store.where) from error
        self.initializer.check_applied()

    def close(self) -> None:
        """Forget the connection; shared clients are closed with the storage."""
        self._connection.close()

    def _fresh(self, scope: Scope) -> Unit:
        return Unit(self._connection, scope)

"""The memory driver of the scheduler."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from twinstore.backend import Capabilities, wrong_handle
from twinstore.scope import UNBOUND
from twinstore_memory.bulk import MemoryBulk
from twinstore_memory.initializer import MemoryInitializer
from twinstore_memory.repository import Joined, Link, Single
from twinstore_memory.scheduler.audit import MemoryAuditRepository
from twinstore_memory.scheduler.impact_snapshots import MemoryImpactSnapshotRepository
from twinstore_memory.scheduler.run_summaries import MemoryRunSummaryRepository
from twinstore_memory.scheduler.runs import MemoryRunRepository
from twinstore_memory.scheduler.schedules import MemoryScheduleRepository
from twinstore_memory.scheduler.triggers import MemoryTriggerRepository
from twinstore_memory.settings import MemorySettings
from twinstore_memory.store import DRIVER, Store, Unit, shared_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.backend import OpenRequest
    from twinstore.scope import Scope

__all__ = ["CAPABILITIES", "MemoryBackend", "MemoryRepositories"]

CAPABILITIES: Final = Capabilities(
    backend=DRIVER,
    transactions=True,
    sessions=True,
    server_clock=True,
    remedy="Use the driver of a server; this one lives in the memory of one process.",
)


@dataclass(frozen=True, slots=True)
class MemoryRepositories:
    """The repositories of the scheduler over one link to the store."""

    schedules: MemoryScheduleRepository
    triggers: MemoryTriggerRepository
    runs: MemoryRunRepository
    impact_snapshots: MemoryImpactSnapshotRepository
    audit: MemoryAuditRepository
    run_summaries: MemoryRunSummaryRepository

    @classmethod
    def over(cls, link: Link, scope: Scope) -> Self:
        """Return the repositories that share a link and a scope."""
        return cls(
            schedules=MemoryScheduleRepository(link, scope),
            triggers=MemoryTriggerRepository(link, scope),
            runs=MemoryRunRepository(link, scope),
            impact_snapshots=MemoryImpactSnapshotRepository(link, scope),
            audit=MemoryAuditRepository(link, scope),
            run_summaries=MemoryRunSummaryRepository(link, scope),
        )


class MemoryBackend:
    """Implements :class:`~twinstore.backend.ModuleBackend` for the scheduler."""

    def __init__(self, store: Store | None = None) -> None:
        """Take the store; default: one of its own."""
        self.store = store or Store()
        self.repositories = self._over(Single(self.store, unbound=True), UNBOUND)
        self.initializer = MemoryInitializer()
        self.bulk = MemoryBulk(self.store, CAPABILITIES)

    @classmethod
    def of(cls, request: OpenRequest) -> Self:
        """Open the store that the settings name, or one of its own."""
        settings = request.settings
        name = settings.store if isinstance(settings, MemorySettings) else None
        return cls(None if name is None else shared_store(name))

    @property
    def driver(self) -> str:
        """The name of the driver, for messages."""
        return DRIVER

    @property
    def capabilities(self) -> Capabilities:
        """What the driver can do."""
        return CAPABILITIES

    @contextmanager
    def session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[MemoryRepositories]:
        """Open a session; reads always see earlier writes, so ``causal_consistency`` changes nothing."""
        del causal_consistency
        link = Single(self.store)
        try:
            yield self._over(link, scope)
        finally:
            link.state.closed = True

    @contextmanager
    def transaction(self, scope: Scope, *, read_only: bool) -> Iterator[MemoryRepositories]:
        """Open a unit of work; see :meth:`ModuleBackend.transaction`."""
        unit = self.store.begin(read_only=read_only, isolated=True)
        try:
            yield self._over(Joined(unit), scope)
            unit.commit()
        finally:
            unit.rollback()

    def bind(self, handle: object, scope: Scope) -> MemoryRepositories:
        """Join a :class:`~twinstore_memory.store.Unit` that the caller began and will end."""
        if not isinstance(handle, Unit) or handle.store is not self.store:
            raise wrong_handle(handle, "a unit of its own store", DRIVER)
        return self._over(Joined(handle), scope)

    def check_ready(self) -> None:
        """Do nothing: there is neither a server nor a schema."""

    def close(self) -> None:
        """Do nothing: the store vanishes with its last user, a named one with the process."""

    def _over(self, link: Link, scope: Scope) -> MemoryRepositories:
        return MemoryRepositories.over(link, scope)

"""The storage of tracking: its repositories over one driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.storage.module import ModuleStorage
from twinstore.tracking.options import TrackingOptions
from twinstore.tracking.repositories import Repositories

if TYPE_CHECKING:
    from twinstore.tracking.machines import TrackingMachineRepository
    from twinstore.tracking.sessions import TrackingSessionRepository
    from twinstore.tracking.tasks import TrackingTaskRepository

DEFAULTS: Final = TrackingOptions()


@dataclass(frozen=True, slots=True)
class TrackingUnit:
    """The repositories of tracking, bound to one session or unit of work, or unbound.

    ``TrackingSession`` is the model of the customer, so this class has another name than those of the other
    modules; and ``sessions`` of a storage opens sessions of the store, so the repository is called
    ``tracking_sessions``.
    """

    tracking_sessions: TrackingSessionRepository
    tasks: TrackingTaskRepository
    machines: TrackingMachineRepository


class TrackingStorage(ModuleStorage[Repositories, TrackingUnit]):
    """What a host holds of tracking. It connects on first use and closes only what it opened."""

    @property
    @override
    def admits_no_tenant(self) -> bool:
        return True

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> TrackingUnit:
        options = self._options if isinstance(self._options, TrackingOptions) else DEFAULTS
        tuned = repositories.tuned(self._clock, options)
        return TrackingUnit(
            tracking_sessions=tuned.tracking_sessions, tasks=tuned.tasks, machines=tuned.machines
        )

    @property
    def tracking_sessions(self) -> TrackingSessionRepository:
        """Sessions of agents."""
        return self.unbound.tracking_sessions

    @property
    def tasks(self) -> TrackingTaskRepository:
        """Tasks of sessions."""
        return self.unbound.tasks

    @property
    def machines(self) -> TrackingMachineRepository:
        """Machines and their slots."""
        return self.unbound.machines

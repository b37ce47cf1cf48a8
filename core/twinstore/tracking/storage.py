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

__all__ = ["TrackingStorage", "TrackingUnit"]

DEFAULTS: Final = TrackingOptions()


@dataclass(frozen=True, eq=False, repr=False)
class TrackingUnit:
    """The repositories of tracking: a session, a unit of work, or the storage itself.

    ``TrackingSession`` is the model of the customer, so this class has another name than those of the other
    modules; and ``sessions`` of a storage opens sessions of the store, so the repository is called
    ``tracking_sessions``.
    """

    tracking_sessions: TrackingSessionRepository
    tasks: TrackingTaskRepository
    machines: TrackingMachineRepository


class TrackingStorage(ModuleStorage[Repositories, TrackingUnit], TrackingUnit):
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

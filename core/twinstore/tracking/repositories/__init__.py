"""The repositories of tracking, written once over :class:`~twinstore.access.protocol.Access`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from twinstore.tracking.repositories.machines import TrackingMachines
from twinstore.tracking.repositories.sessions import TrackingSessions
from twinstore.tracking.repositories.tasks import TrackingTasks

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.clock import Clock
    from twinstore.tracking.options import TrackingOptions

__all__ = ["Repositories", "TrackingMachines", "TrackingSessions", "TrackingTasks"]


@dataclass(frozen=True, slots=True)
class Repositories:
    """All of them over one access; a driver is asked for nothing else."""

    tracking_sessions: TrackingSessions
    tasks: TrackingTasks
    machines: TrackingMachines

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access, with the clock of this process and no options."""
        return cls(
            tracking_sessions=TrackingSessions(access),
            tasks=TrackingTasks(access),
            machines=TrackingMachines(access),
        )

    def tuned(self, clock: Clock, options: TrackingOptions) -> Self:
        """Return the same repositories with the clock and the options of a host."""
        return type(self)(
            tracking_sessions=self.tracking_sessions.tuned(clock, options),
            tasks=self.tasks.tuned(clock, options),
            machines=self.machines.tuned(clock, options),
        )

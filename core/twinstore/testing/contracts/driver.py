"""Everything that a driver must do, for all modules that are installed, in one class."""

from __future__ import annotations

from twinstore.testing.contracts.access import AccessContract, AccessDefaultsContract
from twinstore.testing.contracts.scheduler import SchedulerContract

__all__ = ["DriverContract"]


class DriverContract:
    """The kits of all modules, each as a class of its own.

    The ten operations are tried over the entities that exist for tests alone, as the driver overrides them
    and with the defaults of core.
    """

    class TestAccess(AccessContract):
        """The ten operations over entities of every kind."""

    class TestDefaults(AccessDefaultsContract):
        """The same with the defaults of core alone."""

    class TestScheduler(SchedulerContract):
        """The repositories of the scheduler, units of work, and the bulk port."""

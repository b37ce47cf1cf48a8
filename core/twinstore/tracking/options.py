"""Options of tracking."""

from __future__ import annotations

from twinstore.plugins.options import Days, ModuleOptions, Seconds


class TrackingOptions(ModuleOptions):
    """Options of tracking.

    Attributes:
        stale_after_seconds: silence in seconds after which an active session counts as stale.
        retention_days: age in days at which sessions and tasks that ended are due for removal; 0 keeps them.
    """

    stale_after_seconds: Seconds = 300
    retention_days: Days = 30

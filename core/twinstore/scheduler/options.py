"""Options of the scheduler."""

from __future__ import annotations

from pydantic import Field

from twinstore.models.fields import LowerKeyMap
from twinstore.plugins.options import Days, ModuleOptions, Seconds


class SchedulerOptions(ModuleOptions):
    """Options of the scheduler.

    Attributes:
        run_retention_days: age in days at which finished runs and logs are due for removal; 0 keeps them.
        impact_retention_days: the same for impact snapshots.
        heartbeat_seconds: how often a worker reports itself.
        dead_after_seconds: silence in seconds after which a worker counts as dead.
        audit_metadata: what the audit service adds to the metadata of each event that does not say it itself.
    """

    run_retention_days: Days = 180
    impact_retention_days: Days = 0
    heartbeat_seconds: Seconds = 30
    dead_after_seconds: Seconds = 300
    audit_metadata: LowerKeyMap = Field(default_factory=dict)

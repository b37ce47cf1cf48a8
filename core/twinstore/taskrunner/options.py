"""Options of the task runner."""

from __future__ import annotations

from twinstore.plugins.options import Days, ModuleOptions

__all__ = ["TaskRunnerOptions"]


class TaskRunnerOptions(ModuleOptions):
    """Options of the task runner.

    Attributes:
        log_retention_days: age in days at which log entries are due for removal; 0 keeps them.
        tenancy_enforced: whether every call must name a tenant.
    """

    log_retention_days: Days = 0
    tenancy_enforced: bool = False

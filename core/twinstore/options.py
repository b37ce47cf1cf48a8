"""Options of the modules: what a host may tune whichever driver answers."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

__all__ = ["ModuleOptions", "SchedulerOptions", "TaskRunnerOptions", "TrackingOptions"]

# expireAfterSeconds of a MongoDB TTL index ends at 2,147,483,647 seconds.
MAX_RETENTION_DAYS = 24_855
MAX_SECONDS = 2_147_483_647


def refuse_bool(value: object) -> object:
    """Refuse ``true`` where a number is meant; pydantic would read it as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a whole number, not true or false")  # noqa: TRY004  # pydantic turns ValueError, not TypeError, into its own error
    return value


Days = Annotated[int, BeforeValidator(refuse_bool), Field(ge=0, le=MAX_RETENTION_DAYS)]
Seconds = Annotated[int, BeforeValidator(refuse_bool), Field(ge=1, le=MAX_SECONDS)]


class ModuleOptions(BaseModel):
    """Base of the options of a module: immutable, unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SchedulerOptions(ModuleOptions):
    """Options of the scheduler.

    Attributes:
        run_retention_days: age in days at which finished runs and logs are due for removal; 0 keeps them.
        impact_retention_days: the same for impact snapshots.
        heartbeat_seconds: how often a worker reports itself.
        dead_after_seconds: silence in seconds after which a worker counts as dead.
    """

    run_retention_days: Days = 180
    impact_retention_days: Days = 0
    heartbeat_seconds: Seconds = 30
    dead_after_seconds: Seconds = 300


class TrackingOptions(ModuleOptions):
    """Options of tracking.

    Attributes:
        stale_after_seconds: silence in seconds after which a session counts as stale.
    """

    stale_after_seconds: Seconds = 300


class TaskRunnerOptions(ModuleOptions):
    """Options of the task runner.

    Attributes:
        log_retention_days: age in days at which log entries are due for removal; 0 keeps them.
        tenancy_enforced: whether every call must name a tenant.
    """

    log_retention_days: Days = 0
    tenancy_enforced: bool = False

"""Describes the scheduler without importing what it stores."""

from __future__ import annotations

from typing import Final

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleSettings
from twinstore.scheduler.options import SchedulerOptions


def spec() -> ModuleSpec[object]:
    """Return the module; its models are imported here and nowhere earlier."""
    from twinstore.scheduler.module import MODULE  # noqa: PLC0415  # the plug-in is read by every host

    return MODULE


PLUGIN: Final = ModulePlugin(
    name="scheduler",
    title="Scheduler",
    position=1,
    settings=ModuleSettings(
        section="Scheduler",
        options=SchedulerOptions,
        option_paths={
            "run_retention_days": ("Scheduler", "Storage", "RunRetentionDays"),
            "impact_retention_days": ("Scheduler", "Storage", "ImpactRetentionDays"),
            "heartbeat_seconds": ("Scheduler", "Workers", "HeartbeatSeconds"),
            "dead_after_seconds": ("Scheduler", "Workers", "DeadAfterSeconds"),
            "audit_metadata": ("Scheduler", "Storage", "AuditMetadata"),
        },
    ),
    spec=spec,
)

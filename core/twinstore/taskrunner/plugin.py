"""Describes the task runner, of which this release knows the settings only."""

from __future__ import annotations

from typing import Final

from twinstore.modules import ModulePlugin
from twinstore.options import ModuleSettings
from twinstore.taskrunner.options import TaskRunnerOptions

__all__ = ["PLUGIN"]

PLUGIN: Final = ModulePlugin(
    name="taskrunner",
    title="TaskRunner",
    position=3,
    settings=ModuleSettings(
        section="TaskRunner",
        drivers=("Filesystem", "Memory", "Mongo", "Postgres"),
        options=TaskRunnerOptions,
        option_paths={
            "log_retention_days": ("TaskRunner", "Storage", "LogRetentionDays"),
            "tenancy_enforced": ("TaskRunner", "Tenancy", "Enforced"),
        },
        mode=("TaskRunner", "Storage", "Mode"),
        roles={"worker": (("Worker", "Storage"), ("Worker", "TaskRunner", "Storage"))},
    ),
)

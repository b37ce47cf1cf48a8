"""Describes the task runner without importing what it stores."""

from __future__ import annotations

from typing import Final

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.modules import ModulePlugin
from twinstore.plugins.options import ModuleSettings
from twinstore.taskrunner.options import TaskRunnerOptions

__all__ = ["PLUGIN"]


def spec() -> ModuleSpec[object]:
    """Return the module; its models are imported here and nowhere earlier."""
    from twinstore.taskrunner.module import MODULE  # noqa: PLC0415  # the plug-in is read by every host

    return MODULE


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
        spellings={
            ("Mongo", f"{name}Collection"): ("Mongo", "Collections", entity)
            for name, entity in (
                ("Runs", "pack_runs"),
                ("Logs", "pack_run_logs"),
                ("Artifacts", "pack_artifacts"),
                ("Approvals", "pack_run_approvals"),
            )
        },
        roles={"worker": (("Worker", "Storage"), ("Worker", "TaskRunner", "Storage"))},
    ),
    spec=spec,
)

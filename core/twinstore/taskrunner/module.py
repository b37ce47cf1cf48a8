"""The task runner as a module: what drivers and tools get to know of it."""

from __future__ import annotations

from typing import Final

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.taskrunner.catalog import TASKRUNNER
from twinstore.taskrunner.checks import TaskRunnerLists
from twinstore.taskrunner.repositories import Repositories
from twinstore.taskrunner.storage import TaskRunnerSession, TaskRunnerStorage
from twinstore.taskrunner.trial import TASKRUNNER_TRIAL

__all__ = ["MODULE"]

MODULE: Final = ModuleSpec(
    catalog=TASKRUNNER,
    repositories=Repositories.over,
    title="TaskRunner",
    package="twinstore.taskrunner",
    storage=TaskRunnerStorage,
    session=TaskRunnerSession,
    checks=TaskRunnerLists,
    trial=TASKRUNNER_TRIAL,
    kit="twinstore.testing.taskrunner:TaskRunnerContract",
)

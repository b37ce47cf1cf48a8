"""The scheduler as a module: what drivers and tools get to know of it."""

from __future__ import annotations

from typing import Final

from twinstore.plugins.module_spec import ModuleSpec
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.scheduler.checks import TRIGGERS_OF_SCHEDULES, SchedulerLists
from twinstore.scheduler.repositories import Repositories
from twinstore.scheduler.smoke import LOCK_SMOKE_TEST
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.scheduler.trial import SCHEDULER_TRIAL

MODULE: Final = ModuleSpec(
    catalog=SCHEDULER,
    repositories=Repositories.over,
    title="Scheduler",
    package="twinstore.scheduler",
    storage=SchedulerStorage,
    session=SchedulerSession,
    checks=SchedulerLists,
    smoke_test=LOCK_SMOKE_TEST,
    trial=SCHEDULER_TRIAL,
    due_order="next fire order",
    needed_rows=TRIGGERS_OF_SCHEDULES,
    kit="twinstore.testing.scheduler:SchedulerContract",
)

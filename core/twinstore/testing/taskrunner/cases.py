"""What the generic contracts ask of the task runner, beyond what follows from its examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import pytest
from typing_extensions import override

from twinstore.taskrunner.storage import TaskRunnerStorage
from twinstore.testing.base import Contract
from twinstore.testing.taskrunner import calls
from twinstore.testing.taskrunner.builders import make_pack_run
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from twinstore.errors import TwinstoreError
    from twinstore.taskrunner.pack_runs import PackRunState
    from twinstore.testing.calls import Step, TenantCall, Touch

__all__ = ["TaskRunnerCases", "TaskRunnerWorkspace"]

# Before the contracts are imported, so that their failures show both sides of a comparison.
pytest.register_assert_rewrite("twinstore.testing.taskrunner.contracts")


class TaskRunnerWorkspace(Workspace[TaskRunnerStorage]):
    """What a contract test of the task runner works with."""

    __slots__ = ()

    def run(self, name: str = "a", /, **changes: object) -> PackRunState:
        """Build a run of the tenant."""
        return make_pack_run(self.tenant, self.id(name), **changes)

    def created(self, name: str = "a", /, **changes: object) -> PackRunState:
        """Store a run of the tenant; return it."""
        return self.storage.pack_runs.create(self.run(name, **changes))


class TaskRunnerCases(Contract):
    """Base of all contracts of the task runner."""

    module = TASKRUNNER_EXAMPLES
    workspace_class = TaskRunnerWorkspace
    more_calls: ClassVar[tuple[TenantCall, ...]] = calls.TENANT_CALLS
    more_system_calls: ClassVar[tuple[TenantCall, ...]] = calls.SYSTEM_CALLS
    more_touches: ClassVar[tuple[Touch, ...]] = calls.TOUCHES

    @override
    @classmethod
    def harmless_steps(cls) -> Mapping[str, tuple[type[TwinstoreError], Step]]:
        return {**super().harmless_steps(), **calls.HARMLESS}

"""What the generic contracts ask of the scheduler, beyond what follows from its examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

import pytest
from typing_extensions import override

from twinstore.testing.base import Contract
from twinstore.testing.scheduler import calls
from twinstore.testing.scheduler.calls import FILTERED_LISTINGS, GRAPH_JOB_CALLS, GRAPH_JOB_LISTINGS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.scheduler.workspace import SchedulerWorkspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.errors import TwinstoreError
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore.testing.calls import Listing, Step, TenantCall, Touch
    from twinstore.testing.workspace import Workspace

__all__ = ["SchedulerCases"]

# Before the contracts are imported, so that their failures show both sides of a comparison.
pytest.register_assert_rewrite("twinstore.testing.scheduler.contracts")


class SchedulerCases(Contract):
    """Base of all contracts of the scheduler."""

    module = SCHEDULER_EXAMPLES
    workspace_class = SchedulerWorkspace
    more_listings: ClassVar[tuple[Listing, ...]] = (*FILTERED_LISTINGS, *GRAPH_JOB_LISTINGS)
    more_calls: ClassVar[tuple[TenantCall, ...]] = (*calls.TENANT_CALLS, *GRAPH_JOB_CALLS)
    more_system_calls: ClassVar[tuple[TenantCall, ...]] = calls.SYSTEM_CALLS
    more_touches: ClassVar[tuple[Touch, ...]] = calls.TOUCHES

    @override
    @classmethod
    def store_one_of_each(cls, workspace: Workspace) -> calls.StoredExamples:
        return calls.store_one_of_each(workspace)

    @override
    @classmethod
    def write_everywhere(cls, session: object, workspace: Workspace) -> None:
        calls.write_everywhere(cast("SchedulerSession", session), cast("SchedulerWorkspace", workspace))

    @override
    @classmethod
    def write_and_read(cls, session: object, workspace: Workspace, number: int) -> None:
        calls.write_and_read(cast("SchedulerSession", session), cast("SchedulerWorkspace", workspace), number)

    @override
    @classmethod
    def populate(cls, workspace: Workspace) -> None:
        calls.populate(cast("SchedulerWorkspace", workspace))

    @override
    @classmethod
    def harmless_steps(cls) -> Mapping[str, tuple[type[TwinstoreError], Step]]:
        return cast("Mapping[str, tuple[type[TwinstoreError], Step]]", calls.HARMLESS)

    @override
    @classmethod
    def fatal_steps(cls) -> Mapping[str, Step]:
        return cast("Mapping[str, Step]", calls.FATAL)

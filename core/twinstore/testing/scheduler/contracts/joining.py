"""What repositories of the scheduler promise that join a transaction of their caller."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from twinstore.access.protocol import Moment, Ref, Rows, Rule
from twinstore.access.scope import Scope
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DuplicateError
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.scheduler.module import MODULE
from twinstore.testing.base import needs
from twinstore.testing.entities import by_access
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerJoiningContract"]


def two_schedules(workspace: SchedulerWorkspace) -> tuple[Ref, Ref]:
    """Return where a stored schedule is and where another one would be."""
    return tuple(Ref(SCHEDULES, Tenant(workspace.tenant), (workspace.id(name),)) for name in ("a", "new"))  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # two


def renamed(workspace: SchedulerWorkspace, name: str) -> Rule:
    """Return a rule that changes the first schedule and inserts the second one under a taken name."""

    def rule(rows: Rows, now: Moment) -> Rows:
        del now
        (stored, _) = rows
        assert stored is not None
        changed = stored.model.evolve(name="changed")
        return Row(changed, stored.storage), Row(workspace.schedule("new", name=name))

    return rule


class SchedulerJoiningContract(SchedulerCases):
    """A joined write of two rows that fails leaves no half of itself."""

    @needs("transactions")
    def test_a_joined_write_that_fails_leaves_no_half_of_itself(self, workspace: SchedulerWorkspace) -> None:
        schedule = workspace.storage.schedules.upsert(workspace.schedule())
        taken = workspace.storage.schedules.upsert(workspace.schedule("taken"))
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            refused = False
            # The handle is its caller's own: what a store refused may well fail to commit, in its own words.
            with (
                workspace.deployment.open_module(by_access(MODULE)) as backend,
                suppress(Exception),
                handle as joined,
            ):
                bound = backend.bind(joined, Scope(workspace.tenant))
                with pytest.raises(DuplicateError):
                    bound.change(two_schedules(workspace), renamed(workspace, taken.name))
                refused = True
            assert refused
            assert workspace.storage.schedules.get(workspace.tenant, schedule.id) == schedule
            assert workspace.count(SCHEDULES) == 2

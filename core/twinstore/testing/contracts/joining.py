"""What repositories promise that join a transaction of their caller: its commit decides, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from twinstore.access import Moment, Ref, Row, Rows, Rule
from twinstore.errors import ConfigurationError, DuplicateError
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS, SCHEDULES
from twinstore.scheduler.module import MODULE
from twinstore.scope import Scope
from twinstore.tenancy import Tenant
from twinstore.testing.base import Contract, needs
from twinstore.testing.contracts.transactions import NOTHING, ONE_OF_EACH, counts, write_everywhere
from twinstore.testing.entities import by_access

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.testing.workspace import Workspace

__all__ = ["JoiningContract"]


def failing_inside(handle: AbstractContextManager[object], workspace: Workspace) -> None:
    """Write everywhere through a handle of the caller and fail."""
    with handle as joined:
        write_everywhere(workspace.storage.bind(joined, workspace.tenant), workspace)
        raise ZeroDivisionError


def two_schedules(workspace: Workspace) -> tuple[Ref, Ref]:
    """Return where a stored schedule is and where another one would be."""
    return tuple(Ref(SCHEDULES, Tenant(workspace.tenant), (workspace.id(name),)) for name in ("a", "new"))  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # two


def renamed(workspace: Workspace, name: str) -> Rule:
    """Return a rule that changes the first schedule and inserts the second one under a taken name."""

    def rule(rows: Rows, now: Moment) -> Rows:
        del now
        (stored, _) = rows
        assert stored is not None
        changed = stored.model.evolve(name="changed")
        return Row(changed, stored.storage), Row(workspace.schedule("new", name=name))

    return rule


class JoiningContract(Contract):
    """``bind``: a handle of the caller, where the driver joins one."""

    @needs("transactions")
    def test_a_handle_of_the_caller_decides_over_commit_and_rollback(self, workspace: Workspace) -> None:
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with handle as joined:
                write_everywhere(workspace.storage.bind(joined, workspace.tenant), workspace)
                assert counts(workspace) == NOTHING
            assert counts(workspace) == ONE_OF_EACH

    @needs("transactions")
    def test_a_handle_that_is_rolled_back_leaves_nothing(self, workspace: Workspace) -> None:
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                failing_inside(handle, workspace)
            assert counts(workspace) == NOTHING

    @needs("transactions")
    def test_joining_again_commits_nothing_of_what_came_before(self, workspace: Workspace) -> None:
        def failing(handle: AbstractContextManager[object]) -> None:
            with handle as joined:
                workspace.storage.bind(joined, workspace.tenant).runs.create(workspace.run("first"))
                workspace.storage.bind(joined, workspace.tenant).runs.create(workspace.run("second"))
                assert workspace.count(RUNS) == 0
                raise ZeroDivisionError

        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                failing(handle)
            assert workspace.count(RUNS) == 0

    @needs("transactions")
    def test_a_joined_write_that_fails_leaves_no_half_of_itself(self, workspace: Workspace) -> None:
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

    def test_a_handle_of_another_kind_is_refused(self, workspace: Workspace) -> None:
        with pytest.raises(ConfigurationError):
            workspace.storage.bind(object(), workspace.tenant)
        assert workspace.count(RUN_SUMMARIES) == 0

"""What repositories promise that join a transaction of their caller: its commit decides, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ConfigurationError
from twinstore.testing.base import Contract, needs, of_tenants

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from twinstore.testing.workspace import Workspace

__all__ = ["JoiningContract"]


class JoiningContract(Contract):
    """``bind``: a handle of the caller, where the driver joins one."""

    def fail_inside(self, handle: AbstractContextManager[object], workspace: Workspace) -> None:
        """Write everywhere through a handle of the caller and fail."""
        with handle as joined:
            self.write_everywhere(workspace.storage.bind(joined, workspace.tenant), workspace)
            raise ZeroDivisionError

    @of_tenants
    @needs("transactions")
    def test_a_handle_of_the_caller_decides_over_commit_and_rollback(self, workspace: Workspace) -> None:
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with handle as joined:
                self.write_everywhere(workspace.storage.bind(joined, workspace.tenant), workspace)
                assert set(self.counts(workspace)) == {0}
            assert set(self.counts(workspace)) == {1}

    @of_tenants
    @needs("transactions")
    def test_a_handle_that_is_rolled_back_leaves_nothing(self, workspace: Workspace) -> None:
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                self.fail_inside(handle, workspace)
            assert set(self.counts(workspace)) == {0}

    @of_tenants
    @needs("transactions")
    def test_joining_again_commits_nothing_of_what_came_before(self, workspace: Workspace) -> None:
        def failing(handle: AbstractContextManager[object]) -> None:
            with handle as joined:
                self.store_typical(workspace.storage.bind(joined, workspace.tenant), workspace, "first")
                self.store_typical(workspace.storage.bind(joined, workspace.tenant), workspace, "second")
                assert workspace.count(self.module.typical.entity) == 0
                raise ZeroDivisionError

        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            with pytest.raises(ZeroDivisionError):
                failing(handle)
            assert workspace.count(self.module.typical.entity) == 0

    def test_a_handle_of_another_kind_is_refused(self, workspace: Workspace) -> None:
        with pytest.raises(ConfigurationError):
            workspace.storage.bind(object(), workspace.tenant)
        assert set(self.counts(workspace)) <= {0}

"""What a storage holds of its server: nothing that a call leaves behind, and nothing after its end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ConfigurationError, DuplicateError, UnsupportedCapabilityError
from twinstore.testing.base import Contract
from twinstore.testing.calls import SYSTEM_CALLS, TENANT_CALLS, store_one_of_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.workspace import Workspace

__all__ = ["ResourceContract"]

TIMES: Final = 12
DESCRIPTORS: Final = Path("/dev/fd")


def descriptors() -> int:
    """Return how many files and connections the process has open; 0 where the system does not tell."""
    return len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0


def every_kind_of_call(workspace: Workspace) -> None:
    """Read, list, write, fail, and open what can be opened."""
    storage, tenant = workspace.storage, workspace.tenant
    run = storage.runs.create(workspace.run().evolve(id=workspace.next_id()))
    assert storage.runs.get(tenant, run.id) == run
    storage.runs.list(tenant)
    storage.runs.list_by_state(run.state, limit=1)
    with pytest.raises(DuplicateError):
        storage.runs.create(run)
    with suppress(UnsupportedCapabilityError), storage.sessions.open(tenant) as session:
        session.runs.get(tenant, run.id)
    with suppress(UnsupportedCapabilityError), storage.transaction(tenant) as unit:
        unit.runs.get(tenant, run.id)
    with suppress(UnsupportedCapabilityError, DuplicateError), storage.transaction(tenant) as unit:
        unit.runs.create(run)


class ResourceContract(Contract):
    """Connections, and the end of a storage."""

    def test_no_call_leaves_a_connection_open(self, isolated_workspace: Workspace) -> None:
        every_kind_of_call(isolated_workspace)
        before = descriptors()
        for _ in range(TIMES):
            every_kind_of_call(isolated_workspace)
        # One that is opened once more, for a pool or a monitor, is no leak.
        assert descriptors() < before + TIMES

    def test_a_closed_storage_refuses_every_call(self, workspace: Workspace) -> None:
        one_of_each = store_one_of_each(workspace)
        with workspace.storages(1) as (storage,):
            session, handle = storage.unbound, workspace.deployment.handle(workspace.tenant)
            assert storage.runs.get(workspace.tenant, one_of_each.run.id) == one_of_each.run
        for call in (*TENANT_CALLS, *SYSTEM_CALLS):
            with pytest.raises(ConfigurationError, match="closed"):
                call.invoke(session, workspace.tenant, one_of_each)
        uses: list[Callable[[SchedulerStorage], object]] = [
            lambda it: it.runs,
            lambda it: it.sessions.open(workspace.tenant).__enter__(),
            lambda it: it.transaction(workspace.tenant).__enter__(),
            lambda it: it.bind(handle, workspace.tenant),
            lambda it: it.capabilities,
            lambda it: it.initializer,
            lambda it: it.bulk,
            lambda it: it.check_ready(),
        ]
        for use in uses:
            with pytest.raises(ConfigurationError, match="closed"):
                use(storage)
        storage.close()
        assert workspace.storage.runs.get(workspace.tenant, one_of_each.run.id) == one_of_each.run

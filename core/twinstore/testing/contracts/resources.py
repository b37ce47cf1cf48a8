"""What a storage holds of its server: nothing that a call leaves behind, and nothing after its end."""

from __future__ import annotations

from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ConfigurationError, DuplicateError, UnsupportedCapabilityError
from twinstore.testing.base import Contract, of_tenants

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.testing.workspace import AnyStorage, Workspace

__all__ = ["ResourceContract"]

TIMES: Final = 12
DESCRIPTORS: Final = Path("/dev/fd")


def descriptors() -> int:
    """Return how many files and connections the process has open; 0 where the system does not tell."""
    return len(list(DESCRIPTORS.iterdir())) if DESCRIPTORS.exists() else 0


class ResourceContract(Contract):
    """Connections, and the end of a storage."""

    def _every_kind_of_call(self, workspace: Workspace) -> None:
        """Read, list, write, fail, and open what can be opened."""
        storage, tenant, typical = workspace.storage, workspace.tenant, self.module.typical
        name, taken = workspace.next_id(), workspace.next_id()
        model = self.module.store_small(storage.unbound, tenant, name, typical.entity)
        self.module.store_small(storage.unbound, workspace.foreign, taken, typical.entity)
        for listed in typical.lists:
            listed(
                getattr(storage.unbound, typical.repository), tenant, typical.value(tenant, model), limit=1
            )
        if typical.shares_keys:
            with pytest.raises(DuplicateError):
                typical.store(storage.unbound, tenant, typical.small(tenant, taken))
            with suppress(UnsupportedCapabilityError, DuplicateError), storage.transaction(tenant) as unit:
                typical.store(unit, tenant, typical.small(tenant, taken))
        assert typical.found(storage.unbound, tenant, model) == model
        with suppress(UnsupportedCapabilityError), storage.sessions.open(tenant) as session:
            typical.found(session, tenant, model)
        with suppress(UnsupportedCapabilityError), storage.transaction(tenant) as unit:
            typical.found(unit, tenant, model)

    @of_tenants
    def test_no_call_leaves_a_connection_open(self, isolated_workspace: Workspace) -> None:
        self._every_kind_of_call(isolated_workspace)
        before = descriptors()
        for _ in range(TIMES):
            self._every_kind_of_call(isolated_workspace)
        # One that is opened once more, for a pool or a monitor, is no leak.
        assert descriptors() < before + TIMES

    @of_tenants
    def test_a_closed_storage_refuses_every_call(self, workspace: Workspace) -> None:
        one_of_each = self.store_one_of_each(workspace)
        typical, tenant = self.module.typical, workspace.tenant
        model = one_of_each.rows[typical.entity]
        with workspace.storages(1) as (storage,):
            session, handle = storage.unbound, workspace.deployment.handle(workspace.tenant)
            assert typical.found(session, tenant, model) == model
        for call in (*self.tenant_calls(), *self.system_calls()):
            with pytest.raises(ConfigurationError, match="closed"):
                call.invoke(session, workspace.tenant, one_of_each)
        uses: list[Callable[[AnyStorage], object]] = [
            *(attrgetter(item.repository) for item in self.module.examples),
            lambda it: it.unbound,
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
        assert typical.found(workspace.storage.unbound, tenant, model) == model

"""What rival units of work do to each other: one state is read, the first writer wins, no update is lost."""

from __future__ import annotations

import pytest

from twinstore.errors import ValidationError
from twinstore.testing.base import Contract, needs, of_tenants
from twinstore.testing.workspace import AnyStorage, Workspace, in_thread, outcomes

__all__ = ["IsolationContract"]


class IsolationContract(Contract):
    """Units beside units, and beside calls that stand alone."""

    @of_tenants
    @needs("transactions")
    def test_a_unit_sees_what_was_committed_before_its_first_call(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,), workspace.storage.transaction(workspace.tenant) as unit:
            model = self.store_typical(other.unbound, workspace)
            assert self.found_typical(unit, workspace) == model

    @of_tenants
    @needs("transactions")
    def test_a_second_unit_in_the_same_thread_is_refused_and_the_first_goes_on(
        self, workspace: Workspace
    ) -> None:
        storage, called = workspace.storage, list[str]()
        with storage.transaction(workspace.tenant) as unit:
            self.store_typical(unit, workspace, "a")
            for tenant in (workspace.tenant, workspace.foreign):
                with pytest.raises(ValidationError, match="do not nest"), storage.transaction(tenant):
                    called.append("nested")
            with pytest.raises(ValidationError, match="do not nest"):
                storage.transact(lambda _: called.append("nested"), tenant_id=workspace.tenant)
            self.store_typical(unit, workspace, "b")
        assert (called, workspace.count(self.module.typical.entity)) == ([], 2)
        with storage.transaction(workspace.tenant) as unit:
            assert None not in [self.found_typical(unit, workspace, name) for name in "ab"]

    @of_tenants
    @needs("transactions")
    def test_units_of_two_storages_and_of_two_threads_stand_beside_each_other(
        self, workspace: Workspace
    ) -> None:
        def another(storage: AnyStorage, name: str) -> None:
            with storage.transaction(workspace.tenant) as unit:
                self.store_typical(unit, workspace, name)

        with workspace.storages(1) as (other,), workspace.storage.transaction(workspace.tenant) as unit:
            self.store_typical(unit, workspace, "mine")
            another(other, "other storage")
            assert outcomes([in_thread(lambda: another(workspace.storage, "other thread"))()]) == {"ok": 1}
        assert workspace.count(self.module.typical.entity) == 3

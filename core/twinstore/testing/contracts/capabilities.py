"""How the driver introduces itself, and that it is so.

What a host reads of it before anything is opened; what is declared works, and what is not fails loudly.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from twinstore.access.protocol import Ref, Rows, ServerClock
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import NO_TENANT, TenancyKind, Tenant, Tenants
from twinstore.clock import FixedClock
from twinstore.errors import UnsupportedCapabilityError
from twinstore.plugins.backend import BACKEND_API_VERSION, CAPABILITY_NAMES
from twinstore.plugins.drivers import list_backends, load_backend
from twinstore.plugins.settings import BackendSettings
from twinstore.testing.base import USES, Contract, assert_refused, needs, of_tenants, where
from twinstore.testing.entities import by_access
from twinstore.testing.examples import absent_key
from twinstore.testing.instants import at

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.testing.probe import BackendFactory
    from twinstore.testing.workspace import Workspace

__all__ = ["CapabilitiesContract", "PluginContract"]


class PluginContract(Contract):
    """The entry point and the description behind it."""

    def test_the_driver_is_installed_under_the_name_that_it_gives_itself(self, workspace: Workspace) -> None:
        name = workspace.storage.driver
        listed = [info for info in list_backends() if info.name.casefold() == name.casefold()]
        assert [(info.state, info.detail) for info in listed] == [("ready", "")]
        assert self.module.module.name in listed[0].modules
        assert load_backend(name.upper(), module=self.module.module.name).name == name

    def test_the_description_of_the_driver_has_the_types_that_are_asked_for(
        self, workspace: Workspace
    ) -> None:
        spec = load_backend(workspace.storage.driver)
        for texts in (spec.schemes, spec.requires):
            assert type(texts) is tuple
            assert all(type(text) is str and text for text in texts)
        assert spec.schemes
        assert (type(spec.api_version), type(spec.extra)) == (int, str)
        assert 1 <= spec.api_version <= BACKEND_API_VERSION
        assert spec.extra
        assert spec.modules is None or type(spec.modules) is frozenset
        assert issubclass(spec.settings, BackendSettings)
        assert callable(spec.factory)
        assert all(find_spec(name) is not None for name in spec.requires)


def tells_changes(kit: type[Contract]) -> bool:
    """Whether a feed of changes can report the key of the rows that represent all."""
    return bool(kit.module.of_tenants) and kit.module.typical.entity.single_key is not None


class CapabilitiesContract(Contract):
    """The declaration of the driver on the connected server."""

    @pytest.mark.parametrize("name", sorted(CAPABILITY_NAMES))
    def test_require_passes_what_is_declared_and_explains_what_is_not(
        self, workspace: Workspace, name: str
    ) -> None:
        capabilities = workspace.storage.capabilities
        if getattr(capabilities, name):
            capabilities.require(name)
        else:
            with pytest.raises(UnsupportedCapabilityError) as refusal:
                capabilities.require(name)
            assert capabilities.backend in refusal.value.message
            assert capabilities.server_version in refusal.value.message
            assert name.replace("_", " ") in refusal.value.message

    def test_an_unknown_capability_is_a_programming_error(self, workspace: Workspace) -> None:
        with pytest.raises(ValueError, match="no capability"):
            workspace.storage.capabilities.require("teleportation")

    def test_the_declaration_is_the_same_at_every_call(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,):
            assert other.capabilities == workspace.storage.capabilities == workspace.storage.capabilities

    @pytest.mark.parametrize("name", sorted(USES))
    def test_using_it_works_exactly_when_declared(self, workspace: Workspace, name: str) -> None:
        if getattr(workspace.storage.capabilities, name):
            USES[name](workspace.storage)
        else:
            assert_refused(workspace.storage, name)

    def test_the_declaration_names_the_driver_and_a_way_out(self, workspace: Workspace) -> None:
        capabilities = workspace.storage.capabilities
        assert capabilities.backend == workspace.storage.driver
        assert capabilities.backend.strip()
        assert capabilities.server_version == capabilities.server_version.strip()
        missing = [name for name in CAPABILITY_NAMES if not getattr(capabilities, name)]
        for name in missing:
            with pytest.raises(UnsupportedCapabilityError) as refusal:
                capabilities.require(name)
            _, _, remedy = refusal.value.message.partition(f"has no {name.replace('_', ' ')}.")
            assert remedy.strip().endswith(".")

    @where(lambda kit: any(index.expires for entity in kit.module.entities for index in entity.indexes))
    def test_expired_rows_are_removed_by_the_store_exactly_when_declared(
        self, backend_factory: BackendFactory
    ) -> None:
        with (
            backend_factory(self.module.module, migrated=False) as bare,
            bare.open(expiring=True) as storage,
        ):
            storage.initializer.ensure_migrations()
            observed = [
                entity
                for entity in self.module.entities
                if entity.retention is not None and bare.probe.removes_expired(entity)
            ]
            assert bool(observed) is storage.capabilities.server_ttl

    def test_the_server_checks_the_tenant_exactly_when_declared(self, workspace: Workspace) -> None:
        for owner in (workspace, workspace.elsewhere):
            self.store_one_of_each(owner)
        for entity in self.module.entities:
            if entity.tenancy.kind in {TenancyKind.REQUIRED, TenancyKind.PARENT}:
                visible = workspace.probe.shown_to(workspace.tenant, entity)
                declared = workspace.storage.capabilities.row_level_security
                assert visible == (workspace.count(entity) if declared else None)

    def test_a_clock_outside_the_client_judges_exactly_when_declared(self, workspace: Workspace) -> None:
        observed: list[datetime] = []

        def record_now(rows: Rows, now: ServerClock) -> Rows:
            observed.append(now())
            return rows

        entity = self.module.entities[0]
        owner: Tenants = Tenant(workspace.tenant) if entity.is_owned else NO_TENANT
        ref = Ref(entity, owner, absent_key(entity))
        instant = at(0.007)  # of milliseconds, because the clock of the client is passed on as it is
        with workspace.deployment.open_module(
            by_access(self.module.module), clock=FixedClock(instant)
        ) as backend:
            backend.repositories.change([ref], record_now)
        assert (observed[-1] != instant) is workspace.storage.capabilities.server_clock

    @where(tells_changes)
    def test_changes_can_be_followed_exactly_when_declared(self, workspace: Workspace) -> None:
        typical = self.module.typical
        feed = workspace.probe.changes(typical.entity)
        assert (feed is not None) is workspace.storage.capabilities.change_stream
        if feed is not None:
            with feed as following:
                model = self.store_typical(workspace.storage.unbound, workspace)
                assert following() == typical.key(workspace.tenant, model)

    @of_tenants
    @needs("bulk")
    def test_reads_of_the_past_work_exactly_when_declared(self, workspace: Workspace) -> None:
        bulk, everything = workspace.storage.bulk, KeyRange()
        typical, entity = self.module.typical, self.module.typical.entity
        model = self.store_typical(workspace.storage.unbound, workspace, "before")
        before = typical.key(workspace.tenant, model)
        position = bulk.position()
        self.store_typical(workspace.storage.unbound, workspace, "after")
        if workspace.storage.capabilities.point_in_time_reads:
            assert position is not None
            with bulk.view(as_of=position) as view:
                assert view.position == position
                batches = view.records(entity, everything, tenant_id=workspace.tenant)
                assert [record.key for batch in batches for record in batch] == [before]
                rows = view.rows(entity, everything, tenant_id=workspace.tenant)
                assert [row.key for batch in rows for row in batch] == [before]
        else:
            with pytest.raises(UnsupportedCapabilityError), bulk.view(as_of="0") as view:
                list(view.records(entity, everything))

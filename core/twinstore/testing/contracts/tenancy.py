"""No tenant sees or changes what belongs to another, on any method."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from twinstore.access.scope import system_scope_openings
from twinstore.errors import TenantScopeError, TwinstoreError, ValidationError
from twinstore.testing.base import Contract, each, needs, of_tenants
from twinstore.testing.calls import TenantCall
from twinstore.testing.examples import OneOfEach
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example
    from twinstore.testing.probe import BackendFactory, Deployment
    from twinstore.testing.workspace import AnyStorage

__all__ = ["TenancyContract"]

PURPOSE: Final = "contract kit"
every_method = each("call", lambda kit: kit.tenant_calls())
every_system_method = each("call", lambda kit: kit.system_calls())
every_bound_method = each("call", lambda kit: [call for call in kit.system_calls() if call.bound])
BAD_TENANTS: Final = ["", "  ", "a:b", "a\nb", "a\x00b", "x" * 129]


def answer_of(call: TenantCall, workspace: Workspace, one_of_each: OneOfEach) -> object:
    """Return the result of a call, or the class of its error."""
    try:
        return call.invoke(workspace.storage.unbound, workspace.tenant, one_of_each)
    except TwinstoreError as error:
        return type(error)


def found_or_refused(example: Example, session: object, tenant: str, model: CanonicalModel) -> object:
    """Return what a look-up answers, or the error of a session that may not look."""
    try:
        return example.found(session, tenant, model)
    except TenantScopeError:
        return TenantScopeError


class OtherTenant(NamedTuple):
    """A tenant that has rows of every entity; no test of the class may change them."""

    tenant: str
    one_of_each: OneOfEach


class Guarded:
    """A deployment where only these tests write; after each of them another tenant is unchanged."""

    def __init__(self, workspace: Workspace, one_of_each: OneOfEach) -> None:
        """Take the workspace of the other tenant, and its rows as they are now."""
        self.workspace = workspace
        self.other_tenant = OtherTenant(workspace.tenant, one_of_each)
        self._stored = one_of_each.stored(workspace)

    def check(self) -> None:
        """Assert that its rows are stored as they were when this was asked last."""
        before = self._stored
        self._stored = self.other_tenant.one_of_each.stored(self.workspace)
        assert self._stored == before


def removed_twice(call: TenantCall, workspace: Workspace, other_tenant: OtherTenant) -> object:
    """Return the result of a call that found nothing left to remove."""
    call.invoke(workspace.storage.unbound, workspace.tenant, other_tenant.one_of_each)
    return call.invoke(workspace.storage.unbound, workspace.tenant, other_tenant.one_of_each)


class TenancyContract(Contract):
    """The tenant of a call, of a session, and of the rows."""

    @pytest.fixture(scope="class")
    @classmethod
    def other_tenant(cls, deployment: Deployment, storage: AnyStorage) -> OtherTenant:
        """Store the rows of another tenant once for all tests of the class."""
        workspace = cls.workspace_class(deployment, storage)
        return OtherTenant(workspace.tenant, cls.store_one_of_each(workspace))

    @pytest.fixture(scope="class")
    @classmethod
    def guarded(cls, backend_factory: BackendFactory) -> Iterator[Guarded]:
        """Store the rows of another tenant where only the tests that take this write."""
        with backend_factory(cls.module.module) as deployment, deployment.open() as storage:
            workspace = cls.workspace_class(deployment, storage)
            yield Guarded(workspace, cls.store_one_of_each(workspace))

    @pytest.fixture
    def foreign_workspace(self, guarded: Guarded) -> Workspace:
        """Return a workspace on the deployment of the guarded tenant, with another one."""
        return self.workspace_class(guarded.workspace.deployment, guarded.workspace.storage)

    @pytest.fixture
    def unchanged(self, guarded: Guarded) -> Iterator[OtherTenant]:
        """Return the guarded tenant, and assert that the test has left its rows as they were."""
        yield guarded.other_tenant
        guarded.check()

    @every_method
    def test_rows_of_another_tenant_do_not_exist(
        self, foreign_workspace: Workspace, unchanged: OtherTenant, call: TenantCall
    ) -> None:
        assert answer_of(call, foreign_workspace, unchanged.one_of_each) == call.answer

    @every_method
    def test_the_reserved_tenant_is_refused(
        self, foreign_workspace: Workspace, unchanged: OtherTenant, call: TenantCall
    ) -> None:
        with pytest.raises((TenantScopeError, ValueError)):
            call.invoke(foreign_workspace.storage.unbound, " system ", unchanged.one_of_each)

    @every_method
    def test_an_unacceptable_tenant_is_refused(
        self, foreign_workspace: Workspace, unchanged: OtherTenant, call: TenantCall
    ) -> None:
        for tenant in BAD_TENANTS:
            # A model with such a tenant cannot even be built, which is pydantic's ValueError.
            with pytest.raises((ValidationError, ValueError)):
                call.invoke(foreign_workspace.storage.unbound, tenant, unchanged.one_of_each)

    @every_method
    @needs("sessions")
    def test_a_session_admits_its_own_tenant_only(
        self, foreign_workspace: Workspace, unchanged: OtherTenant, call: TenantCall
    ) -> None:
        with (
            foreign_workspace.storage.sessions.open(foreign_workspace.tenant) as bound,
            pytest.raises(TenantScopeError),
        ):
            call.invoke(bound, unchanged.tenant, unchanged.one_of_each)

    @every_method
    @needs("transactions")
    def test_a_unit_admits_its_own_tenant_only_and_stays_usable(
        self, foreign_workspace: Workspace, unchanged: OtherTenant, call: TenantCall
    ) -> None:
        with foreign_workspace.storage.transaction(foreign_workspace.tenant) as unit:
            with pytest.raises(TenantScopeError):
                call.invoke(unit, unchanged.tenant, unchanged.one_of_each)
            model = self.store_typical(unit, foreign_workspace)
        assert (
            self.module.typical.found(foreign_workspace.storage.unbound, foreign_workspace.tenant, model)
            == model
        )

    @every_method
    @needs("sessions")
    def test_system_scope_admits_no_single_tenant(
        self, foreign_workspace: Workspace, unchanged: OtherTenant, call: TenantCall
    ) -> None:
        with (
            foreign_workspace.storage.sessions.open(purpose=PURPOSE) as bound,
            pytest.raises(TenantScopeError),
        ):
            call.invoke(bound, unchanged.tenant, unchanged.one_of_each)

    @every_system_method
    @needs("sessions")
    def test_a_session_of_a_tenant_sees_no_others(
        self, foreign_workspace: Workspace, unchanged: OtherTenant, call: TenantCall
    ) -> None:
        with (
            foreign_workspace.storage.sessions.open(foreign_workspace.tenant) as bound,
            pytest.raises(TenantScopeError),
        ):
            call.invoke(bound, foreign_workspace.tenant, unchanged.one_of_each)

    @every_bound_method
    @needs("sessions")
    def test_a_session_with_a_purpose_sees_all(
        self, workspace: Workspace, other_tenant: OtherTenant, call: TenantCall
    ) -> None:
        expected = removed_twice(call, workspace, other_tenant)
        with workspace.storage.sessions.open(purpose=PURPOSE) as bound:
            assert call.invoke(bound, workspace.tenant, other_tenant.one_of_each) == expected

    @every_bound_method
    @needs("transactions")
    def test_a_unit_with_a_purpose_sees_all(
        self, workspace: Workspace, other_tenant: OtherTenant, call: TenantCall
    ) -> None:
        expected = removed_twice(call, workspace, other_tenant)
        with workspace.storage.transaction(purpose=PURPOSE) as unit:
            assert call.invoke(unit, workspace.tenant, other_tenant.one_of_each) == expected

    @every_system_method
    def test_each_opening_of_system_scope_is_logged_and_counted(
        self,
        workspace: Workspace,
        other_tenant: OtherTenant,
        call: TenantCall,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        before = sum(system_scope_openings().values())
        with caplog.at_level(logging.INFO, "twinstore.system_scope"):
            call.invoke(workspace.storage.unbound, workspace.tenant, other_tenant.one_of_each)
        assert sum(system_scope_openings().values()) == before + 1
        # A list over all tenants may meet rows that other cases have broken, and says so.
        names = [record.name for record in caplog.records if record.name != "twinstore.undecodable"]
        assert names == ["twinstore.system_scope"]

    @each("example", lambda kit: kit.module.without_tenant)
    @needs("sessions")
    def test_rows_without_a_tenant_are_the_same_for_every_tenant(
        self, workspace: Workspace, example: Example
    ) -> None:
        session, tenant = workspace.storage.unbound, workspace.tenant
        model = self.module.store_small(session, tenant, workspace.id("shared"), example.entity)
        assert example.found(session, tenant, model) == model
        seen: list[object] = []
        for owner in (workspace, workspace.elsewhere):
            with workspace.storage.sessions.open(owner.tenant) as bound:
                seen.append(found_or_refused(example, bound, tenant, model))
        # Whether sessions of a tenant read them at all, their repository decides.
        assert seen in ([model, model], [TenantScopeError, TenantScopeError])
        with workspace.storage.sessions.open(purpose=PURPOSE) as system:
            assert example.found(system, tenant, model) == model

    @pytest.mark.parametrize(("tenant", "purpose"), [(None, None), ("both", "both")])
    def test_a_session_or_unit_has_either_a_tenant_or_a_purpose(
        self, workspace: Workspace, tenant: str | None, purpose: str | None
    ) -> None:
        if tenant is None and workspace.storage.admits_no_tenant:
            return  # it has rows without tenant, about which such a session is
        with pytest.raises(TenantScopeError), workspace.storage.sessions.open(tenant, purpose=purpose):
            pass
        with pytest.raises(TenantScopeError), workspace.storage.transaction(tenant, purpose=purpose):
            pass

    @pytest.mark.parametrize("tenant", ["system", *BAD_TENANTS])
    def test_a_session_or_unit_of_an_unacceptable_tenant_is_refused(
        self, workspace: Workspace, tenant: str
    ) -> None:
        with pytest.raises(ValidationError), workspace.storage.sessions.open(tenant):
            pass
        with pytest.raises(ValidationError), workspace.storage.transaction(tenant):
            pass

    @of_tenants
    @needs("transactions")
    def test_a_tenant_is_trimmed_when_a_unit_opens(self, workspace: Workspace) -> None:
        with workspace.storage.transaction(f" {workspace.tenant} ") as unit:
            model = self.store_typical(unit, workspace)
            typical = self.module.typical
            value = typical.value(workspace.tenant, model)
            trimmed = typical.lookups[0](getattr(unit, typical.repository), f" {workspace.tenant} ", value)
            assert trimmed == model

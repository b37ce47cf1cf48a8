"""No tenant sees or changes what belongs to another, on any method."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from twinstore.errors import TenantScopeError, TwinstoreError, ValidationError
from twinstore.scope import system_scope_openings
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import Bench
from twinstore.testing.calls import SYSTEM_CALLS, TENANT_CALLS, Call, Household, furnish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.probe import Deployment

__all__ = ["TenancyContract"]

PURPOSE: Final = "contract kit"
every_method = pytest.mark.parametrize("call", TENANT_CALLS, ids=lambda call: call.name)
every_system_method = pytest.mark.parametrize("call", SYSTEM_CALLS, ids=lambda call: call.name)
BAD_TENANTS: Final = ["", "  ", "a:b", "a\nb", "a\x00b", "x" * 129]


def answer_of(call: Call, bench: Bench, household: Household) -> object:
    """Return the result of a call, or the class of its error."""
    try:
        return call.invoke(bench.storage.unbound, bench.tenant, household)
    except TwinstoreError as error:
        return type(error)


class Neighbour(NamedTuple):
    """A tenant that has rows of every entity; no test of the class may change them."""

    tenant: str
    household: Household


def settled(call: Call, bench: Bench, neighbour: Neighbour) -> object:
    """Return the result of a call that found nothing left to remove."""
    call.invoke(bench.storage.unbound, bench.tenant, neighbour.household)
    return call.invoke(bench.storage.unbound, bench.tenant, neighbour.household)


class TenancyContract(Contract):
    """The tenant of a call, of a session, and of the rows."""

    @pytest.fixture(scope="class")
    @classmethod
    def neighbour(cls, deployment: Deployment, storage: SchedulerStorage) -> Neighbour:
        """Store the rows of a neighbour once for all tests of the class."""
        bench = Bench(deployment, storage)
        return Neighbour(bench.tenant, furnish(bench))

    @pytest.fixture
    def unharmed(self, bench: Bench, neighbour: Neighbour) -> Iterator[Neighbour]:
        """Return the neighbour and compare its stored rows before and after the test."""
        before = neighbour.household.stored(bench)
        yield neighbour
        assert neighbour.household.stored(bench) == before

    @every_method
    def test_rows_of_another_tenant_do_not_exist(self, bench: Bench, unharmed: Neighbour, call: Call) -> None:
        assert answer_of(call, bench, unharmed.household) == call.answer

    @every_method
    def test_the_reserved_tenant_is_refused(self, bench: Bench, unharmed: Neighbour, call: Call) -> None:
        with pytest.raises((TenantScopeError, ValueError)):
            call.invoke(bench.storage.unbound, " system ", unharmed.household)

    @every_method
    def test_an_unacceptable_tenant_is_refused(self, bench: Bench, unharmed: Neighbour, call: Call) -> None:
        for tenant in BAD_TENANTS:
            # A model with such a tenant cannot even be built, which is pydantic's ValueError.
            with pytest.raises((ValidationError, ValueError)):
                call.invoke(bench.storage.unbound, tenant, unharmed.household)

    @every_method
    @needs("sessions")
    def test_a_session_admits_its_own_tenant_only(
        self, bench: Bench, unharmed: Neighbour, call: Call
    ) -> None:
        with bench.storage.sessions.open(bench.tenant) as bound, pytest.raises(TenantScopeError):
            call.invoke(bound, unharmed.tenant, unharmed.household)

    @every_method
    @needs("transactions")
    def test_a_unit_admits_its_own_tenant_only_and_stays_usable(
        self, bench: Bench, unharmed: Neighbour, call: Call
    ) -> None:
        with bench.storage.transaction(bench.tenant) as unit:
            with pytest.raises(TenantScopeError):
                call.invoke(unit, unharmed.tenant, unharmed.household)
            unit.runs.create(bench.run())
        assert bench.storage.runs.get(bench.tenant, bench.id("a")) is not None

    @every_method
    @needs("sessions")
    def test_system_scope_admits_no_single_tenant(
        self, bench: Bench, unharmed: Neighbour, call: Call
    ) -> None:
        with bench.storage.sessions.open(purpose=PURPOSE) as bound, pytest.raises(TenantScopeError):
            call.invoke(bound, unharmed.tenant, unharmed.household)

    @every_system_method
    @needs("sessions")
    def test_a_session_of_a_tenant_sees_no_others(
        self, bench: Bench, unharmed: Neighbour, call: Call
    ) -> None:
        with bench.storage.sessions.open(bench.tenant) as bound, pytest.raises(TenantScopeError):
            call.invoke(bound, bench.tenant, unharmed.household)

    @every_system_method
    @needs("sessions")
    def test_a_session_with_a_purpose_sees_all(self, bench: Bench, neighbour: Neighbour, call: Call) -> None:
        expected = settled(call, bench, neighbour)
        with bench.storage.sessions.open(purpose=PURPOSE) as bound:
            assert call.invoke(bound, bench.tenant, neighbour.household) == expected

    @every_system_method
    @needs("transactions")
    def test_a_unit_with_a_purpose_sees_all(self, bench: Bench, neighbour: Neighbour, call: Call) -> None:
        expected = settled(call, bench, neighbour)
        with bench.storage.transaction(purpose=PURPOSE) as unit:
            assert call.invoke(unit, bench.tenant, neighbour.household) == expected

    @every_system_method
    def test_each_opening_of_system_scope_is_logged_and_counted(
        self, bench: Bench, neighbour: Neighbour, call: Call, caplog: pytest.LogCaptureFixture
    ) -> None:
        before = sum(system_scope_openings().values())
        with caplog.at_level(logging.INFO, "twinstore.system_scope"):
            call.invoke(bench.storage.unbound, bench.tenant, neighbour.household)
        assert sum(system_scope_openings().values()) == before + 1
        assert [record.name for record in caplog.records] == ["twinstore.system_scope"]

    @pytest.mark.parametrize(("tenant", "purpose"), [(None, None), ("both", "both")])
    def test_a_session_or_unit_has_either_a_tenant_or_a_purpose(
        self, bench: Bench, tenant: str | None, purpose: str | None
    ) -> None:
        with pytest.raises(TenantScopeError), bench.storage.sessions.open(tenant, purpose=purpose):
            pass
        with pytest.raises(TenantScopeError), bench.storage.transaction(tenant, purpose=purpose):
            pass

    @pytest.mark.parametrize("tenant", ["system", *BAD_TENANTS])
    def test_a_session_or_unit_of_an_unacceptable_tenant_is_refused(self, bench: Bench, tenant: str) -> None:
        with pytest.raises(ValidationError), bench.storage.sessions.open(tenant):
            pass
        with pytest.raises(ValidationError), bench.storage.transaction(tenant):
            pass

    @needs("transactions")
    def test_a_tenant_is_trimmed_when_a_unit_opens(self, bench: Bench) -> None:
        with bench.storage.transaction(f" {bench.tenant} ") as unit:
            unit.runs.create(bench.run())
            assert unit.runs.get(f" {bench.tenant} ", bench.id("a")) is not None

"""Who may see what: tenants of calls and sessions, and the logged exception for all tenants."""

from __future__ import annotations

import logging

import pytest

from twinstore.access.scope import (
    UNBOUND,
    Scope,
    bound_scope,
    field_argument,
    id_argument,
    system_scope_openings,
)
from twinstore.errors import TenantScopeError, ValidationError
from twinstore.scheduler import ExecutionLogEntry


def test_a_tenant_is_trimmed_and_keeps_its_case() -> None:
    assert UNBOUND.admit(" Acme ") == "Acme"


class Tainted(str):
    """A text of another class, equal to the plain one."""

    __slots__ = ()


def test_what_equals_an_admitted_tenant_is_admitted_as_a_plain_text() -> None:
    assert UNBOUND.admit("acme") == "acme"
    assert type(UNBOUND.admit(Tainted("acme"))) is str
    assert type(UNBOUND.admit("acme")) is str


@pytest.mark.parametrize("tenant", ["", " ", "a:b", "a\x00", "a\nb", "x" * 129, None, 7])
def test_a_bad_tenant_is_refused(tenant: str) -> None:
    with pytest.raises(ValidationError, match="tenant_id"):
        UNBOUND.admit(tenant)


@pytest.mark.parametrize("scope", [UNBOUND, Scope(tenant_id="t")])
def test_the_reserved_tenant_is_refused_everywhere(scope: Scope) -> None:
    with pytest.raises(TenantScopeError, match="reserved"):
        scope.admit(" system ")


def test_a_bound_scope_admits_its_own_tenant_only() -> None:
    assert bound_scope("t", None).admit(" t ") == "t"
    with pytest.raises(TenantScopeError, match="'u'"):
        bound_scope("t", None).admit("u")


def test_a_bound_scope_has_no_system_scope() -> None:
    with pytest.raises(TenantScopeError, match="all tenants"):
        bound_scope("t", None).admit_system("purge")


def test_a_session_with_a_purpose_has_no_tenant() -> None:
    with pytest.raises(TenantScopeError, match="system scope"):
        bound_scope(None, "nightly purge").admit("t")


@pytest.mark.parametrize(("tenant", "purpose"), [(None, None), ("t", "why")])
def test_a_session_has_either_a_tenant_or_a_purpose(tenant: str | None, purpose: str | None) -> None:
    with pytest.raises(TenantScopeError):
        bound_scope(tenant, purpose)


def test_a_session_without_a_tenant_admits_nothing_else() -> None:
    scope = bound_scope(None, None, without_tenant=True)
    scope.admit_no_tenant()
    with pytest.raises(TenantScopeError, match="no tenant; open one for tenant 't'"):
        scope.admit("t")
    with pytest.raises(TenantScopeError, match="bound to no tenant"):
        scope.admit_system("purge")


@pytest.mark.parametrize("scope", [Scope(tenant_id="t"), Scope(purpose="purge")])
def test_a_bound_scope_has_no_rows_without_a_tenant(scope: Scope) -> None:
    with pytest.raises(TenantScopeError, match="without"):
        scope.admit_no_tenant()


def test_a_session_for_a_tenant_and_a_purpose_is_refused_everywhere() -> None:
    with pytest.raises(TenantScopeError):
        bound_scope("t", "why", without_tenant=True)


def test_system_scope_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    before = system_scope_openings().get("a test", 0)
    with caplog.at_level(logging.INFO, logger="twinstore.system_scope"):
        UNBOUND.admit_system("a test")
    assert system_scope_openings()["a test"] == before + 1
    assert "a test" in caplog.text


def test_a_bad_argument_is_named_without_its_value() -> None:
    with pytest.raises(ValidationError, match="run_id: Id contains a control character") as caught:
        id_argument("sec\nret", "run_id")
    assert "ret" not in str(caught.value)


@pytest.mark.parametrize("number", [1, 2**63 - 1, 7.0])
def test_an_argument_for_a_field_admits_what_the_field_does(number: int) -> None:
    assert field_argument(ExecutionLogEntry, "sequence", number, "after") == int(number)


@pytest.mark.parametrize("number", [0, 2**63, True, "7"])
def test_an_argument_that_its_field_refuses_is_named(number: int) -> None:
    with pytest.raises(ValidationError, match=r"Argument after: .*fits into 64 bits"):
        field_argument(ExecutionLogEntry, "sequence", number, "after")

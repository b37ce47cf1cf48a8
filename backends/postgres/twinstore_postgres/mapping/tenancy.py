"""Whose rows a statement is about, as a condition.

Every statement has the condition, although row-level security repeats it: a role that no policy binds must
get the same answers, and only with the condition does the server see which index applies.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.catalog.tenancy import ALL_TENANTS, Tenant, Tenants, setting_of
from twinstore.models.fields import SYSTEM_TENANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore_postgres.mapping.table import Table

NO_TENANT_SETTING: Final = ""
PARAMETER: Final = sql.Placeholder()


class ScopeKind(Enum):
    """The kinds of scopes; all tenants have the same statements."""

    TENANT = "the rows of one tenant"
    UNASSIGNED = "the rows without a tenant"
    ANY_TENANT = "all rows"

    # Statements are looked up by it at every call; the hash of an enumeration is a separate call.
    __hash__ = object.__hash__


def scope_kind(scope: Tenants) -> ScopeKind:
    """Return the kind of a scope."""
    if isinstance(scope, Tenant):
        return ScopeKind.TENANT
    return ScopeKind.ANY_TENANT if scope is ALL_TENANTS else ScopeKind.UNASSIGNED


def setting(scope: Tenants) -> str:
    """Return the value of the tenant setting that the policies read for a scope."""
    if isinstance(scope, Tenant):  # as nearly every scope
        return scope.id
    return setting_of(scope, every=SYSTEM_TENANT, none=NO_TENANT_SETTING)


def shared_setting(scopes: Sequence[Tenants]) -> str:
    """Return the value of the tenant setting for a step over rows of some scopes.

    One setting cannot name several owners; then only the conditions of the statements separate them.
    """
    tenant_setting = setting(scopes[0])
    return tenant_setting if all(setting(scope) == tenant_setting for scope in scopes[1:]) else SYSTEM_TENANT


def owner_condition(
    table: Table,
    kind: ScopeKind,
    relation: sql.Composable | None = None,
    tenant: sql.Composable = PARAMETER,
    depth: int = 0,
) -> sql.Composable | None:
    """Return the condition of a scope, ``None`` where every row satisfies it.

    Args:
        table: the table that is asked.
        kind: the kind of the scope.
        relation: the name of the table in the statement, where it is not its own.
        tenant: the one tenant; by default a parameter, see :func:`owner_values`.
        depth: how many parents lie between the statement and the table.
    """
    if kind is ScopeKind.ANY_TENANT or not table.owned:
        return None
    if table.tenant is not None:
        name: sql.Composable = sql.Identifier(table.tenant)
        if relation is not None:
            name = sql.SQL("{}.{}").format(relation, name)
        if kind is ScopeKind.UNASSIGNED:
            return sql.SQL("{} IS NULL").format(name)
        return sql.SQL("{} = {}").format(name, tenant)
    return parent_condition(table, kind, relation, tenant, depth)


def parent_condition(
    table: Table,
    kind: ScopeKind,
    relation: sql.Composable | None = None,
    tenant: sql.Composable = PARAMETER,
    depth: int = 0,
) -> sql.Composable:
    """Return the condition that the parent of a row exists in a scope."""
    parent = table.parent
    if parent is None:
        raise LookupError(f"{table.entity.name} has no parent")  # met by programmers only
    alias = sql.Identifier(f"parent{depth}")
    found = sql.SQL("{}.{} = {}.{}").format(
        alias, parent.parts["key"], relation or table.name, table.parent_column
    )
    owner = owner_condition(parent, kind, alias, tenant, depth + 1)
    return sql.SQL("EXISTS (SELECT FROM {} AS {} WHERE {})").format(
        parent.name, alias, sql.SQL(" AND ").join([found, *([] if owner is None else [owner])])
    )


def owner_values(table: Table, scope: Tenants) -> tuple[str, ...]:
    """Return the parameters of :func:`owner_condition`."""
    return (scope.id,) if isinstance(scope, Tenant) and table.owned else ()


def scope_parameters(table: Table, scope: Tenants) -> tuple[ScopeKind, str, tuple[str, ...]]:
    """Return what :func:`scope_kind`, :func:`setting` and :func:`owner_values` say, which every read asks."""
    if isinstance(scope, Tenant):  # as nearly every scope
        return ScopeKind.TENANT, scope.id, ((scope.id,) if table.owned else ())
    return scope_kind(scope), setting(scope), ()

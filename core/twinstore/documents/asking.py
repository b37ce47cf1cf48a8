"""Whose rows a tool asks a store of documents for, and how many it gets at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from twinstore.catalog import TenancyKind
from twinstore.tenancy import ALL_TENANTS, Tenant

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.tenancy import Tenants

__all__ = ["batched", "scope_of", "unowned"]

T = TypeVar("T")


def scope_of(tenant_id: str | None) -> Tenants:
    """Return whose rows a tool asks for."""
    return ALL_TENANTS if tenant_id is None else Tenant(tenant_id)


def unowned(entity: Entity, tenant_id: str | None) -> bool:
    """Whether rows are asked for of a tenant although none has one."""
    return tenant_id is not None and entity.tenancy.kind is TenancyKind.NONE


def batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield the items in order, at most ``size`` at a time."""
    while batch := list(islice(items, size)):
        yield batch

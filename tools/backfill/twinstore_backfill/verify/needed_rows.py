"""Rows of the target that a service passes over in silence, because another entity has no row for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from twinstore.access.paging import SortKey
from twinstore.access.query import Query
from twinstore.catalog.conditions import OneOf
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore_backfill.report.texts import number_of
from twinstore_backfill.verify.lists import ListFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.access.protocol import Access
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore.plugins.checks import NeededRows
    from twinstore_backfill.stores import Store

AT_ONCE: Final = 1000


def count_lacking(target: Store, needed: NeededRows, tenants: Sequence[str]) -> int:
    """Return how many rows lack the row that they need; empty ``tenants`` mean all."""
    access = target.bulk.access()
    scopes: Sequence[Tenants] = [Tenant(name) for name in sorted(set(tenants))] or [ALL_TENANTS]
    return sum(
        len(keys) - _found(access, needed, scope, keys)
        for scope in scopes
        for keys in _keys(access, needed, scope)
    )


def finding_of(needed: NeededRows, lacking: int) -> ListFinding:
    """Return what a report says of rows that lack another one."""
    name = f"{needed.entity.name} without {needed.other.name}"
    what = number_of(lacking, needed.entity.singular)
    return ListFinding(name, "inconclusive", 0, f"{what} {needed.consequence}; {needed.remedy}")


def _keys(access: Access, needed: NeededRows, scope: Tenants) -> Iterator[Sequence[Key]]:
    (name,) = needed.entity.key
    query = Query(
        entity=needed.entity.name,
        scope=scope,
        where=needed.where,
        order=(SortKey(name),),
        limit=AT_ONCE,
        # Whoever reads the rows names those that cannot be decoded.
        skips_undecodable=True,
    )
    while keys := access.keys(needed.entity, query):
        yield keys
        query = replace(query, after=keys[-1])


def _found(access: Access, needed: NeededRows, scope: Tenants, keys: Sequence[Key]) -> int:
    """Return for how many rows the other entity has one; by stored values, so that none must decode."""
    wanted = OneOf(needed.field, tuple(str(key[0]) for key in keys))
    query = Query(
        entity=needed.other.name,
        scope=scope,
        where=(wanted,),
        order=(SortKey(needed.other.key[0]),),
        limit=len(keys),
    )
    return len(access.count(needed.other, query, needed.field))

"""A round trip of one row of any entity: inserted, found, listed and removed again."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from twinstore.checks import TrialStep, expect, never_committed
from twinstore.query import query_of_key
from twinstore.tenancy import ALL_TENANTS, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from twinstore.access import Access, Row
    from twinstore.catalog import Entity
    from twinstore.tenancy import Tenants
    from twinstore_backfill.stores import Store

__all__ = ["round_trips"]


def round_trips(store: Store, rows: Iterable[tuple[Entity, Row]], tenant: str) -> Iterator[TrialStep]:
    """Yield a step for each row.

    What could not be found by its tenant afterwards, or not be removed, is never committed; it is left out
    where the store has no transactions.
    """
    for entity, row in rows:
        if entity.tenant_field is not None and not entity.append_only:
            yield TrialStep(f"row of {entity.name}", partial(committed, store, entity, Tenant(tenant), row))
        elif store.storage.capabilities.transactions:
            scope: Tenants = ALL_TENANTS if entity.tenant_field is None else Tenant(tenant)
            yield TrialStep(
                f"row of {entity.name}, rolled back", partial(rolled_back, store, entity, scope, row)
            )


def committed(store: Store, entity: Entity, scope: Tenants, row: Row) -> Iterator[str]:
    """Insert a row, find it, and remove it again."""
    access = store.bulk.access()
    yield from there(access, entity, scope, row)
    key = entity.key_of(row.model, row.storage)
    removed = access.remove(entity, query_of_key(entity, scope, key))
    yield from expect(f"the number of removed rows of {entity.name}", found=removed, wanted=1)
    (gone,) = access.find(entity, scope, [key])
    yield from expect(f"the removed {entity.singular}", found=gone, wanted=None)


def rolled_back(store: Store, entity: Entity, scope: Tenants, row: Row) -> Iterable[str]:
    """Insert a row and find it, in a unit that is not committed."""
    access = store.bulk.access()
    with never_committed(access.unit(scope)) as unit:
        found = [*there(unit, entity, scope, row)]
    (left,) = access.find(entity, scope, [entity.key_of(row.model, row.storage)])
    return [*found, *expect(f"the {entity.singular} after rolling back", found=left, wanted=None)]


def there(access: Access, entity: Entity, scope: Tenants, row: Row) -> Iterator[str]:
    """Insert a row; it is found by its key and in a list of it, with the same content."""
    access.insert(entity, scope, row)
    key = entity.key_of(row.model, row.storage)
    (stored,) = access.find(entity, scope, [key])
    yield from expect(f"the stored {entity.singular}", found=stored, wanted=row)
    listed = access.page(entity, query_of_key(entity, scope, key)).items
    yield from expect(f"the list of {entity.name} with this key", found=listed, wanted=(row,))

"""Lists of the source computed from its rows, where rules change documents that the service lists.

The service of the source lists what is stored, in the order of what is stored. So the first rows of such a
list, and how many there are, follow from the rows as they are after the rules: they are collected while rows
are compared, in each process, and the target's list is compared with them.

    rows of a range -> EntityLists.add -> ListedRows by name of the list -> merged in the order of the ranges
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from twinstore.access.defaults import matches
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, TenancyKind, Tenant
from twinstore.plugins.modules import module_spec
from twinstore.storage.module import ModuleStorage

if TYPE_CHECKING:
    from twinstore.access.paging import SortKey
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.tenancy import StoredOwner, Tenants
    from twinstore.models.canonical import CanonicalModel
    from twinstore.plugins.checks import ListedRow, ListQuery, ModuleChecks, StoredList
    from twinstore_backfill.stores import Store

AnyStorage = ModuleStorage[object, object]
# The first page needs no token, the second takes the source's, the third the target's.
PAGES: Final = 3
# The default limit of most lists, and so what a service reads.
LARGEST_PAGE: Final = 50
FIRST: Final = PAGES * LARGEST_PAGE
# Rows are sorted when there are so many times as many.
SPARE: Final = 4
SortValues = tuple[tuple[bool, object], ...]


@dataclass(slots=True)
class ListedRows:
    """The first rows of one list.

    Attributes:
        descending: of each sort key, whether it descends.
        total: how many rows the list has.
        found: rows with the values that sort them, the first ones among them.
    """

    descending: tuple[bool, ...] = ()
    total: int = 0
    found: list[tuple[SortValues, ListedRow]] = field(default_factory=list["tuple[SortValues, ListedRow]"])

    def add(self, values: SortValues, row: ListedRow) -> None:
        """Add a row."""
        self.total += 1
        self.found.append((values, row))
        if len(self.found) >= SPARE * FIRST:
            self._cut()

    def merge(self, other: ListedRows) -> None:
        """Add the rows of another part."""
        self.total += other.total
        self.found += other.found
        self._cut()

    def first(self) -> list[ListedRow]:
        """Return the first rows in the order of the list."""
        self._cut()
        return [row for _, row in self.found]

    def _cut(self) -> None:
        # Sorting is stable, so the least significant key comes first.
        for number, descends in reversed([*enumerate(self.descending)]):
            self.found.sort(key=lambda item, at=number: item[0][at], reverse=descends)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        del self.found[FIRST:]


@dataclass(frozen=True, slots=True)
class EntityLists:
    """The lists of one entity; by tenant, ``None`` for those whose rows no tenant selects."""

    entity: Entity
    lists: Mapping[str | None, Sequence[tuple[str, StoredList[CanonicalModel]]]]

    def add(self, record: Record, found: dict[str, ListedRows]) -> None:
        """Add a row of the source, as a copy reads it, to the lists that show it."""
        if record.model is None:
            return
        row, owner = Row(record.model, record.storage), record.owner
        mine = self.lists.get(owner.id, ()) if isinstance(owner, Tenant) else ()
        for name, stored in (*self.lists.get(None, ()), *mine):
            if self._shows(stored, row, owner) and (listed := stored.row(row.model)) is not None:
                order = stored.query.order
                values = tuple(sort_value(self.entity, key, row) for key in order)
                if name not in found:
                    found[name] = ListedRows(tuple(key.descending for key in order))
                found[name].add(values, listed)

    def _shows(self, stored: StoredList[CanonicalModel], row: Row, owner: StoredOwner) -> bool:
        # A list of children names their parent, which has one owner.
        through_parent = self.entity.tenancy.kind is TenancyKind.PARENT
        return (through_parent or is_in(self.entity, stored.query.scope, owner)) and matches(
            self.entity, stored.query, row
        )


@dataclass(frozen=True, slots=True)
class ListScope:
    """Which lists are computed from the rows of the source, the same in every process.

    Attributes:
        tenants: whose lists, ``None`` for those over all tenants.
        cutoffs: by entity the instant up to which they may lack rows.
    """

    tenants: tuple[str | None, ...]
    cutoffs: Mapping[str, datetime | None]


class RowLists:
    """The lists of the entities that rules change, by entity; made at the first use in a process."""

    def __init__(self, target: Store, changed: AbstractSet[str], scope: ListScope | None) -> None:
        self._target, self._changed, self._scope = target, changed, scope

    def of(self, entity: Entity) -> EntityLists | None:
        """Return the lists of an entity, ``None`` where none is computed."""
        if self._scope is None or entity.name not in self._changed:
            return None
        lists: defaultdict[str | None, list[tuple[str, StoredList[CanonicalModel]]]] = defaultdict(list)
        for query in self.queries:
            stored = stored_list(query)
            if stored is not None and stored.entity.name == entity.name:
                scope = stored.query.scope
                selects = isinstance(scope, Tenant) and entity.tenancy.kind is not TenancyKind.PARENT
                lists[scope.id if isinstance(scope, Tenant) and selects else None].append(
                    (query.name, stored)
                )
        return EntityLists(entity, lists)

    @cached_property
    def queries(self) -> Sequence[ListQuery[AnyStorage]]:
        """All lists that are computed, in order."""
        checks = None if self._scope is None else module_checks(self._target.module, self._scope.cutoffs)
        if checks is None or self._scope is None:
            return ()
        storage = self._target.storage
        found = (
            query
            for tenant in self._scope.tenants
            # Some lists are of the first rows that another list shows: the target's, which has them all.
            for query in (checks.over_all() if tenant is None else checks.of_tenant(tenant, storage))
        )
        return [query for query in found if is_computed(query, self._changed)]


def module_checks(
    module: str, cutoffs: Mapping[str, datetime | None], page: int = LARGEST_PAGE
) -> ModuleChecks[AnyStorage] | None:
    """Return the lists of a module, ``None`` where it has none."""
    make = module_spec(module).checks
    # The description of a module names its checks and its storage together.
    return None if make is None else cast("ModuleChecks[AnyStorage]", make(cutoffs, page))


def is_computed(query: ListQuery[AnyStorage], changed: AbstractSet[str]) -> bool:
    """Whether a list is computed from rows, because rules change what it shows."""
    stored = stored_list(query)
    return stored is not None and stored.entity.name in changed


def stored_list(query: ListQuery[AnyStorage]) -> StoredList[CanonicalModel] | None:
    """Return the rows that make a list, and their order."""
    return cast("StoredList[CanonicalModel] | None", query.stored)


def sorted_rows(entity: Entity, rows: Iterable[Row], order: Sequence[SortKey]) -> list[Row]:
    """Return rows in the order of a list, absent values first."""
    found = list(rows)
    # Sorting is stable, so the least significant key comes first.
    for key in reversed(order):
        found.sort(key=sort_key(entity, key), reverse=key.descending)
    return found


def sort_key(entity: Entity, key: SortKey) -> Callable[[Row], tuple[bool, object]]:
    """Return what compares rows by one value."""
    return lambda row: sort_value(entity, key, row)


def sort_value(entity: Entity, key: SortKey, row: Row) -> tuple[bool, object]:
    """Return what sorts a row by one key; an absent value comes before every other."""
    value = entity.value(row.model, row.storage, key.field)
    return value is not None, value


def is_in(entity: Entity, scope: Tenants, owner: StoredOwner) -> bool:
    """Whether the rows of an owner belong to a list."""
    if scope is ALL_TENANTS or entity.tenancy.kind is TenancyKind.NONE:
        return True
    return scope == owner

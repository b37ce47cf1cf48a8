"""Ways through the memory driver that are wrong in one small point, for tests of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from twinstore.access.guard import GuardedAccess
from twinstore.access.paging import Page
from twinstore.access.protocol import Ref
from twinstore.access.retry import retry
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT
from twinstore.errors import DuplicateError
from twinstore.testing.entities import MODULE, DefaultsOnly

if TYPE_CHECKING:
    from twinstore.access.protocol import Access, FieldUpdates, Rows, Rule, ServerClock, UniqueKey
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore.plugins.module_spec import ModuleSpec

AnyRow = Row[Any]


class FindsForeignRows(DefaultsOnly):
    @override
    def find(
        self, entity: Entity[Any], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[AnyRow | None, ...]:
        del scope
        return super().find(entity, ALL_TENANTS, keys)


class ForgetsMarkers(DefaultsOnly):
    @override
    def find(
        self, entity: Entity[Any], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[AnyRow | None, ...]:
        found = super().find(entity, scope, keys)
        return tuple(None if row is None else Row(row.model) for row in found)


class TreatsNoTenantAsAllTenants(DefaultsOnly):
    @override
    def page(self, entity: Entity[Any], query: Query) -> Page[AnyRow]:
        scope = ALL_TENANTS if query.scope is NO_TENANT else query.scope
        return super().page(entity, replace(query, scope=scope))


class ListsBackwards(DefaultsOnly):
    @override
    def page(self, entity: Entity[Any], query: Query) -> Page[AnyRow]:
        first, *others = query.order
        return super().page(
            entity, replace(query, order=(replace(first, descending=not first.descending), *others))
        )


class CountsOnePage(DefaultsOnly):
    @override
    def count(self, entity: Entity[Any], query: Query, by: str) -> dict[str, int]:
        counted: dict[str, int] = {}
        for row in self.page(entity, query):
            label = str(entity.value(row.model, row.storage, by))
            counted[label] = counted.get(label, 0) + 1
        return counted


class ReplacesAtInsert(DefaultsOnly):
    @override
    def insert(self, entity: Entity[Any], scope: Tenants, row: AnyRow) -> AnyRow:
        try:
            return super().insert(entity, scope, row)
        except DuplicateError:
            self.change_to(entity, scope, row)
            return row

    def change_to(self, entity: Entity[Any], scope: Tenants, row: AnyRow) -> None:
        key = entity.key_of(row.model, row.storage)
        self.change([Ref(entity, scope, key)], lambda *_: (row,))


class ReplacesWhatNeverChanges(ReplacesAtInsert):
    @override
    def insert(self, entity: Entity[Any], scope: Tenants, row: AnyRow) -> AnyRow:
        return self.inner.insert(entity, scope, row)

    @override
    def put(self, entity: Entity[Any], scope: Tenants, row: AnyRow) -> AnyRow:
        self.change_to(entity, scope, row)
        return row


class ReturnsRowsBackwards(DefaultsOnly):
    @override
    def change(self, refs: Sequence[Ref[Any]], rule: Rule) -> Rows:
        return tuple(reversed(super().change(refs, rule)))


class ForgetsTheLastRow(DefaultsOnly):
    @override
    def change(self, refs: Sequence[Ref[Any]], rule: Rule) -> Rows:
        def short(rows: Rows, now: ServerClock) -> Rows:
            *kept, _ = rule(rows, now)
            return (*kept, None)

        return super().change(refs, short if len(refs) > 1 else rule)


class RepeatsRules(DefaultsOnly):
    @override
    def change(self, refs: Sequence[Ref[Any]], rule: Rule) -> Rows:
        return retry(lambda: self.inner.change(refs, rule), attempts=2, sleep=lambda _: None)


class ReturnsTheTimeOfALateClient(DefaultsOnly):
    @override
    def change(self, refs: Sequence[Ref[Any]], rule: Rule) -> Rows:
        return super().change(
            refs, lambda rows, now: rule(rows, lambda: now() - timedelta(hours=1, microseconds=1))
        )


class MarksOneMore(DefaultsOnly):
    @override
    def mark(self, entity: Entity[Any], query: Query, sets: FieldUpdates) -> tuple[AnyRow, ...]:
        return super().mark(entity, replace(query, limit=query.limit + 1), sets)


class AppendsOneByOne(DefaultsOnly):
    @override
    def append(self, entity: Entity[Any], parent: Ref[Any], rows: Sequence[AnyRow]) -> tuple[AnyRow, ...]:
        return tuple(super(AppendsOneByOne, self).append(entity, parent, [row])[0] for row in rows)


class AppendsBackwards(DefaultsOnly):
    @override
    def append(self, entity: Entity[Any], parent: Ref[Any], rows: Sequence[AnyRow]) -> tuple[AnyRow, ...]:
        return tuple(reversed(super().append(entity, parent, list(reversed(rows)))))


class RemovesOneMore(DefaultsOnly):
    @override
    def remove(self, entity: Entity[Any], query: Query) -> int:
        return super().remove(entity, replace(query, limit=query.limit + 1))


class RemovesForeignRows(DefaultsOnly):
    @override
    def remove(self, entity: Entity[Any], query: Query) -> int:
        return super().remove(entity, replace(query, scope=ALL_TENANTS))


class CommitsEveryCall(DefaultsOnly):
    @contextmanager
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Iterator[Access]:
        del scope, atomic
        yield self


def wrong_module(wrong: Callable[[Access], Access]) -> ModuleSpec[Access]:
    """Return the module of the kit with an access that is wrong."""

    def over(access: Access) -> Access:
        assert isinstance(access, GuardedAccess)
        return replace(access, inner=wrong(access.inner))

    return replace(MODULE, repositories=over)

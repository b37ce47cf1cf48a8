"""What a driver does that implements no more than it must."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access.defaults import AccessDefaults
from twinstore.access.guard import GuardedAccess
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.entities import MODULE

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.access.protocol import Access, Binding, Ref, Rows, Rule, UniqueKey
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.row import Row
    from twinstore.catalog.tenancy import Tenants
    from twinstore.plugins.module_spec import ModuleSpec

__all__ = ["MODULE_BY_DEFAULTS", "DefaultsOnly"]

M = TypeVar("M", bound=CanonicalModel)


@dataclass(frozen=True, slots=True)
class DefaultsOnly(AccessDefaults):
    """Hides that a driver overrides ``put``, ``count``, ``mark`` and ``append``."""

    inner: Access

    @property
    @override
    def binding(self) -> Binding:
        return self.inner.binding

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        return self.inner.find(entity, scope, keys)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        return self.inner.page(entity, query)

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        return self.inner.insert(entity, scope, row)

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        return self.inner.change(refs, rule)

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        return self.inner.remove(entity, query)

    @contextmanager
    @override
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        with self.inner.unit(scope, atomic=atomic) as access:
            yield type(self)(access)


def by_defaults(access: Access) -> Access:
    """Return the guarded access of a driver without what it overrides."""
    assert isinstance(access, GuardedAccess)
    return replace(access, inner=DefaultsOnly(access.inner))


MODULE_BY_DEFAULTS: Final[ModuleSpec[Access]] = replace(MODULE, repositories=by_defaults)

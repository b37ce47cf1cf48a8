"""The least that a driver can be: no bulk, and the six operations that have no default in core."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pytest
from typing_extensions import override

from tests.contract.deployments.memory import MemoryVariant, memory_deployments
from twinstore.access import AccessDefaults
from twinstore.canonical import CanonicalModel
from twinstore.scheduler.repositories import Repositories
from twinstore.testing import SchedulerContract
from twinstore_memory.backend import MemoryBackend

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.access import Access, Binding, Ref, Row, Rows, Rule, UniqueKey
    from twinstore.backend import Capabilities
    from twinstore.bulk import BulkPort
    from twinstore.catalog import Entity, Key
    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore.scope import Scope
    from twinstore.tenancy import Tenants
    from twinstore.testing import BackendFactory

M = TypeVar("M", bound=CanonicalModel)


@dataclass(frozen=True)
class SixOperations(AccessDefaults):
    """An access of memory of which only the operations without default are used."""

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
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Iterator[Access]:
        with self.inner.unit(scope, atomic=atomic) as access:
            yield SixOperations(access)


class FirstBackend(MemoryBackend[Repositories]):
    """Declares no bulk and leaves everything that has a default to core."""

    @property
    @override
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, bulk=False)

    @property
    @override
    def bulk(self) -> BulkPort:  # type: ignore[override]  # the base class of all drivers refuses
        return super(MemoryBackend, self).bulk

    @override
    def unbound(self) -> Access:
        return SixOperations(super().unbound())

    @contextmanager
    @override
    def open_session(self, scope: Scope, *, causal_consistency: bool) -> Iterator[Access]:
        with super().open_session(scope, causal_consistency=causal_consistency) as access:
            yield SixOperations(access)

    @contextmanager
    @override
    def open_transaction(self, scope: Scope, *, read_only: bool) -> Iterator[Access]:
        with super().open_transaction(scope, read_only=read_only) as access:
            yield SixOperations(access)

    @override
    def join(self, handle: object, scope: Scope) -> Access:
        return SixOperations(super().join(handle, scope))


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return partial(memory_deployments, make=partial(MemoryVariant, FirstBackend))


class TestFirstDriver(SchedulerContract):
    """What a driver is that was begun today."""

"""The base of the contracts of the access: a separate module, opened on the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import wraps
from itertools import cycle
from typing import TYPE_CHECKING, ClassVar, Final, ParamSpec, TypeVar

import pytest

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, build_query, key_order
from twinstore.catalog.conditions import Condition, Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT, Tenant
from twinstore.errors import TwinstoreError, UnsupportedCapabilityError
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.datasets import (
    COUNTER,
    OWNER_CASES,
    ROW_FACTORIES,
    Dataset,
    OwnerCase,
    RowFactory,
    factory_of,
)
from twinstore.testing.entities import MODULE
from twinstore.testing.workspace import is_remote, race, unique

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.protocol import Access, Rows, ServerClock
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.tenancy import Tenants
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing.probe import BackendFactory, Deployment

__all__ = ["AccessCases", "AccessWorkspace", "each_home", "each_sample", "needs_transactions"]

A = TypeVar("A")
M = TypeVar("M", bound=CanonicalModel)
P = ParamSpec("P")
T = TypeVar("T")
EVERYTHING: Final = 1000

each_home = pytest.mark.parametrize("owner_case", OWNER_CASES, ids=str)
each_sample = pytest.mark.parametrize("factory", ROW_FACTORIES, ids=lambda factory: factory.entity.name)


@dataclass(frozen=True, slots=True)
class AccessWorkspace:
    """What a contract test of the access works with.

    Attributes:
        deployment: where the data is.
        module: the module that is opened on it.
        backend: that module on the driver.
        tenant: the tenant of this test.
        foreign: another one.
        batch: what its rows share with no others.
    """

    deployment: Deployment
    module: ModuleSpec[Access]
    backend: ModuleBackend[Access]
    tenant: str = field(default_factory=lambda: unique("tenant"))
    foreign: str = field(default_factory=lambda: unique("foreign"))
    batch: str = field(default_factory=lambda: unique("batch"))

    @property
    def access(self) -> Access:
        """The access, each call on its own."""
        return self.backend.repositories

    @property
    def dataset(self) -> Dataset:
        """The rows of the tenant."""
        return Dataset(Tenant(self.tenant), self.batch)

    @property
    def elsewhere(self) -> Dataset:
        """The rows of the foreign tenant, under the same keys."""
        return Dataset(Tenant(self.foreign), self.batch)

    @property
    def untenanted(self) -> Dataset:
        """The rows without tenant, under the same keys."""
        return Dataset(NO_TENANT, self.batch)

    def of(self, owner_case: OwnerCase) -> Dataset:
        """Return the rows of a home."""
        return owner_case.dataset(self.tenant, self.batch)

    def foreign_datasets(self, owner_case: OwnerCase) -> tuple[Dataset, ...]:
        """Return who must not see the rows of a home."""
        return (self.elsewhere, self.untenanted if owner_case.by_tenant else self.dataset)

    def get(self, factory: RowFactory[M], dataset: Dataset, number: int = 0) -> Row[M] | None:
        """Return the stored row of a number."""
        (row,) = self.access.find(factory.entity, dataset.owner, [factory.key(dataset, number)])
        return row

    def stored(self, factory: RowFactory[M], dataset: Dataset, *where: Condition) -> list[Row[M]]:
        """Return all rows of a data set that satisfy some conditions, in the order of their keys."""
        return list(self.access.page(factory.entity, query_of(factory.entity, dataset, *where)))

    def now(self) -> datetime:
        """Return the time of the server."""
        found: list[datetime] = []

        def record_now(rows: Rows, now: ServerClock) -> Rows:
            found.append(now())
            return rows

        dataset = Dataset(NO_TENANT, f"clock of {self.batch}")
        self.access.put(COUNTER.entity, NO_TENANT, COUNTER.row(dataset))
        self.access.change([COUNTER.ref(dataset)], record_now)
        return found[-1]

    def race(self, action: Callable[[Access, A], T], items: Sequence[A]) -> list[T | TwinstoreError]:
        """Run the action with every item at the same moment, on two more backends; see :func:`race`."""
        with ExitStack() as stack:
            others = [stack.enter_context(self.deployment.open_module(self.module)) for _ in range(2)]
            pairs = list(zip(cycle([other.repositories for other in others]), items, strict=False))
            return race(lambda pair: action(*pair), pairs, remote=is_remote(self.deployment))


def query_of(
    entity: Entity,
    dataset: Dataset,
    *where: Condition,
    scope: Tenants | None = None,
    order: Sequence[SortKey] | None = None,
    limit: int = EVERYTHING,
    token: str | None = None,
) -> Query:
    """Return a list of the rows of a data set; in the order of the key unless another one is given."""
    pinned: list[Condition] = [Equals("batch", dataset.batch)]
    if entity.parent is not None:
        (key,) = factory_of(entity.parent.entity).key(dataset)
        pinned.append(Equals(entity.parent.field, key))
    return build_query(
        entity.name,
        scope=dataset.owner if scope is None else scope,
        where=(*pinned, *where),
        order=key_order(entity) if order is None else order,
        limit=limit,
        maximum=EVERYTHING,
        page_token=token,
    )


def in_order(entity: Entity[M], rows: Iterable[Row[M]], order: Sequence[SortKey]) -> list[Row[M]]:
    """Return rows as a list in some order has them: absent values first, text by code point."""
    found = list(rows)
    for key in reversed(order):
        found.sort(key=lambda row, key=key: sort_value(entity, row, key), reverse=key.descending)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    return found


def sort_value(entity: Entity[M], row: Row[M], key: SortKey) -> tuple[bool, object]:
    """Return the place of a row by one key."""
    value = entity.value(row.model, row.storage, key.field)
    return (value is not None, value)


def by_key(entity: Entity[M], rows: Iterable[Row[M]]) -> list[Row[M]]:
    """Return rows in the order of their keys."""
    return in_order(entity, rows, key_order(entity))


def needs_transactions(test: Callable[P, None]) -> Callable[P, None]:
    """Run a test where the driver has transactions; elsewhere assert that a unit is refused.

    The test must take ``workspace``.
    """

    @wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        workspace = kwargs["workspace"]
        assert isinstance(workspace, AccessWorkspace), f"{test.__name__} takes no workspace"
        if workspace.backend.capabilities.transactions:
            test(*args, **kwargs)
            return
        with pytest.raises(UnsupportedCapabilityError), workspace.access.unit(workspace.dataset.owner):
            pass

    return wrapper


class AccessCases:
    """Base of the contracts of the access.

    The test module provides the fixture ``backend_factory``. All tests of a class share one deployment and
    are separated by tenant and batch.
    """

    module: ClassVar[ModuleSpec[Access]] = MODULE

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, backend_factory: BackendFactory) -> Iterator[tuple[Deployment, ModuleBackend[Access]]]:
        """Open the module once for all tests of the class."""
        with (
            backend_factory(cls.module, migrated=False) as deployment,
            deployment.open_module(cls.module) as backend,
        ):
            yield deployment, backend

    @pytest.fixture
    def workspace(self, opened: tuple[Deployment, ModuleBackend[Access]]) -> AccessWorkspace:
        """Return a workspace with a separate tenant and batch."""
        deployment, backend = opened
        return AccessWorkspace(deployment, self.module, backend)

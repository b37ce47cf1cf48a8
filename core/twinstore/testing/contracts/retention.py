"""How rows are removed by their age: the oldest first, in batches no larger than asked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pytest
from typing_extensions import override

from twinstore.access.guard import GuardedAccess
from twinstore.errors import ValidationError
from twinstore.testing.base import Contract, each
from twinstore.testing.instants import at

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.examples import Example
    from twinstore.testing.workspace import Workspace

__all__ = ["RetentionContract"]

# In an order that is neither that of their age nor its reverse.
AGES: Final = (3, 0, 4, 1, 2)
each_purged = each("example", lambda kit: [item for item in kit.module.examples if item.purges])


def aged(workspace: Workspace, example: Example, age: int) -> CanonicalModel:
    """Store a row whose age is judged by an instant that many milliseconds after the others."""
    retention = example.entity.retention
    assert retention is not None, f"{example.name} is removed by age and its description does not say so"
    instant = example.entity.shapes[retention.field].name
    model = example.small(workspace.tenant, workspace.id(f"age {age}"))
    return example.store(
        workspace.storage.unbound, workspace.tenant, model.evolve(**{instant: at(1000 + age / 1000)})
    )


@dataclass(frozen=True, slots=True)
class Batches(GuardedAccess):
    """Notes after each removal how many rows went, and which are left."""

    left: dict[str, CanonicalModel] = field(default_factory=dict[str, "CanonicalModel"])
    seen: list[tuple[int, list[str]]] = field(default_factory=list[tuple[int, list[str]]])
    workspace: Workspace | None = None
    example: Example | None = None

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        assert self.workspace is not None
        assert self.example is not None
        # slots=True makes a new class, which super() without arguments does not know.
        removed = GuardedAccess.remove(self, entity, query)
        session, tenant = self.workspace.storage.unbound, self.workspace.tenant
        kept = [
            name
            for name, model in self.left.items()
            if self.example.found(session, tenant, model) is not None
        ]
        self.seen.append((removed, kept))
        return removed


class RetentionContract(Contract):
    """Every purge."""

    @each_purged
    @pytest.mark.parametrize("batch_size", [1, 2, 7])
    def test_a_purge_removes_the_oldest_first_in_batches_as_large_as_asked(
        self, workspace: Workspace, example: Example, batch_size: int
    ) -> None:
        rows = {str(age): aged(workspace, example, age) for age in AGES}
        watches: list[Batches] = []

        def watched(access: Access) -> object:
            assert isinstance(access, GuardedAccess)
            watches.append(Batches(access.inner, left=rows, workspace=workspace, example=example))
            return self.module.module.repositories(watches[-1])

        for purge in example.purges:
            module = replace(self.module.module, repositories=watched)
            with workspace.deployment.open_module(module) as backend:
                repository = getattr(backend.repositories, example.repository)
                assert purge(repository, at(1000.003), workspace.tenant, batch_size) == 4
            (watch,) = watches
            sizes = [removed for removed, _ in watch.seen]
            assert sum(sizes) == 4
            assert max(sizes) <= batch_size
            gone = 0
            for removed, left in watch.seen:
                gone += removed
                assert sorted(left) == [str(age) for age in range(gone, 5)]

    @each_purged
    def test_a_purge_in_batches_below_one_removes_nothing(
        self, workspace: Workspace, example: Example
    ) -> None:
        model = aged(workspace, example, 0)
        for purge in example.purges:
            for batch_size in (0, -1, True, 1.5):
                repository = getattr(workspace.storage.unbound, example.repository)
                with pytest.raises(ValidationError, match="batch_size"):
                    purge(repository, at(9999), workspace.tenant, batch_size)
        assert example.found(workspace.storage.unbound, workspace.tenant, model) == model

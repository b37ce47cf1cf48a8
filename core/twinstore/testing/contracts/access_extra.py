"""Unknown properties: a row that is read and written back loses none, and none replaces a field."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore.access.paging import SortKey
from twinstore.access.protocol import Access, Ref
from twinstore.catalog.conditions import IsPresent
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenants
from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.contracts.access_base import AccessCases, AccessWorkspace, by_key, query_of
from twinstore.testing.datasets import CRATE, LINE, STUB, TICKET, UNKNOWN, RowFactory

if TYPE_CHECKING:
    from twinstore.access.protocol import Values
    from twinstore.catalog.entity import Entity

__all__ = ["AccessExtraContract"]

# One row with each form of them.
MANY: Final = len(UNKNOWN)
Write = Callable[["Access", "Entity", "Tenants", "Row"], object]


def put(access: Access, entity: Entity, owner: Tenants, row: Row) -> object:
    """Store a row, also in place of another one."""
    return access.put(entity, owner, row)


def insert(access: Access, entity: Entity, owner: Tenants, row: Row) -> object:
    """Store a new row."""
    return access.insert(entity, owner, row)


def change(access: Access, entity: Entity, owner: Tenants, row: Row) -> object:
    """Let a rule answer with a row."""
    return access.change([Ref(entity, owner, entity.key_of(row.model, row.storage))], lambda _, __: (row,))


def extra_of(factory: RowFactory[CanonicalModel]) -> str:
    """Return the Python name of the field with the unknown properties."""
    return factory.entity.shapes[factory.entity.extra or ""].name


def name_of(value: object) -> str:
    """Return the name of a case."""
    factory = cast("RowFactory[CanonicalModel]", value)
    return factory.entity.name if isinstance(value, RowFactory) else getattr(value, "__name__", "")


each_factory = pytest.mark.parametrize("factory", [TICKET, STUB, CRATE], ids=name_of)


class AccessExtraContract(AccessCases):
    """What the operations that write make of properties that no field names."""

    @each_factory
    @pytest.mark.parametrize("write", [put, change], ids=name_of)
    def test_a_row_that_is_read_and_written_back_keeps_them(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], write: Write
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        factory.fill(workspace.access, dataset, MANY)
        expected: list[Row[CanonicalModel]] = []
        for row in workspace.stored(factory, dataset):
            changed = Row(row.model.evolve(**factory.change), row.storage)
            write(workspace.access, entity, dataset.owner, changed)
            expected.append(changed)
        assert workspace.stored(factory, dataset) == expected

    @each_factory
    @pytest.mark.parametrize("write", [put, change], ids=name_of)
    def test_they_are_replaced_by_those_of_the_new_row(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], write: Write
    ) -> None:
        rows = factory.fill(workspace.access, workspace.dataset, MANY)
        for row, unknown in zip(rows, (*UNKNOWN[1:], {}), strict=True):
            changed = Row(row.model.evolve(**{extra_of(factory): unknown}), row.storage)
            write(workspace.access, factory.entity, workspace.dataset.owner, changed)
            key = factory.entity.key_of(row.model, row.storage)
            assert workspace.access.find(factory.entity, workspace.dataset.owner, [key]) == (changed,)

    @each_factory
    @pytest.mark.parametrize("write", [put, change], ids=name_of)
    def test_values_that_python_calls_equal_replace_each_other(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], write: Write
    ) -> None:
        (row,) = factory.fill(workspace.access, workspace.dataset, 1)
        for value in (1, True, 1.0, 1, [0], [False]):
            changed = Row(row.model.evolve(**{extra_of(factory): {"a": value}}), row.storage)
            write(workspace.access, factory.entity, workspace.dataset.owner, changed)
            found = workspace.get(factory, workspace.dataset)
            assert found is not None
            assert found.content == changed.content

    @pytest.mark.parametrize(
        ("factory", "sets"), [(TICKET, {"amount": 78}), (STUB, {"amount": 78}), (CRATE, {"maker": "7" * 24})]
    )
    def test_fields_are_set_beside_them(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], sets: Values
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        rows = factory.fill(workspace.access, dataset, MANY)
        expected = [Row(row.model.evolve(**sets), row.storage) for row in by_key(entity, rows)]
        assert list(workspace.access.mark(entity, query_of(entity, dataset), sets)) == expected
        assert workspace.stored(factory, dataset) == expected
        assert workspace.access.amend(entity, query_of(entity, dataset), sets) == MANY
        assert workspace.stored(factory, dataset) == expected

    def test_entries_of_a_log_have_them(self, workspace: AccessWorkspace) -> None:
        dataset = workspace.dataset
        LINE.store_parents(workspace.access, dataset)
        rows = [Row(row.model.evolve(sequence=None), row.storage) for row in LINE.rows(dataset, MANY)]
        parent = (
            Ref(LINE.entity.parent.entity, dataset.owner, (dataset.text(0),)) if LINE.entity.parent else None
        )
        assert parent is not None
        added = workspace.access.append(LINE.entity, parent, rows)
        assert [row.model.extra for row in added] == [*UNKNOWN]
        assert workspace.stored(LINE, dataset) == by_key(LINE.entity, added)

    @each_factory
    @pytest.mark.parametrize("write", [insert, put, change], ids=name_of)
    def test_none_has_the_name_of_a_field(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], write: Write
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        rows = factory.fill(workspace.access, dataset, 2)
        number = 2 if write is insert else 1
        for name in ("batch", "_id", entity.key[0]):
            row = factory.row(dataset, number, **{extra_of(factory): {"fine": 1, name: "secret"}})
            with pytest.raises(ValidationError, match=rf"holds {name}, which {entity.name} has") as refusal:
                write(workspace.access, entity, dataset.owner, row)
            assert "secret" not in str(refusal.value)
        assert workspace.stored(factory, dataset) == by_key(entity, rows)

    @each_factory
    def test_no_list_names_one(self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]) -> None:
        entity, field = factory.entity, str(factory.entity.extra)
        for name in (field, f"{field}._rev", "_rev"):
            with pytest.raises(ValidationError, match=f"has no field '{name}'"):
                workspace.access.page(entity, query_of(entity, workspace.dataset, IsPresent(name)))
            with pytest.raises(ValidationError, match=f"has no field '{name}'"):
                workspace.access.page(entity, query_of(entity, workspace.dataset, order=[SortKey(name)]))

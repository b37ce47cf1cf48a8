"""ObjectIds, UUIDs, decimals and bytes: what lists, marks and replacements make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore.access.defaults import matches
from twinstore.access.paging import SortKey
from twinstore.access.protocol import UNSET, UniqueKey
from twinstore.access.query import query_of_key
from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Condition,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.entity import Entity
from twinstore.catalog.row import Row
from twinstore.errors import DuplicateError, ValidationError
from twinstore.testing.contracts.access_base import (
    AccessCases,
    AccessWorkspace,
    by_key,
    in_order,
    query_of,
)
from twinstore.testing.datasets import CRATE, DECIMALS, STAMP, WARE, RowFactory
from twinstore.testing.typed_entities import CRATES, STAMPS, WARES, Offer
from twinstore.testing.workspace import all_pages

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.access.protocol import FieldUpdates, Values
    from twinstore.models.canonical import CanonicalModel

__all__ = ["AccessTypedContract"]

# More than there are decimals, so that some rows tie.
MANY: Final = 2 * len(DECIMALS) + 1
MAKER: Final = f"{1:024x}"
BOTH: Final[tuple[tuple[Condition, ...], ...]] = (
    (Equals("price", Decimal("1.50")),),
    (Equals("price", Decimal("1E+3")),),
    (Equals("price", 0),),
    (After("price", Decimal("9007199254740992.5")),),
    (Before("price", Decimal("-0.001")),),
    (AtLeast("price", Decimal("1.5000")), AtMost("price", 1000)),
    (NotAfter("price", 0),),
    (Equals("maker", MAKER),),
    (OneOf("maker", (MAKER, "0" * 24, "no ObjectId")),),
    (Equals("maker", MAKER.upper() + "A"),),
    (IsNull("maker"), IsPresent("price")),
)
CONDITIONS: Final[Mapping[Entity, tuple[tuple[Condition, ...], ...]]] = {
    CRATES: BOTH,
    WARES: (
        *BOTH,
        (NotAfter("weight", Decimal("0.00")),),
        (IsNull("weight"), IsPresent("design")),
        (Equals("design", "no UUID"),),
    ),
}
BY_BOTH: Final = (
    (SortKey("price", decimal=True), SortKey("id")),
    (SortKey("price", descending=True, decimal=True), SortKey("id", descending=True)),
    (SortKey("maker", nullable=True), SortKey("price", decimal=True), SortKey("id")),
    (SortKey("maker", descending=True, nullable=True), SortKey("id")),
)
ORDERS: Final[Mapping[Entity, tuple[tuple[SortKey, ...], ...]]] = {
    CRATES: BY_BOTH,
    WARES: (
        *BY_BOTH,
        (SortKey("weight", decimal=True, nullable=True), SortKey("id")),
        (SortKey("weight", descending=True, decimal=True, nullable=True), SortKey("id")),
        (SortKey("design", nullable=True), SortKey("id")),
        (SortKey("design", descending=True, nullable=True), SortKey("id")),
    ),
}
REFUSED: Final[tuple[Condition, ...]] = (
    After("maker", 1),
    Before("design", Decimal(1)),
    Equals("maker", 1),
    Equals("price", "1.5"),
    OneOf("price", ("1.5",)),
    After("price", Decimal("NaN")),
    Equals("image", "aGk="),
)


each_factory = pytest.mark.parametrize(
    "factory", [WARE, CRATE], ids=lambda factory: cast("str", factory.entity.name)
)


class AccessTypedContract(AccessCases):
    """Fields and keys of types that databases have and JSON has not."""

    @each_factory
    def test_lists_by_ids_or_decimals_have_their_order(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        rows = factory.fill(workspace.access, dataset, MANY)

        def listed(order: tuple[SortKey, ...], limit: int, token: str | None) -> Page[Row]:
            return workspace.access.page(
                entity, query_of(entity, dataset, order=order, limit=limit, token=token)
            )

        for order in ORDERS[entity]:
            for limit in (2, 100):
                found = all_pages(partial(listed, order, limit))
                assert found == in_order(entity, rows, order), order

    @each_factory
    def test_conditions_on_ids_and_decimals_choose_rows(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        rows = factory.fill(workspace.access, dataset, MANY)
        for where in CONDITIONS[entity]:
            query = query_of(entity, dataset, *where)
            expected = [row for row in rows if matches(entity, query, row)]
            assert list(workspace.access.page(entity, query)) == by_key(entity, expected), where

    @pytest.mark.parametrize("condition", REFUSED, ids=lambda item: f"{type(item).__name__}-{item.field}")
    def test_what_some_store_cannot_compare_is_refused(
        self, workspace: AccessWorkspace, condition: Condition
    ) -> None:
        with pytest.raises(ValidationError, match=f"wares .*'{condition.field}'"):
            workspace.access.page(WARES, query_of(WARES, workspace.dataset, condition))

    def test_a_token_with_another_id_than_a_list_gives_is_refused(self, workspace: AccessWorkspace) -> None:
        stamps = query_of(STAMPS, workspace.dataset)
        for after in (("no ObjectId", workspace.dataset.uuid(0)), (MAKER, "no UUID")):
            with pytest.raises(ValidationError, match="token is malformed"):
                workspace.access.page(STAMPS, replace(stamps, after=after))

    def test_rows_are_counted_by_ids_and_not_by_decimals(self, workspace: AccessWorkspace) -> None:
        WARE.fill(workspace.access, workspace.dataset, 8)
        query = query_of(WARES, workspace.dataset)
        expected = {"": 2, f"{0:024x}": 2, MAKER: 2, f"{2:024x}": 2}
        assert workspace.access.count(WARES, query, "maker") == expected
        with pytest.raises(ValidationError, match="counted by 'price'"):
            workspace.access.count(WARES, query, "price")

    def test_a_row_is_found_by_a_unique_uuid_which_is_then_taken(self, workspace: AccessWorkspace) -> None:
        rows = WARE.fill(workspace.access, workspace.dataset, 4)
        unique = WARES.unique("design")
        keys = [UniqueKey(unique, (row.model.design or "none",)) for row in rows]
        found = workspace.access.find(WARES, workspace.dataset.owner, keys)
        assert found == (None, rows[1], None, rows[3])
        with pytest.raises(DuplicateError):
            workspace.access.insert(
                WARES, workspace.dataset.owner, WARE.row(workspace.dataset, 5, design=rows[1].model.design)
            )

    def test_ids_decimals_and_bytes_are_set_and_taken_away(self, workspace: AccessWorkspace) -> None:
        rows = WARE.fill(workspace.access, workspace.dataset, 4)
        sets: FieldUpdates = {"price": Decimal("2.50"), "maker": MAKER, "design": UNSET, "seal": b"\x00\x01"}
        marked = workspace.access.mark(WARES, query_of(WARES, workspace.dataset), sets)
        new = {"price": Decimal("2.50"), "maker": MAKER, "design": None, "seal": b"\x00\x01"}
        expected = [Row(row.model.evolve(**new), row.storage) for row in by_key(WARES, rows)]
        assert list(marked) == expected
        amended: Values = {"price": Decimal("2.5"), "design": workspace.dataset.uuid(77)}
        query = query_of(WARES, workspace.dataset, Equals("id", expected[0].model.id))
        assert workspace.access.amend(WARES, query, amended) == 1
        (changed, *_) = workspace.stored(WARE, workspace.dataset)
        assert changed == Row(expected[0].model.evolve(**amended))

    @each_factory
    def test_a_row_is_replaced_by_one_that_differs_in_a_scale_alone(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        entity, owner = factory.entity, workspace.dataset.owner
        (row,) = factory.fill(workspace.access, workspace.dataset, 1)
        for change in (
            {"price": Decimal("1.50")},
            {"offers": (Offer(price=Decimal("1.0")),)},
            {"offers": (Offer(price=Decimal("1.00")),)},
        ):
            row = Row(row.model.evolve(**change), row.storage)
            workspace.access.put(entity, owner, row)
            assert workspace.get(factory, workspace.dataset) == row

    def test_a_rule_may_change_a_scale_alone(self, workspace: AccessWorkspace) -> None:
        (row,) = CRATE.fill(workspace.access, workspace.dataset, 1)
        changed = Row(row.model.evolve(price=Decimal("1.500")))
        ref = CRATE.ref(workspace.dataset)
        assert workspace.access.change([ref], lambda _, __: (changed,)) == (changed,)
        assert workspace.get(CRATE, workspace.dataset) == changed

    @pytest.mark.parametrize("factory", [WARE, STAMP, CRATE], ids=lambda factory: factory.entity.name)
    def test_what_cannot_be_a_key_finds_and_removes_nothing(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        rows = factory.fill(workspace.access, dataset, 2)
        key = tuple(str(part).upper() + "x" for part in factory.key(dataset))
        assert workspace.access.find(entity, dataset.owner, [key]) == (None,)
        assert workspace.access.find(entity, dataset.owner, [key, factory.key(dataset)]) == (None, rows[0])
        assert workspace.access.remove(entity, query_of_key(entity, dataset.owner, key)) == 0
        assert workspace.stored(factory, dataset) == by_key(entity, rows)

    def test_keys_of_ids_are_removed(self, workspace: AccessWorkspace) -> None:
        STAMP.fill(workspace.access, workspace.dataset, 3)
        key = STAMP.key(workspace.dataset, 1)
        where = [Equals(name, part) for name, part in zip(STAMPS.key, key, strict=True)]
        assert workspace.access.remove(STAMPS, query_of(STAMPS, workspace.dataset, *where)) == 1
        assert workspace.get(STAMP, workspace.dataset, 1) is None
        assert workspace.access.remove(WARES, query_of(WARES, workspace.dataset)) == 1
        assert workspace.get(STAMP, workspace.dataset, 2) is None

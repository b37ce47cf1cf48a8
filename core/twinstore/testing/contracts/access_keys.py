"""What the keys of a list are: those of its rows, in the same order, of the same scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.catalog.conditions import OneOf
from twinstore.testing.contracts.access_base import AccessCases, AccessWorkspace, each_home, query_of
from twinstore.testing.datasets import Dataset

if TYPE_CHECKING:
    from twinstore.testing.datasets import OwnerCase

__all__ = ["AccessKeysContract"]


class AccessKeysContract(AccessCases):
    """Keys of rows that nobody loads."""

    @each_home
    def test_the_keys_of_a_list_are_those_of_its_rows(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        access, dataset, entity = workspace.access, workspace.of(owner_case), owner_case.factory.entity
        owner_case.factory.fill(access, dataset, 6)
        rows = access.page(entity, query_of(entity, dataset, limit=10))
        keys = tuple(entity.key_of(row.model, row.storage) for row in rows)
        assert len(keys) == 6
        assert access.keys(entity, query_of(entity, dataset, limit=10)) == keys
        assert access.keys(entity, query_of(entity, dataset, limit=4)) == keys[:4]

    @each_home
    def test_what_matches_nothing_has_no_keys(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        access, dataset, entity = workspace.access, workspace.of(owner_case), owner_case.factory.entity
        owner_case.factory.fill(access, dataset, 2)
        nobody = Dataset(dataset.owner, f"{workspace.batch}x")
        assert access.keys(entity, query_of(entity, nobody)) == ()
        assert access.keys(entity, query_of(entity, dataset, OneOf("batch", ()))) == ()

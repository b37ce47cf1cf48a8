"""Rows that form no model: replaced where a ref says so, and amended without being read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from twinstore.access.protocol import UNSET, Ref, UniqueKey, Values
from twinstore.catalog.conditions import Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import DocumentDecodeError, DuplicateError
from twinstore.models.fields import parse_timestamp
from twinstore.testing.contracts.access_base import AccessCases, AccessWorkspace, by_key, query_of
from twinstore.testing.contracts.access_changing import Answer
from twinstore.testing.datasets import DEVICE, NOTE, OWNER_CASES, OwnerCase, RowFactory
from twinstore.testing.entities import DEVICES, PARCELS
from twinstore.testing.instants import at

if TYPE_CHECKING:
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.datasets import Dataset

__all__ = ["AccessUnreadableContract"]

CONTENT: Final = "c0ntent"
# What a store with typed columns holds of a parcel is always one.
CHANGED: Final = [
    case for case in OWNER_CASES if not case.factory.entity.append_only and case.factory.entity is not PARCELS
]
each_changed = pytest.mark.parametrize("owner_case", CHANGED, ids=str)
each_layout = pytest.mark.parametrize("factory", [NOTE, DEVICE], ids=["columns", "document"])
SETS: Final[Values] = {
    "holder": "$me",
    "rank": -7,
    "urgent": True,
    "level": "high",
    "dueAt": at(9),
}


class AccessUnreadableContract(AccessCases):
    """``Ref.replaces_unreadable``, ``put`` and ``amend``."""

    amends_unreadable: ClassVar[bool] = True

    @each_changed
    def test_a_row_that_nobody_can_read_is_replaced_where_the_ref_says_so(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        factory, dataset = owner_case.factory, workspace.of(owner_case)
        entity = factory.entity
        _, other = factory.fill(workspace.access, dataset, 2)
        poison(workspace, factory, dataset)
        ref, wanted = factory.ref(dataset), factory.changed(dataset)
        with pytest.raises(DocumentDecodeError):
            workspace.access.change([ref], Answer(wanted))
        rule = Answer(wanted)
        assert workspace.access.change([replace(ref, replaces_unreadable=True)], rule) == (wanted,)
        assert rule.given == (None,)
        assert workspace.stored(factory, dataset) == by_key(entity, [wanted, other])
        # One that can be read is given as ever.
        rule = Answer(None)
        assert workspace.access.change([replace(ref, replaces_unreadable=True)], rule) == (wanted,)
        assert rule.given == (wanted,)

    @each_changed
    def test_put_replaces_a_row_that_nobody_can_read(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        factory, dataset = owner_case.factory, workspace.of(owner_case)
        factory.fill(workspace.access, dataset, 1)
        poison(workspace, factory, dataset)
        wanted = factory.changed(dataset)
        assert workspace.access.put(factory.entity, dataset.owner, wanted) == wanted
        assert workspace.get(factory, dataset) == wanted

    @each_layout
    def test_a_list_over_all_tenants_names_a_row_that_nobody_can_read(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        rows = by_key(entity, factory.fill(workspace.access, dataset, 3))
        poison(workspace, factory, dataset, 1)
        page = workspace.access.page(entity, query_of(entity, dataset, scope=ALL_TENANTS))
        assert list(page) == [row for row in rows if row != factory.row(dataset, 1)]
        (passed,) = page.undecodable
        assert (passed.entity, passed.key) == (entity.name, entity.key_text(factory.key(dataset, 1)))
        assert CONTENT not in passed.reason
        with pytest.raises(DocumentDecodeError):
            workspace.access.page(entity, query_of(entity, dataset))

    @each_layout
    def test_a_foreign_row_that_nobody_can_read_stays_as_it_is(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        dataset, probe = workspace.elsewhere, workspace.deployment.probe
        factory.fill(workspace.access, dataset, 1)
        poison(workspace, factory, dataset)
        key = factory.key(dataset)
        before, own = probe.read(factory.entity, key), factory.row(workspace.dataset)
        ref = replace(factory.ref(workspace.dataset), replaces_unreadable=True)
        rule = Answer(own)
        with pytest.raises(DuplicateError):
            workspace.access.change([ref], rule)
        assert rule.given == (None,)
        with pytest.raises(DuplicateError):
            workspace.access.put(factory.entity, workspace.dataset.owner, own)
        query = query_of(factory.entity, dataset, scope=workspace.dataset.owner)
        assert workspace.access.amend(factory.entity, query, SETS) == 0
        assert probe.read(factory.entity, key) == before

    def test_the_new_row_of_a_unique_value_may_have_another_key(self, workspace: AccessWorkspace) -> None:
        dataset = workspace.dataset
        first, _ = DEVICE.fill(workspace.access, dataset, 2)
        broken = DEVICE.row(dataset, 1)
        poison(workspace, DEVICE, dataset, 1)
        serial = UniqueKey(DEVICES.unique("serial"), (str(broken.model.serial),))
        ref = Ref(DEVICES, dataset.owner, serial, replaces_unreadable=True)
        later = DEVICE.row(dataset, 5)
        wanted = Row(later.model.evolve(serial=broken.model.serial), later.storage)
        assert workspace.access.change([ref], Answer(wanted)) == (wanted,)
        assert workspace.stored(DEVICE, dataset) == by_key(DEVICES, [first, wanted])

    @each_layout
    def test_fields_are_set_without_a_look_at_the_others(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        entity, dataset = factory.entity, workspace.dataset
        rows = factory.fill(workspace.access, dataset, 3)
        first = list(workspace.access.page(entity, query_of(entity, dataset)))[:2]
        assert workspace.access.amend(entity, query_of(entity, dataset, limit=2), SETS) == len(first)
        set_to = {"holder": "$me", "rank": -7, "urgent": True, "level": "high", "due_at": at(9)}
        wanted = [Row(row.model.evolve(**set_to), row.storage) for row in first]
        others = [row for row in rows if row not in first]
        assert workspace.stored(factory, dataset) == by_key(entity, [*wanted, *others])
        # Only while they match: the second of them, and then none.
        held = query_of(entity, dataset, Equals("holder", "$me"))
        assert workspace.access.amend(entity, held, {"holder": UNSET, "dueAt": UNSET}) == len(first)
        assert workspace.access.amend(entity, held, {"rank": 1}) == 0
        free = [Row(row.model.evolve(holder=None, due_at=None), row.storage) for row in wanted]
        assert workspace.stored(factory, dataset) == by_key(entity, [*free, *others])

    @each_layout
    def test_fields_of_a_row_that_nobody_can_read_are_set(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        entity, dataset, probe = factory.entity, workspace.dataset, workspace.deployment.probe
        factory.fill(workspace.access, dataset, 1)
        poison(workspace, factory, dataset)
        before = probe.read(entity, factory.key(dataset))
        if not self.amends_unreadable:
            with pytest.raises(DocumentDecodeError):
                workspace.access.amend(entity, query_of(entity, dataset), SETS)
            return
        assert workspace.access.amend(entity, query_of(entity, dataset), SETS) == 1
        after = probe.read(entity, factory.key(dataset))
        assert before is not None
        assert after is not None
        # A store may hold an instant as text.
        found = {name: after.document[name] for name in SETS}
        assert {**found, "dueAt": parse_timestamp(found["dueAt"])} == SETS
        kept = before.document.keys() - SETS.keys()
        assert {name: after.document[name] for name in kept} == {name: before.document[name] for name in kept}


def poison(
    workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], dataset: Dataset, number: int = 0
) -> None:
    """Break a stored row."""
    workspace.deployment.probe.poison(factory.entity, factory.key(dataset, number), CONTENT)

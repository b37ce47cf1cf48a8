"""What writes of single rows do: ``insert`` and ``put``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.catalog.conditions import Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT
from twinstore.errors import DuplicateError, NotFoundError, ValidationError
from twinstore.testing.contracts.access_base import AccessCases, AccessWorkspace, each_home, each_sample
from twinstore.testing.datasets import (
    COUNTER,
    DEVICE,
    EVENT,
    NOTE,
    OWNER_CASES,
    PLACE,
    ROW_FACTORIES,
    Dataset,
    OwnerCase,
    RowFactory,
)
from twinstore.testing.entities import COUNTERS, DEVICES, EVENTS, NOTES, PLACES
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.models.canonical import CanonicalModel

__all__ = ["AccessInsertContract", "AccessPutContract"]

RIVALS: Final = 8
ORPHANS: Final = [owner_case for owner_case in OWNER_CASES if owner_case.factory.entity.parent is not None]
ROOTS: Final = [
    owner_case
    for owner_case in OWNER_CASES
    if owner_case.factory.entity.parent is None and owner_case.factory.entity is not COUNTERS
]
MUTABLE: Final = [owner_case for owner_case in OWNER_CASES if not owner_case.factory.entity.append_only]
each_orphan = pytest.mark.parametrize("owner_case", ORPHANS, ids=str)
each_root = pytest.mark.parametrize("owner_case", ROOTS, ids=str)
each_mutable = pytest.mark.parametrize("owner_case", MUTABLE, ids=str)
each_log = pytest.mark.parametrize(
    "factory",
    [factory for factory in ROW_FACTORIES if factory.entity.append_only],
    ids=lambda factory: factory.entity.name,
)


class AccessInsertContract(AccessCases):
    """``insert``."""

    @each_home
    def test_an_inserted_row_is_returned_and_stored(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        row = factory.row(dataset, 1)
        assert workspace.access.insert(factory.entity, dataset.owner, row) == row
        assert workspace.get(factory, dataset, 1) == row

    @each_home
    def test_a_key_is_inserted_once(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        for again in (row, factory.changed(dataset)):
            with pytest.raises(DuplicateError) as refusal:
                workspace.access.insert(factory.entity, dataset.owner, again)
            assert refusal.value.entity == factory.entity.name
            assert refusal.value.key == factory.entity.key_text(factory.key(dataset))
        assert workspace.get(factory, dataset) == row

    @each_root
    def test_a_key_of_somebody_else_is_taken(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        with pytest.raises(DuplicateError):
            workspace.access.insert(
                factory.entity, workspace.elsewhere.owner, factory.row(workspace.elsewhere)
            )
        assert workspace.get(factory, dataset) == row
        assert workspace.get(factory, workspace.elsewhere) is None

    def test_a_unique_value_is_taken_while_a_row_holds_it(self, workspace: AccessWorkspace) -> None:
        dataset = workspace.dataset
        (held,) = NOTE.fill(workspace.access, dataset, 1)
        with pytest.raises(DuplicateError, match=f"note title '{held.model.title}' is taken") as refusal:
            workspace.access.insert(NOTES, dataset.owner, NOTE.row(dataset, 1, title=held.model.title))
        assert refusal.value.key == dataset.text(1)
        workspace.access.put(
            NOTES, dataset.owner, Row(held.model, {"archivedAt": held.model.due_at or workspace.now()})
        )
        workspace.access.insert(NOTES, dataset.owner, NOTE.row(dataset, 1, title=held.model.title))
        assert workspace.get(NOTE, dataset, 1) is not None

    def test_a_unique_value_of_a_tenant_is_free_for_another_one(self, workspace: AccessWorkspace) -> None:
        for dataset in (workspace.dataset, Dataset(workspace.elsewhere.owner, f"{workspace.batch}x")):
            row = NOTE.row(dataset, 0, title="one title", batch=workspace.batch)
            assert workspace.access.insert(NOTES, dataset.owner, row) == row

    def test_a_unique_value_without_tenant_is_taken_by_anybody(self, workspace: AccessWorkspace) -> None:
        dataset = Dataset(NO_TENANT, f"{workspace.batch}x")
        (held,) = (DEVICE.row(workspace.dataset, 1),)
        workspace.access.insert(DEVICES, workspace.dataset.owner, held)
        with pytest.raises(DuplicateError, match="device serial"):
            workspace.access.insert(DEVICES, dataset.owner, DEVICE.row(dataset, 3, serial=held.model.serial))
        workspace.access.insert(DEVICES, dataset.owner, DEVICE.row(dataset, 3, serial=None))
        workspace.access.insert(DEVICES, dataset.owner, DEVICE.row(dataset, 5, serial=None))

    @each_orphan
    def test_a_row_without_its_parent_is_refused(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        for write in (workspace.access.insert, workspace.access.put):
            with pytest.raises(NotFoundError):
                write(factory.entity, dataset.owner, factory.row(dataset))
        assert workspace.stored(factory, dataset) == []

    @each_orphan
    def test_a_row_of_a_foreign_parent_is_refused(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        for write in (workspace.access.insert, workspace.access.put):
            with pytest.raises(NotFoundError):
                write(factory.entity, workspace.elsewhere.owner, factory.row(workspace.elsewhere))
        assert workspace.stored(factory, dataset) == []

    def test_of_an_absent_parent_and_a_taken_key_the_parent_is_told(self, workspace: AccessWorkspace) -> None:
        (held,) = EVENT.fill(workspace.access, workspace.dataset, 1)
        orphan = EVENT.row(workspace.dataset, note_id=workspace.dataset.text(7))
        for scope in (workspace.dataset.owner, ALL_TENANTS):
            for write in (workspace.access.insert, workspace.access.put):
                with pytest.raises(NotFoundError, match="note"):
                    write(EVENTS, scope, orphan)
        assert workspace.stored(EVENT, workspace.dataset) == [held]

    @each_root
    def test_a_row_of_another_owner_is_refused(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        for write in (workspace.access.insert, workspace.access.put):
            with pytest.raises(ValidationError, match="another tenant"):
                write(factory.entity, workspace.elsewhere.owner, factory.row(dataset))
        assert workspace.get(factory, dataset) is None
        assert workspace.access.insert(factory.entity, ALL_TENANTS, factory.row(dataset)) == factory.row(
            dataset
        )

    def test_a_row_of_another_entity_is_refused(self, workspace: AccessWorkspace) -> None:
        for write in (workspace.access.insert, workspace.access.put):
            with pytest.raises(ValidationError, match="is a Note, not a Place"):
                write(PLACES, workspace.dataset.owner, NOTE.row(workspace.dataset))

    @each_sample
    def test_of_rivals_inserting_one_key_exactly_one_wins(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        factory.store_parents(workspace.access, workspace.dataset)

        def insert(access: Access, number: int) -> Row[CanonicalModel]:
            row = factory.row(workspace.dataset) if number % 2 else factory.changed(workspace.dataset)
            return access.insert(factory.entity, workspace.dataset.owner, row)

        results = workspace.race(insert, range(RIVALS))
        assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
        assert workspace.get(factory, workspace.dataset) in results

    def test_of_rivals_inserting_one_unique_value_exactly_one_wins(self, workspace: AccessWorkspace) -> None:
        def insert(access: Access, number: int) -> object:
            row = NOTE.row(workspace.dataset, 3 * number, title="one title")
            return access.insert(NOTES, workspace.dataset.owner, row)

        results = workspace.race(insert, range(RIVALS))
        assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
        assert len(workspace.stored(NOTE, workspace.dataset, Equals("title", "one title"))) == 1


class AccessPutContract(AccessCases):
    """``put``."""

    @each_home
    def test_a_row_is_inserted_where_there_is_none(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        row = factory.row(dataset, 1)
        assert workspace.access.put(factory.entity, dataset.owner, row) == row
        assert workspace.get(factory, dataset, 1) == row

    @each_mutable
    def test_a_stored_row_is_replaced_with_its_markers(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        rows = factory.fill(workspace.access, dataset, 4)
        for number, row in enumerate(rows):
            changed = Row(factory.changed(dataset, number).model, factory.row(dataset, number + 1).storage)
            assert changed != row
            assert workspace.access.put(factory.entity, dataset.owner, changed) == changed
            assert workspace.get(factory, dataset, number) == changed
        assert len(workspace.stored(factory, dataset)) == len(rows)

    @each_home
    def test_an_equal_row_is_not_written_again(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        key = factory.key(dataset)
        before = workspace.deployment.probe.stamp(factory.entity, key)
        assert workspace.access.put(factory.entity, dataset.owner, row) == row
        assert workspace.deployment.probe.stamp(factory.entity, key) == before

    @each_log
    def test_a_row_that_never_changes_is_not_replaced(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        (row,) = factory.fill(workspace.access, workspace.dataset, 1)
        with pytest.raises(DuplicateError):
            workspace.access.put(factory.entity, workspace.dataset.owner, factory.changed(workspace.dataset))
        assert workspace.get(factory, workspace.dataset) == row

    @each_root
    def test_a_row_of_somebody_else_is_not_replaced(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        (row,) = factory.fill(workspace.access, dataset, 1)
        with pytest.raises(DuplicateError):
            workspace.access.put(factory.entity, workspace.elsewhere.owner, factory.row(workspace.elsewhere))
        assert workspace.get(factory, dataset) == row
        assert workspace.get(factory, workspace.elsewhere) is None

    def test_a_unique_value_of_another_row_is_taken(self, workspace: AccessWorkspace) -> None:
        first, second = NOTE.fill(workspace.access, workspace.dataset, 2)
        taken = NOTE.row(workspace.dataset, 1, title=first.model.title)
        with pytest.raises(DuplicateError, match="note title"):
            workspace.access.put(NOTES, workspace.dataset.owner, taken)
        assert workspace.stored(NOTE, workspace.dataset, Equals("id", second.model.id)) == [second]

    def test_unique_values_are_given_back(self, workspace: AccessWorkspace) -> None:
        first, _ = NOTE.fill(workspace.access, workspace.dataset, 2)
        title = first.model.title
        workspace.access.put(NOTES, workspace.dataset.owner, NOTE.row(workspace.dataset, 0, title="free now"))
        workspace.access.put(NOTES, workspace.dataset.owner, NOTE.row(workspace.dataset, 1, title=title))
        with pytest.raises(DuplicateError):
            workspace.access.put(NOTES, workspace.dataset.owner, NOTE.row(workspace.dataset, 0, title=title))

    def test_a_derived_field_follows_the_row(self, workspace: AccessWorkspace) -> None:
        DEVICE.fill(workspace.access, workspace.dataset, 3)
        changed = DEVICE.row(workspace.dataset, 0, spots=DEVICE.row(workspace.dataset, 2).model.spots)
        workspace.access.put(DEVICES, workspace.dataset.owner, changed)
        assert changed in workspace.stored(DEVICE, workspace.dataset, Equals("spotCount", 2))
        assert workspace.stored(DEVICE, workspace.dataset, Equals("spotCount", 0)) == []

    @pytest.mark.parametrize("factory", [PLACE, COUNTER, DEVICE], ids=lambda factory: factory.entity.name)
    def test_rivals_putting_one_row_all_succeed(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        rows = [factory.row(workspace.dataset), factory.changed(workspace.dataset)]

        def put(access: Access, number: int) -> Row[CanonicalModel]:
            return access.put(factory.entity, workspace.dataset.owner, rows[number % 2])

        assert outcomes(workspace.race(put, range(RIVALS))) == {"ok": RIVALS}
        assert workspace.get(factory, workspace.dataset) in rows

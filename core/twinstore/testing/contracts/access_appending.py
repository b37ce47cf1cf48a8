"""What an ordered log promises: ``append``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access.protocol import Ref
from twinstore.catalog.conditions import AtLeast
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import ConflictError, DuplicateError, NotFoundError, ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.testing.contracts.access_base import (
    AccessCases,
    AccessWorkspace,
    by_key,
    needs_transactions,
    query_of,
)
from twinstore.testing.datasets import (
    DEVICE,
    ENTRY,
    EVENT,
    LINE,
    NOTE,
    OWNER_CASES,
    PART,
    Dataset,
    OwnerCase,
    RowFactory,
    factory_of,
)
from twinstore.testing.entities import DEVICES, ENTRIES, EVENTS, LINES
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.access.protocol import Access

__all__ = ["AccessAppendContract"]

AnySample = RowFactory[CanonicalModel]

RIVALS: Final = 6
LOGS: Final = [owner_case for owner_case in OWNER_CASES if owner_case.factory.entity.sequence is not None]
each_log = pytest.mark.parametrize("owner_case", LOGS, ids=str)


def parent_of(factory: AnySample, dataset: Dataset, number: int = 0) -> Ref:
    """Return where the parent of a log is."""
    assert factory.entity.parent is not None
    return factory_of(factory.entity.parent.entity).ref(dataset, number)


def unnumbered(factory: AnySample, dataset: Dataset, numbers: Iterable[int]) -> list[Row[CanonicalModel]]:
    """Return log entries whose numbers are still to be assigned."""
    return [factory.row(dataset, number, sequence=None) for number in numbers]


def sequences(rows: Iterable[Row[CanonicalModel]]) -> list[int]:
    """Return the numbers of log entries."""
    return [getattr(row.model, "sequence", 0) for row in rows]


class AccessAppendContract(AccessCases):
    """``append``."""

    @each_log
    def test_entries_are_numbered_from_one_in_the_order_given(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        first = workspace.access.append(
            factory.entity, parent_of(factory, dataset), unnumbered(factory, dataset, [2, 0])
        )
        second = workspace.access.append(
            factory.entity, parent_of(factory, dataset), unnumbered(factory, dataset, [1])
        )
        assert sequences([*first, *second]) == [1, 2, 3]
        assert [getattr(row.model, "message", "") for row in first] == [
            getattr(factory.row(dataset, number).model, "message", "") for number in (2, 0)
        ]
        assert workspace.stored(factory, dataset) == by_key(factory.entity, [*first, *second])

    def test_a_number_that_is_taken_out_of_sight_is_told_of_the_entry(
        self, workspace: AccessWorkspace
    ) -> None:
        dataset = workspace.dataset
        LINE.store_parents(workspace.access, dataset)
        stray = LINE.row(dataset, 0, sequence=1)
        stray = Row(stray.model.evolve(tenant_id=workspace.foreign), stray.storage)
        workspace.access.insert(LINES, ALL_TENANTS, stray)
        with pytest.raises(DuplicateError) as refusal:
            workspace.access.append(LINES, parent_of(LINE, dataset), unnumbered(LINE, dataset, [0]))
        key = LINES.key_text(LINES.key_of(stray.model, stray.storage))
        assert (refusal.value.entity, refusal.value.key) == (LINES.name, key)

    @each_log
    def test_every_parent_has_numbers_of_its_own(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        other = Dataset(dataset.owner, f"{workspace.batch}x")
        for place in (dataset, other):
            factory.store_parents(workspace.access, place)
            rows = unnumbered(factory, place, range(2))
            assert sequences(workspace.access.append(factory.entity, parent_of(factory, place), rows)) == [
                1,
                2,
            ]

    @each_log
    def test_own_numbers_are_kept_and_the_next_one_follows_the_highest(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        rows = [
            *unnumbered(factory, dataset, [0]),
            factory.row(dataset, 1, sequence=7),
            *unnumbered(factory, dataset, [2]),
            factory.row(dataset, 3, sequence=3),
            *unnumbered(factory, dataset, [4]),
        ]
        parent = parent_of(factory, dataset)
        assert sequences(workspace.access.append(factory.entity, parent, rows)) == [1, 7, 8, 3, 9]
        more = unnumbered(factory, dataset, [5])
        assert sequences(workspace.access.append(factory.entity, parent, more)) == [10]

    @each_log
    def test_a_number_of_the_same_call_is_not_assigned_twice(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        rows = [factory.row(dataset, 0, sequence=1), *unnumbered(factory, dataset, [1])]
        assert sequences(workspace.access.append(factory.entity, parent_of(factory, dataset), rows)) == [1, 2]

    @each_log
    def test_an_equal_entry_is_returned_and_not_written_again(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        parent, rows = parent_of(factory, dataset), factory.rows(dataset, 2)
        workspace.access.append(factory.entity, parent, rows)
        stamps = [
            workspace.deployment.probe.stamp(factory.entity, factory.key(dataset, item)) for item in range(2)
        ]
        given = [*rows, factory.row(dataset, 2), factory.row(dataset, 0)]
        again = workspace.access.append(factory.entity, parent, given)
        assert list(again) == [*rows, factory.row(dataset, 2), rows[0]]
        assert [found is row for found, row in zip(again, given, strict=True)] == [False, False, True, False]
        assert stamps == [
            workspace.deployment.probe.stamp(factory.entity, factory.key(dataset, item)) for item in range(2)
        ]
        assert len(workspace.stored(factory, dataset)) == 3

    def test_an_entry_known_by_its_id_keeps_its_number(self, workspace: AccessWorkspace) -> None:
        EVENT.store_parents(workspace.access, workspace.dataset)
        parent = NOTE.ref(workspace.dataset)
        first = workspace.access.append(
            EVENTS, parent, [EVENT.row(workspace.dataset, item, sequence=None) for item in range(3)]
        )
        again = workspace.access.append(
            EVENTS, parent, [EVENT.row(workspace.dataset, item, sequence=None) for item in (1, 3)]
        )
        assert again[0] == first[1]
        assert again[1].model.sequence == 4

    @each_log
    def test_other_content_under_a_stored_key_is_refused_with_the_whole_call(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        parent = parent_of(factory, dataset)
        workspace.access.append(factory.entity, parent, [factory.row(dataset)])
        rows = [factory.row(dataset, 1), factory.changed(dataset), *unnumbered(factory, dataset, [2])]
        with pytest.raises(ConflictError) as refusal:
            workspace.access.append(factory.entity, parent, rows)
        assert refusal.value.key == factory.entity.key_text(factory.key(dataset))
        assert workspace.stored(factory, dataset) == [factory.row(dataset)]

    @each_log
    def test_two_contents_under_one_key_are_refused(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        with pytest.raises(ConflictError):
            workspace.access.append(
                factory.entity, parent_of(factory, dataset), [factory.row(dataset), factory.changed(dataset)]
            )
        assert workspace.stored(factory, dataset) == []

    @each_log
    def test_a_log_needs_its_parent(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        with pytest.raises(NotFoundError) as refusal:
            workspace.access.append(
                factory.entity, parent_of(factory, dataset), unnumbered(factory, dataset, [0])
            )
        assert factory.entity.parent is not None
        assert refusal.value.entity == factory.entity.parent.entity.name
        assert workspace.stored(factory, dataset) == []

    @each_log
    def test_a_foreign_parent_is_as_absent_as_one_that_does_not_exist(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        with pytest.raises(NotFoundError):
            workspace.access.append(
                factory.entity,
                parent_of(factory, workspace.elsewhere),
                unnumbered(factory, workspace.elsewhere, [0]),
            )
        assert workspace.stored(factory, dataset) == []

    @each_log
    def test_an_entry_of_another_parent_is_refused(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        other = Dataset(dataset.owner, f"{workspace.batch}x")
        for place in (dataset, other):
            factory.store_parents(workspace.access, place)
        with pytest.raises(ValidationError, match="has another"):
            workspace.access.append(
                factory.entity, parent_of(factory, dataset), unnumbered(factory, other, [0])
            )
        assert workspace.stored(factory, other) == []

    def test_only_a_log_is_appended_to_and_its_parent_is_named_by_its_key(
        self, workspace: AccessWorkspace
    ) -> None:
        DEVICE.fill(workspace.access, workspace.dataset, 2)
        with pytest.raises(LookupError):
            workspace.access.append(DEVICES, NOTE.ref(workspace.dataset), [DEVICE.row(workspace.dataset)])
        with pytest.raises(LookupError):
            workspace.access.append(PART.entity, DEVICE.ref(workspace.dataset), [PART.row(workspace.dataset)])

    @each_log
    def test_nothing_is_appended_where_nothing_is_given(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        assert workspace.access.append(factory.entity, parent_of(factory, dataset), []) == ()

    @each_log
    @needs_transactions
    def test_rivals_share_the_numbers_of_a_log(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)

        def append(access: Access, number: int) -> list[int]:
            rows = unnumbered(factory, dataset, [2 * number, 2 * number + 1])
            return sequences(access.append(factory.entity, parent_of(factory, dataset), rows))

        results = workspace.race(append, range(RIVALS))
        assert outcomes(results) == {"ok": RIVALS}
        pairs = [result for result in results if isinstance(result, list)]
        assert sorted(pairs) == [[number, number + 1] for number in range(1, 2 * RIVALS, 2)]
        assert sorted(sequences(workspace.stored(factory, dataset))) == list(range(1, 2 * RIVALS + 1))

    @pytest.mark.parametrize("factory", [ENTRY, LINE, EVENT], ids=lambda factory: factory.entity.name)
    def test_logs_of_two_parents_do_not_wait_for_each_other(
        self, workspace: AccessWorkspace, factory: AnySample
    ) -> None:
        datasets = [
            Dataset(workspace.dataset.owner, f"{workspace.batch}{number}") for number in range(RIVALS)
        ]
        for dataset in datasets:
            factory.store_parents(workspace.access, dataset)

        def append(access: Access, dataset: Dataset) -> list[int]:
            rows = unnumbered(factory, dataset, range(2))
            return sequences(access.append(factory.entity, parent_of(factory, dataset), rows))

        assert workspace.race(append, datasets) == [[1, 2]] * RIVALS

    def test_a_log_is_listed_from_a_number_on(self, workspace: AccessWorkspace) -> None:
        for factory, entity in ((ENTRY, ENTRIES), (LINE, LINES)):
            rows = factory.fill(workspace.access, workspace.dataset, 5)
            query = query_of(entity, workspace.dataset, AtLeast("sequence", 3))
            assert list(workspace.access.page(entity, query)) == rows[2:]

"""What writes of the access do: ``insert``, ``put``, ``append``, and those over rows that form no model."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from threading import Event
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from twinstore.access.protocol import UNSET, Ref, UniqueKey, Values
from twinstore.access.query import query_of_key
from twinstore.catalog.conditions import AtLeast, Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT
from twinstore.errors import (
    ConflictError,
    DocumentDecodeError,
    DuplicateError,
    NotFoundError,
    ValidationError,
)
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import parse_timestamp
from twinstore.testing.contracts.access_base import (
    AccessCases,
    AccessWorkspace,
    by_key,
    each_home,
    each_sample,
    needs_transactions,
    query_of,
)
from twinstore.testing.contracts.access_changing import Answer
from twinstore.testing.datasets import (
    COUNTER,
    DEVICE,
    ENTRY,
    EVENT,
    LINE,
    NOTE,
    OWNER_CASES,
    PART,
    PLACE,
    ROW_FACTORIES,
    Dataset,
    OwnerCase,
    RowFactory,
    factory_of,
)
from twinstore.testing.entities import COUNTERS, DEVICES, ENTRIES, EVENTS, LINES, NOTES, PARCELS, PLACES
from twinstore.testing.instants import at
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from twinstore.access.protocol import Access

__all__ = ["AccessAppendContract", "AccessInsertContract", "AccessPutContract", "AccessUnreadableContract"]

CONCURRENCY: Final = 8
REPLACEMENTS: Final = 20
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

    @pytest.mark.parametrize(
        ("factory", "field"), [(NOTE, "id"), (PLACE, "slot"), (PART, "name")], ids=["note", "place", "part"]
    )
    def test_long_keys_that_differ_in_little_belong_to_different_rows(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel], field: str
    ) -> None:
        access, dataset, entity = workspace.access, workspace.dataset, factory.entity
        factory.store_parents(access, dataset)
        keys = [f"{workspace.batch:x<250}{end}" for end in ("b", "a", "A", "\u00e9", "e\u0301")]
        rows = [factory.row(dataset, number, **{field: key}) for number, key in enumerate(keys)]
        if factory is PLACE:
            rows = [PLACE.row(dataset, 0, slot=key) for key in keys]
        for row in rows:
            access.insert(entity, dataset.owner, row)
        assert workspace.stored(factory, dataset) == by_key(entity, rows)
        key = entity.key_of(rows[0].model, rows[0].storage)
        assert access.remove(entity, query_of_key(entity, dataset.owner, key)) == 1
        assert workspace.stored(factory, dataset) == by_key(entity, rows[1:])

    @each_root
    def test_a_key_of_another_tenant_is_taken(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
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

    def test_neither_another_case_nor_an_archived_row_takes_a_unique_value(
        self, workspace: AccessWorkspace
    ) -> None:
        for number, title in ((0, "one title"), (3, "One Title"), (2, "one title")):
            row = NOTE.row(workspace.dataset, number, title=title)
            assert workspace.access.insert(NOTES, workspace.dataset.owner, row) == row

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

    def test_of_an_absent_parent_and_a_taken_key_the_parent_is_reported(
        self, workspace: AccessWorkspace
    ) -> None:
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
    def test_of_concurrent_inserts_of_one_key_exactly_one_wins(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        factory.store_parents(workspace.access, workspace.dataset)

        def insert(access: Access, number: int) -> Row[CanonicalModel]:
            row = factory.row(workspace.dataset) if number % 2 else factory.changed(workspace.dataset)
            return access.insert(factory.entity, workspace.dataset.owner, row)

        results = workspace.race(insert, range(CONCURRENCY))
        assert outcomes(results) == {"DuplicateError": CONCURRENCY - 1, "ok": 1}
        assert workspace.get(factory, workspace.dataset) in results

    def test_of_concurrent_inserts_of_one_unique_value_exactly_one_wins(
        self, workspace: AccessWorkspace
    ) -> None:
        def insert(access: Access, number: int) -> object:
            row = NOTE.row(workspace.dataset, 3 * number, title="one title")
            return access.insert(NOTES, workspace.dataset.owner, row)

        results = workspace.race(insert, range(CONCURRENCY))
        assert outcomes(results) == {"DuplicateError": CONCURRENCY - 1, "ok": 1}
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
    def test_a_row_of_another_tenant_is_not_replaced(
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
    def test_concurrent_puts_of_one_row_all_succeed(
        self, workspace: AccessWorkspace, factory: RowFactory[CanonicalModel]
    ) -> None:
        rows = [factory.row(workspace.dataset), factory.changed(workspace.dataset)]

        def put(access: Access, number: int) -> Row[CanonicalModel]:
            return access.put(factory.entity, workspace.dataset.owner, rows[number % 2])

        assert outcomes(workspace.race(put, range(CONCURRENCY))) == {"ok": CONCURRENCY}
        assert workspace.get(factory, workspace.dataset) in rows

    def test_a_row_is_always_there_while_it_is_replaced(self, workspace: AccessWorkspace) -> None:
        rows, ended = [PLACE.row(workspace.dataset), PLACE.changed(workspace.dataset)], Event()
        workspace.access.insert(PLACES, workspace.dataset.owner, rows[0])

        def replace_often(access: Access) -> list[bool]:
            for number in count():
                if ended.is_set():
                    return []
                access.put(PLACES, workspace.dataset.owner, rows[number % 2])
            return []

        def look_often(access: Access) -> list[bool]:
            key, seen = PLACE.key(workspace.dataset), list[bool]()
            try:
                for _ in range(REPLACEMENTS):
                    seen += [row in rows for row in access.find(PLACES, workspace.dataset.owner, [key])]
            finally:
                ended.set()
            return seen

        def act(access: Access, action: Callable[[Access], list[bool]]) -> set[bool]:
            return set(action(access))

        assert workspace.race(act, [replace_often, look_often]) == [set(), {True}]


AnySample = RowFactory[CanonicalModel]

APPENDING_CONCURRENCY: Final = 6
LOGS: Final = [owner_case for owner_case in OWNER_CASES if owner_case.factory.entity.sequence is not None]
each_owned_log = pytest.mark.parametrize("owner_case", LOGS, ids=str)


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

    @each_owned_log
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

    def test_a_number_taken_by_an_invisible_row_is_reported_for_the_entry(
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

    @each_owned_log
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

    @each_owned_log
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

    @each_owned_log
    def test_a_number_of_the_same_call_is_not_assigned_twice(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        rows = [factory.row(dataset, 0, sequence=1), *unnumbered(factory, dataset, [1])]
        assert sequences(workspace.access.append(factory.entity, parent_of(factory, dataset), rows)) == [1, 2]

    @each_owned_log
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

    @each_owned_log
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

    @each_owned_log
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

    @each_owned_log
    def test_a_log_needs_its_parent(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        with pytest.raises(NotFoundError) as refusal:
            workspace.access.append(
                factory.entity, parent_of(factory, dataset), unnumbered(factory, dataset, [0])
            )
        assert factory.entity.parent is not None
        assert refusal.value.entity == factory.entity.parent.entity.name
        assert workspace.stored(factory, dataset) == []

    @each_owned_log
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

    @each_owned_log
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

    @each_owned_log
    def test_nothing_is_appended_where_nothing_is_given(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)
        assert workspace.access.append(factory.entity, parent_of(factory, dataset), []) == ()

    @each_owned_log
    @needs_transactions
    def test_concurrent_appends_share_the_numbers_of_a_log(
        self, workspace: AccessWorkspace, owner_case: OwnerCase
    ) -> None:
        dataset, factory = workspace.of(owner_case), owner_case.factory
        factory.store_parents(workspace.access, dataset)

        def append(access: Access, number: int) -> list[int]:
            rows = unnumbered(factory, dataset, [2 * number, 2 * number + 1])
            return sequences(access.append(factory.entity, parent_of(factory, dataset), rows))

        results = workspace.race(append, range(APPENDING_CONCURRENCY))
        assert outcomes(results) == {"ok": APPENDING_CONCURRENCY}
        pairs = [result for result in results if isinstance(result, list)]
        assert sorted(pairs) == [[number, number + 1] for number in range(1, 2 * APPENDING_CONCURRENCY, 2)]
        assert sorted(sequences(workspace.stored(factory, dataset))) == list(
            range(1, 2 * APPENDING_CONCURRENCY + 1)
        )

    @pytest.mark.parametrize("factory", [ENTRY, LINE, EVENT], ids=lambda factory: factory.entity.name)
    def test_logs_of_two_parents_do_not_wait_for_each_other(
        self, workspace: AccessWorkspace, factory: AnySample
    ) -> None:
        datasets = [
            Dataset(workspace.dataset.owner, f"{workspace.batch}{number}")
            for number in range(APPENDING_CONCURRENCY)
        ]
        for dataset in datasets:
            factory.store_parents(workspace.access, dataset)

        def append(access: Access, dataset: Dataset) -> list[int]:
            rows = unnumbered(factory, dataset, range(2))
            return sequences(access.append(factory.entity, parent_of(factory, dataset), rows))

        assert workspace.race(append, datasets) == [[1, 2]] * APPENDING_CONCURRENCY

    def test_a_log_is_listed_from_a_number_on(self, workspace: AccessWorkspace) -> None:
        for factory, entity in ((ENTRY, ENTRIES), (LINE, LINES)):
            rows = factory.fill(workspace.access, workspace.dataset, 5)
            query = query_of(entity, workspace.dataset, AtLeast("sequence", 3))
            assert list(workspace.access.page(entity, query)) == rows[2:]


# Rows that form no model are replaced where a ref says so, and amended without being read.

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
    def test_an_unreadable_row_is_replaced_where_the_ref_says_so(
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
    def test_put_replaces_an_unreadable_row(self, workspace: AccessWorkspace, owner_case: OwnerCase) -> None:
        factory, dataset = owner_case.factory, workspace.of(owner_case)
        factory.fill(workspace.access, dataset, 1)
        poison(workspace, factory, dataset)
        wanted = factory.changed(dataset)
        assert workspace.access.put(factory.entity, dataset.owner, wanted) == wanted
        assert workspace.get(factory, dataset) == wanted

    @each_layout
    def test_a_list_over_all_tenants_names_an_unreadable_row(
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
    def test_an_unreadable_foreign_row_stays_as_it_is(
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
    def test_fields_of_an_unreadable_row_are_set(
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

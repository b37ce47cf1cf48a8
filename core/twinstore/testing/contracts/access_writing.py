"""What writes of single rows do: ``insert`` and ``put``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access import Row
from twinstore.errors import DuplicateError, NotFoundError, ValidationError
from twinstore.query import Equals
from twinstore.tenancy import ALL_TENANTS, NO_TENANT
from twinstore.testing.bench import outcomes
from twinstore.testing.contracts.access_base import AccessBench, AccessCases, each_home, each_sample
from twinstore.testing.entities import COUNTERS, DEVICES, NOTES, PLACES
from twinstore.testing.rooms import COUNTER, DEVICE, HOMES, NOTE, PLACE, SAMPLES, Home, Room, Sample

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.canonical import CanonicalModel

__all__ = ["AccessInsertContract", "AccessPutContract"]

RIVALS: Final = 8
ORPHANS: Final = [home for home in HOMES if home.sample.entity.parent is not None]
ROOTS: Final = [
    home for home in HOMES if home.sample.entity.parent is None and home.sample.entity is not COUNTERS
]
MUTABLE: Final = [home for home in HOMES if not home.sample.entity.append_only]
each_orphan = pytest.mark.parametrize("home", ORPHANS, ids=str)
each_root = pytest.mark.parametrize("home", ROOTS, ids=str)
each_mutable = pytest.mark.parametrize("home", MUTABLE, ids=str)
each_log = pytest.mark.parametrize(
    "sample",
    [sample for sample in SAMPLES if sample.entity.append_only],
    ids=lambda sample: sample.entity.name,
)


class AccessInsertContract(AccessCases):
    """``insert``."""

    @each_home
    def test_an_inserted_row_is_returned_and_stored(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        row = sample.row(room, 1)
        assert bench.access.insert(sample.entity, room.owner, row) == row
        assert bench.get(sample, room, 1) == row

    @each_home
    def test_a_key_is_inserted_once(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        for again in (row, sample.changed(room)):
            with pytest.raises(DuplicateError) as refusal:
                bench.access.insert(sample.entity, room.owner, again)
            assert refusal.value.entity == sample.entity.name
            assert refusal.value.key == sample.entity.key_text(sample.key(room))
        assert bench.get(sample, room) == row

    @each_root
    def test_a_key_of_somebody_else_is_taken(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        with pytest.raises(DuplicateError):
            bench.access.insert(sample.entity, bench.elsewhere.owner, sample.row(bench.elsewhere))
        assert bench.get(sample, room) == row
        assert bench.get(sample, bench.elsewhere) is None

    def test_a_unique_value_is_taken_while_a_row_holds_it(self, bench: AccessBench) -> None:
        room = bench.room
        (held,) = NOTE.fill(bench.access, room, 1)
        with pytest.raises(DuplicateError, match=f"note title '{held.model.title}' is taken") as refusal:
            bench.access.insert(NOTES, room.owner, NOTE.row(room, 1, title=held.model.title))
        assert refusal.value.key == room.text(1)
        bench.access.put(NOTES, room.owner, Row(held.model, {"archivedAt": held.model.due_at or bench.now()}))
        bench.access.insert(NOTES, room.owner, NOTE.row(room, 1, title=held.model.title))
        assert bench.get(NOTE, room, 1) is not None

    def test_a_unique_value_of_a_tenant_is_free_for_another_one(self, bench: AccessBench) -> None:
        for room in (bench.room, Room(bench.elsewhere.owner, f"{bench.batch}x")):
            row = NOTE.row(room, 0, title="one title", batch=bench.batch)
            assert bench.access.insert(NOTES, room.owner, row) == row

    def test_a_unique_value_without_tenant_is_taken_by_anybody(self, bench: AccessBench) -> None:
        room = Room(NO_TENANT, f"{bench.batch}x")
        (held,) = (DEVICE.row(bench.room, 1),)
        bench.access.insert(DEVICES, bench.room.owner, held)
        with pytest.raises(DuplicateError, match="device serial"):
            bench.access.insert(DEVICES, room.owner, DEVICE.row(room, 3, serial=held.model.serial))
        bench.access.insert(DEVICES, room.owner, DEVICE.row(room, 3, serial=None))
        bench.access.insert(DEVICES, room.owner, DEVICE.row(room, 5, serial=None))

    @each_orphan
    def test_a_row_without_its_parent_is_refused(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        for write in (bench.access.insert, bench.access.put):
            with pytest.raises(NotFoundError):
                write(sample.entity, room.owner, sample.row(room))
        assert bench.stored(sample, room) == []

    @each_orphan
    def test_a_row_of_a_foreign_parent_is_refused(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        for write in (bench.access.insert, bench.access.put):
            with pytest.raises(NotFoundError):
                write(sample.entity, bench.elsewhere.owner, sample.row(bench.elsewhere))
        assert bench.stored(sample, room) == []

    @each_root
    def test_a_row_of_another_owner_is_refused(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        for write in (bench.access.insert, bench.access.put):
            with pytest.raises(ValidationError, match="another tenant"):
                write(sample.entity, bench.elsewhere.owner, sample.row(room))
        assert bench.get(sample, room) is None
        assert bench.access.insert(sample.entity, ALL_TENANTS, sample.row(room)) == sample.row(room)

    def test_a_row_of_another_entity_is_refused(self, bench: AccessBench) -> None:
        for write in (bench.access.insert, bench.access.put):
            with pytest.raises(ValidationError, match="is a Note, not a Place"):
                write(PLACES, bench.room.owner, NOTE.row(bench.room))

    @each_sample
    def test_of_rivals_inserting_one_key_exactly_one_wins(
        self, bench: AccessBench, sample: Sample[CanonicalModel]
    ) -> None:
        sample.furnish(bench.access, bench.room)

        def insert(access: Access, number: int) -> Row[CanonicalModel]:
            row = sample.row(bench.room) if number % 2 else sample.changed(bench.room)
            return access.insert(sample.entity, bench.room.owner, row)

        results = bench.race(insert, range(RIVALS))
        assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
        assert bench.get(sample, bench.room) in results

    def test_of_rivals_inserting_one_unique_value_exactly_one_wins(self, bench: AccessBench) -> None:
        def insert(access: Access, number: int) -> object:
            row = NOTE.row(bench.room, 3 * number, title="one title")
            return access.insert(NOTES, bench.room.owner, row)

        results = bench.race(insert, range(RIVALS))
        assert outcomes(results) == {"DuplicateError": RIVALS - 1, "ok": 1}
        assert len(bench.stored(NOTE, bench.room, Equals("title", "one title"))) == 1


class AccessPutContract(AccessCases):
    """``put``."""

    @each_home
    def test_a_row_is_inserted_where_there_is_none(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        row = sample.row(room, 1)
        assert bench.access.put(sample.entity, room.owner, row) == row
        assert bench.get(sample, room, 1) == row

    @each_mutable
    def test_a_stored_row_is_replaced_with_its_markers(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        rows = sample.fill(bench.access, room, 4)
        for number, row in enumerate(rows):
            changed = Row(sample.changed(room, number).model, sample.row(room, number + 1).storage)
            assert changed != row
            assert bench.access.put(sample.entity, room.owner, changed) == changed
            assert bench.get(sample, room, number) == changed
        assert len(bench.stored(sample, room)) == len(rows)

    @each_home
    def test_an_equal_row_is_not_written_again(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        key = sample.key(room)
        before = bench.deployment.probe.stamp(sample.entity, key)
        assert bench.access.put(sample.entity, room.owner, row) == row
        assert bench.deployment.probe.stamp(sample.entity, key) == before

    @each_log
    def test_a_row_that_never_changes_is_not_replaced(
        self, bench: AccessBench, sample: Sample[CanonicalModel]
    ) -> None:
        (row,) = sample.fill(bench.access, bench.room, 1)
        with pytest.raises(DuplicateError):
            bench.access.put(sample.entity, bench.room.owner, sample.changed(bench.room))
        assert bench.get(sample, bench.room) == row

    @each_root
    def test_a_row_of_somebody_else_is_not_replaced(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        with pytest.raises(DuplicateError):
            bench.access.put(sample.entity, bench.elsewhere.owner, sample.row(bench.elsewhere))
        assert bench.get(sample, room) == row
        assert bench.get(sample, bench.elsewhere) is None

    def test_a_unique_value_of_another_row_is_taken(self, bench: AccessBench) -> None:
        first, second = NOTE.fill(bench.access, bench.room, 2)
        taken = NOTE.row(bench.room, 1, title=first.model.title)
        with pytest.raises(DuplicateError, match="note title"):
            bench.access.put(NOTES, bench.room.owner, taken)
        assert bench.stored(NOTE, bench.room, Equals("id", second.model.id)) == [second]

    def test_unique_values_are_given_back(self, bench: AccessBench) -> None:
        first, _ = NOTE.fill(bench.access, bench.room, 2)
        title = first.model.title
        bench.access.put(NOTES, bench.room.owner, NOTE.row(bench.room, 0, title="free now"))
        bench.access.put(NOTES, bench.room.owner, NOTE.row(bench.room, 1, title=title))
        with pytest.raises(DuplicateError):
            bench.access.put(NOTES, bench.room.owner, NOTE.row(bench.room, 0, title=title))

    def test_a_derived_field_follows_the_row(self, bench: AccessBench) -> None:
        DEVICE.fill(bench.access, bench.room, 3)
        changed = DEVICE.row(bench.room, 0, spots=DEVICE.row(bench.room, 2).model.spots)
        bench.access.put(DEVICES, bench.room.owner, changed)
        assert changed in bench.stored(DEVICE, bench.room, Equals("spotCount", 2))
        assert bench.stored(DEVICE, bench.room, Equals("spotCount", 0)) == []

    @pytest.mark.parametrize("sample", [PLACE, COUNTER, DEVICE], ids=lambda sample: sample.entity.name)
    def test_rivals_putting_one_row_all_succeed(
        self, bench: AccessBench, sample: Sample[CanonicalModel]
    ) -> None:
        rows = [sample.row(bench.room), sample.changed(bench.room)]

        def put(access: Access, number: int) -> Row[CanonicalModel]:
            return access.put(sample.entity, bench.room.owner, rows[number % 2])

        assert outcomes(bench.race(put, range(RIVALS))) == {"ok": RIVALS}
        assert bench.get(sample, bench.room) in rows

"""What happens to the first rows of a list: ``mark`` and ``remove``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access import UNSET, Add, Row, ServerTime, Sets
from twinstore.catalog import Entity
from twinstore.paging import SortKey
from twinstore.query import AtLeast, Equals, IsNull, IsPresent, OneOf, expired_query, query_of_key
from twinstore.tenancy import ALL_TENANTS, NO_TENANT
from twinstore.testing.bench import outcomes
from twinstore.testing.builders import at
from twinstore.testing.contracts.access_base import AccessBench, AccessCases, by_key, query_of
from twinstore.testing.entities import (
    COUNTERS,
    DEVICES,
    ENTRIES,
    EVENTS,
    LINES,
    NOTES,
    PARTS,
    Device,
    Level,
    Note,
)
from twinstore.testing.rooms import (
    COUNTER,
    DEVICE,
    ENTRY,
    EVENT,
    HOMES,
    LINE,
    NOTE,
    PART,
    PLACE,
    Home,
    Room,
    Sample,
)

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.canonical import CanonicalModel
    from twinstore.query import Query

__all__ = ["AccessMarkContract", "AccessRemoveContract"]

MANY: Final = 12
RIVALS: Final = 4
LATER: Final = timedelta(minutes=5)
REMOVABLE: Final = [home for home in HOMES if not home.sample.entity.append_only]
OWNED: Final = [home for home in REMOVABLE if home.sample is not COUNTER]
each_owned = pytest.mark.parametrize("home", OWNED, ids=str)
each_removable = pytest.mark.parametrize("home", REMOVABLE, ids=str)
# Entities whose rows somebody may hold, in both layouts, and where such rows are.
HELD: Final = [
    pytest.param(NOTE, "room", id="columns"),
    pytest.param(DEVICE, "room", id="document"),
    pytest.param(DEVICE, "nobody", id="document without tenant"),
    pytest.param(COUNTER, "room", id="number as key"),
]
each_held = pytest.mark.parametrize(("sample", "where"), HELD)


def free(entity: Entity, room: Room, limit: int) -> Query:
    """Return the first rows that nobody holds, the highest amount or rank first."""
    amount = "amount" if entity is COUNTERS else "rank"
    order = (
        SortKey(amount, descending=True, number=True),
        *(SortKey(part.field, number=part.type.is_number) for part in entity.key_parts),
    )
    return query_of(entity, room, IsNull("holder"), order=order, limit=limit)


class AccessMarkContract(AccessCases):
    """``mark``."""

    @each_held
    def test_the_first_rows_of_a_list_are_marked_and_returned_in_its_order(
        self, bench: AccessBench, sample: Sample[CanonicalModel], where: str
    ) -> None:
        room: Room = getattr(bench, where)
        entity, rows = sample.entity, sample.fill(bench.access, room, MANY)
        first = list(bench.access.page(entity, free(entity, room, 3)))
        expected = [Row(row.model.evolve(holder="me"), row.storage) for row in first]
        assert list(bench.access.mark(entity, free(entity, room, 3), {"holder": "me"})) == expected
        others = [row for row in rows if row not in first]
        assert bench.stored(sample, room) == by_key(entity, [*expected, *others])

    @pytest.mark.parametrize(("sample", "where"), HELD[:3])
    def test_values_are_set_added_to_and_taken_away(
        self, bench: AccessBench, sample: Sample[CanonicalModel], where: str
    ) -> None:
        room: Room = getattr(bench, where)
        rows = sample.fill(bench.access, room, MANY)
        sets: Sets = {
            "holder": "me",
            "attempts": Add(2),
            "rank": -7,
            "urgent": True,
            "level": "high",
            "dueAt": at(9),
        }
        marked = bench.access.mark(sample.entity, query_of(sample.entity, room), sets)
        expected = [
            Row(
                row.model.evolve(
                    holder="me",
                    attempts=attempts_of(row) + 2,
                    rank=-7,
                    urgent=True,
                    level="high",
                    due_at=at(9),
                ),
                row.storage,
            )
            for row in by_key(sample.entity, rows)
        ]
        assert list(marked) == expected
        assert bench.stored(sample, room) == expected
        unset = bench.access.mark(
            sample.entity,
            query_of(sample.entity, room),
            {"holder": UNSET, "dueAt": UNSET, "attempts": Add(-2)},
        )
        expected = [
            Row(row.model.evolve(holder=None, due_at=None, attempts=attempts_of(row) - 2), row.storage)
            for row in expected
        ]
        assert list(unset) == expected
        assert bench.stored(sample, room, IsNull("holder"), IsNull("dueAt"), Equals("rank", -7)) == expected

    def test_values_are_set_in_columns_that_documents_do_not_repeat(self, bench: AccessBench) -> None:
        rows = DEVICE.fill(bench.access, bench.room, 4)
        marked = bench.access.mark(DEVICES, query_of(DEVICES, bench.room), {"level": "low", "rank": Add(0)})
        expected = [Row(row.model.evolve(level="low"), row.storage) for row in by_key(DEVICES, rows)]
        assert list(marked) == expected
        digests = [DEVICES.value(row.model, row.storage, "contentDigest") for row in expected]
        found = bench.stored(DEVICE, bench.room, OneOf("contentDigest", tuple(map(str, digests))))
        assert found == expected

    @each_held
    def test_the_time_that_is_set_is_that_of_the_server(
        self, bench: AccessBench, sample: Sample[CanonicalModel], where: str
    ) -> None:
        room: Room = getattr(bench, where)
        sample.fill(bench.access, room, 3)
        field, name = ("checkedAt", "checked_at") if sample is COUNTER else ("dueAt", "due_at")
        before = bench.now()
        marked = bench.access.mark(sample.entity, query_of(sample.entity, room), {field: ServerTime(LATER)})
        after = bench.now()
        instants = [getattr(row.model, name) - LATER for row in marked]
        assert len(instants) == 3
        assert all(before <= instant <= after for instant in instants)
        assert list(marked) == bench.stored(sample, room)

    def test_nothing_is_marked_where_nothing_matches(self, bench: AccessBench) -> None:
        rows = NOTE.fill(bench.access, bench.room, 3)
        for nothing in (Equals("title", "no such title"), OneOf("level", ())):
            assert bench.access.mark(NOTES, query_of(NOTES, bench.room, nothing), {"holder": "me"}) == ()
        assert (
            bench.access.mark(NOTES, query_of(NOTES, bench.room, scope=bench.elsewhere.owner), {"rank": 1})
            == ()
        )
        assert bench.stored(NOTE, bench.room) == by_key(NOTES, rows)

    def test_system_scope_marks_the_rows_of_everybody(self, bench: AccessBench) -> None:
        rooms = [
            Room(room.owner, f"{bench.batch}{number}")
            for number, room in enumerate((bench.room, bench.elsewhere, bench.nobody))
        ]
        for number, room in enumerate(rooms):
            bench.access.insert(DEVICES, room.owner, DEVICE.row(room, number, batch=bench.batch))
        query = query_of(DEVICES, bench.room, scope=ALL_TENANTS)
        marked = bench.access.mark(DEVICES, query, {"holder": "me"})
        assert sorted(str(device_of(row).tenant_id) for row in marked) == sorted(
            str(room.tenant_id) for room in rooms
        )

    def test_a_unique_value_follows_the_mark(self, bench: AccessBench) -> None:
        DEVICE.fill(bench.access, bench.room, 2)
        first, second = (DEVICE.row(bench.room, number) for number in range(2))
        query = query_of(DEVICES, bench.room, IsPresent("serial"))
        bench.access.mark(DEVICES, query, {"serial": UNSET})
        taken = Row(first.model.evolve(serial=second.model.serial), first.storage)
        assert bench.access.put(DEVICES, bench.room.owner, taken) == taken

    @each_held
    def test_no_row_is_marked_for_two(
        self, bench: AccessBench, sample: Sample[CanonicalModel], where: str
    ) -> None:
        room: Room = getattr(bench, where)
        for number in range(MANY):
            row = sample.row(room, number, holder=None)
            bench.access.insert(sample.entity, room.owner, row)

        def claim(access: Access, number: int) -> list[Row[CanonicalModel]]:
            """Claim rows until none is left; who passes over what others claim asks again."""
            claimed: list[Row[CanonicalModel]] = []
            while len(access.page(sample.entity, free(sample.entity, room, 1))):
                claimed += access.mark(sample.entity, free(sample.entity, room, 3), {"holder": f"w{number}"})
            return claimed

        results = bench.race(claim, range(RIVALS))
        assert outcomes(results) == {"ok": RIVALS}
        claimed = [row for result in results if isinstance(result, list) for row in result]
        assert by_key(sample.entity, claimed) == bench.stored(sample, room)
        assert len(claimed) == MANY

    def test_rivals_lose_no_addition(self, bench: AccessBench) -> None:
        bench.access.insert(COUNTERS, NO_TENANT, COUNTER.row(bench.room, 0, amount=0))

        def add(access: Access, number: int) -> int:
            query = query_of(COUNTERS, bench.room)
            return sum(len(access.mark(COUNTERS, query, {"amount": Add(1)})) for _ in range(number))

        results = bench.race(add, [5] * RIVALS)
        assert outcomes(results) == {"ok": RIVALS}
        (row,) = bench.stored(COUNTER, bench.room)
        assert row.model.amount == sum(result for result in results if isinstance(result, int))


def attempts_of(row: Row[CanonicalModel]) -> int:
    """Return the attempts of a note or device."""
    assert isinstance(row.model, Note | Device)
    return row.model.attempts


def device_of(row: Row[Device]) -> Device:
    """Return the device of a row."""
    return row.model


def is_due(note: Note) -> bool:
    """Whether retention removes a note that was closed eight seconds ago or earlier."""
    return note.closed_at is not None and note.closed_at <= at(8) and note.level is not Level.HIGH


class AccessRemoveContract(AccessCases):
    """``remove``."""

    @each_removable
    def test_a_row_is_removed_by_its_key_once(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        rows = sample.fill(bench.access, room, 3)
        query = query_of_key(sample.entity, room.owner, sample.key(room, 1))
        assert bench.access.remove(sample.entity, query) == 1
        assert bench.access.remove(sample.entity, query) == 0
        assert bench.stored(sample, room) == by_key(sample.entity, [rows[0], rows[2]])

    @each_owned
    def test_a_foreign_row_is_not_removed(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        rows = sample.fill(bench.access, room, 1)
        for stranger in bench.strangers(home):
            query = query_of_key(sample.entity, stranger.owner, sample.key(room))
            assert bench.access.remove(sample.entity, query) == 0
        assert bench.stored(sample, room) == rows
        query = query_of_key(sample.entity, ALL_TENANTS, sample.key(room))
        assert bench.access.remove(sample.entity, query) == 1

    @pytest.mark.parametrize("sample", [NOTE, PLACE, DEVICE, COUNTER], ids=lambda sample: sample.entity.name)
    def test_the_first_rows_of_a_list_are_removed(
        self, bench: AccessBench, sample: Sample[CanonicalModel]
    ) -> None:
        rows = by_key(sample.entity, sample.fill(bench.access, bench.room, 7))
        query = query_of(sample.entity, bench.room, limit=3)
        assert bench.access.remove(sample.entity, query) == 3
        assert bench.stored(sample, bench.room) == rows[3:]
        assert [bench.access.remove(sample.entity, query) for _ in range(3)] == [3, 1, 0]

    def test_nothing_is_removed_where_nothing_matches(self, bench: AccessBench) -> None:
        rows = NOTE.fill(bench.access, bench.room, 3)
        for nothing in (Equals("title", "no such title"), OneOf("level", ())):
            assert bench.access.remove(NOTES, query_of(NOTES, bench.room, nothing)) == 0
        assert bench.stored(NOTE, bench.room) == by_key(NOTES, rows)

    def test_children_go_with_their_parent_and_are_not_counted(self, bench: AccessBench) -> None:
        kept, gone = Room(bench.room.owner, f"{bench.batch}x"), bench.nobody
        for room in (kept, gone):
            for sample in (PART, ENTRY):
                sample.fill(bench.access, room, 3)
        assert bench.access.remove(DEVICES, query_of_key(DEVICES, gone.owner, DEVICE.key(gone))) == 1
        # In system scope, because nobody else would see a child without its parent.
        for entity in (PARTS, ENTRIES):
            assert len(bench.access.page(entity, query_of(entity, gone, scope=ALL_TENANTS))) == 0
            assert len(bench.access.page(entity, query_of(entity, kept))) == 3

    def test_logs_go_with_their_parent(self, bench: AccessBench) -> None:
        NOTE.fill(bench.access, bench.room, 2)
        for sample in (LINE, EVENT):
            for number in range(3):
                bench.access.insert(sample.entity, bench.room.owner, sample.row(bench.room, number))
        assert bench.access.remove(NOTES, query_of_key(NOTES, bench.room.owner, NOTE.key(bench.room))) == 1
        for entity in (LINES, EVENTS):
            assert len(bench.access.page(entity, query_of(entity, bench.room, scope=ALL_TENANTS))) == 0
        assert bench.stored(NOTE, bench.room) == [NOTE.row(bench.room, 1)]

    def test_retention_removes_the_oldest_finished_rows_first(self, bench: AccessBench) -> None:
        rows = NOTE.fill(bench.access, bench.room, MANY)
        due = [row for row in rows if is_due(row.model)]
        query = expired_query(NOTES, bench.room.owner, at(8), 2)
        assert bench.access.remove(NOTES, query) == 2
        oldest = sorted(due, key=lambda row: str(row.model.closed_at))[:2]
        assert bench.stored(NOTE, bench.room) == by_key(NOTES, [row for row in rows if row not in oldest])
        assert bench.access.remove(NOTES, expired_query(NOTES, bench.room.owner, at(8), 100)) == len(due) - 2
        assert bench.access.remove(NOTES, query) == 0
        assert len(bench.stored(NOTE, bench.room)) == MANY - len(due)

    def test_removed_keys_and_unique_values_are_free(self, bench: AccessBench) -> None:
        (row,) = NOTE.fill(bench.access, bench.room, 1)
        bench.access.remove(NOTES, query_of_key(NOTES, bench.room.owner, NOTE.key(bench.room)))
        again = NOTE.row(bench.room, 1, title=row.model.title)
        assert bench.access.insert(NOTES, bench.room.owner, again) == again
        other = NOTE.row(bench.elsewhere)
        assert bench.access.insert(NOTES, bench.elsewhere.owner, other) == other

    def test_rivals_remove_each_row_once(self, bench: AccessBench) -> None:
        COUNTER.fill(bench.access, bench.room, MANY)

        def remove(access: Access, _: int) -> int:
            removed = 0
            while len(access.page(COUNTERS, query_of(COUNTERS, bench.room, limit=1))):
                removed += access.remove(COUNTERS, query_of(COUNTERS, bench.room, limit=2))
            return removed

        results = bench.race(remove, range(RIVALS))
        assert outcomes(results) == {"ok": RIVALS}
        assert sum(result for result in results if isinstance(result, int)) == MANY

    def test_conditions_hold_when_a_row_is_removed(self, bench: AccessBench) -> None:
        rows = COUNTER.fill(bench.access, bench.room, MANY)
        high = [row for row in rows if row.model.amount >= 1]
        assert bench.access.remove(COUNTERS, query_of(COUNTERS, bench.room, AtLeast("amount", 1))) == len(
            high
        )
        assert bench.stored(COUNTER, bench.room) == by_key(COUNTERS, [row for row in rows if row not in high])

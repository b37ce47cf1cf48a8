"""What an ordered log promises: ``append``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access import Ref, Row
from twinstore.canonical import CanonicalModel
from twinstore.errors import ConflictError, NotFoundError, ValidationError
from twinstore.query import AtLeast
from twinstore.testing.bench import outcomes
from twinstore.testing.contracts.access_base import (
    AccessBench,
    AccessCases,
    by_key,
    needs_transactions,
    query_of,
)
from twinstore.testing.entities import DEVICES, ENTRIES, EVENTS, LINES
from twinstore.testing.rooms import (
    DEVICE,
    ENTRY,
    EVENT,
    HOMES,
    LINE,
    NOTE,
    PART,
    Home,
    Room,
    Sample,
    sample_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.access import Access

__all__ = ["AccessAppendContract"]

AnySample = Sample[CanonicalModel]

RIVALS: Final = 6
LOGS: Final = [home for home in HOMES if home.sample.entity.sequence is not None]
each_log = pytest.mark.parametrize("home", LOGS, ids=str)


def parent_of(sample: AnySample, room: Room, number: int = 0) -> Ref:
    """Return where the parent of a log is."""
    assert sample.entity.parent is not None
    return sample_of(sample.entity.parent.entity).ref(room, number)


def unnumbered(sample: AnySample, room: Room, numbers: Iterable[int]) -> list[Row[CanonicalModel]]:
    """Return log entries whose numbers are still to be assigned."""
    return [sample.row(room, number, sequence=None) for number in numbers]


def sequences(rows: Iterable[Row[CanonicalModel]]) -> list[int]:
    """Return the numbers of log entries."""
    return [getattr(row.model, "sequence", 0) for row in rows]


class AccessAppendContract(AccessCases):
    """``append``."""

    @each_log
    def test_entries_are_numbered_from_one_in_the_order_given(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        first = bench.access.append(sample.entity, parent_of(sample, room), unnumbered(sample, room, [2, 0]))
        second = bench.access.append(sample.entity, parent_of(sample, room), unnumbered(sample, room, [1]))
        assert sequences([*first, *second]) == [1, 2, 3]
        assert [getattr(row.model, "message", "") for row in first] == [
            getattr(sample.row(room, number).model, "message", "") for number in (2, 0)
        ]
        assert bench.stored(sample, room) == by_key(sample.entity, [*first, *second])

    @each_log
    def test_every_parent_has_numbers_of_its_own(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        other = Room(room.owner, f"{bench.batch}x")
        for place in (room, other):
            sample.furnish(bench.access, place)
            rows = unnumbered(sample, place, range(2))
            assert sequences(bench.access.append(sample.entity, parent_of(sample, place), rows)) == [1, 2]

    @each_log
    def test_own_numbers_are_kept_and_the_next_one_follows_the_highest(
        self, bench: AccessBench, home: Home
    ) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        rows = [
            *unnumbered(sample, room, [0]),
            sample.row(room, 1, sequence=7),
            *unnumbered(sample, room, [2]),
            sample.row(room, 3, sequence=3),
            *unnumbered(sample, room, [4]),
        ]
        parent = parent_of(sample, room)
        assert sequences(bench.access.append(sample.entity, parent, rows)) == [1, 7, 8, 3, 9]
        more = unnumbered(sample, room, [5])
        assert sequences(bench.access.append(sample.entity, parent, more)) == [10]

    @each_log
    def test_a_number_of_the_same_call_is_not_assigned_twice(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        rows = [sample.row(room, 0, sequence=1), *unnumbered(sample, room, [1])]
        assert sequences(bench.access.append(sample.entity, parent_of(sample, room), rows)) == [1, 2]

    @each_log
    def test_an_equal_entry_is_returned_and_not_written_again(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        parent, rows = parent_of(sample, room), sample.rows(room, 2)
        bench.access.append(sample.entity, parent, rows)
        stamps = [bench.deployment.probe.stamp(sample.entity, sample.key(room, item)) for item in range(2)]
        again = bench.access.append(sample.entity, parent, [*rows, sample.row(room, 2), rows[0]])
        assert list(again) == [*rows, sample.row(room, 2), rows[0]]
        assert stamps == [
            bench.deployment.probe.stamp(sample.entity, sample.key(room, item)) for item in range(2)
        ]
        assert len(bench.stored(sample, room)) == 3

    def test_an_entry_known_by_its_id_keeps_its_number(self, bench: AccessBench) -> None:
        EVENT.furnish(bench.access, bench.room)
        parent = NOTE.ref(bench.room)
        first = bench.access.append(
            EVENTS, parent, [EVENT.row(bench.room, item, sequence=None) for item in range(3)]
        )
        again = bench.access.append(
            EVENTS, parent, [EVENT.row(bench.room, item, sequence=None) for item in (1, 3)]
        )
        assert again[0] == first[1]
        assert again[1].model.sequence == 4

    @each_log
    def test_other_content_under_a_stored_key_is_refused_with_the_whole_call(
        self, bench: AccessBench, home: Home
    ) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        parent = parent_of(sample, room)
        bench.access.append(sample.entity, parent, [sample.row(room)])
        rows = [sample.row(room, 1), sample.changed(room), *unnumbered(sample, room, [2])]
        with pytest.raises(ConflictError) as refusal:
            bench.access.append(sample.entity, parent, rows)
        assert refusal.value.key == sample.entity.key_text(sample.key(room))
        assert bench.stored(sample, room) == [sample.row(room)]

    @each_log
    def test_two_contents_under_one_key_are_refused(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        with pytest.raises(ConflictError):
            bench.access.append(
                sample.entity, parent_of(sample, room), [sample.row(room), sample.changed(room)]
            )
        assert bench.stored(sample, room) == []

    @each_log
    def test_a_log_needs_its_parent(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        with pytest.raises(NotFoundError) as refusal:
            bench.access.append(sample.entity, parent_of(sample, room), unnumbered(sample, room, [0]))
        assert sample.entity.parent is not None
        assert refusal.value.entity == sample.entity.parent.entity.name
        assert bench.stored(sample, room) == []

    @each_log
    def test_a_foreign_parent_is_as_absent_as_one_that_does_not_exist(
        self, bench: AccessBench, home: Home
    ) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        with pytest.raises(NotFoundError):
            bench.access.append(
                sample.entity,
                parent_of(sample, bench.elsewhere),
                unnumbered(sample, bench.elsewhere, [0]),
            )
        assert bench.stored(sample, room) == []

    @each_log
    def test_an_entry_of_another_parent_is_refused(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        other = Room(room.owner, f"{bench.batch}x")
        for place in (room, other):
            sample.furnish(bench.access, place)
        with pytest.raises(ValidationError, match="has another"):
            bench.access.append(sample.entity, parent_of(sample, room), unnumbered(sample, other, [0]))
        assert bench.stored(sample, other) == []

    def test_only_a_log_is_appended_to_and_its_parent_is_named_by_its_key(self, bench: AccessBench) -> None:
        DEVICE.fill(bench.access, bench.room, 2)
        with pytest.raises(LookupError):
            bench.access.append(DEVICES, NOTE.ref(bench.room), [DEVICE.row(bench.room)])
        with pytest.raises(LookupError):
            bench.access.append(PART.entity, DEVICE.ref(bench.room), [PART.row(bench.room)])

    @each_log
    def test_nothing_is_appended_where_nothing_is_given(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        assert bench.access.append(sample.entity, parent_of(sample, room), []) == ()

    @each_log
    @needs_transactions
    def test_rivals_share_the_numbers_of_a_log(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)

        def append(access: Access, number: int) -> list[int]:
            rows = unnumbered(sample, room, [2 * number, 2 * number + 1])
            return sequences(access.append(sample.entity, parent_of(sample, room), rows))

        results = bench.race(append, range(RIVALS))
        assert outcomes(results) == {"ok": RIVALS}
        pairs = [result for result in results if isinstance(result, list)]
        assert sorted(pairs) == [[number, number + 1] for number in range(1, 2 * RIVALS, 2)]
        assert sorted(sequences(bench.stored(sample, room))) == list(range(1, 2 * RIVALS + 1))

    @pytest.mark.parametrize("sample", [ENTRY, LINE, EVENT], ids=lambda sample: sample.entity.name)
    def test_logs_of_two_parents_do_not_wait_for_each_other(
        self, bench: AccessBench, sample: AnySample
    ) -> None:
        rooms = [Room(bench.room.owner, f"{bench.batch}{number}") for number in range(RIVALS)]
        for room in rooms:
            sample.furnish(bench.access, room)

        def append(access: Access, room: Room) -> list[int]:
            rows = unnumbered(sample, room, range(2))
            return sequences(access.append(sample.entity, parent_of(sample, room), rows))

        assert bench.race(append, rooms) == [[1, 2]] * RIVALS

    def test_a_log_is_listed_from_a_number_on(self, bench: AccessBench) -> None:
        for sample, entity in ((ENTRY, ENTRIES), (LINE, LINES)):
            rows = sample.fill(bench.access, bench.room, 5)
            query = query_of(entity, bench.room, AtLeast("sequence", 3))
            assert list(bench.access.page(entity, query)) == rows[2:]

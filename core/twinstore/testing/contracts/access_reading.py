"""What reads of the access find: rows by key and by unique value, lists, counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.access import UniqueKey, matches
from twinstore.errors import ValidationError
from twinstore.paging import SortKey
from twinstore.query import (
    After,
    AtLeast,
    AtMost,
    Before,
    Condition,
    Equals,
    IsNull,
    IsPresent,
    OneOf,
    key_order,
)
from twinstore.tenancy import ALL_TENANTS, NO_TENANT
from twinstore.testing.bench import all_pages
from twinstore.testing.builders import at
from twinstore.testing.contracts.access_base import (
    AccessBench,
    AccessCases,
    by_key,
    each_home,
    in_order,
    query_of,
)
from twinstore.testing.entities import COUNTERS, DEVICES, EVENTS, NOTES, Device
from twinstore.testing.rooms import COUNTER, DEVICE, ENTRY, EVENT, HOMES, NOTE, PART, Home, Room, Sample
from twinstore.testing.scalars import EARLIEST, EDGE_TEXTS, LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.canonical import CanonicalModel

__all__ = ["AccessCountContract", "AccessFindContract", "AccessListContract"]

# As many as there are texts at the edges, so that each is a key, a value and a sort value once.
MANY: Final = len(EDGE_TEXTS)
# The defaults of core count by reading lists in parts of 500 rows.
MORE_THAN_A_PART: Final = 502
OWNED: Final = [home for home in HOMES if home.sample is not COUNTER]
each_owned = pytest.mark.parametrize("home", OWNED, ids=str)

NOTE_CONDITIONS: Final[tuple[tuple[Condition, ...], ...]] = (
    (Equals("id", "nobody has it"),),
    (Equals("title", f"{EDGE_TEXTS[7]}7"),),
    (Equals("level", "high"),),
    (Equals("colour", "dark-green"),),
    (Equals("urgent", value=True),),
    (Equals("urgent", value=False),),
    (Equals("rank", 2**53 + 1),),
    (Equals("width", -(2**31)),),
    (Equals("dueAt", at(1.001)),),
    (Equals("dueAt", LATEST),),
    (Equals("archivedBy", "ada"),),
    (Equals("revision", 2**31 - 1),),
    (OneOf("level", ("low", "high")),),
    (OneOf("level", ()),),
    (OneOf("colour", ("red", "no colour")),),
    (OneOf("holder", (EDGE_TEXTS[0], EDGE_TEXTS[4])),),
    (After("rank", 0),),
    (Before("rank", 0),),
    (AtLeast("rank", 2**53 + 1),),
    (AtMost("rank", -(2**31)),),
    (After("dueAt", at(0)),),
    (Before("dueAt", at(0)),),
    (AtLeast("dueAt", at(0)),),
    (AtMost("dueAt", EARLIEST),),
    (AtMost("archivedAt", at(8)),),
    (AtLeast("revision", 0),),
    (IsNull("dueAt"),),
    (IsNull("archivedAt"),),
    (IsNull("colour"),),
    (IsPresent("holder"),),
    (IsPresent("archivedAt"), IsNull("holder"), Equals("urgent", value=True)),
    (AtLeast("attempts", 3), Before("attempts", 9), OneOf("level", ("low", "middle"))),
)
DEVICE_CONDITIONS: Final[tuple[tuple[Condition, ...], ...]] = (
    (Equals("spotCount", 1),),
    (AtLeast("spotCount", 1), IsPresent("serial")),
    (Equals("contentDigest", "nobody has it"),),
    (Equals("level", "middle"),),
    (Equals("urgent", value=True), After("rank", 0)),
    (AtMost("dueAt", at(0)),),
    (IsNull("serial"),),
    (Equals("importedBy", EDGE_TEXTS[5]),),
    (Before("importedAt", at(7)),),
    (IsNull("importedBy"), IsPresent("holder")),
)
NOTE_ORDERS: Final = (
    (SortKey("title"), SortKey("id")),
    (SortKey("title", descending=True), SortKey("id")),
    (SortKey("rank", descending=True, number=True), SortKey("id")),
    (SortKey("rank", number=True), SortKey("id", descending=True)),
    (SortKey("dueAt", time=True, nullable=True), SortKey("id")),
    (SortKey("attempts", number=True), SortKey("dueAt", time=True, nullable=True), SortKey("id")),
    (SortKey("closedAt", descending=True, time=True, nullable=True), SortKey("id")),
)


def shown(parts: Sequence[Condition | SortKey]) -> str:
    """Return conditions or an order as the name of a test."""
    return " ".join(f"{type(part).__name__}-{part.field}" for part in parts)


class AccessFindContract(AccessCases):
    """``find``."""

    @each_home
    def test_rows_are_found_by_their_keys_in_the_order_of_the_keys(
        self, bench: AccessBench, home: Home
    ) -> None:
        room, sample = bench.of(home), home.sample
        rows = sample.fill(bench.access, room, 5)
        wanted = [3, 0, 7, 4, 3]
        found = bench.access.find(sample.entity, room.owner, [sample.key(room, item) for item in wanted])
        assert found == (rows[3], rows[0], None, rows[4], rows[3])

    @each_home
    def test_every_value_comes_back_as_it_was_stored(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        rows = sample.fill(bench.access, room, MANY)
        keys = [sample.key(room, number) for number in range(MANY)]
        assert list(bench.access.find(sample.entity, room.owner, keys)) == rows

    @each_home
    def test_no_keys_find_nothing(self, bench: AccessBench, home: Home) -> None:
        assert bench.access.find(home.sample.entity, bench.of(home).owner, []) == ()

    @each_owned
    def test_a_foreign_row_is_as_absent_as_one_that_does_not_exist(
        self, bench: AccessBench, home: Home
    ) -> None:
        room, sample = bench.of(home), home.sample
        (row,) = sample.fill(bench.access, room, 1)
        for stranger in bench.strangers(home):
            assert bench.access.find(sample.entity, stranger.owner, [sample.key(room)]) == (None,)
        assert bench.access.find(sample.entity, ALL_TENANTS, [sample.key(room)]) == (row,)

    def test_a_row_without_tenancy_is_seen_in_every_scope(self, bench: AccessBench) -> None:
        (row,) = COUNTER.fill(bench.access, bench.room, 1)
        for room in (bench.room, bench.elsewhere, bench.nobody):
            assert bench.get(COUNTER, room) == row

    def test_a_row_is_found_by_a_unique_value(self, bench: AccessBench) -> None:
        rows = DEVICE.fill(bench.access, bench.room, 4)
        serial = DEVICES.unique("serial")
        keys = [
            UniqueKey(serial, (text,))
            for text in (serial_of(rows[3].model), "nobody", serial_of(rows[1].model))
        ]
        assert bench.access.find(DEVICES, bench.room.owner, keys) == (rows[3], None, rows[1])
        assert bench.access.find(DEVICES, bench.nobody.owner, keys) == (None, None, None)
        assert bench.access.find(DEVICES, bench.elsewhere.owner, keys) == (None, None, None)

    def test_a_unique_value_finds_only_the_row_that_holds_it(self, bench: AccessBench) -> None:
        archived, kept = (
            NOTE.row(bench.room, 2, title="one title"),
            NOTE.row(bench.room, 0, title="one title"),
        )
        bench.access.insert(NOTES, bench.room.owner, archived)
        key = UniqueKey(NOTES.unique("tenant_title"), (bench.tenant, bench.batch, "one title"))
        assert bench.access.find(NOTES, bench.room.owner, [key]) == (None,)
        bench.access.insert(NOTES, bench.room.owner, kept)
        assert bench.access.find(NOTES, bench.room.owner, [key]) == (kept,)


def serial_of(device: Device) -> str:
    """Return the serial that a device has."""
    assert device.serial is not None
    return device.serial


class AccessListContract(AccessCases):
    """``page``."""

    @each_home
    @pytest.mark.parametrize("limit", [1, 4, 100])
    def test_all_pages_make_the_whole_list_in_the_order_of_the_key(
        self, bench: AccessBench, home: Home, limit: int
    ) -> None:
        room, entity = bench.of(home), home.sample.entity
        rows = home.sample.fill(bench.access, room, 11)
        found = all_pages(
            lambda token: bench.access.page(entity, query_of(entity, room, limit=limit, token=token))
        )
        assert found == by_key(entity, rows)

    @pytest.mark.parametrize("order", NOTE_ORDERS, ids=shown)
    @pytest.mark.parametrize("limit", [3, 100])
    def test_a_list_has_its_order_over_every_value(
        self, bench: AccessBench, order: tuple[SortKey, ...], limit: int
    ) -> None:
        rows = NOTE.fill(bench.access, bench.room, MANY)
        found = all_pages(
            lambda token: bench.access.page(
                NOTES, query_of(NOTES, bench.room, order=order, limit=limit, token=token)
            )
        )
        assert found == in_order(NOTES, rows, order)

    @pytest.mark.parametrize("limit", [3, 100])
    def test_rows_held_as_documents_have_the_same_order(self, bench: AccessBench, limit: int) -> None:
        order = (
            SortKey("dueAt", time=True, nullable=True),
            SortKey("spotCount", descending=True, number=True),
            SortKey("id"),
        )
        rows = DEVICE.fill(bench.access, bench.nobody, MANY)
        found = all_pages(
            lambda token: bench.access.page(
                DEVICES, query_of(DEVICES, bench.nobody, order=order, limit=limit, token=token)
            )
        )
        assert found == in_order(DEVICES, rows, order)

    @each_home
    def test_nothing_makes_one_empty_page(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        sample.furnish(bench.access, room)
        page = bench.access.page(sample.entity, query_of(sample.entity, room))
        assert (page.items, page.next_page_token) == ((), None)

    @each_owned
    def test_a_list_shows_the_rows_of_its_scope(self, bench: AccessBench, home: Home) -> None:
        room, sample = bench.of(home), home.sample
        rows = by_key(sample.entity, sample.fill(bench.access, room, 3))
        for stranger in bench.strangers(home):
            query = query_of(sample.entity, room, scope=stranger.owner)
            assert list(bench.access.page(sample.entity, query)) == []
        assert (
            list(bench.access.page(sample.entity, query_of(sample.entity, room, scope=ALL_TENANTS))) == rows
        )

    def test_system_scope_lists_the_rows_of_everybody(self, bench: AccessBench) -> None:
        rooms = [
            Room(room.owner, f"{bench.batch}{number}")
            for number, room in enumerate((bench.room, bench.elsewhere, bench.nobody))
        ]
        rows = [DEVICE.row(room, number, batch=bench.batch) for number, room in enumerate(rooms)]
        for room, row in zip(rooms, rows, strict=True):
            bench.access.insert(DEVICES, room.owner, row)
        query = query_of(DEVICES, bench.room, scope=ALL_TENANTS)
        assert list(bench.access.page(DEVICES, query)) == by_key(DEVICES, rows)

    @pytest.mark.parametrize("where", NOTE_CONDITIONS, ids=shown)
    def test_conditions_choose_rows_by_column(self, bench: AccessBench, where: tuple[Condition, ...]) -> None:
        self.choose(bench, NOTE, bench.room, where)

    @pytest.mark.parametrize("where", DEVICE_CONDITIONS, ids=shown)
    def test_conditions_choose_rows_held_as_documents(
        self, bench: AccessBench, where: tuple[Condition, ...]
    ) -> None:
        self.choose(bench, DEVICE, bench.nobody, where)

    def test_a_derived_field_is_that_of_the_stored_row(self, bench: AccessBench) -> None:
        rows = DEVICE.fill(bench.access, bench.room, 5)
        digest = DEVICES.value(rows[3].model, rows[3].storage, "contentDigest")
        assert isinstance(digest, str)
        assert bench.stored(DEVICE, bench.room, Equals("contentDigest", digest)) == [rows[3]]

    def choose(
        self, bench: AccessBench, sample: Sample[CanonicalModel], room: Room, where: tuple[Condition, ...]
    ) -> None:
        """Assert that a list shows exactly the rows of which all conditions hold."""
        query = query_of(sample.entity, room, *where)
        rows = sample.fill(bench.access, room, MANY)
        expected = [row for row in rows if matches(sample.entity, query, row)]
        assert list(bench.access.page(sample.entity, query)) == by_key(sample.entity, expected)

    def test_a_token_of_another_scope_or_filter_is_refused(self, bench: AccessBench) -> None:
        NOTE.fill(bench.access, bench.room, 3)
        token = bench.access.page(NOTES, query_of(NOTES, bench.room, limit=1)).next_page_token
        with pytest.raises(ValidationError):
            query_of(NOTES, bench.elsewhere, limit=1, token=token)
        with pytest.raises(ValidationError):
            query_of(NOTES, bench.room, IsNull("holder"), limit=1, token=token)

    def test_a_list_names_only_fields_that_have_a_column_in_every_layout(self, bench: AccessBench) -> None:
        EVENT.fill(bench.access, bench.room, 2)
        for unserved in (
            query_of(EVENTS, bench.room, Equals("message", "m")),
            query_of(EVENTS, bench.room, order=(SortKey("message"), SortKey("eventId"))),
        ):
            with pytest.raises(ValidationError, match="events has no field 'message'; it has batch"):
                bench.access.page(EVENTS, unserved)
        with pytest.raises(ValidationError, match="no field 'message'"):
            bench.access.count(EVENTS, query_of(EVENTS, bench.room), "message")

    @pytest.mark.parametrize("sample", [PART, ENTRY], ids=lambda sample: sample.entity.name)
    def test_a_list_of_rows_of_a_parent_names_the_parent(
        self, bench: AccessBench, sample: Sample[CanonicalModel]
    ) -> None:
        unpinned = query_of(NOTES, bench.room, order=key_order(sample.entity))
        with pytest.raises(LookupError, match="deviceId"):
            bench.access.page(sample.entity, unpinned)
        with pytest.raises(LookupError, match="deviceId"):
            bench.access.count(sample.entity, unpinned, "batch")


class AccessCountContract(AccessCases):
    """``count``."""

    @pytest.mark.parametrize(
        ("by", "expected"),
        [
            ("level", {"low": 4, "middle": 3, "high": 3}),
            ("colour", {"": 4, "red": 3, "dark-green": 3}),
            ("urgent", {"true": 5, "false": 5}),
            ("holder", {"": 7, EDGE_TEXTS[0]: 1, EDGE_TEXTS[4]: 1, EDGE_TEXTS[8]: 1}),
            ("width", {"0": 2, "1": 2, "-1": 2, "2147483647": 2, "-2147483648": 2}),
            ("archivedBy", {"": 7, "ada": 3}),
        ],
    )
    def test_rows_are_counted_by_the_text_of_a_field(
        self, bench: AccessBench, by: str, expected: dict[str, int]
    ) -> None:
        NOTE.fill(bench.access, bench.room, 10)
        assert bench.access.count(NOTES, query_of(NOTES, bench.room), by) == expected

    def test_rows_held_as_documents_are_counted_alike(self, bench: AccessBench) -> None:
        DEVICE.fill(bench.access, bench.nobody, 10)
        query = query_of(DEVICES, bench.nobody)
        assert bench.access.count(DEVICES, query, "level") == {"low": 4, "middle": 3, "high": 3}
        assert bench.access.count(DEVICES, query, "urgent") == {"true": 5, "false": 5}
        assert bench.access.count(DEVICES, query, "spotCount") == {"0": 4, "1": 3, "2": 3}

    @each_home
    def test_limit_and_order_do_not_matter_and_conditions_do(self, bench: AccessBench, home: Home) -> None:
        room, entity = bench.of(home), home.sample.entity
        home.sample.fill(bench.access, room, 6)
        assert bench.access.count(entity, query_of(entity, room, limit=2), "batch") == {bench.batch: 6}
        nothing = query_of(entity, Room(room.owner, f"{bench.batch}x"))
        assert bench.access.count(entity, nothing, "batch") == {}
        assert bench.access.count(entity, query_of(entity, room, OneOf("batch", ())), "batch") == {}

    @each_owned
    def test_foreign_rows_are_not_counted(self, bench: AccessBench, home: Home) -> None:
        room, entity = bench.of(home), home.sample.entity
        home.sample.fill(bench.access, room, 2)
        for stranger in bench.strangers(home):
            assert bench.access.count(entity, query_of(entity, room, scope=stranger.owner), "batch") == {}
        assert bench.access.count(entity, query_of(entity, room, scope=ALL_TENANTS), "batch") == {
            bench.batch: 2
        }

    def test_all_rows_of_a_long_list_are_counted(self, bench: AccessBench) -> None:
        for number in range(MORE_THAN_A_PART):
            bench.access.insert(COUNTERS, NO_TENANT, COUNTER.row(bench.room, number, holder=str(number % 3)))
        query = query_of(COUNTERS, bench.room)
        assert bench.access.count(COUNTERS, query, "holder") == {"0": 168, "1": 167, "2": 167}

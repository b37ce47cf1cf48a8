"""Orders of lists, and what core gives a document driver if its kit does not say it.

An order says of each field what the description says, or it is refused on every driver.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, cast

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from twinstore.access.guard import check_query
from twinstore.access.paging import SortKey
from twinstore.access.query import Query, expired_query, key_order
from twinstore.catalog.conditions import AtMost, Condition, Equals, IsNull, OneOf
from twinstore.catalog.entity import Entity
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.documents import DocumentRow, DocumentUnit, RowLocks, SqlText, row_of_json
from twinstore.documents.access import hold
from twinstore.documents.rows import has_text_timestamp
from twinstore.errors import ConcurrencyError
from twinstore.ledger.catalog import JOBS, RANGES
from twinstore.models.canonical import CanonicalModel
from twinstore.models.collections import Limit, Ordered, Ranked, Unique
from twinstore.models.enums import NumberedEnum
from twinstore.scheduler import ScheduleQueryOptions, queries
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS, SCHEDULER, SCHEDULES, TRIGGERS
from twinstore.testing.entities import NOTES
from twinstore.testing.instants import at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.catalog.tenancy import Tenants

ROWS = [("a", 1), ("b", None), ("c", 2), ("d", 1), ("e", None)]


def as_it_is(value: object) -> object:
    return value


def query(*where: Equals | OneOf, order: tuple[SortKey, ...], after: tuple[str | int | None, ...]) -> Query:
    return Query(entity="rows", scope=ALL_TENANTS, where=where, order=order, limit=9, after=after)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("position", range(len(ROWS)))
def test_a_list_goes_on_after_any_row_whether_values_are_absent_or_descend(
    position: int, *, descending: bool
) -> None:
    order = (SortKey("number", descending=descending, nullable=True, number=True), SortKey("name"))
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE rows (name, number)")
        connection.executemany("INSERT INTO rows VALUES (?, ?)", ROWS)
        by = SqlText.order(query(order=order, after=()), str)
        everything = connection.execute(f"SELECT number, name FROM rows ORDER BY {by}").fetchall()  # noqa: S608  # a test
        where = SqlText.conditions(query(order=order, after=everything[position]), str, as_it_is)
        found = connection.execute(
            f"SELECT number, name FROM rows WHERE {where.text} ORDER BY {by}",  # noqa: S608  # a test
            where.values,
        ).fetchall()
    assert found == everything[position + 1 :]


def test_values_are_written_out_where_a_statement_takes_none() -> None:
    where = SqlText.joined(
        [SqlText.condition(item, item.field, as_it_is) for item in (Equals("a", "it's"), OneOf("b", ()))],
        " AND ",
    )
    assert where.literal == "a = 'it''s' AND 1 = 0"
    assert SqlText("a = ?", (7,)).literal == "a = 7"


@pytest.mark.parametrize(
    ("spelling", "by_somebody_else"),
    [
        ("2026-01-01T00:00:00+00:00", False),
        ("2026-01-01T00:00:00Z", True),
        ("2026-01-01T00:00:00.500Z", True),
    ],
)
def test_an_instant_in_another_spelling_than_ours_is_reported_as_text(
    spelling: str, *, by_somebody_else: bool
) -> None:
    row = row_of_json(NOTES, f'{{"id": "a", "dueAt": "{spelling}"}}', "{}", "{}")
    assert row.key == ("a",)
    assert has_text_timestamp(row) is by_somebody_else


def test_a_claim_that_is_kept_too_long_is_a_lost_race() -> None:
    locks = RowLocks("Any", timeout=0.01)
    holder, waiting = object(), object()
    claimant = Thread(target=lambda: locks.acquire(holder, "row", isolated=False))
    claimant.start()
    claimant.join()
    with pytest.raises(ConcurrencyError, match="has not ended"):
        locks.acquire(waiting, "row", isolated=False)
    locks.release(holder)
    locks.acquire(waiting, "row", isolated=False)
    locks.acquire(waiting, "row", isolated=True)


def test_a_forked_child_forgets_the_claims_of_its_parent() -> None:
    locks = RowLocks("Any")
    locks.acquire(object(), "row", isolated=True)
    locks.renew()
    locks.acquire(object(), "row", isolated=True)


class OvertakenUnit(DocumentUnit):
    """A unit between whose first and second look another process inserts a row."""

    driver = "Any"

    def __init__(self, row: DocumentRow) -> None:
        super().__init__()
        self._looks: list[list[DocumentRow]] = [[], [row], [row]]

    @override
    def select(self, entity: Entity, query: Query) -> list[DocumentRow]:
        return self._looks.pop(0)

    @override
    def hold(self, entity: Entity, key: Key) -> None:
        """Hold the row against others of this process, which is not where the other one is."""

    @override
    def now(self) -> datetime:
        raise NotImplementedError

    @override
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[DocumentRow]:
        raise NotImplementedError

    @override
    def write(self, row: DocumentRow) -> None:
        raise NotImplementedError

    @override
    def delete(self, entity: Entity, key: Key) -> None:
        raise NotImplementedError

    @override
    def commit(self) -> None:
        raise NotImplementedError

    @override
    def rollback(self) -> None:
        raise NotImplementedError


def test_a_row_that_another_process_inserts_between_two_looks_is_no_foreign_one() -> None:
    row = row_of_json(NOTES, '{"id": "a", "tenantId": "acme"}', "{}", "{}")
    held = hold(OvertakenUnit(row), NOTES, Tenant("acme"), ("a",))
    assert held.row is row
    assert not held.taken


class Size(NumberedEnum):
    LARGE = "large"
    MEDIUM = "medium"
    SMALL = "small"


class Entry(CanonicalModel):
    key: str
    size: Size = Size.SMALL
    place: int = 0
    note: str | None = None


SMALL_FIRST = (Size.SMALL, Size.MEDIUM, Size.LARGE)
ORDERED = Ordered(by=(Ranked(field="size", members=SMALL_FIRST), "key"))
REFUSING = Ordered(
    by=("place", "key"),
    descending=True,
    unique=Unique(field="key", code="twice", message="entries should name each key once"),
    limit=Limit(count=3, code="many", message="there should be at most 3 entries"),
)
entries = st.lists(
    st.builds(Entry, key=st.sampled_from("abC"), size=st.sampled_from(Size), place=st.integers(0, 2)),
    max_size=5,
)


def kept(ordered: Ordered, items: list[Entry]) -> tuple[Entry, ...]:
    annotated = Annotated[tuple[Entry, ...], ordered]
    adapter: pydantic.TypeAdapter[tuple[Entry, ...]] = pydantic.TypeAdapter(annotated)
    return adapter.validate_python(items)


@given(items=entries)
def test_the_first_field_decides_and_equal_entries_stay_as_they_came(items: list[Entry]) -> None:
    expected = sorted(items, key=lambda item: (SMALL_FIRST.index(item.size), item.key))
    assert [id(item) for item in kept(ORDERED, items)] == [id(item) for item in expected]


def answer(ordered: Ordered, items: list[Entry]) -> list[Entry] | str:
    try:
        return list(kept(ordered, items))
    except pydantic.ValidationError as error:
        return "; ".join(f"{problem['type']}: {problem['msg']}" for problem in error.errors())


@given(items=entries)
def test_a_list_is_refused_for_its_length_then_for_what_occurs_twice_and_else_sorted(
    items: list[Entry],
) -> None:
    expected: list[Entry] | str = sorted(items, key=lambda item: (item.place, item.key), reverse=True)
    if len(items) > 3:
        expected = "many: there should be at most 3 entries"
    elif len({item.key for item in items}) < len(items):
        expected = "twice: entries should name each key once"
    assert answer(REFUSING, items) == expected


@pytest.mark.parametrize(
    ("ordered", "problem"),
    [
        (Ordered(by=("kye",)), "'kye' of Entry, but Entry has no field 'kye'; it has key, size, place, note"),
        (
            Ordered(by=("key",), unique=Unique(field="keys", code="twice", message="twice")),
            "names 'keys' of Entry, but Entry has no field 'keys'",
        ),
        (Ordered(by=("note",)), "names 'note' of Entry, which may be absent"),
        (Ordered(by=(Ranked(field="size", members=SMALL_FIRST[:2]),)), "each once"),
        (Ordered(by=(Ranked(field="size", members=(*SMALL_FIRST, Size.SMALL)),)), "each once"),
        (Ordered(by=(Ranked(field="key", members=SMALL_FIRST),)), "not the members of that enumeration"),
        (Ordered(by=(Ranked(field="size", members=()),)), "not the members of that enumeration"),
    ],
)
def test_an_order_that_does_not_fit_the_entries_is_refused_with_its_class(
    ordered: Ordered, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        kept(ordered, [])


def test_only_a_tuple_of_a_model_can_be_ordered() -> None:
    for annotation in (
        Annotated[tuple[str, ...], ORDERED],
        Annotated[list[Entry], ORDERED],
        Annotated[Entry, ORDERED],
    ):
        with pytest.raises(TypeError, match="Ordered is for tuples of a model"):
            pydantic.create_model("Holder", entries=(cast("Any", annotation), ...))


def test_the_order_of_a_field_can_be_read_from_its_model() -> None:
    class Holder(CanonicalModel):
        entries: Annotated[tuple[Entry, ...], ORDERED] = ()

    assert Holder.model_fields["entries"].metadata == [ORDERED]


TENANT = Tenant("t")


def listed(entity: Entity, *order: SortKey, where: tuple[Condition, ...] = ()) -> Query:
    return Query(
        entity=entity.name, scope=ALL_TENANTS, where=where, order=(*order, *key_order(entity)), limit=1
    )


@pytest.mark.parametrize(
    ("entity", "key", "advice"),
    [
        (RANGES, SortKey("fence"), "SortKey('fence', time=False, number=True, nullable=False)"),
        (RUNS, SortKey("createdAt"), "SortKey('createdAt', time=True, number=False, nullable=False)"),
        (RUNS, SortKey("createdAt", number=True), "time=True, number=False"),
        (RUNS, SortKey("scheduleId", time=True, nullable=True), "time=False, number=False, nullable=True"),
        (RUNS, SortKey("finishedAt", time=True), "time=True, number=False, nullable=True"),
        (SCHEDULES, SortKey("deletedAt", time=True), "nullable=True"),
        (IMPACT_SNAPSHOTS, SortKey("imageCount"), "number=True"),
        (IMPACT_SNAPSHOTS, SortKey("runId"), "nullable=True"),
    ],
)
def test_a_missing_or_wrong_flag_is_refused_with_the_right_one(
    entity: Entity, key: SortKey, advice: str
) -> None:
    with pytest.raises(ValueError, match=rf"a list of {entity.name} sorts by '{key.field}'") as caught:
        check_query(entity, listed(entity, key))
    assert advice in str(caught.value)


def test_a_condition_may_exclude_what_is_absent() -> None:
    order = SortKey("finishedAt", time=True)
    check_query(RUNS, listed(RUNS, order, where=(AtMost("finishedAt", at(0)),)))
    with pytest.raises(ValueError, match="nullable=True"):
        check_query(RUNS, listed(RUNS, order, where=(IsNull("finishedAt"),)))


def test_what_is_never_absent_may_be_called_nullable() -> None:
    check_query(JOBS, listed(JOBS, SortKey("startedAt", time=True, nullable=True)))


def test_the_orders_of_ours_are_right() -> None:
    check_query(SCHEDULES, queries.schedules(TENANT, ScheduleQueryOptions()))
    check_query(TRIGGERS, queries.triggers(TENANT, 1, None))
    check_query(TRIGGERS, queries.due_triggers(at(0), 1))
    for entity in SCHEDULER.entities:
        check_query(entity, listed(entity))
        if entity.retention is not None:
            check_query(entity, expired_query(entity, ALL_TENANTS, at(0), 1))

"""What core gives a driver of documents, where the kit of the sample driver says nothing of it by itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from twinstore.access.paging import SortKey
from twinstore.access.query import Query
from twinstore.catalog.conditions import Equals, OneOf
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.documents import DocumentRow, DocumentUnit, RowLocks, SqlText, row_of_json
from twinstore.documents.access import hold
from twinstore.documents.rows import has_text_timestamp
from twinstore.errors import ConcurrencyError
from twinstore.testing.entities import NOTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from twinstore.catalog.entity import Entity
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
def test_an_instant_in_another_spelling_than_ours_is_told_as_text(
    spelling: str, *, by_somebody_else: bool
) -> None:
    row = row_of_json(NOTES, f'{{"id": "a", "dueAt": "{spelling}"}}', "{}", "{}")
    assert row.key == ("a",)
    assert has_text_timestamp(row) is by_somebody_else


def test_a_claim_that_is_kept_too_long_is_a_lost_race() -> None:
    locks = RowLocks("Any", patience=0.01)
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

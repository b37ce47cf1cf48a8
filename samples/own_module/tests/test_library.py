from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from acme_library.aio import AsyncLibraryStorage
from acme_library.books import Book
from acme_library.copies import Condition, Copy, Shelf
from acme_library.storage import LibraryStorage
from acme_library.subjects import Subject
from twinstore import DuplicateError, NotFoundError, TenantScopeError, ValidationError, aio, open_storage
from twinstore.observing import Counters

NOON = datetime(2025, 10, 26, 12, tzinfo=UTC)
BOOK = Book(id="b-1", tenant_id="acme", title="On stores", bought_at=NOON)
COPY = Copy(
    book_id="b-1",
    number=2**62,
    tag="04:A2",
    condition=Condition.WORN,
    shelf=Shelf(room="South", number=7),
    notes={"gift of": ["Ada", "Grace"]},
)
MATHEMATICS = Subject(scheme="ddc", number=510, title="Mathematics")


@pytest.fixture
def settings() -> dict[str, object]:
    return {"Persistence": {"Library": "Memory", "Memory": {"Store": uuid4().hex}}}


@pytest.fixture
def library(settings: dict[str, object]) -> Iterator[LibraryStorage]:
    with open_storage(settings) as storage:
        yield storage.module("library", LibraryStorage)


def test_the_latest_book_comes_first_and_pages_go_on(library: LibraryStorage) -> None:
    books = [BOOK.evolve(id=f"b-{day}", bought_at=NOON + timedelta(days=day)) for day in range(5)]
    for book in books:
        library.books.put(book)
    first = library.books.list("acme", limit=3)
    rest = library.books.list("acme", limit=3, page_token=first.next_page_token)
    assert [*first, *rest] == books[::-1]
    assert rest.next_page_token is None


def test_a_book_is_seen_by_its_tenant_alone(library: LibraryStorage) -> None:
    assert library.books.put(BOOK) == BOOK
    assert library.books.get("globex", BOOK.id) is None
    assert not library.books.list("globex")


def test_subjects_are_listed_by_number_and_not_as_text(library: LibraryStorage) -> None:
    for number in (510, 9, 1000, 52):
        library.subjects.put(MATHEMATICS.evolve(number=number))
    library.subjects.put(MATHEMATICS.evolve(scheme="lcc"))
    first = library.subjects.list("ddc", limit=2)
    rest = library.subjects.list("ddc", limit=2, page_token=first.next_page_token)
    assert [subject.number for subject in (*first, *rest)] == [9, 52, 510, 1000]


def test_a_tenant_reads_subjects_in_its_unit_but_writes_none(library: LibraryStorage) -> None:
    library.subjects.put(MATHEMATICS)
    with library.transaction("acme") as unit:
        unit.books.put(BOOK)
        assert unit.subjects.get("ddc", 510) == MATHEMATICS
        assert unit.books.get("acme", BOOK.id) == BOOK
        with pytest.raises(TenantScopeError):
            unit.subjects.put(MATHEMATICS)


def test_a_copy_is_found_by_its_tag_which_no_other_has(library: LibraryStorage) -> None:
    library.books.put(BOOK)
    stored = library.copies.put("acme", COPY)
    assert library.copies.get_by_tag("acme", "04:A2") == stored == COPY
    assert library.copies.get_by_tag("globex", "04:A2") is None
    with pytest.raises(DuplicateError, match="tag '04:A2' is taken"):
        library.copies.put("acme", COPY.evolve(number=2))
    with pytest.raises(NotFoundError, match="book 'b-2' does not exist"):
        library.copies.put("acme", COPY.evolve(book_id="b-2", tag="04:A3"))
    assert [*library.copies.list("acme", "b-1")] == [COPY]
    assert [library.copies.delete("acme", "b-1", COPY.number) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("number", [-1, 2**31, True])
def test_a_number_that_no_subject_has_is_refused(library: LibraryStorage, number: int) -> None:
    with pytest.raises(ValidationError, match="Argument number"):
        library.subjects.get("ddc", number)


def test_asyncio_answers_the_same(library: LibraryStorage, settings: dict[str, object]) -> None:
    library.subjects.put(MATHEMATICS)

    async def used() -> None:
        async with aio.open_storage(settings) as storage:
            awaited = storage.module("library", AsyncLibraryStorage)
            async with awaited.transaction("acme") as unit:
                await unit.books.put(BOOK)
                assert await unit.subjects.get("ddc", 510) == MATHEMATICS
            assert [*await awaited.books.list("acme")] == [BOOK]

    asyncio.run(used())
    assert library.books.get("acme", BOOK.id) == BOOK


def test_calls_are_observed_under_the_names_of_the_module(settings: dict[str, object]) -> None:
    counters = Counters()
    with open_storage(settings, observers=[counters]) as storage:
        library = storage.module("library", LibraryStorage)
        library.books.put(BOOK)
        with library.transaction("acme") as unit:
            assert unit.books.get("acme", BOOK.id) == BOOK
        library.subjects.put(MATHEMATICS)
    assert counters.snapshot().operations == {
        ("library", entity, operation, "Memory", "ok"): 1
        for entity, operation in (
            ("books", "put"),
            ("books", "get"),
            ("storage", "transaction"),
            ("subjects", "put"),
        )
    }
    assert counters.snapshot().system_scope == {("library", "Memory", "subjects"): 1}

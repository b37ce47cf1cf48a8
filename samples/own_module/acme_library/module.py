"""The module: what brings its parts together."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from acme_library.books import Book
from acme_library.catalog import BOOKS, COPIES, LIBRARY, SUBJECTS
from acme_library.copies import Copy
from acme_library.repository import Repositories, Subjects, books_query
from acme_library.storage import LibrarySession, LibraryStorage
from acme_library.subjects import Subject
from twinstore.module import (
    NO_TENANT,
    Cutoffs,
    Entity,
    ListedRow,
    ListQuery,
    ModuleSpec,
    Row,
    StoredList,
    Tenant,
    Trial,
    paged,
)


class LibraryLists:
    """The lists that both sides of a copy must answer alike."""

    def __init__(self, cutoffs: Cutoffs, page: int) -> None:
        """Take, by entity, the instant up to which rows are expired, and the rows per page."""
        self._expired = cutoffs.get(BOOKS.name)
        self._page = page

    def of_tenant(self, tenant: str, source: LibraryStorage) -> Iterator[ListQuery[LibraryStorage]]:
        """Return the lists of a tenant."""
        del source  # asked first by modules whose lists are about ids
        yield ListQuery(
            f"books of {tenant}, latest first",
            lambda side, token: paged(
                side.books.list(tenant, limit=self._page, page_token=token), self._book
            ),
            (BOOKS.name,),
            stored=StoredList(BOOKS, books_query(Tenant(tenant), self._page), self._book),
        )

    def over_all(self) -> Iterator[ListQuery[LibraryStorage]]:
        """Return the lists that are about no tenant."""
        yield ListQuery(
            "subjects of ddc",
            lambda side, token: paged(
                side.subjects.list("ddc", limit=self._page, page_token=token), subject_row
            ),
            (SUBJECTS.name,),
            stored=StoredList(SUBJECTS, Subjects.query(NO_TENANT, "ddc", limit=self._page), subject_row),
        )

    def _book(self, book: Book) -> ListedRow | None:
        """Return what identifies a book, ``None`` for one that a store may have removed by its age."""
        gone = book.gone_at is not None and self._expired is not None and book.gone_at <= self._expired
        return None if gone else (book.id,)


def subject_row(subject: Subject) -> ListedRow:
    """Return what identifies a subject."""
    return (subject.scheme, str(subject.number))


def trial_rows(tenant: str) -> Iterator[tuple[Entity, Row]]:
    """Return a row of each entity, which `twinstore smoke` inserts, finds and removes."""
    now = datetime.now(UTC).replace(microsecond=0)
    yield BOOKS, Row(Book(id=tenant, tenant_id=tenant, title="On stores", bought_at=now))
    yield COPIES, Row(Copy(book_id=tenant, number=1, tag=tenant))
    yield SUBJECTS, Row(Subject(scheme=tenant, number=510, title="Mathematics"))


MODULE: Final = ModuleSpec(
    catalog=LIBRARY,
    repositories=Repositories.over,
    title="Library",
    package="acme_library",
    storage=LibraryStorage,
    session=LibrarySession,
    checks=LibraryLists,
    trial=Trial(rows=trial_rows),
    kit="acme_library.testing:LibraryContract",
)

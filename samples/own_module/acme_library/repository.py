"""The repositories of the library, once for all drivers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

from typing_extensions import override

from acme_library.books import Book, BookRepository
from acme_library.catalog import BOOKS, SUBJECTS
from acme_library.subjects import Subject, SubjectRepository
from twinstore.module import (
    NO_TENANT,
    Access,
    Equals,
    Page,
    Query,
    Repository,
    Row,
    SortKey,
    Tenants,
    build_query,
    count_argument,
    id_argument,
)

LATEST: Final = (SortKey("boughtAt", descending=True, time=True), SortKey("id"))
BY_NUMBER: Final = (SortKey("number", number=True),)
LONGEST_PAGE: Final = 200


def books_query(scope: Tenants, limit: int, page_token: str | None = None) -> Query:
    """Return the query of ``BookRepository.list``."""
    return build_query(
        BOOKS.name,
        scope=scope,
        where=(),
        order=LATEST,
        limit=limit,
        maximum=LONGEST_PAGE,
        page_token=page_token,
    )


def subjects_query(scheme: str, limit: int, page_token: str | None = None) -> Query:
    """Return the query of ``SubjectRepository.list``."""
    found = build_query(
        SUBJECTS.name,
        scope=NO_TENANT,
        where=(Equals("scheme", id_argument(scheme, "scheme")),),
        order=BY_NUMBER,
        limit=limit,
        maximum=LONGEST_PAGE,
        page_token=page_token,
    )
    # All tenants share the list: the page names a row that cannot be read, and shows the others.
    return replace(found, skips_undecodable=True)


class Books(Repository, BookRepository):
    """Implements BookRepository."""

    @override
    def put(self, book: Book) -> Book:
        book = self._model(book, Book, "book")
        return self._access.put(BOOKS, self._admit(book.tenant_id), Row(book)).model

    @override
    def get(self, tenant_id: str, book_id: str) -> Book | None:
        return self._get(BOOKS, self._admit(tenant_id), (id_argument(book_id, "book_id"),))

    @override
    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Book]:
        return self._page(BOOKS, books_query(self._admit(tenant_id), limit, page_token))


class Subjects(Repository, SubjectRepository):
    """Implements SubjectRepository."""

    @override
    def put(self, subject: Subject) -> Subject:
        subject = self._model(subject, Subject, "subject")
        return self._access.put(SUBJECTS, self._admit_system("subjects"), Row(subject)).model

    @override
    def get(self, scheme: str, number: int) -> Subject | None:
        key = (id_argument(scheme, "scheme"), count_argument(number, "number"))
        return self._get(SUBJECTS, NO_TENANT, key)

    @override
    def list(self, scheme: str, *, limit: int = 50, page_token: str | None = None) -> Page[Subject]:
        return self._page(SUBJECTS, subjects_query(scheme, limit, page_token))


@dataclass(frozen=True, slots=True)
class Repositories:
    """All repositories of the library."""

    books: Books
    subjects: Subjects

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(books=Books(access), subjects=Subjects(access))

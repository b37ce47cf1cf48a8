"""The repositories of the library, once for all drivers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from typing_extensions import override

from acme_library.books import Book, BookRepository
from acme_library.catalog import BOOKS, COPIES, SUBJECTS
from acme_library.copies import Copy, CopyRepository
from acme_library.subjects import Subject, SubjectRepository
from twinstore.module import (
    Access,
    KeyedRepository,
    Page,
    Query,
    Repository,
    Row,
    SortKey,
    Tenants,
    UniqueKey,
    build_query,
    field_argument,
)

LATEST: Final = (SortKey("boughtAt", descending=True, time=True), SortKey("id"))
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


class Books(Repository, BookRepository):
    """Implements BookRepository."""

    @override
    def put(self, book: Book) -> Book:
        book = self._model(book, Book, "book")
        return self._access.put(BOOKS, self._admit(book.tenant_id), Row(book)).model

    @override
    def get(self, tenant_id: str, book_id: str) -> Book | None:
        return self._get(BOOKS, self._admit(tenant_id), (field_argument(Book, "id", book_id, "book_id"),))

    @override
    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Book]:
        return self._page(BOOKS, books_query(self._admit(tenant_id), limit, page_token))


class Copies(KeyedRepository[Copy], CopyRepository):
    """Implements CopyRepository."""

    entity = COPIES

    @override
    def get_by_tag(self, tenant_id: str, tag: str) -> Copy | None:
        key = UniqueKey(COPIES.unique("tag"), (field_argument(Copy, "tag", tag, "tag"),))
        return self._get(COPIES, self._admit(tenant_id), key)


class Subjects(KeyedRepository[Subject], SubjectRepository):
    """Implements SubjectRepository."""

    entity = SUBJECTS
    within = ("scheme",)


@dataclass(frozen=True, slots=True)
class Repositories:
    """All repositories of the library."""

    books: Books
    copies: Copies
    subjects: Subjects

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(books=Books(access), copies=Copies(access), subjects=Subjects(access))

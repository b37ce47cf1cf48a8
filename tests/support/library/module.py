"""The library as a module: its entity, repositories, session and storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from typing_extensions import override

from tests.support.library.books import Book, BookRepository
from twinstore.access.repository import Repository
from twinstore.access.scope import id_argument
from twinstore.catalog.entity import Entity, Module
from twinstore.catalog.keys import text
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenancy
from twinstore.plugins.checks import ListQuery, single_page
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.storage.module import ModuleStorage

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.plugins.checks import Cutoffs

BOOKS: Final = Entity(
    name="books",
    singular="book",
    module="library",
    model=Book,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="books",
)


class Books(Repository, BookRepository):
    """Implements :class:`BookRepository`."""

    @override
    def put(self, book: Book) -> Book:
        book = self._model(book, Book, "book")
        return self._access.put(BOOKS, self._admit(book.tenant_id), Row(book)).model

    @override
    def get(self, tenant_id: str, book_id: str) -> Book | None:
        return self._get(BOOKS, self._admit(tenant_id), (id_argument(book_id, "book_id"),))


@dataclass(frozen=True, slots=True)
class Repositories:
    """All repositories of the library."""

    books: Books

    @classmethod
    def over(cls, access: Access) -> Self:
        """Return the repositories that share an access."""
        return cls(Books(access))


@dataclass(frozen=True, slots=True)
class LibrarySession:
    """The repositories, bound to a session or unit of work, or unbound."""

    books: BookRepository


class LibraryStorage(ModuleStorage[Repositories, LibrarySession]):
    """What a host holds."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> LibrarySession:
        return LibrarySession(repositories.books)

    @property
    def books(self) -> BookRepository:
        """Books."""
        return self.unbound.books


class LibraryLists:
    """The one list that a verification compares: a book that both sides must have."""

    def __init__(self, cutoffs: Cutoffs, page: int) -> None:
        """No row of a library expires, and there are no pages."""
        del cutoffs, page

    def of_tenant(self, tenant: str, source: LibraryStorage) -> Iterator[ListQuery[LibraryStorage]]:
        """Return the lists of a tenant."""
        del source
        yield ListQuery(
            f"the first book of {tenant}",
            lambda side, _: single_page(
                [found] if (found := side.books.get(tenant, "first")) else [], lambda book: (book.id,)
            ),
            ("books",),
        )

    def over_all(self) -> Iterator[ListQuery[LibraryStorage]]:
        """Return no list in system scope."""
        yield from ()


MODULE: Final = ModuleSpec(
    catalog=Module(name="library", entities=(BOOKS,)),
    repositories=Repositories.over,
    title="Library",
    package="tests.support.library",
    storage=LibraryStorage,
    session=LibrarySession,
    checks=LibraryLists,
    kit="tests.support.library.kit:LibraryContract",
)

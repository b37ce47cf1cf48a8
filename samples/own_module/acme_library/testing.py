"""The kit of the library: how its rows are made; the cases follow from its description. Needs pytest."""

from __future__ import annotations

from typing import Final

from acme_library.books import Book, BookRepository
from acme_library.catalog import BOOKS, COPIES, SUBJECTS
from acme_library.copies import Condition, Copy, CopyRepository, Shelf
from acme_library.module import MODULE
from acme_library.storage import LibrarySession
from acme_library.subjects import Subject, SubjectRepository
from twinstore.testing import ModuleContract
from twinstore.testing.examples import ModuleExamples, example
from twinstore.testing.instants import at


def book(tenant: str, name: str) -> Book:
    """Return a book that is still there."""
    return Book(id=name, tenant_id=tenant, title="On stores", bought_at=at())


def book_that_is_gone(tenant: str, name: str) -> Book:
    """Return a book with a value in every field."""
    return book(tenant, name).evolve(title="Über Speicher \N{OPEN BOOK}", gone_at=at(0.007))


def copy(tenant: str, name: str) -> Copy:
    """Return a copy of the book of that name."""
    del tenant
    return Copy(book_id=name, number=2**53 + 1, tag=f"tag of {name}")


def rich_copy(tenant: str, name: str) -> Copy:
    """Return a copy with a value in every field."""
    shelf = Shelf(room="Süd", number=7)
    return copy(tenant, name).evolve(condition=Condition.WORN, shelf=shelf, notes={"gift": True})


def listed_copy(tenant: str, key: str, number: int) -> Copy:
    """Return a copy of the one book whose copies are listed."""
    return Copy(book_id=f"book of {tenant}", number=number + 1, tag=key)


def store_copy(session: LibrarySession, tenant: str, stored: Copy) -> Copy:
    """Store a copy below its book."""
    session.books.put(book(tenant, stored.book_id))
    return session.copies.put(tenant, stored)


def subject(tenant: str, name: str) -> Subject:
    """Return a subject; no tenant owns it, so its scheme keeps it apart from those of other tests."""
    del tenant
    return Subject(scheme=name, number=510, title="Mathematics")


def listed_subject(tenant: str, key: str, number: int) -> Subject:
    """Return a subject of the one scheme that is listed."""
    return Subject(scheme=f"list of {tenant}", number=number, title=key)


LIBRARY_EXAMPLES: Final = ModuleExamples(
    MODULE,
    (
        example(
            entity=BOOKS,
            protocol=BookRepository,
            small=book,
            rich=book_that_is_gone,
            store="put",
            orders={"list": "-boughtAt id"},
        ),
        example(
            entity=COPIES,
            protocol=CopyRepository,
            small=copy,
            rich=rich_copy,
            store=store_copy,
            orders={"list": "number"},
            vary=listed_copy,
            remove="delete",
        ),
        example(
            entity=SUBJECTS,
            protocol=SubjectRepository,
            small=subject,
            rich=subject,
            store="put",
            orders={"list": "number"},
            vary=listed_subject,
        ),
    ),
)


class LibraryContract(ModuleContract):
    """What the library must do on a driver, and a driver for the library."""

    module = LIBRARY_EXAMPLES

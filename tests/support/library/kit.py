"""The kit of the library: one entity, without a list and without an age."""

from __future__ import annotations

from typing import Final

from tests.support.library.books import Book, BookRepository
from tests.support.library.module import BOOKS, MODULE
from twinstore.testing import ModuleContract
from twinstore.testing.examples import ModuleExamples, example


def book(tenant: str, name: str) -> Book:
    """Return a book; it has no field without a value."""
    return Book(id=name, tenant_id=tenant, title="On stores")


LIBRARY_EXAMPLES: Final = ModuleExamples(
    MODULE, (example(entity=BOOKS, protocol=BookRepository, small=book, rich=book, store="put"),)
)


class LibraryContract(ModuleContract):
    """What holds for every module."""

    module = LIBRARY_EXAMPLES

"""What a host holds of the library."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from acme_library.books import BookRepository
from acme_library.copies import CopyRepository
from acme_library.repository import Repositories
from acme_library.subjects import SubjectRepository
from twinstore.module import ModuleStorage


@dataclass(frozen=True, eq=False, repr=False)
class LibrarySession:
    """The repositories, bound to one session or unit of work, or unbound."""

    books: BookRepository
    copies: CopyRepository
    subjects: SubjectRepository


class LibraryStorage(ModuleStorage[Repositories, LibrarySession], LibrarySession):
    """The same, unbound, and what opens sessions and units of work."""

    @override
    def session_over(self, repositories: Repositories, *, in_unit: bool = False) -> LibrarySession:
        return LibrarySession(
            books=repositories.books, copies=repositories.copies, subjects=repositories.subjects
        )

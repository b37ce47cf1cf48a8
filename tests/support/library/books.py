"""Books and the contract of their repository."""

from __future__ import annotations

from typing import Protocol

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, Name, TenantId


class Book(CanonicalModel):
    """A book of a library."""

    id: Id
    tenant_id: TenantId
    title: Name


class BookRepository(Protocol):
    """Books by id."""

    def put(self, book: Book) -> Book:
        """Store a book. Repeated call: the same."""
        ...

    def get(self, tenant_id: str, book_id: str) -> Book | None:
        """Return one book. Absent: ``None``."""
        ...

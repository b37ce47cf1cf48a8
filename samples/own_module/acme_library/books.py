"""Books: the model and the contract of its repository."""

from __future__ import annotations

from typing import Protocol

from twinstore.module import CanonicalModel, Id, Name, Page, TenantId, Timestamp


class Book(CanonicalModel):
    """A book of a library; ``gone_at`` says when it was given away."""

    id: Id
    tenant_id: TenantId
    title: Name
    bought_at: Timestamp
    gone_at: Timestamp | None = None


class BookRepository(Protocol):
    """Books of a tenant."""

    def put(self, book: Book) -> Book:
        """Store a book, or replace the one of its id. Repeated call: the same. Atomic."""
        ...

    def get(self, tenant_id: str, book_id: str) -> Book | None:
        """Return one book. Absent: ``None``."""
        ...

    def list(self, tenant_id: str, *, limit: int = 50, page_token: str | None = None) -> Page[Book]:
        """Return a page of books. Order: latest first, then by id. At most 200."""
        ...

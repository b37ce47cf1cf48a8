"""Copies of books: the models and the contract of their repository."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from pydantic import Field

from twinstore.module import CanonicalModel, FreeObject, Id, Name, Page, PositiveInt


class Condition(StrEnum):
    """What became of a copy."""

    GOOD = "good"
    WORN = "worn"
    LOST = "lost"


class Shelf(CanonicalModel):
    """Where a copy is."""

    room: Name
    number: PositiveInt


class Copy(CanonicalModel):
    """A copy of a book; ``tag`` is its radio tag, of which there is one in the world."""

    book_id: Id
    number: PositiveInt
    tag: Id
    condition: Condition = Condition.GOOD
    shelf: Shelf | None = None
    notes: FreeObject = Field(default_factory=dict)


class CopyRepository(Protocol):
    """Copies of the books of a tenant; they are removed with their book."""

    def put(self, tenant_id: str, copy: Copy, /) -> Copy:
        """Store a copy, or replace the one of its book and number. Repeated call: the same. Atomic.

        Raises:
            DuplicateError: another copy has the tag.
            NotFoundError: the book is absent or foreign.
        """
        ...

    def get(self, tenant_id: str, book_id: str, number: int, /) -> Copy | None:
        """Return one copy. Absent: ``None``."""
        ...

    def get_by_tag(self, tenant_id: str, tag: str) -> Copy | None:
        """Return the copy with a tag. Absent: ``None``."""
        ...

    def list(
        self, tenant_id: str, book_id: str, /, *, limit: int = 50, page_token: str | None = None
    ) -> Page[Copy]:
        """Return a page of the copies of a book. Order: by number. At most 200."""
        ...

    def delete(self, tenant_id: str, book_id: str, number: int, /) -> bool:
        """Remove a copy; return whether it was there."""
        ...

"""Subjects: the model and the contract of its repository."""

from __future__ import annotations

from typing import Protocol

from twinstore.module import CanonicalModel, Count32, Id, Name, Page


class Subject(CanonicalModel):
    """A subject of a classification, such as 510 (Mathematics) of the scheme ``ddc``; no tenant owns it."""

    scheme: Id
    number: Count32
    title: Name


class SubjectRepository(Protocol):
    """Subjects, which all tenants share: everybody reads them, and system scope writes them."""

    def put(self, subject: Subject, /) -> Subject:
        """Store a subject, or replace the one of its number. Repeated call: the same. Atomic.

        Raises:
            TenantScopeError: in a session of one tenant.
        """
        ...

    def get(self, scheme: str, number: int, /) -> Subject | None:
        """Return one subject. Absent: ``None``."""
        ...

    def list(self, scheme: str, /, *, limit: int = 50, page_token: str | None = None) -> Page[Subject]:
        """Return a page of the subjects of a scheme. Order: by number. At most 200."""
        ...

"""Stored values that Python has no type for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoredObjectId", "StoredReference"]


@dataclass(frozen=True, slots=True)
class StoredObjectId:
    """An ObjectId, as its 24 lower-case hexadecimal digits."""

    digits: str


@dataclass(frozen=True, slots=True)
class StoredReference:
    """A reference to a document of another collection (DBRef); ``id`` is a stored value."""

    collection: str
    id: object

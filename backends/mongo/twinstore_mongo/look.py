"""What a database has, each part asked for once: a comparison makes hundreds of questions of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from twinstore_mongo.connection import OpenDatabase

__all__ = ["Existing", "Look"]

Existing: TypeAlias = Mapping[str, Mapping[str, Any]]


class Look:
    """The collections of a database and their indexes, as they were when they were first asked for."""

    def __init__(self, store: OpenDatabase) -> None:
        """Take the database; nothing is asked yet."""
        self._store = store
        self._collections: Sequence[Mapping[str, Any]] | None = None
        self._indexes: dict[str, Existing] = {}

    @property
    def collections(self) -> Sequence[Mapping[str, Any]]:
        """The collections and views, with their kinds and options."""
        if self._collections is None:
            self._collections = tuple(self._store.database.list_collections())
        return self._collections

    def indexes(self, collection: str) -> Existing:
        """Return the indexes of a collection by name."""
        if collection not in self._indexes:
            self._indexes[collection] = self._store.collection(collection).index_information()
        return self._indexes[collection]

"""Single writes whose refusal by a unique index is told apart by the name of the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pymongo.errors import DuplicateKeyError

from twinstore_mongo.errors import ID_INDEX, violated_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.catalog import Entity
    from twinstore.errors import TwinstoreError
    from twinstore_mongo.connection import Document
    from twinstore_mongo.units import Unit

    OnDuplicate = Callable[[str | None], TwinstoreError]

__all__ = ["insert", "replace"]


def insert(unit: Unit, entity: Entity, document: Document, on_duplicate: OnDuplicate) -> None:
    """Insert a document.

    Raises:
        DuplicateError: what ``on_duplicate`` returns for the index that refuses it.
    """
    key = document["_id"]
    with unit.writing(entity, key):
        collection = unit.collection(entity)
        try:
            collection.insert_one(document, session=unit.session)
        except DuplicateKeyError as error:
            raise on_duplicate(refusing_index(unit, entity, error, key, present=False)) from error


def replace(
    unit: Unit,
    entity: Entity,
    condition: Document,
    document: Document,
    on_duplicate: OnDuplicate,
    *,
    upsert: bool = False,
) -> int:
    """Replace a document as a whole; return how many matched the condition, 0 also after an insert.

    Raises:
        DuplicateError: what ``on_duplicate`` returns for the index that refuses it.
    """
    key = document["_id"]
    with unit.writing(entity, key):
        collection = unit.collection(entity)
        try:
            result = collection.replace_one(condition, document, upsert=upsert, session=unit.session)
        except DuplicateKeyError as error:
            raise on_duplicate(refusing_index(unit, entity, error, key, present=not upsert)) from error
        return result.matched_count


def refusing_index(
    unit: Unit, entity: Entity, error: DuplicateKeyError, key: str, *, present: bool
) -> str | None:
    """Return the name of the index that refused a write.

    A test double does not tell; there, the id is the reason when it was to be new and is present.
    """
    index = violated_index(error)
    if index is not None or unit.store.complete:
        return index
    collection = unit.collection(entity)
    if not present and collection.find_one({"_id": key}) is not None:
        return ID_INDEX
    others = [name for name, spec in collection.index_information().items() if spec.get("unique")]
    return others[0] if others else None

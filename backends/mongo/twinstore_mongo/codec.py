"""Documents: the wire form with ``_id`` first and internal fields last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from bson import Code, DBRef
from bson.codec_options import TypeDecoder, TypeRegistry
from bson.int64 import Int64

from twinstore.canonical import CanonicalModel, decode_stored, undecodable
from twinstore_mongo.errors import DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.catalog import Entity
    from twinstore_mongo.connection import Document

__all__ = ["FOREIGN_TYPES", "VERSION", "Codec", "next_version", "restore_reference", "text_of"]

M = TypeVar("M", bound=CanonicalModel)


class CodeAsObject(TypeDecoder):
    """Reads JavaScript code as an object: the client's own class is a text, and would pass for one."""

    # pymongo declares an abstract property and documents a plain attribute.
    bson_type = Code  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def transform_bson(self, value: Any) -> Document:  # noqa: ANN401  # the client's signature
        """Return the code as extended JSON writes it."""
        scope = {} if value.scope is None else {"$scope": dict(value.scope)}
        return {"$code": str(value), **scope}


FOREIGN_TYPES: Final = TypeRegistry([CodeAsObject()])

ID: Final = "_id"
VERSION: Final = "_version"


@dataclass(frozen=True, slots=True)
class Codec(Generic[M]):
    """Turns the models of one entity into documents and back.

    Attributes:
        identity: the wire name that is stored as ``_id``; ``None`` when ``_id`` is internal.
        internal: wire-like names without underscore that are no part of the model.
        longs: wire names of integers that are always stored in 64 bits.
    """

    entity: Entity
    model: type[M]
    identity: str | None = None
    internal: frozenset[str] = frozenset()
    longs: tuple[str, ...] = ()
    free_maps: tuple[str, ...] = ()

    def encode(self, model: M, key: str, internal: Mapping[str, object] | None = None) -> Document:
        """Return the document of a model."""
        wire: Document = model.wire()
        if self.identity is not None:
            wire.pop(self.identity, None)
        for name in self.longs:
            wire[name] = Int64(wire[name])
        return {ID: key, **wire, **(internal or {})}

    def decode(self, document: Mapping[str, Any]) -> M:
        """Return the model of a stored document.

        Raises:
            DocumentDecodeError: the document does not form one; names entity and key.
        """
        values = self.values(document)
        return decode_stored(
            self.model, values, entity=self.entity.name, key=text_of(document.get(ID)), driver=DRIVER
        )

    def values(self, document: Mapping[str, Any]) -> Document:
        """Return the properties of the model: internal fields stripped, the id under its own name."""
        values = {
            name: value
            for name, value in document.items()
            if name[:1] != "_" and name not in self.internal and value is not None
        }
        for name in self.free_maps:
            restore_reference(values, name)
        if self.identity is not None:
            key = document.get(ID)
            if values.setdefault(self.identity, key) != key:
                raise self.bad(key, f"its fields _id and {self.identity} differ")
        return values

    def bad(self, key: object, reason: str) -> Exception:
        """Return the error of a document that does not form a model."""
        return undecodable(reason, entity=self.entity.name, key=text_of(key), driver=DRIVER)


def restore_reference(values: Document, name: str) -> None:
    """Turn a map that looks like a database reference back into a map."""
    value = values.get(name)
    if isinstance(value, DBRef):
        values[name] = dict(value.as_doc())


def text_of(key: object) -> str:
    """Return a stored key as messages show it."""
    return key if isinstance(key, str) else repr(key)


def next_version(stored: object) -> Int64:
    """Return the version that follows the stored one; documents written elsewhere have none."""
    return Int64(stored + 1 if isinstance(stored, int) else 1)

"""Rows to documents and back, laid out once for each entity from its description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import pydantic
from bson import Code, DBRef, ObjectId
from bson.codec_options import TypeDecoder, TypeRegistry
from bson.int64 import Int64
from pydantic_core import PydanticCustomError

from twinstore import jsontext
from twinstore.access import Row
from twinstore.canonical import (
    CanonicalJsonSerializer,
    CanonicalModel,
    decode_stored,
    describe_failure,
    undecodable,
)
from twinstore.fields import parse_timestamp
from twinstore.shapes import Kind
from twinstore_mongo.derive import (
    ID,
    VERSION,
    derived_fields,
    document_indexes,
    index_spec,
    internal_names,
    joined_id,
    longs_of,
    stored_names,
)
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.free_json import (
    EPOCH,
    NAIVE_EPOCH,
    dates_written,
    free_map,
    references,
    walks_of,
    within,
)
from twinstore_mongo.index_order_scan import Readings
from twinstore_mongo.key_order import plain_part

if TYPE_CHECKING:
    from twinstore.catalog import Entity, Index, Key
    from twinstore_mongo.connection import Document

__all__ = [
    "FIRST_VERSION",
    "FOREIGN_TYPES",
    "Codec",
    "codec_of",
    "converted",
    "next_version",
    "text_of",
]

M = TypeVar("M", bound=CanonicalModel)


def code_object(value: Code) -> Document:
    """Return JavaScript code as extended JSON writes it: the client's own class is a text."""
    scope = {} if value.scope is None else {"$scope": dict(value.scope)}
    return {"$code": str(value), **scope}


class CodeAsObject(TypeDecoder):
    """Reads JavaScript code as an object, where documents are decoded from bytes."""

    # pymongo declares an abstract property and documents a plain attribute.
    bson_type = Code  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def transform_bson(self, value: Any) -> Document:  # noqa: ANN401  # the client's signature
        """Return the code as extended JSON writes it."""
        return code_object(value)


FOREIGN_TYPES: Final = TypeRegistry([CodeAsObject()])


def converted(document: Document) -> Document:
    """Return a document of the client, changed in place: instants in UTC, and code as an object.

    With a type registry the client would read each answer twice. The same for offsets, which it adds in ten
    times the time that this takes.
    """
    for name, value in document.items():
        if (convert := CONVERSIONS.get(type(value))) is not None:
            document[name] = convert(value)
    return document


def converted_value(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return one value of a document in the same way."""
    convert = CONVERSIONS.get(type(value))
    return value if convert is None else convert(value)


def converted_reference(value: DBRef) -> DBRef | Document:
    """Return what the client reads as a reference to a document, which may have any other field."""
    fields = converted(dict(value.as_doc()))
    if isinstance(value.collection, Code) or isinstance(value.database, Code):
        return fields
    return DBRef(fields.pop("$ref"), fields.pop("$id"), fields.pop("$db", None), fields)


CONVERSIONS: Final[Mapping[type, Callable[[Any], object]]] = {
    # Adding to an aware instant costs a tenth of what replacing the offset does.
    datetime: lambda value: EPOCH + (value - NAIVE_EPOCH),
    Code: lambda value: converted(code_object(value)),
    dict: converted,
    list: lambda value: list(map(converted_value, value)),
    DBRef: converted_reference,
}
FIRST_VERSION: Final = Int64(1)
# What a marker may be.
NOUNS: Final = {Kind.TEXT: "a string", Kind.INTEGER: "an integer", Kind.INSTANT: "an instant"}


class Codec(Generic[M]):
    """The documents of one entity.

    Attributes:
        names: the stored name of every field, marker and derived field.
        key: stored names of the key, in key order.
        tenant: stored name of the tenant, ``None`` where no field names one.
        uniques: the other unique indexes by their stored name.
        readings: how lists are read.
        longs: the integers of the model, and lists of them, that are always stored in 64 bits.
    """

    def __init__(self, entity: Entity[M]) -> None:
        self.entity = entity
        self.names = stored_names(entity)
        self.key = tuple(self.names[name] for name in entity.key)
        self.tenant = None if entity.tenant_field is None else self.names[entity.tenant_field]
        self.uniques = unique_indexes(entity)
        self.readings = Readings(entity, self.names)
        self.longs = longs_of(entity)
        self._read_maps = walks_of(entity.model, free_map, references)
        self._written_maps = walks_of(entity.model, dates_written)
        self._markers = tuple((marker, self.names[marker.name]) for marker in entity.storage)
        self._written = tuple((marker.name, stored) for marker, stored in self._markers if stored != ID)
        self._internal = internal_names(entity)
        # The one field that stands as ``_id``, where the model has it too.
        self._identity = entity.document_id if entity.document_id in entity.shapes else None
        self._derived = derived_fields(entity)
        self._derived_key = tuple(item for item in self._derived if item.name in entity.key)

    def encode(self, row: Row[M], version: Int64 = FIRST_VERSION) -> Document:
        """Return the document of a row."""
        model, storage = row.model, row.storage
        wire: Document = model.wire()
        if self._written_maps:
            within(self._written_maps, wire)
        document: Document = {ID: self._take_id(row, wire), **wire}
        for name in self.longs:
            if name in document:
                found = document[name]
                listed = isinstance(found, list | tuple)
                document[name] = [*map(Int64, found)] if listed else Int64(found)
        for marker, stored in self._written:
            if (value := storage.get(marker)) is not None:
                document[stored] = Int64(value) if type(value) is int else value
        for derived in self._derived:
            of_content = derived.of_content
            value = derived.value(model, storage) if of_content is None else of_content(row.content)
            wide = derived.kind is Kind.INTEGER and derived.bits == 64  # noqa: PLR2004  # bits of a long
            document[self.names[derived.name]] = Int64(cast("int", value)) if wide else value
        if self.entity.versioned:
            document[VERSION] = version
        return document

    def _take_id(self, row: Row[M], wire: Document) -> object:
        """Return the ``_id`` of a row; a field of the model that it repeats leaves the wire form."""
        single = self.entity.document_id
        if self.entity.generated_id:
            return ObjectId()
        if single is None:
            return joined_id(self.entity.key_of(row.model, row.storage))
        own = wire.pop(single, None)
        return row.storage.get(single, own)

    def decode(self, document: Mapping[str, Any], *, for_copy: bool = False) -> Row[M]:
        """Return the row of a stored document.

        Args:
            document: the document.
            for_copy: take every name that the description does not create for an unknown property; a service
                strips all that begin with ``_``.

        Raises:
            DocumentDecodeError: the document does not form one; names entity and key.
        """
        key = self.shown_key(document)
        values = self._values(document, for_copy=for_copy)
        model = decode_stored(self.entity.model, values, entity=self.entity.name, key=key, driver=DRIVER)
        if not self._markers:
            return Row(model)
        storage = self._storage(document)
        for derived in self._derived_key:
            # What is found under one key must not be shown under that of another row.
            found = document.get(self.names[derived.name])
            if found is not None and found != derived.value(model, storage):
                raise self.bad(
                    key, f"its field {self.names[derived.name]} and its content name different rows"
                )
        return Row(model if self.entity.derived_key is None else self._reunited(model, storage), storage)

    def moves(self, document: Mapping[str, Any], row: Row[M]) -> bool:
        """Whether a row has another ``_id`` than a stored document; a generated one stays what it is."""
        if self.entity.generated_id:
            return False
        return bool(self._take_id(row, row.model.wire()) != document[ID])

    def restore_maps(self, values: Document) -> None:
        """Turn what the client made of maps back into what models read, in place."""
        if self._read_maps:
            within(self._read_maps, values)

    def differs_when_read(self, row: Row[M]) -> bool:
        """Whether the document of a row would be read as another one: its key is neither own nor derived."""
        derive, name = self.entity.derived_key, self.entity.single_key
        if derive is None or name is None:
            return False
        wire = row.model.wire()
        own = wire.pop(name, None)
        key = row.storage[name]
        return own != (None if derive(row.storage, jsontext.dumps(wire)) == key else key)

    def shown_key(self, document: Mapping[str, Any]) -> str:
        """Return the key of a stored document as messages show it: its ``_id``, which is the key or joins it.

        A generated one stands for a key that is missing or of another type, for then nothing else finds it.
        """
        if self.entity.generated_id:
            key = tuple(plain_part(document.get(name)) for name in self.key)
            if self.entity.admits_key(key):
                return self.entity.key_text(cast("Key", key))
        return text_of(document.get(ID))

    def bad(self, key: object, reason: str) -> Exception:
        """Return the error of a document that does not form a row."""
        return undecodable(reason, entity=self.entity.name, key=text_of(key), driver=DRIVER)

    def _values(self, document: Mapping[str, Any], *, for_copy: bool) -> Document:
        """Return the properties of the model: internal fields stripped, the id under its own name."""
        values = {
            name: value
            for name, value in document.items()
            # A null is what others write for an absent value.
            if value is not None and name not in self._internal and (for_copy or name[:1] != "_")
        }
        self.restore_maps(values)
        if self._identity is not None:
            key = document.get(ID)
            if values.setdefault(self._identity, key) != key:
                raise self.bad(key, f"its fields _id and {self._identity} differ")
            if self.entity.derived_key is not None:
                del values[self._identity]
        return values

    def _storage(self, document: Mapping[str, Any]) -> dict[str, object]:
        """Return the storage markers; those that are absent are left out."""
        storage: dict[str, object] = {}
        wrong: list[str] = []
        nouns: dict[str, None] = {}
        for marker, stored in self._markers:
            value = document.get(stored)
            found = None if value is None else read_marker(marker.kind, value)
            if found is not None:
                storage[marker.name] = found
            elif value is not None or marker.required:
                wrong.append(marker.name)
                nouns[NOUNS[marker.kind]] = None
        if wrong:
            what = " or ".join(nouns)
            raise self.bad(
                self.shown_key(document), f"its markers {', '.join(wrong)} are missing or not {what}"
            )
        return storage

    def _reunited(self, model: M, storage: Mapping[str, object]) -> M:
        """Return a model that was read without its key as it was written: with it unless it is derived."""
        derive, name = self.entity.derived_key, self.entity.single_key
        if derive is None or name is None:
            return model
        key = storage[name]
        if derive(storage, CanonicalJsonSerializer.serialize(model)) == key:
            return model
        try:
            return model.evolve(**{self.entity.shapes[name].name: key})
        except pydantic.ValidationError as error:
            raise self.bad(key, describe_failure(self.entity.model, error, quote=False)) from error


# By identity, which costs less than comparing entities; a codec keeps its entity, so no number comes again.
_codecs: Final[dict[int, Codec[Any]]] = {}


def codec_of(entity: Entity[M]) -> Codec[M]:
    """Return the codec of an entity, made at first use."""
    found: Codec[M] | None = _codecs.get(id(entity))
    if found is None:
        found = _codecs.setdefault(id(entity), Codec(entity))
    return found


def unique_indexes(entity: Entity) -> dict[str, Index]:
    """Return the described unique indexes by their stored name."""
    wanted = (index for index in document_indexes(entity) if index.unique)
    return {index_spec(entity, index).name: index for index in wanted}


def read_marker(kind: Kind, value: object) -> object | None:
    """Return a stored marker, ``None`` when it is of another type."""
    if kind is Kind.INSTANT:
        try:
            return parse_timestamp(value)
        except PydanticCustomError:
            return None
    if kind is Kind.INTEGER:
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else None
    return value if isinstance(value, str) else None


def text_of(key: object) -> str:
    """Return a stored key as messages show it."""
    return key if isinstance(key, str) else repr(key)


def next_version(stored: object) -> Int64:
    """Return the version that follows the stored one; documents written elsewhere have none."""
    return Int64(stored + 1 if isinstance(stored, int) else 1)

"""Changing documents without the driver, for the self-test; see :mod:`twinstore.bulk.corruption`."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, cast
from uuid import UUID

import bson
from bson.binary import OLD_UUID_SUBTYPE, USER_DEFINED_SUBTYPE, UUID_SUBTYPE
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure
from typing_extensions import override

from twinstore.bulk.corruption import (
    CorruptionRefusedError,
    CorruptionWriter,
    DuplicateMember,
    RawRow,
    Role,
    SchemaPart,
    StoredPlace,
)
from twinstore.models.fields import DATE
from twinstore.models.json_text import format_bytes, format_decimal
from twinstore.plugins.resources import SharedResources
from twinstore_mongo.bulk.scan import INT32_MAX, INT32_MIN, UUID_BYTES, instant_text, json_member
from twinstore_mongo.client.connection import Connection
from twinstore_mongo.client.errors import DUPLICATE_KEY, ID_INDEX, violated_index
from twinstore_mongo.client.types import EXACT
from twinstore_mongo.mapping.free_json import lossless_document
from twinstore_mongo.mapping.layout import ID, VERSION, field_of, id_parts, stored_names

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.catalog.entity import Entity
    from twinstore.plugins.settings import BackendSettings
    from twinstore_mongo.settings import MongoSettings

RAW: Final[CodecOptions[RawBSONDocument]] = CodecOptions(document_class=RawBSONDocument)
# Decimals with room for one more digit.
SCALED: Final = re.compile(r"-?\d{1,16}\.\d{1,16}")
NOUNS: Final[Mapping[type, str]] = {bson.ObjectId: "an id", bson.Decimal128: "a decimal"}
NOT_OPTIONS: Final = frozenset({"v", "ns", "key"})


@contextmanager
def open_corruption_writer(settings: BackendSettings) -> Iterator[CorruptionWriter]:
    """Open a corruption writer of documents."""
    with closing(SharedResources()) as resources:
        yield MongoCorruptionWriter(Connection(cast("MongoSettings", settings), resources))


class MongoCorruptionWriter(CorruptionWriter):
    """Finds a document again by its bytes; bypasses validators, because old documents exist."""

    tabular = False

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def places(self, entity: Entity) -> tuple[StoredPlace, ...]:
        fields = {name: field for field, name in stored_names(entity).items()}
        special = {} if VERSION in fields else {VERSION: Role.COUNTER}
        if ID not in fields and not entity.key_as_id:
            special[ID] = Role.GENERATED if entity.generated_id else Role.IDENTITY
        stored = (name for row in self.rows(entity) for name in row.values)
        counter = (VERSION,) if entity.versioned else ()
        identity = () if id_parts(entity) else (ID,)
        found = (
            StoredPlace.of(entity, name, fields.get(name, name), special=special.get(name), nests=True)
            for name in dict.fromkeys((*stored, *fields, *identity, *counter))
        )
        # Unknown properties are shown in the field that keeps them.
        return tuple(
            place
            if entity.extra is None or place.name in entity.taken_names
            else replace(place, part=f"{place.part}.{entity.extra}")
            for place in found
        )

    @override
    def rows(self, entity: Entity) -> list[RawRow]:
        return [row_of(entity, document) for document in self._collection(entity).find({})]

    @override
    def change(
        self, entity: Entity, row: RawRow | None, values: Mapping[str, object] | None
    ) -> RawRow | None:
        collection = self._collection(entity)
        values = None if values is None else nested(values)
        # The server would make an identity otherwise.
        try:
            new = (
                None
                if values is None
                else encoded(values if ID in values else {ID: bson.ObjectId(), **values})
            )
        except OverflowError as error:
            raise CorruptionRefusedError("BSON holds integers of 64 bits") from error
        place = None if row is None else {ID: nested(row.values)[ID]}
        kept = (
            new is not None
            and place is not None
            and bson.encode(place) == bson.encode({ID: bson.decode(new.raw, EXACT)[ID]})
            # No replacement may have such a name.
            and not any(name.startswith("$") for name in values or ())
        )
        if row is not None and new is not None and new.raw == row.place:
            raise CorruptionRefusedError("no change in BSON")
        if place is not None and not kept:
            # The server lets no identity change, so the document is removed and inserted.
            collection.delete_one(place)
        try:
            if new is not None and place is not None and kept:
                collection.replace_one(place, new, bypass_document_validation=True)
            elif new is not None:
                collection.insert_one(new, bypass_document_validation=True)
        except OperationFailure as error:
            if row is not None and not kept:
                collection.insert_one(
                    RawBSONDocument(cast("bytes", row.place)), bypass_document_validation=True
                )
            unique = error.code == DUPLICATE_KEY
            constraint = (
                (violated_index(error) or ID_INDEX) if unique else f"error {error.code} of the server"
            )
            raise CorruptionRefusedError(constraint, unique=unique) from error
        return None if new is None else row_of(entity, new)

    @override
    def forms(self, place: StoredPlace, value: object) -> Iterator[tuple[str, object]]:
        """Yield the same value in the other types of BSON that a program may have written."""
        match value:
            case bson.ObjectId() if place.name == ID:
                yield "text", str(value)
            case bson.ObjectId() | bytes() | bson.Decimal128():
                yield from other_types(value, self.typed_text(value))
            case datetime():
                yield "text", f"{value.isoformat(timespec='milliseconds')}+00:00"
                yield "object", {DATE: instant_text(value)}
            case bool():
                yield "int32", int(value)
            case int():
                if not isinstance(value, Int64):
                    yield "int64", Int64(value)
                elif INT32_MIN <= value <= INT32_MAX:
                    yield "int32", int(value)
                if int(float(value)) == value:
                    yield "double", float(value)
            case _:
                pass

    @override
    def typed_text(self, value: object) -> str | None:
        if isinstance(value, bson.Decimal128):
            return format_decimal(value.to_decimal())
        if isinstance(value, bson.Binary) and value.subtype == UUID_SUBTYPE and len(value) == UUID_BYTES:
            return str(value.as_uuid())
        return format_bytes(value) if type(value) is bytes else shown_id(value)

    @override
    def typed_value(self, value: object, text: str) -> object:
        if isinstance(value, bson.Decimal128):
            return bson.Decimal128(text)
        if isinstance(value, bson.Binary):
            return bson.Binary(UUID(text).bytes, value.subtype)
        return b64decode(text) if isinstance(value, bytes) else bson.ObjectId(text)

    @override
    def parts(self, entity: Entity) -> Iterator[SchemaPart]:
        """Yield the indexes except that of the identity, which no collection can be without."""
        collection = self._collection(entity)
        for name, index in collection.index_information().items():
            if name != ID_INDEX:
                options = {key: value for key, value in index.items() if key not in NOT_OPTIONS}
                make = partial(collection.create_index, index["key"], name=name, **options)
                kind = "unique index" if index.get("unique") else "index"
                yield SchemaPart(name, kind, partial(collection.drop_index, name), make)

    @override
    def clear(self, entity: Entity) -> None:
        self._collection(entity).delete_many({})

    def _collection(self, entity: Entity) -> Collection[RawBSONDocument]:
        name = self._connection.collection_name(entity)
        return self._connection.store.database[name].with_options(RAW)


def other_types(value: object, text: str | None) -> Iterator[tuple[str, object]]:
    """Yield an ObjectId, decimal or binary data as text, as the object for it, and in the nearest types.

    Each form has its own name, because a map may have values of all these types.
    """
    kind = NOUNS.get(type(value), "bytes")
    if text is not None:
        yield f"text of {kind}", text
    yield f"object of {kind}", json_member(value)
    if isinstance(value, bson.Decimal128):
        yield "double of a decimal", float(str(value))
        if SCALED.fullmatch(str(value)):
            yield "another scale", bson.Decimal128(f"{value}0")
    elif isinstance(value, bytes):
        subtype = value.subtype if isinstance(value, bson.Binary) else 0
        yield "another subtype", bson.Binary(value, subtype ^ 1)
        if subtype == UUID_SUBTYPE:
            yield "old UUID", bson.Binary(value, OLD_UUID_SUBTYPE)
        elif subtype == 0:
            yield "other binary data", bson.Binary(value, USER_DEFINED_SUBTYPE)


def shown_id(value: object) -> str | None:
    """Return the digits of an ObjectId, ``None`` for anything else."""
    return str(value) if isinstance(value, bson.ObjectId) else None


def row_of(entity: Entity, document: RawBSONDocument) -> RawRow:
    """Return a stored document; the parts of an ``_id`` that holds the key have a place each."""
    raw = bytes(document.raw)
    # The client would change the order of what looks like a reference.
    values = lossless_document(raw) or bson.decode(raw, EXACT)
    if id_parts(entity) and isinstance(values[ID], dict):
        parts = {f"{ID}.{name}": value for name, value in values.pop(ID).items()}
        values = {**parts, **values}
    return RawRow(raw, values)


def nested(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return a document in which the parts of ``_id`` are together again."""
    parts = {name.removeprefix(f"{ID}."): value for name, value in values.items() if field_of(name) != name}
    if not parts:
        return values
    return {ID: parts, **{name: value for name, value in values.items() if field_of(name) == name}}


def encoded(values: Mapping[str, object]) -> RawBSONDocument:
    """Return the BSON of a document in which names may be stored twice."""
    content = b""
    for name, value in values.items():
        element = bson.encode({name: plain(value.value if isinstance(value, DuplicateMember) else value)})[
            4:-1
        ]
        content += element * (2 if isinstance(value, DuplicateMember) else 1)
    return RawBSONDocument((len(content) + 5).to_bytes(4, "little") + content + b"\x00")


def plain(value: object) -> object:
    """Return a value that the client encodes: objects bring their BSON."""
    if isinstance(value, dict):
        return encoded(cast("dict[str, object]", value))
    return [plain(item) for item in cast("list[object]", value)] if isinstance(value, list) else value

"""Changing documents past the driver, for the self-test of a verification; see :mod:`twinstore.planting`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, cast

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, InsertOne, ReplaceOne
from pymongo.errors import BulkWriteError, OperationFailure
from typing_extensions import override

from twinstore.jsondates import DATE
from twinstore.planting import Doubled, Planter, PlantRefusedError, RawRow, Role, SchemaPart, StoredPlace
from twinstore.resources import SharedResources
from twinstore_mongo.connection import Connection
from twinstore_mongo.derive import ID, VERSION, derived_fields, stored_names
from twinstore_mongo.error_messages import ID_INDEX, violated_index
from twinstore_mongo.errors import DUPLICATE_KEY
from twinstore_mongo.stored_form import LEAST_SHORT, MOST_SHORT, instant_text

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.backend import BackendSettings
    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_mongo.connection import Document
    from twinstore_mongo.settings import MongoSettings

__all__ = ["planter_of"]

STORED: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
RAW: Final[CodecOptions[RawBSONDocument]] = CodecOptions(document_class=RawBSONDocument)
Request = InsertOne[RawBSONDocument] | ReplaceOne[RawBSONDocument] | DeleteOne
# Where a comparison shows what is not in the wire form.
BESIDE: Final = (Role.DERIVED, Role.IDENTITY, Role.GENERATED, Role.COUNTER)
PARTS: Final = {Role.MARKER: "storage", **dict.fromkeys(BESIDE, "beside")}
DROPPED_BY_SERVER: Final = frozenset({"v", "ns", "key"})


@dataclass(frozen=True, slots=True)
class StoredAt:
    """Where a document stands, and its bytes."""

    identity: object
    raw: bytes


@contextmanager
def planter_of(settings: BackendSettings, entities: Sequence[Entity]) -> Iterator[Planter]:
    """Open a planter of documents."""
    del entities  # a collection needs no catalog
    resources = SharedResources()
    with closing(resources):
        yield MongoPlanter(Connection(cast("MongoSettings", settings), resources))


class MongoPlanter(Planter):
    """Implements :class:`~twinstore.planting.Planter`; validators are passed by, as old documents did."""

    def __init__(self, connection: Connection) -> None:
        """Take the connection."""
        self._connection = connection

    @property
    @override
    def tabular(self) -> bool:
        return False

    @override
    def places(self, entity: Entity) -> tuple[StoredPlace, ...]:
        """Return the names of the documents, those that only the description has last."""
        named = {name: None for row in self.rows(entity) for name in row.values}
        return tuple(place_of(entity, name) for name in dict.fromkeys((*named, *described(entity))))

    @override
    def rows(self, entity: Entity) -> list[RawRow]:
        found = self._collection(entity).find({})
        return [row_of(entity, bytes(document.raw)) for document in found]

    @override
    def change(
        self, entity: Entity, row: RawRow | None, values: Mapping[str, object] | None
    ) -> RawRow | None:
        collection = self._collection(entity)
        if values is None:
            if row is not None:
                collection.delete_one({ID: place_in(row).identity})
            return None
        new = encoded(with_id(values))
        with refusals():
            if row is None:
                collection.insert_one(new, bypass_document_validation=True)
            else:
                replace(collection, place_in(row), new)
        return row_of(entity, bytes(new.raw))

    @override
    def change_all(
        self,
        entity: Entity,
        changes: Sequence[tuple[RawRow | None, Mapping[str, object] | None]],
    ) -> list[RawRow | PlantRefusedError | None]:
        """Change documents that keep their identity with one command for all neighbours of a kind."""
        found: list[RawRow | PlantRefusedError | None] = []
        for kind, batch in groupby(map(Change.of, changes), key=lambda change: change.kind):
            together = list(batch)
            if kind is None:
                found += [self._changed(entity, change.row, change.values) for change in together]
            else:
                found += self._bulk(entity, together)
        return found

    def _bulk(self, entity: Entity, changes: Sequence[Change]) -> list[RawRow | PlantRefusedError | None]:
        """Send changes of one kind; unordered, so that a refusal stops none."""
        try:
            self._collection(entity).bulk_write(
                [change.request() for change in changes], ordered=False, bypass_document_validation=True
            )
        except BulkWriteError as error:
            refused = error.details["writeErrors"]
            problems = {problem["index"]: refusal(as_error(problem)) for problem in refused}
            if not problems:
                raise
        else:
            problems = {}
        return [
            problems.get(number, None if change.new is None else row_of(entity, bytes(change.new.raw)))
            for number, change in enumerate(changes)
        ]

    @override
    def forms(self, place: StoredPlace, value: object) -> Iterator[tuple[str, object]]:
        """Return numbers of other types, generated identities as text, instants as text and as an object."""
        del place
        if isinstance(value, bson.ObjectId):
            yield "text", str(value)
        if isinstance(value, datetime):
            yield "text", f"{value.isoformat(timespec='milliseconds')}+00:00"
            yield "object", {DATE: instant_text(value)}
        elif isinstance(value, bool):
            yield "int32", int(value)
        elif isinstance(value, int):
            short = LEAST_SHORT <= value <= MOST_SHORT
            if isinstance(value, Int64) and short:
                yield "int32", int(value)
            elif not isinstance(value, Int64):
                yield "int64", Int64(value)
            if int(float(value)) == value:
                yield "double", float(value)

    @override
    def parts(self, entity: Entity) -> Iterator[SchemaPart]:
        """Return the indexes but that of the identity, which no collection can be without."""
        for name, index in self._collection(entity).index_information().items():
            if name != ID_INDEX:
                yield SchemaPart(name, "unique index" if index.get("unique") else "index")

    @override
    def drop(self, entity: Entity, part: SchemaPart) -> Callable[[], None]:
        collection = self._collection(entity)
        index = dict(collection.index_information()[part.name])
        keys = index["key"]
        options = {name: value for name, value in index.items() if name not in DROPPED_BY_SERVER}
        collection.drop_index(part.name)

        def make() -> None:
            collection.create_index(keys, name=part.name, **options)

        return make

    @override
    def clear(self, entity: Entity) -> None:
        self._collection(entity).delete_many({})

    def _collection(self, entity: Entity) -> Collection[RawBSONDocument]:
        name = self._connection.collection_name(entity)
        return self._connection.store.database[name].with_options(RAW)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one document.

    Attributes:
        row: what stands there, ``None`` for a new one.
        values: what shall stand there, ``None`` for nothing.
        new: its BSON.
        kind: the request that makes it; ``None`` where it takes more than one, or none.
    """

    row: RawRow | None
    values: Mapping[str, object] | None
    new: RawBSONDocument | None
    kind: type[Request] | None

    @classmethod
    def of(cls, change: tuple[RawRow | None, Mapping[str, object] | None]) -> Change:
        """Encode a change and tell its kind."""
        row, values = change
        new = None if values is None else encoded(with_id(values))
        if row is None:
            return cls(row, values, new, None if new is None else InsertOne)
        if new is None:
            return cls(row, values, new, DeleteOne)
        place = place_in(row)
        same = place.raw == new.raw or not keeps_identity(place, new)
        return cls(row, values, new, None if same else ReplaceOne)

    def request(self) -> Request:
        """Return the request that makes it."""
        if self.row is None:
            return InsertOne(cast("RawBSONDocument", self.new))
        place = {ID: place_in(self.row).identity}
        return DeleteOne(place) if self.new is None else ReplaceOne(place, self.new)


def described(entity: Entity) -> tuple[str, ...]:
    """Return the names that documents of an entity may have, as they are stored."""
    names = tuple(stored_names(entity).values())
    return (*names, ID, VERSION) if entity.versioned else (*names, ID)


def place_of(entity: Entity, name: str) -> StoredPlace:
    """Return what stands under a name at the top of documents."""
    field = {stored: field for field, stored in stored_names(entity).items()}.get(name, name)
    role = role_of(entity, name, field)
    head = "storage" if field in entity.markers else PARTS.get(role, "doc")
    if field in {item.name for item in entity.derived}:
        head = "beside"  # also where it is the key
    return StoredPlace(name=name, field=field, part=head, role=role, nests=True)


def role_of(entity: Entity, name: str, field: str) -> Role:
    """Return what a name at the top of documents is for."""
    if field in entity.key:
        return Role.KEY
    if field == entity.tenant_field:
        return Role.TENANT
    if field in entity.markers:
        return Role.MARKER
    if field in {item.name for item in derived_fields(entity)}:
        return Role.DERIVED
    if name == ID and field in entity.shapes:
        return Role.FIELD  # it is the own id, and no part of the key
    identity = Role.GENERATED if entity.generated_id else Role.IDENTITY
    return {ID: identity, VERSION: Role.COUNTER}.get(name, Role.FIELD)


def row_of(entity: Entity, raw: bytes) -> RawRow:
    """Return a stored document."""
    document = bson.decode(raw, STORED)
    return RawRow(StoredAt(document.get(ID), raw), key_of(entity, document), document)


def place_in(row: RawRow) -> StoredAt:
    """Return where a row stands."""
    return cast("StoredAt", row.place)


def replace(collection: Collection[RawBSONDocument], place: StoredAt, new: RawBSONDocument) -> None:
    """Put a document in place of another one.

    Raises:
        PlantRefusedError: both are the same, byte by byte.
    """
    # As it is stored: of a name that stands twice the decoded values tell one.
    if place.raw == new.raw:
        raise PlantRefusedError("BSON keeps it as it was")
    if keeps_identity(place, new):
        collection.replace_one({ID: place.identity}, new, bypass_document_validation=True)
        return
    # The server lets no identity change, so the document goes and comes again.
    collection.delete_one({ID: place.identity})
    try:
        collection.insert_one(new, bypass_document_validation=True)
    except BaseException:
        collection.insert_one(RawBSONDocument(place.raw), bypass_document_validation=True)
        raise


def keeps_identity(place: StoredAt, new: RawBSONDocument) -> bool:
    """Whether a document has the identity of the one at a place, down to its type."""
    return bson.encode({ID: place.identity}) == bson.encode({ID: bson.decode(new.raw, STORED)[ID]})


def key_of(entity: Entity, document: Document) -> Key | None:
    """Return the key of a document, ``None`` where a part of it is missing or of another type."""
    names = stored_names(entity)
    values = (document.get(names[name]) for name in entity.key)
    key = tuple(int(value) if isinstance(value, Int64) else value for value in values)
    return cast("Key", key) if entity.admits_key(key) else None


def with_id(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return a document with an identity, which the server would add otherwise."""
    return values if ID in values else {ID: bson.ObjectId(), **values}


def encoded(values: Mapping[str, object]) -> RawBSONDocument:
    """Return the BSON of a document in which names may stand twice."""
    elements = [bson.encode({name: plain(value)})[4:-1] for name, value in values.items()]
    if isinstance(values, Doubled):
        elements.append(bson.encode({values.name: plain(values[values.name])})[4:-1])
    content = b"".join(elements)
    return RawBSONDocument((len(content) + 5).to_bytes(4, "little") + content + b"\x00")


def plain(value: object) -> object:
    """Return a value that the client encodes: objects bring their BSON."""
    if isinstance(value, dict):
        return encoded(cast("dict[str, object]", value))
    if isinstance(value, list):
        return [plain(item) for item in cast("list[object]", value)]
    return value


@contextmanager
def refusals() -> Iterator[None]:
    """Turn a refusal of the server into one of ours."""
    try:
        yield
    except OperationFailure as error:
        raise refusal(error) from error


def as_error(problem: Mapping[str, Any]) -> OperationFailure:
    """Return the error that one request of several came to."""
    return OperationFailure(problem["errmsg"], problem["code"], problem)


def refusal(error: OperationFailure) -> PlantRefusedError:
    """Return what a refusal of the server is to the planter."""
    if error.code == DUPLICATE_KEY:
        return PlantRefusedError(violated_index(error) or ID_INDEX, unique=True)
    return PlantRefusedError(f"error {error.code} of the server")

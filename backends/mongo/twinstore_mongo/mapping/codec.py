"""Rows to documents and back, laid out once for each entity from its description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import pydantic
from bson import Binary, Code, DBRef, Decimal128, ObjectId
from bson.int64 import Int64
from pydantic_core import PydanticCustomError

from twinstore.catalog.conditions import Equals, OneOf, is_implied
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.models import json_text
from twinstore.models.canonical import (
    CanonicalJsonSerializer,
    CanonicalModel,
    decode_stored,
    describe_failure,
    undecodable,
)
from twinstore.models.fields import parse_timestamp
from twinstore.models.shapes import Kind
from twinstore_mongo.client.bson import EPOCH, NAIVE_EPOCH, first_element, first_of, value_in
from twinstore_mongo.client.errors import DRIVER
from twinstore_mongo.client.types import code_object
from twinstore_mongo.mapping.free_json import encode_typed, free_map, map_converters, references, within
from twinstore_mongo.mapping.layout import (
    ID,
    VERSION,
    derived_fields,
    document_indexes,
    gathered,
    id_parts,
    index_spec,
    internal_names,
    joined_id,
    longs_of,
    parts_in,
    plain_part,
    problem_of_id,
    spread,
    stored_key,
    stored_names,
    value_at,
)
from twinstore_mongo.mapping.typed import (
    KEY_TYPES,
    KEY_WRITERS,
    READERS,
    WRITERS,
    StoredTypeError,
    converted_fields,
    first_key_part,
    key_writers,
    read_key_part,
    typed_fields,
    value_readers,
    value_writers,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from pymongo.cursor import Cursor

    from twinstore.access.paging import SortKey
    from twinstore.access.query import Query
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key
    from twinstore_mongo.client.types import Document

M = TypeVar("M", bound=CanonicalModel)


def converted(document: Document | DBRef) -> Document:
    """Return a document of the client, changed in place: instants in UTC, and code as an object.

    One with ``$ref`` and ``$id`` the client reads as a reference.

    With a type registry the client would read each answer twice. The same for offsets, which it adds in ten
    times the time that this takes.
    """
    if isinstance(document, DBRef):
        document = dict(document.as_doc())
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
        key: stored names of the key, in key order; ``_id`` alone where that is the key of several parts.
        has_text_id: whether the key is the text in ``_id``.
        tenant: stored name of the tenant, ``None`` where no field names one.
        uniques: the other unique indexes by their stored name.
        readings: how lists are read.
        longs: the integers of the model, and lists of them, that are always stored in 64 bits.
        holds_free_json: whether the model has some, at any depth.
    """

    def __init__(self, entity: Entity[M]) -> None:
        self.entity = entity
        self.names = stored_names(entity)
        self.key = stored_key(entity)
        self.tenant = None if entity.tenant_field is None else self.names[entity.tenant_field]
        self.uniques = unique_indexes(entity)
        self.readings = Readings(entity, self.names)
        self.longs = longs_of(entity)
        self.writers = value_writers(entity)
        self.readers = value_readers(entity)
        self._key_writers = key_writers(entity)
        self.has_text_id = self.key == (ID,) and not entity.key_as_id and self._key_writers is None
        self._read_typed = typed_fields(entity.model, READERS)
        self._written_typed = typed_fields(entity.model, WRITERS)
        self._read_maps = map_converters(entity.model, free_map, references)
        self._written_maps = map_converters(entity.model, encode_typed)
        self.holds_free_json = bool(self._written_maps)
        self._markers = tuple((marker, self.names[marker.name]) for marker in entity.storage)
        self._written = tuple((marker.name, stored) for marker, stored in self._markers if stored != ID)
        self._internal = internal_names(entity)
        # The one field that is stored as ``_id``, where the model has it too.
        self._identity = entity.document_id if entity.document_id in entity.shapes else None
        self._derived = derived_fields(entity)
        self._derived_key = tuple(item for item in self._derived if item.name in entity.key)

    def encode(self, row: Row[M], version: Int64 = FIRST_VERSION) -> Document:
        """Return the document of a row."""
        model, storage = row.model, row.storage
        wire: Document = model.wire()
        if self._written_maps:
            within(self._written_maps, wire)
        if self._written_typed:
            wire = cast("Document", converted_fields(self._written_typed, wire))
        document: Document = {ID: self._take_id(row, wire), **spread(self.entity, wire)}
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
        if self.entity.key_as_id:
            for name in self.entity.key:
                wire.pop(name, None)
            return self.identity(self.entity.key_of(row.model, row.storage))
        if single is None:
            return joined_id(self.entity.key_of(row.model, row.storage))
        own = wire.pop(single, None)
        return row.storage.get(single, own)

    def stored_key(self, key: Key) -> Key:
        """Return a key as documents hold its parts, for filters and bounds."""
        if self._key_writers is None:  # as of nearly every entity
            return key
        parts = zip(self._key_writers, key, strict=True)
        # Any, because the client takes more than the keys of a caller have.
        stored: Any = tuple(part if write is None else write(part) for write, part in parts)
        return cast("Key", stored)

    def identity(self, key: Key) -> object:
        """Return the ``_id`` that holds a key as it is."""
        named = zip(self.entity.key, self.stored_key(key), strict=True)
        # A value of another type finds nothing.
        parts = {
            name: Int64(value) if type(value) is int and name in self.longs else value
            for name, value in named
        }
        return parts if id_parts(self.entity) else parts[self.entity.key[0]]

    def place(self, key: Key) -> Document:
        """Return where a key is: its values by stored name, which a filter finds."""
        if self.entity.key_as_id:
            return {ID: self.identity(key)}
        return dict(zip(self.key, self.stored_key(key), strict=True))

    def key_of(self, document: Mapping[str, Any]) -> Key | None:
        """Return the key of a document; ``None`` when it is none of the entity."""
        key: tuple[object, ...]
        if self.entity.key_as_id:
            key = parts_in(self.entity, document.get(ID))
        elif self._key_writers is None:  # as of nearly every entity
            key = tuple(plain_part(document.get(name)) for name in self.key)
        else:
            parts = zip(self.key, self.entity.key_parts, strict=True)
            key = tuple(
                read_key_part(part.type, document.get(name))
                if part.type in KEY_WRITERS
                else plain_part(document.get(name))
                for name, part in parts
            )
        return cast("Key", key) if self.entity.admits_key(key) else None

    def first_values(self, raw: bytes) -> tuple[Any, ...]:
        """Return the values of the key by the first ones of their names, by which the server finds it.

        They are as :func:`first_of` gives them, ObjectIds and UUIDs as keys have them.
        """
        if self.entity.key_as_id:
            return parts_in(self.entity, value_in(raw, ID))
        if self._key_writers is None:
            return tuple(first_of(raw, name) for name in self.key)
        parts = zip(self.key, self.entity.key_parts, strict=True)
        return tuple(
            first_key_part(part.type, first_element(raw, name))
            if part.type in KEY_WRITERS
            else first_of(raw, name)
            for name, part in parts
        )

    def decode(self, document: Mapping[str, Any], *, for_copy: bool = False) -> Row[M]:
        """Return the row of a stored document.

        Args:
            document: the document.
            for_copy: take every name that the description does not create for an unknown property; a service
                strips all that begin with ``_`` and are no fields of the model.

        Raises:
            DocumentDecodeError: the document does not form one; names entity and key.
        """
        key = self.readable_key(document)
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
        return Row(model if self.entity.derived_key is None else self._with_key(model, storage), storage)

    def stored_value(self, name: str, value: object) -> object:
        """Return what a field is compared with, or set to, as documents hold it."""
        write = self.writers.get(name)
        return value if write is None else write(value)

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
        return own != (None if derive(row.storage, json_text.dumps(wire)) == key else key)

    def readable_key(self, document: Mapping[str, Any]) -> str:
        """Return the key of a stored document as messages show it: its ``_id``, which is the key or joins it.

        A generated one replaces a key that is missing or of another type, because nothing else finds it then.
        """
        if self.entity.generated_id or self.entity.key_as_id or self._key_writers is not None:
            key = self.key_of(document)
            if key is not None:
                return self.entity.key_text(key)
        return text_of(document.get(ID))

    def bad(self, key: object, reason: str) -> Exception:
        """Return the error of a document that does not form a row."""
        return undecodable(reason, entity=self.entity.name, key=text_of(key), driver=DRIVER)

    def _values(self, document: Mapping[str, Any], *, for_copy: bool) -> Document:
        """Return the properties of the model: internal fields stripped, the id under its own name."""
        if self.entity.extra is not None:
            for_copy, document = True, gathered(self.entity, document)
        values = {
            name: value
            for name, value in document.items()
            # A null is what others write for an absent value.
            if value is not None
            and name not in self._internal
            and (for_copy or name[:1] != "_" or name in self.entity.shapes)
        }
        self.restore_maps(values)
        if self.entity.key_as_id:
            self._add_key(values, document)
        elif self._identity is not None:
            key = document.get(ID)
            if values.setdefault(self._identity, key) != key:
                raise self.bad(key, f"its fields _id and {self._identity} differ")
            if self.entity.derived_key is not None:
                del values[self._identity]
        if not self._read_typed:  # as of nearly every entity
            return values
        self._check_key_types(document)
        try:
            return cast("Document", converted_fields(self._read_typed, values))
        except StoredTypeError as error:
            raise self.bad(self.readable_key(document), str(error)) from error

    def _check_key_types(self, document: Mapping[str, Any]) -> None:
        """Refuse a document that is found under another key than its model would have: that of a text."""
        if self.entity.key_as_id:  # of which the parts are looked at one by one
            return
        for name, part in zip(self.key, self.entity.key_parts, strict=True):
            if part.type in KEY_WRITERS and read_key_part(part.type, document.get(name)) is None:
                wanted = KEY_TYPES[part.type][1]
                raise self.bad(self.readable_key(document), f"its {name} is not {wanted}")

    def _add_key(self, values: Document, document: Mapping[str, Any]) -> None:
        """Add the key that ``_id`` holds as it is, under the names of its fields."""
        key = parts_in(self.entity, document.get(ID))
        if not self.entity.admits_key(key):
            raise self.bad(self.readable_key(document), problem_of_id(self.entity, document.get(ID)))
        if any(name in document for name in self.entity.key):
            raise self.bad(self.readable_key(document), "it holds its key in its _id and next to it")
        values.update(zip(self.entity.key, key, strict=True))

    def _storage(self, document: Mapping[str, Any]) -> dict[str, object]:
        """Return the storage markers, without the absent ones."""
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
                self.readable_key(document), f"its markers {', '.join(wrong)} are missing or not {what}"
            )
        return storage

    def _with_key(self, model: M, storage: Mapping[str, object]) -> M:
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


if TYPE_CHECKING:
    Sort = list[tuple[str, int]]
    Find = Callable[[Document], "Cursor[Document]"]

# With this many extra rows, the last instant that is needed is mostly complete.
SPARE: Final = 16


@dataclass(frozen=True, slots=True)
class Path:
    """An index as a way to read a list: its fields, each with whether it descends, and the rows it holds."""

    fields: tuple[tuple[str, bool], ...]
    where: tuple[Condition, ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """How a list is read.

    Attributes:
        order: the total order of the list; without the keys that can make no difference.
        index_sort: the sort of the index, where it differs from the order in rows of the same leading value.
    """

    order: Sort
    index_sort: Sort | None = None


class Readings:
    """How the lists of one entity are read, decided once for each shape of a list."""

    def __init__(self, entity: Entity, names: Mapping[str, str]) -> None:
        self._tenant = entity.tenant_field
        self._names = names
        indexes = [index for index in document_indexes(entity) if not entity.is_inner(index)]
        key = Path(tuple((name, False) for name in entity.key), unique=True)
        self._paths = (key, *(Path(index.directions, index.where, index.unique) for index in indexes))
        self._partial = frozenset(condition for index in indexes for condition in index.where)
        self._known: dict[Hashable, Reading] = {}

    def of(self, query: Query) -> Reading:
        """Return how a list is read; values of its conditions matter only where an index has the same."""
        conditions = tuple(
            [item if item in self._partial else (type(item), item.field) for item in query.where]
        )
        shape = (query.order, query.scope is ALL_TENANTS, conditions)
        found = self._known.get(shape)
        if found is None:
            found = self._known[shape] = self._decide(query)
        return found

    def _decide(self, query: Query) -> Reading:
        pinned = {item.field for item in query.where if isinstance(item, Equals)}
        if self._tenant is not None and query.scope is not ALL_TENANTS:
            pinned.add(self._tenant)
        usable = [path for path in self._paths if all(is_implied(item, query.where) for item in path.where)]
        order = distinguishing(query.order, usable, pinned)
        sort = [(self._names[key.field], -1 if key.descending else 1) for key in order]
        # The server merges the ranges of several values as well as it reads one.
        equal = pinned | {item.field for item in query.where if isinstance(item, OneOf)}
        # Rows of one leading value are sorted here, which pays where few share it: with instants only.
        if not order or not order[0].time or any(serves(tail_of(path, equal), order) for path in usable):
            return Reading(sort)
        best = max((index_sort(tail_of(path, pinned), order) for path in usable), key=len)
        return Reading(sort, [(self._names[name], direction) for name, direction in best] or None)


def distinguishing(order: Sequence[SortKey], paths: Iterable[Path], pinned: set[str]) -> list[SortKey]:
    """Return the keys of an order up to where no two rows can be equal any more, without the pinned ones."""
    uniques = [{name for name, _ in path.fields} for path in paths if path.unique]
    known = set(pinned)
    kept: list[SortKey] = []
    for key in order:
        if any(fields <= known for fields in uniques):
            break
        if key.field not in known:
            kept.append(key)
            known.add(key.field)
    return kept


def tail_of(path: Path, equal: set[str]) -> tuple[tuple[str, bool], ...]:
    """Return the fields of a path behind the leading ones that have one value."""
    leading = next((n for n, (name, _) in enumerate(path.fields) if name not in equal), len(path.fields))
    return path.fields[leading:]


def serves(tail: Sequence[tuple[str, bool]], order: Sequence[SortKey]) -> bool:
    """Whether an index has an order, forwards or backwards."""
    if [name for name, _ in tail[: len(order)]] != [key.field for key in order]:
        return False
    turned = {descends is not key.descending for (_, descends), key in zip(tail, order, strict=False)}
    return len(turned) == 1


def index_sort(tail: Sequence[tuple[str, bool]], order: Sequence[SortKey]) -> Sort:
    """Return the sort of an index that has the leading key of an order, under wire names; else nothing."""
    found: Sort = []
    for (name, descends), key in zip(tail, order, strict=False):
        if name != key.field:
            break
        turned = tail[0][1] is not order[0].descending
        found.append((name, -1 if descends is not turned else 1))
    return found


def sorted_along_index(find: Find, condition: Document, reading: Reading, wanted: int) -> list[Document]:
    """Return the first ``wanted`` documents in an order of which the index has the leading field only."""
    (time, _), *rest = reading.order
    found = list(find(condition).sort(reading.index_sort or reading.order).limit(wanted + SPARE))
    groups = [list(group) for _, group in groupby(found, key=lambda row: row.get(time))]
    if len(found) < wanted + SPARE:  # there are no more, so the last instant is complete
        return in_order(groups, rest)[:wanted]
    *complete, last = groups
    rows = in_order(complete, rest)[:wanted]
    if len(rows) < wanted:
        # Rows of the last instant may be missing, and not the last ones of the order.
        instant = {"$and": [condition, {time: last[0].get(time)}]}
        rows += find(instant).sort(rest).limit(wanted - len(rows))
    return rows


def in_order(groups: Iterable[list[Document]], rest: Sort) -> list[Document]:
    """Return the rows of groups of equal time, each group by the rest of the order."""
    rows: list[Document] = []
    for group in groups:
        for name, direction in reversed(rest):
            group.sort(key=lambda row, name=name: rank(value_at(row, name)), reverse=direction < 0)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        rows += group
    return rows


def rank(value: Any) -> tuple[int, Any]:  # noqa: ANN401  # whatever is stored
    """Return what sorts a value; one that is not a key cannot be read anyway and only needs some place."""
    if value is None:
        return 0, ""
    if isinstance(value, str):
        return 2, value
    if isinstance(value, bytes):
        # As the server compares binary data; all bytes of the client have subtype 0.
        return 3, (len(value), value.subtype if isinstance(value, Binary) else 0, bytes(value))
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        return 1, float("-inf") if number.is_nan() else number
    if isinstance(value, ObjectId):
        return 4, value.binary
    return (1, value) if isinstance(value, int) else (5, repr(value))

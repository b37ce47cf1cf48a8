"""What the documents of an entity look like, derived from its description alone.

- ``_id`` is the one text or UUID that identifies a row, be it a field of the model or a marker, or the field
  that the description names instead. If several parts or a number identify a row, they stay separate fields,
  ``_id`` joins them, and a unique index finds a row. If the description says so, ``_id`` is an ObjectId that
  is generated at the first insert and kept from then on, and the key is stored next to it in the same way.
  If it says that the key itself is ``_id``, that is the number, or a document with one name a part, in order.
- The fields of the model keep their wire names and come first, in canonical order.
- Storage markers and derived fields follow under ``_`` and their name; a marker that other programs know by
  its plain name keeps that. ``_version`` comes last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bson.int64 import Int64
from bson.json_util import RELAXED_JSON_OPTIONS, dumps

from twinstore.catalog.conditions import (
    After,
    AtLeast,
    AtMost,
    Before,
    Equals,
    IsNull,
    IsPresent,
    NotAfter,
    OneOf,
)
from twinstore.catalog.entity import Layout, RetentionUnit
from twinstore.catalog.indexes import StoreKind
from twinstore.models.shapes import is_whole
from twinstore_mongo.mapping.typed import KEY_WRITERS, read_key_part

if TYPE_CHECKING:
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Derived, Entity, Module
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key
    from twinstore.plugins.options import ModuleOptions
    from twinstore_mongo.client.types import Document

ID: Final = "_id"
VERSION: Final = "_version"
JOIN: Final = ":"
LONGEST_ID: Final = 200


def stored_names(entity: Entity) -> dict[str, str]:
    """Return the stored name of every field, marker and derived field that a query may name."""
    names = {name: name for name in entity.shapes if name != entity.extra}
    names |= {derived.name: f"_{derived.name}" for derived in derived_fields(entity)}
    names |= {item.name: item.name if item.plain else f"_{item.name}" for item in entity.storage}
    names |= {name: f"{ID}.{name}" for name in id_parts(entity)}
    return names if entity.document_id is None else names | {entity.document_id: ID}


def id_parts(entity: Entity) -> tuple[str, ...]:
    """Return the fields that ``_id`` holds under their names, in order; mostly none."""
    return entity.key if entity.key_as_id and entity.document_id is None else ()


def gathered(entity: Entity, document: Mapping[str, Any]) -> Document:
    """Return a document with its unknown properties in the field that holds them; the inverse of `spread`."""
    name, known = entity.extra, entity.taken_names
    if name is None:
        return dict(document)
    unknown = {item: value for item, value in document.items() if item not in known}
    found = {item: value for item, value in document.items() if item in known}
    return {**found, name: unknown} if unknown or entity.shapes[name].always_written else found


def spread(entity: Entity, wire: Document) -> Document:
    """Return a wire form with its unknown properties next to its fields."""
    if entity.extra is None:
        return wire
    # Checked before: none has the name of a field.
    unknown = wire.pop(entity.extra, {})
    return {**wire, **unknown}


def stored_key(entity: Entity) -> tuple[str, ...]:
    """Return the stored names by which a row is found, in the order of the key."""
    names = stored_names(entity)
    return (ID,) if entity.key_as_id else tuple(names[name] for name in entity.key)


def parts_in(entity: Entity, identity: object) -> tuple[object, ...]:
    """Return what a stored ``_id`` holds as a key; nothing where it has other names.

    Numbers become integers, ObjectIds and UUIDs texts; a text in place of one of these is no part.
    """
    parts = id_parts(entity)
    if not parts:
        return (whole_part(identity),)
    if not isinstance(identity, dict) or tuple(identity) != parts:
        return ()
    return tuple(
        read_key_part(part.type, value) if part.type in KEY_WRITERS else whole_part(value)
        for part, value in zip(entity.key_parts, identity.values(), strict=True)
    )


def whole_part(value: object) -> object:
    """Return a part of a key; the server holds numbers of several types to be equal."""
    return int(value) if isinstance(value, Int64 | float) and value == value // 1 else value


def problem_of_id(entity: Entity, identity: object) -> str:
    """Return why an ``_id`` is no key of an entity, without its values."""
    parts = id_parts(entity)
    if not parts:
        return "its _id is not an integer of 64 bits"
    names = ", ".join(parts)
    if not isinstance(identity, dict):
        return f"its _id is not a document of {names}"
    if lacking := [part for part in parts if part not in identity]:
        return f"its _id lacks {', '.join(lacking)}"
    if len(identity) > len(parts):
        return f"its _id has more names than {names}"
    if tuple(identity) != parts:
        return f"its _id has its names in another order than {names}"
    found = zip(entity.key_parts, parts_in(entity, identity), strict=True)
    wrong = [part.field for part, value in found if not part.type.admits(value)]
    return f"its _id holds {', '.join(wrong)} in another type than that of the key"


def problem_of_text_id(entity: Entity, document: Mapping[str, Any]) -> str:
    """Return why a document has no key whose ``_id`` is not the text that the key is."""
    own = None if entity.document_id is None else document.get(entity.document_id)
    if own is not None and own != document.get(ID):
        return f"its fields {ID} and {entity.document_id} differ"
    return "the stored key is not a string"


def readable_id(document: Mapping[str, Any]) -> str | None:
    """Return the ``_id`` of a document as extended JSON, shortened; ``None`` where there is none."""
    try:
        text = dumps(document[ID], json_options=RELAXED_JSON_OPTIONS)
    # Even extended JSON does not know everything that a server stores.
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return text if len(text) <= LONGEST_ID else f"{text[:LONGEST_ID]}…"


def field_of(name: str) -> str:
    """Return the field that a projection names for a stored name: the server refuses a field and its part."""
    return ID if name.startswith(f"{ID}.") else name


def value_at(document: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401  # any stored value
    """Return what a document has under a stored name, which may lead into ``_id``."""
    if name in document or not name.startswith(f"{ID}."):
        return document.get(name)
    identity = document.get(ID)
    return identity.get(name[len(ID) + 1 :]) if isinstance(identity, dict) else None


def derived_fields(entity: Entity) -> tuple[Derived, ...]:
    """Return the derived fields that documents have."""
    return tuple(derived for derived in entity.derived if StoreKind.DOCUMENTS in derived.stores)


def internal_names(entity: Entity) -> frozenset[str]:
    """Return the stored names that are no part of the wire form. No other name is internal."""
    names = stored_names(entity)
    made = [marker.name for marker in entity.storage] + [item.name for item in derived_fields(entity)]
    counter = (VERSION,) if entity.versioned else ()
    return frozenset((*map(names.__getitem__, made), ID, *counter))


def joined_id(key: Key) -> str:
    """Return the ``_id`` of a row whose key is not a single text; no two keys have the same.

    If a colon inside a part, or an empty part, would make two keys look alike, each part includes its length.
    A number has no colon, so a text in front of one ends at the last of them, whatever it holds.
    """
    *heads, last = map(str, key)
    is_plain = len(heads) == 1 and type(key[-1]) is int
    if is_plain or all(head and JOIN not in head for head in heads):
        return JOIN.join((*heads, last))
    return JOIN + JOIN.join(f"{len(part)}{JOIN}{part}" for part in (*heads, last))


def longs_of(entity: Entity) -> tuple[str, ...]:
    """Return the integers of the model that documents always hold in 64 bits: those with such a column.

    Lists of such integers are among them. So the two kinds of store agree about each. All others take as many
    bits as their value needs.
    """
    columns = entity.shapes if entity.layout is Layout.COLUMNS else entity.beside
    wide = (name for name in columns if name not in entity.narrow)
    return tuple(name for name in wide if is_whole(entity.shapes[name].value))


def collection_specs(module: Module) -> tuple[CollectionSpec, ...]:
    """Return the collections of a module with their indexes."""
    return tuple(CollectionSpec(entity.collection, index_specs(entity)) for entity in module.entities)


def index_specs(entity: Entity) -> tuple[IndexSpec, ...]:
    """Return the indexes that the description wants, that of a composed key first."""
    key = key_index(entity)
    specs = tuple(index_spec(entity, index) for index in document_indexes(entity))
    return specs if key is None else (key, *specs)


def document_indexes(entity: Entity) -> tuple[Index, ...]:
    """Return the described indexes that stores of documents have."""
    # That of the key alone is there already; tables may give theirs a name.
    return tuple(
        index
        for index in entity.indexes
        if StoreKind.DOCUMENTS in index.stores and not (index.unique and index.names == entity.key)
    )


def key_index(entity: Entity) -> IndexSpec | None:
    """Return the index that makes a key unique, ``None`` if that of ``_id`` does."""
    if entity.key_as_id or (entity.single_key is not None and entity.single_key == entity.document_id):
        return None
    fields = [stored_names(entity)[name] for name in entity.key]
    key = tuple((field, 1) for field in fields)
    return IndexSpec(name=_index_name(fields, unique=True), key=key, unique=True)


def index_spec(entity: Entity, index: Index) -> IndexSpec:
    """Return one described index as the server gets it; its ``document_name`` replaces the default name."""
    names = stored_names(entity)
    fields = [names.get(name) or stored_path(entity, names, name) for name in index.names]
    directions = [-1 if descending else 1 for _, descending in index.directions]
    retention = entity.retention if index.expires else None
    return IndexSpec(
        name=index.document_name or _index_name(fields, unique=index.unique),
        key=tuple(zip(fields, directions, strict=True)),
        unique=index.unique,
        partial={names[item.field]: _partial(item) for item in index.where},
        retention=None if retention is None else retention.option,
        unit=RetentionUnit.DAYS if retention is None else retention.unit,
        sparse_unless=index.sparse_unless,
    )


def stored_path(entity: Entity, names: Mapping[str, str], path: str) -> str:
    """Return the stored path of a value inside of a field; nested models keep their wire names."""
    first, *rest = entity.inner_paths[path].names
    return ".".join((names[first], *rest))


def _index_name(fields: Iterable[str], *, unique: bool) -> str:
    # Reports write the name behind that of the collection and a dot.
    return "_".join(("ux" if unique else "ix", *fields)).replace(".", "_")


def _partial(condition: Condition) -> object:
    """Return a condition as a partial filter, which has no "not null" and needs none."""
    # Documents of ours leave absent values out; one with a stored null is in the index and does no harm.
    return {"$exists": True} if isinstance(condition, IsPresent) else operator_of(condition)


def operator_of(condition: Condition) -> object:
    """Return what a field must be so that a condition holds."""
    match condition:
        case Equals(_, value):
            return value
        case OneOf(_, values):
            return {"$in": list(values)} if len(values) != 1 else values[0]
        case IsNull():
            return None
        case IsPresent():
            return {"$ne": None}
        case After() | Before() | AtMost() | AtLeast():
            return {COMPARISONS[type(condition)]: condition.value}
        case NotAfter(_, value):
            return {"$not": {"$gt": value}}


COMPARISONS: Final[Mapping[type[Condition], str]] = {
    After: "$gt",
    Before: "$lt",
    AtMost: "$lte",
    AtLeast: "$gte",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpec:
    """One index as the steps want it.

    Attributes:
        retention: the option of the module that says when rows expire, where one does.
        unit: what that option holds.
        sparse_unless: the option of the module that, while off, keeps rows without the first field out.
    """

    name: str
    key: tuple[tuple[str, int], ...]
    unique: bool = False
    partial: Mapping[str, Any] = field(default_factory=dict)
    retention: str | None = None
    unit: RetentionUnit = RetentionUnit.DAYS
    sparse_unless: str | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> IndexSpec:
        """Read an index of a step."""
        return cls(
            name=content["name"],
            key=tuple((name, direction) for name, direction in content["key"]),
            unique=content.get("unique", False),
            partial=content.get("partialFilterExpression", {}),
            retention=content.get("retention"),
            unit=RetentionUnit(content.get("retentionUnit", RetentionUnit.DAYS.value)),
            sparse_unless=content.get("sparseUnless"),
        )

    def content(self) -> Document:
        """Return the index as a step has it."""
        content: Document = {"name": self.name, "key": [list(part) for part in self.key]}
        optional = {
            "unique": self.unique,
            "partialFilterExpression": dict(self.partial),
            "retention": self.retention,
            "retentionUnit": "" if self.unit is RetentionUnit.DAYS else self.unit.value,
            "sparseUnless": self.sparse_unless,
        }
        return content | {name: value for name, value in optional.items() if value}

    def options(self, module: ModuleOptions, *, server_ttl: bool = True) -> Document:
        """Return the options of ``createIndex`` in addition to the key, with the present retention."""
        options: Document = {"name": self.name}
        if self.unique:
            options["unique"] = True
        if self.partial:
            options["partialFilterExpression"] = dict(self.partial)
        if self.sparse_unless and not getattr(module, self.sparse_unless):
            options["sparse"] = True
        age = self.unit.age(getattr(module, self.retention)) if self.retention else None
        if age is not None and server_ttl:
            options["expireAfterSeconds"] = int(age.total_seconds())
        return options


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """One collection with its indexes in the order of creation."""

    name: str
    indexes: tuple[IndexSpec, ...]


def plain_part(value: object) -> object:
    """Return a part of a key; the client has a separate class for integers of 64 bits."""
    return int(value) if isinstance(value, Int64) else value

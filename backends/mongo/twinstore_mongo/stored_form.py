"""How a stored document is shown to a comparison: as canonical JSON, with marks for what is never written.

The form in which the driver writes is BSON type by BSON type: an instant is a date, and so is what stands for
one in free JSON; an integer that a table holds in 64 bits has 64 bits here too, all others take as many as
their value needs, and nothing is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Self

import bson
import orjson
from bson import json_util
from bson.int64 import Int64
from pydantic_core import PydanticCustomError

from twinstore.fields import parse_timestamp
from twinstore.jsondates import DATE, date_in
from twinstore.shapes import Kind
from twinstore.stored import MARK, marked
from twinstore_mongo.derive import (
    ID,
    VERSION,
    derived_fields,
    internal_names,
    joined_id,
    longs_of,
    stored_names,
)
from twinstore_mongo.free_json import EPOCH, NAIVE_EPOCH, Walk, walks_of, within

if TYPE_CHECKING:
    from twinstore.catalog import Entity, Key
    from twinstore_mongo.connection import Document

__all__ = ["LEAST_SHORT", "MOST_SHORT", "StoredForm", "instant_text", "json_of"]

# What stands for itself. The client has a class of its own for integers of 64 bits, so these have 32.
PLAIN: Final = frozenset({str, bool, int, NoneType})
LEAST_SHORT: Final = -(2**31)
MOST_SHORT: Final = 2**31 - 1
BITS_OF_A_LONG: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """Names and places in the documents of one entity; values are shown as they are stored.

    Attributes:
        wire_id: the wire name of ``_id``, where it is part of the wire form.
        joined: whether ``_id`` is made of the parts of the key.
        generated: whether ``_id`` is an ObjectId of which the value is free.
        markers: storage markers and their stored names.
        derived: fields that follow from the content and their stored names.
        internal: the stored names that are no part of the wire form.
        instants: paths of instants from the top.
        maps: the fields in which there is free JSON, each with what shows it.
        longs: stored names of the integers that always have 64 bits, and of lists of them.
        versioned: documents count their changes.
        expires: the instant by which retention judges.
        derived_key: the id is part of the wire form unless it is what this returns.
    """

    wire_id: str | None
    joined: bool
    generated: bool
    markers: Mapping[str, str]
    derived: Mapping[str, str]
    internal: frozenset[str]
    instants: tuple[tuple[str, ...], ...]
    maps: tuple[tuple[str, Walk], ...]
    longs: tuple[str, ...]
    versioned: bool
    expires: str | None
    derived_key: Callable[[Mapping[str, object], bytes], str] | None

    @classmethod
    def of(cls, entity: Entity) -> Self:
        """Return the form of the documents of an entity."""
        names, retention = stored_names(entity), entity.retention
        markers = {marker.name: names[marker.name] for marker in entity.storage}
        derived = {item.name: names[item.name] for item in derived_fields(entity)}
        counted = [marker.name for marker in entity.storage if marker.kind is Kind.INTEGER]
        counted += [
            item.name
            for item in derived_fields(entity)
            if item.kind is Kind.INTEGER and item.bits == BITS_OF_A_LONG
        ]
        return cls(
            wire_id=entity.document_id if entity.document_id in entity.shapes else None,
            joined=entity.document_id is None and not entity.generated_id,
            generated=entity.generated_id,
            markers=markers,
            derived=derived,
            internal=internal_names(entity),
            instants=tuple((names[head], *rest) for head, *rest in entity.instants),
            maps=walks_of(entity.model, shown_map),
            longs=(*longs_of(entity), *(names[name] for name in counted)),
            versioned=entity.versioned,
            expires=None if retention is None else names[retention.field],
            derived_key=entity.derived_key,
        )

    def expiry(self, stored: Mapping[str, Any]) -> datetime | None:
        """Return the instant by which retention judges a document, also where it is stored as text."""
        value = None if self.expires is None else stored.get(self.expires)
        if type(value) is datetime:
            return EPOCH + (value - NAIVE_EPOCH)
        return parsed(value) if type(value) is str else None

    def shown(self, stored: Document, key: Key | None, altered: str | None = None) -> tuple[bytes, bytes]:
        """Return content and what stands beside it, for :class:`~twinstore.bulk.ScanRow`.

        Args:
            stored: the document, which is changed.
            key: its key, ``None`` where it has none.
            altered: the digest of a document that is stored otherwise than its decoded values tell.
        """
        for path in self.instants:
            if path[0] in stored:
                show_instants(stored, path)
        within(self.maps, stored)
        for name in self.longs:
            if name in stored:
                stored[name] = long_of(stored[name])
        document = {
            name: value if type(value) in PLAIN else plain(value)
            for name, value in stored.items()
            if name not in self.internal
        }
        storage = self._named(self.markers, stored)
        beside = {name: plain(stored.get(source)) for name, source in self.derived.items()}
        self._add_id(document, storage, stored)
        if not self._is_right(stored[ID], key):
            beside[ID] = marked("identity", plain(stored[ID]))
        if self.versioned and not is_version(stored.get(VERSION)):
            # Under a mark, because a null stands for what may be absent.
            beside[VERSION] = marked("version", plain(stored.get(VERSION)))
        if altered is not None:
            document[MARK + "bson"] = altered
        return json_of({"doc": document, "storage": storage}), json_of(beside)

    @staticmethod
    def _named(names: Mapping[str, str], stored: Document) -> Document:
        return {name: plain(stored[source]) for name, source in names.items() if source in stored}

    def _add_id(self, document: Document, storage: Document, stored: Document) -> None:
        """Put the id where the wire form has it; one that stands there already is shown as what it is."""
        if self.wire_id is None or self._is_derived(document, storage, stored[ID]):
            return
        place = ID if self.wire_id in document else self.wire_id
        document[place] = plain(stored[ID])

    def _is_derived(self, document: Document, storage: Document, identity: object) -> bool:
        """Whether the id follows from the content, which then does not repeat it."""
        return self.derived_key is not None and bool(
            self.derived_key(storage, orjson.dumps(document)) == identity
        )

    def _is_right(self, identity: object, key: Key | None) -> bool:
        """Whether an ``_id`` that is no part of the wire form is one that a copy may have stored."""
        if self.generated:
            return type(identity) is bson.ObjectId
        return not self.joined or (key is not None and identity == joined_id(key))


def show_instants(value: Any, path: tuple[str, ...]) -> None:  # noqa: ANN401  # any stored value
    """Replace the dates at a path by their canonical text, in lists too; text there is marked."""
    if type(value) is list:
        for item in value:
            show_instants(item, path)
    if type(value) is not dict:
        return
    name, *rest = path
    found = value.get(name)
    if rest:
        show_instants(found, tuple(rest))
    elif type(found) is datetime:
        value[name] = instant_text(found)
    elif type(found) is str:
        value[name] = marked("text", found)


def long_of(value: object) -> object:
    """Return an integer of 64 bits as JSON has it; one of 32 bits is marked, also as the item of a list."""
    if type(value) is Int64:
        return int(value)
    if type(value) is list:
        return [item if type(item) is list else long_of(item) for item in value]
    return marked("int32", value) if type(value) is int else value


def shown_map(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return an object of free JSON with its dates as the objects that stand for them.

    An object of that form that is stored as such is marked, because the driver writes a date.
    """
    if type(value) is dict:
        if PLAIN.issuperset(map(type, value.values())):
            return value
        return {name: item if type(item) in PLAIN else shown_member(item) for name, item in value.items()}
    return shown_map(dict(value.as_doc())) if isinstance(value, bson.DBRef) else value


def shown_member(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a member of free JSON as :func:`shown_map` has it."""
    if type(value) is datetime:
        return {DATE: instant_text(value)}
    if type(value) is dict and date_in(value) is not None:
        return marked("object", value)
    if type(value) is list:
        return value if PLAIN.issuperset(map(type, value)) else list(map(shown_member, value))
    return shown_map(value)


def plain(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a stored value for :func:`json_of`."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        if PLAIN.issuperset(map(type, value.values())):
            return value
        return {name: plain(item) for name, item in value.items()}
    if kind is list:
        return [plain(item) for item in value]
    return unusual(value)


def unusual(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return the JSON of the rarer types of BSON; those that the driver never writes are marked."""
    if isinstance(value, Int64):
        short = LEAST_SHORT <= value <= MOST_SHORT
        return marked("int64", int(value)) if short else int(value)
    if isinstance(value, float):
        return marked("double", repr(value)) if value.is_integer() or value - value != 0 else value
    if isinstance(value, bson.DBRef):  # a free map may look like one
        return plain(dict(value.as_doc()))
    return marked("bson", json_util.default(value, json_util.CANONICAL_JSON_OPTIONS))


def is_version(value: object) -> bool:
    """Whether a stored value counts changes."""
    return type(value) is Int64 and value >= 1


def json_of(value: object) -> bytes:
    """Return compact JSON with sorted keys."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def instant_text(value: datetime) -> str:
    """Return the canonical text of a naive instant."""
    text = orjson.dumps(value).decode()
    return f"{text[1:24]}+00:00" if value.microsecond else f"{text[1:20]}+00:00"


def parsed(text: str) -> datetime | None:
    """Return the instant of a text, ``None`` for any other text."""
    try:
        return parse_timestamp(text)
    except PydanticCustomError:
        return None

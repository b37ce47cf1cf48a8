"""Reading ranges of rows for comparison, straight from the stored values.

Nothing here is shared with the export: it pages with an aggregation that compares across types, and writes
JSON without the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self, cast

import bson
import orjson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64
from pydantic_core import PydanticCustomError

from twinstore.bulk import Key, KeyRange, ScanRow
from twinstore.fields import parse_timestamp
from twinstore.forks import ending
from twinstore.shapes import Kind, left_out_when_empty
from twinstore.tenancy import NO_TENANT, UNKNOWN_TENANT, StoredOwner, TenancyKind, Tenant
from twinstore_mongo.codec import FOREIGN_TYPES
from twinstore_mongo.derive import stored_names
from twinstore_mongo.key_order import SIMPLE, has_key_index, next_batch

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.catalog import Entity
    from twinstore_mongo.bulk_owners import Chosen
    from twinstore_mongo.connection import Document, OpenDatabase

__all__ = ["CollectionScan"]

STORED: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, type_registry=FOREIGN_TYPES
)
# Keeps broken bytes apart: two documents that differ in them never decode to the same.
BROKEN: Final = STORED.with_options(unicode_decode_error_handler="surrogateescape")
# What the JSON writer takes as it is.
PLAIN: Final = frozenset({str, bool, int, datetime})
WRITING: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_SORT_KEYS
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NAIVE_EPOCH: Final = EPOCH.replace(tzinfo=None)
# Of one query, whose text grows with them.
FETCH_KEYS: Final = 500
# What a field that is left out for another reason than null is then.
EMPTY: Final[Mapping[Kind, object]] = {Kind.LIST: [], Kind.MAP: {}, Kind.INTEGER: 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionScan:
    """What one entity looks like in its collection: names and places only, for values are read as stored.

    Attributes:
        key: stored names of the key.
        numbers: those parts of it that are integers.
        tenant: stored name of the tenant, ``None`` where rows name none.
        may_lack_tenant: a row may be without tenant.
        wire_id: the wire name of ``_id``, where it is part of the wire form.
        markers: storage markers and their stored names.
        instants: paths of instants from the top.
        empty: what is left out when it has this value.
        expires: the instant by which retention judges.
        derived_key: the id is part of the wire form unless it is what this returns.
    """

    key: tuple[str, ...]
    numbers: frozenset[str] = frozenset()
    tenant: str | None = None
    may_lack_tenant: bool = False
    wire_id: str | None = None
    markers: Mapping[str, str] = field(default_factory=dict)
    instants: tuple[tuple[str, ...], ...] = ()
    empty: Mapping[str, object] = field(default_factory=dict)
    expires: str | None = None
    derived_key: Callable[[Mapping[str, object], bytes], str] | None = None

    @classmethod
    def of(cls, entity: Entity) -> Self:
        """Return the scan of an entity."""
        names, retention = stored_names(entity), entity.retention
        return cls(
            key=tuple(names[name] for name in entity.key),
            numbers=frozenset(names[part.field] for part in entity.key_parts if part.type.is_number),
            tenant=None if entity.tenant_field is None else names[entity.tenant_field],
            may_lack_tenant=entity.tenancy.kind is TenancyKind.OPTIONAL,
            wire_id=entity.single_key if entity.single_key in entity.shapes else None,
            markers={name: names[name] for name in entity.markers},
            instants=tuple((names[head], *rest) for head, *rest in entity.instants),
            empty={name: EMPTY[entity.known[name]] for name in left_out_when_empty(entity.model)},
            expires=None if retention is None else names[retention.field],
            derived_key=entity.derived_key,
        )

    def batches(
        self,
        store: OpenDatabase,
        collection: Collection[Document],
        within: KeyRange,
        *,
        rows: Chosen,
        batch_size: int,
    ) -> Iterator[list[ScanRow]]:
        """Yield the rows of a range in key order."""
        order = dict.fromkeys(self.key, 1)
        with store.limited():
            indexed = has_key_index(collection, list(order.items()))
        # Without an index, rows of one key come in the same order in each pass.
        order = order if indexed else {**order, "_id": 1}
        along: Document = {"hint": order} if indexed else {"allowDiskUse": True}
        match = {"$match": {**self.matching(within), **rows.condition}}
        pipeline = [match, {"$sort": order}, *rows.joins]
        with store.limited() if indexed else store.with_index_timeout():
            cursor = collection.aggregate_raw_batches(
                pipeline, batchSize=batch_size, collation=SIMPLE, **along
            )
        with ending(cursor.close):
            while (raw := next_batch(store, cursor, indexed=indexed)) is not None:
                if raw:
                    yield self.rows(raw)

    def fetch(
        self, store: OpenDatabase, collection: Collection[Document], keys: Sequence[Key]
    ) -> Iterator[ScanRow]:
        """Yield single rows."""
        for start in range(0, len(keys), FETCH_KEYS):
            condition = self.any_of(keys[start : start + FETCH_KEYS])
            cursor = collection.find_raw_batches(condition, collation=SIMPLE)
            with ending(cursor.close):
                while (raw := store.next_batch(cursor)) is not None:
                    yield from self.rows(raw)

    def any_of(self, keys: Sequence[Key]) -> Document:
        """Return the filter of some keys."""
        if len(self.key) == 1:
            return {self.key[0]: {"$in": [key[0] for key in keys]}}
        return {"$or": [dict(zip(self.key, key, strict=True)) for key in keys]}

    def matching(self, within: KeyRange) -> Document:
        """Return the filter of a range; expressions compare values of different types, filters do not."""
        clauses: list[Document] = []
        if within.lower is not None:
            clauses += self.beyond("$gt", within.lower, last="$gte")
        if within.upper is not None:
            clauses += self.beyond("$lt", within.upper, last="$lt")
        return {"$expr": {"$and": clauses}} if clauses else {}

    def beyond(self, operator: str, key: Key, *, last: str) -> list[Document]:
        """Return what holds for keys on one side of a bound, in the order of the key."""
        *heads, tail = [(f"${name}", {"$literal": value}) for name, value in zip(self.key, key, strict=True)]
        clause: Document = {last: list(tail)}
        bound: list[Document] = []
        for head in reversed(heads):
            clause = {"$or": [{operator: list(head)}, {"$and": [{"$eq": list(head)}, clause]}]}
            # Without this the scan would start at the first key of the index.
            bound = [{f"{operator}e": list(head)}]
        return [*bound, clause]

    def rows(self, raw: bytes) -> list[ScanRow]:
        """Return the rows of a raw batch."""
        try:
            documents = bson.decode_all(raw, STORED)
        except bson.InvalidBSON:
            return [self.broken_row(document) for document in documents_of(raw)]
        return [self.row(document) for document in documents]

    def broken_row(self, raw: bytes) -> ScanRow:
        """Return the row of a document that may be broken; its bytes decide about equality."""
        try:
            return self.row(bson.decode(raw, STORED))
        except bson.InvalidBSON:
            content = json_of({"doc": {"$bson": raw.hex()}, "storage": {}})
        try:
            document = bson.decode(raw, BROKEN)
        except bson.InvalidBSON:
            return ScanRow(None, self.owner_of(raw), content)
        tenant = None if self.tenant is None else printable(document.get(self.tenant))
        return ScanRow(self.sure_key_of(document), self.owner_of(tenant), content)

    def row(self, stored: Document) -> ScanRow:
        """Return the row of a document."""
        as_text = self.normalise_instants(stored)
        expires = stored.get(self.expires) if self.expires else None
        internal = self.markers.values()
        document = {
            name: value if type(value) in PLAIN else plain(value)
            for name, value in stored.items()
            if value is not None and name[:1] != "_" and name not in internal
        }
        for name, empty in self.empty.items():
            if document.get(name) == empty and type(document[name]) is type(empty):
                del document[name]
        storage = self.markers and {
            name: plain(stored[source])
            for name, source in self.markers.items()
            if stored.get(source) is not None
        }
        self.add_id(document, stored)
        return ScanRow(
            self.key_of(stored),
            self.owner_of(None if self.tenant is None else stored.get(self.tenant)),
            json_of({"doc": document, "storage": storage}),
            EPOCH + (expires - NAIVE_EPOCH) if type(expires) is datetime else None,
            as_text,
        )

    def owner_of(self, value: object) -> StoredOwner:
        """Return the owner of a row by what stands in the field of the tenant."""
        if type(value) is str and self.tenant is not None:
            return Tenant(value)
        if self.tenant is None or (value is None and self.may_lack_tenant):
            return NO_TENANT
        return UNKNOWN_TENANT

    def add_id(self, document: Document, stored: Document) -> None:
        """Put the id where the wire form has it; a second, different copy must not go unseen."""
        if self.wire_id is None or self.is_derived(document, stored):
            return
        identity = plain(stored["_id"])
        if document.setdefault(self.wire_id, identity) != identity:
            document["_id"] = identity

    def is_derived(self, document: Document, stored: Document) -> bool:
        """Whether the id follows from the content, which then does not repeat it."""
        if self.derived_key is None:
            return False
        markers = {name: stored.get(source) for name, source in self.markers.items()}
        content = orjson.dumps(document, default=instant_text, option=orjson.OPT_PASSTHROUGH_DATETIME)
        return bool(self.derived_key(markers, content) == stored["_id"])

    def key_of(self, stored: Mapping[str, Any]) -> Key | None:
        """Return the key, ``None`` when a part is of another type."""
        if self.numbers:
            return self.key_with_numbers(stored)
        key = [part for name in self.key if type(part := stored.get(name)) is str]
        return tuple(key) if len(key) == len(self.key) else None

    def key_with_numbers(self, stored: Mapping[str, Any]) -> Key | None:
        """Return a key of which some parts are integers, which the client may have as a class of its own."""
        values: Document = {name: stored.get(name) for name in self.key}
        values |= {name: int(values[name]) for name in self.numbers if type(values[name]) is Int64}
        fit = (type(value) is (int if name in self.numbers else str) for name, value in values.items())
        return cast("Key", tuple(values.values())) if all(fit) else None

    def sure_key_of(self, document: Mapping[str, Any]) -> Key | None:
        """Return the key of a broken document, ``None`` when the key itself is broken.

        What stands for its bytes sorts elsewhere, and could be the key of another row.
        """
        key = self.key_of(document)
        return (
            key if key is not None and all(is_sound(part) for part in key if isinstance(part, str)) else None
        )

    def normalise_instants(self, stored: Document) -> bool:
        """Replace instants stored as text by real ones; return whether there were any."""
        found = False
        for path in self.instants:
            value = stored.get(path[0])
            # Nearly every value is an instant already.
            if value is not None and type(value) is not datetime:
                found |= replace_text(stored, path)
        return found


def replace_text(value: Any, path: tuple[str, ...]) -> bool:  # noqa: ANN401  # any stored value
    """Replace one instant stored as text, in lists too; text that is not an instant stays."""
    if type(value) is list:
        return sum(replace_text(item, path) for item in value) > 0  # every item, so not any()
    if type(value) is not dict:
        return False
    name, *rest = path
    if rest:
        return replace_text(value.get(name), tuple(rest))
    if type(value.get(name)) is not str:
        return False
    try:
        value[name] = parse_timestamp(value[name]).replace(tzinfo=None)
    except PydanticCustomError:
        return False
    return True


def plain(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a stored value for :func:`json_of`: whole doubles as integers, nulls left out."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is dict:
        if PLAIN.issuperset(map(type, value.values())):
            return value
        return {name: plain(item) for name, item in value.items() if item is not None}
    if kind is list:
        return [plain(item) for item in value]
    return unusual(value)


def json_of(value: object) -> bytes:
    """Return compact JSON with sorted keys; instants, which are naive here, become text in UTC."""
    return orjson.dumps(value, default=instant_text, option=WRITING)


def instant_text(value: Any) -> str:  # noqa: ANN401  # what the writer does not know
    """Return the canonical text of a naive instant."""
    if type(value) is not datetime:
        raise TypeError(f"{type(value).__name__} has no JSON form")  # a programmer's mistake
    text = orjson.dumps(value).decode()
    return f"{text[1:24]}+00:00" if value.microsecond else f"{text[1:20]}+00:00"


def unusual(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return the JSON of the rarer types of BSON; foreign ones in their extended form."""
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else repr_of(value)
    if isinstance(value, bson.DBRef):
        return plain(dict(value.as_doc()))
    return json_util.default(value, json_util.CANONICAL_JSON_OPTIONS)


def repr_of(value: float) -> Any:  # noqa: ANN401  # a number, or its name
    """Return a number with a fraction; JSON has no name for the others."""
    return value if value - value == 0 else str(value)


def is_sound(text: str) -> bool:
    """Tell whether a leniently decoded text was valid UTF-8: no half of a pair stands for a byte."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def printable(value: object) -> object:
    """Return a leniently decoded text with its broken bytes as numbers, everything else as it is."""
    if type(value) is not str:
        return value
    return value.encode(errors="surrogateescape").decode(errors="backslashreplace")


def documents_of(raw: bytes) -> Iterator[bytes]:
    """Yield the documents of a raw batch."""
    view, rest = memoryview(raw), len(raw)
    while rest:
        size = int.from_bytes(view[:4], "little")
        yield bytes(view[:size])
        view, rest = view[size:], rest - size

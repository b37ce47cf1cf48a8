"""Reading ranges of rows for comparison, straight from the stored values.

Nothing here is shared with the export: it pages with an aggregation that compares across types, and writes
JSON without the models. A value that is stored in another form than the driver writes is shown under a mark,
see :mod:`twinstore.bulk.rows`. A document that the client cannot return byte by byte, because a name occurs
twice or a type is replaced, is marked as a whole.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import bson
import orjson
from bson import json_util
from bson.binary import UUID_SUBTYPE
from bson.int64 import Int64
from pydantic_core import PydanticCustomError

from twinstore.bulk.changes import NAMING, NO_CHANGES, ChangeRefusedError, FoundRow, StoredValues
from twinstore.bulk.rows import MARK, ScanRow, marked
from twinstore.catalog.keys import Key, KeyRange, KeyType
from twinstore.catalog.tenancy import NO_TENANT, UNKNOWN_TENANT, StoredOwner, TenancyKind, Tenant
from twinstore.models.fields import DATE, parse_timestamp
from twinstore.models.shapes import Kind
from twinstore.models.typed_objects import decimal_in, is_typed_object
from twinstore.runtime.forks import cleanup_unless_forked
from twinstore_mongo.bulk.lookups import FindingValues
from twinstore_mongo.client.bson import (
    EPOCH,
    NAIVE_EPOCH,
    documents_of,
    first_element,
    first_of,
    parts_of,
    value_in,
)
from twinstore_mongo.client.types import BROKEN_TEXT, EXACT
from twinstore_mongo.mapping.free_json import (
    MapConverter,
    exact_document,
    lossless_document,
    map_converters,
    within,
)
from twinstore_mongo.mapping.key_order import SIMPLE, fitting_batch, has_key_index, next_parts
from twinstore_mongo.mapping.layout import (
    ID,
    VERSION,
    derived_fields,
    gathered,
    internal_names,
    joined_id,
    longs_of,
    problem_of_id,
    problem_of_text_id,
    readable_id,
    stored_names,
)
from twinstore_mongo.mapping.object_ids import ReplacedIds
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.bulk.changes import ChangedDocument, DocumentChange, DocumentChanges
    from twinstore.catalog.entity import Entity
    from twinstore_mongo.bulk.tenant_filter import TenantFilter
    from twinstore_mongo.client.database import OpenDatabase
    from twinstore_mongo.client.types import Document

FETCH_KEYS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionScan:
    """What one entity looks like in its collection: names and places only, for values are read as stored.

    Attributes:
        entity: its description, for the types of the key.
        key: stored names of the key; ``_id`` alone where that is the key.
        parts: stored names of its parts.
        numbers: those parts of it that are integers.
        typed: those that are ObjectIds or UUIDs, with which.
        tenant: stored name of the tenant, ``None`` where rows name none.
        may_lack_tenant: a row may be without tenant.
        form: how its documents are shown.
        change: what changes them before; all but ``places`` and ``ids`` is as documents are afterwards.
        places: stored names by which the server finds a row.
        ids: the keys that replace the ObjectIds there.
        values: what stored values mean to the change.
    """

    entity: Entity
    key: tuple[str, ...]
    parts: tuple[str, ...]
    numbers: frozenset[str]
    typed: Mapping[str, KeyType]
    tenant: str | None
    may_lack_tenant: bool
    form: StoredForm
    change: DocumentChange | None
    places: tuple[str, ...]
    ids: ReplacedIds | None
    values: StoredValues = MONGO_VALUES

    @classmethod
    def of(cls, entity: Entity, changes: DocumentChanges = NO_CHANGES) -> Self:
        """Return the scan of an entity, whose rows are shown as they are after the changes."""
        field, to = changes.keys.get(entity.name), changes.ids.get(entity.name)
        if field is not None:
            # So the key is a field of its documents, which may have any other one as ``_id``.
            entity = replace(entity, generated_id=True, own_id=None, key_as_id=False)
        names = stored_names(entity)
        parts = tuple(names[name] for name in entity.key)
        key = (ID,) if entity.key_as_id else parts
        return cls(
            entity=entity,
            key=key,
            change=changes.documents.get(entity.name),
            places=key if field is None else (field,),
            ids=None if to is None else ReplacedIds.of(entity.key_parts[0].type, to),
            parts=parts,
            numbers=frozenset(names[part.field] for part in entity.key_parts if part.type.is_number),
            typed={names[part.field]: part.type for part in entity.key_parts if part.type in KEY_VALUES},
            tenant=None if entity.tenant_field is None else names[entity.tenant_field],
            may_lack_tenant=entity.tenancy.kind is TenancyKind.OPTIONAL,
            form=StoredForm.of(entity),
        )

    def batches(
        self,
        store: OpenDatabase,
        collection: Collection[Document],
        within: KeyRange,
        *,
        rows: TenantFilter,
        batch_size: int,
    ) -> Iterator[list[ScanRow]]:
        """Yield the rows of a range in key order."""
        order = dict.fromkeys(self.places, 1)
        with store.limited():
            indexed = has_key_index(collection, list(order.items()))
            batch_size = fitting_batch(store, collection, batch_size)
        # Without an index, rows of one key come in the same order in each pass.
        order = order if indexed else {**order, "_id": 1}
        along: Document = {"hint": order} if indexed else {"allowDiskUse": True}
        match = {"$match": {**self.matching(within), **rows.condition}}
        pipeline = [match, {"$sort": order}, *rows.joins]
        with store.limited() if indexed else store.with_index_timeout():
            cursor = collection.aggregate_raw_batches(
                pipeline, batchSize=batch_size, collation=SIMPLE, **along
            )
        with cleanup_unless_forked(cursor.close):
            yield from map(self.rows, next_parts(store, cursor, indexed=indexed))

    def fetch(
        self, store: OpenDatabase, collection: Collection[Document], keys: Sequence[Key]
    ) -> Iterator[ScanRow]:
        """Yield single rows."""
        for start in range(0, len(keys), FETCH_KEYS):
            condition = self.any_of(keys[start : start + FETCH_KEYS])
            cursor = collection.find_raw_batches(condition, collation=SIMPLE)
            with cleanup_unless_forked(cursor.close):
                while (raw := store.next_batch(cursor)) is not None:
                    for part in parts_of(raw):
                        yield from self.rows(part)

    def any_of(self, keys: Sequence[Key]) -> Document:
        """Return the filter of some keys."""
        if self.ids is not None:
            return {self.places[0]: {"$in": self.ids.stored(keys)}}
        stored = map(self.stored, keys)
        if len(self.places) == 1:
            return {self.places[0]: {"$in": [value for key in stored for value in key]}}
        return {"$or": [dict(zip(self.places, key, strict=True)) for key in stored]}

    def stored(self, key: Key) -> tuple[object, ...]:
        """Return the values of a key by which documents are found: one for each stored name."""
        if self.ids is not None:
            return (self.ids.first_from(str(key[0])),)
        parts, values = self.form.key_in_id, key if not self.typed else self.compared(key)
        return (dict(zip(parts, values, strict=True)),) if len(parts) > 1 else values

    def compared(self, key: Key) -> tuple[object, ...]:
        """Return the parts of a key as the server compares them."""
        return tuple(
            KEY_VALUES[self.typed[name]](str(part)) if name in self.typed else part
            for name, part in zip(self.parts, key, strict=True)
        )

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
        named = zip(self.places, self.stored(key), strict=True)
        *heads, tail = [(f"${name}", {"$literal": value}) for name, value in named]
        clause: Document = {last: list(tail)}
        bound: list[Document] = []
        for head in reversed(heads):
            clause = {"$or": [{operator: list(head)}, {"$and": [{"$eq": list(head)}, clause]}]}
            # Without this the scan would start at the first key of the index.
            bound = [{f"{operator}e": list(head)}]
        return [*bound, clause]

    def rows(self, raw: bytes) -> list[ScanRow]:
        """Return the rows of a raw batch."""
        if isinstance(self.values, FindingValues) and self.change is not None:
            self.values.prepare(self.change, raw, BROKEN_TEXT if self.change.reads_broken_text else EXACT)
        try:
            documents = bson.decode_all(raw, EXACT)
        except bson.InvalidBSON:
            return [self.careful_row(document) for document in documents_of(raw)]
        # Names that occur twice and types that the client replaces do not come back from the decoded values.
        if b"".join(map(bson.encode, documents)) == raw:
            return [self.row(document) for document in documents]
        return [self.careful_row(document) for document in documents_of(raw)]

    def careful_row(self, raw: bytes) -> ScanRow:
        """Return the row of a document that may be broken or hold what the client changes."""
        try:
            document = bson.decode(raw, EXACT)
        except bson.InvalidBSON:
            # Its bytes decide about equality.
            content = json_of({"doc": marked("bson", sha256(raw).hexdigest()), "storage": {}})
            key, owner = self.first_key_of(raw), self.first_owner_of(raw)
            return self.mended_row(raw) or ScanRow(key, owner, content, stored_bytes=len(raw))
        if bson.encode(document) == raw:
            return self.row(document)
        if (exact := lossless_document(raw)) is not None:
            return self.row(exact)
        digest = sha256(raw).hexdigest()
        row = self.row(document, digest)
        if self.change is not None:
            return row
        row.content, row.beside = self.form.shown(exact_document(raw), row.key, digest)
        row.key, row.owner = self.first_key_of(raw), self.first_owner_of(raw)
        return row

    def mended_row(self, raw: bytes) -> ScanRow | None:
        """Return the row of a document whose texts that are not UTF-8 a change replaces, else ``None``."""
        if self.change is None or not self.change.reads_broken_text:
            return None
        try:
            row = self.row(bson.decode(raw, BROKEN_TEXT))
        except (bson.InvalidBSON, TypeError):  # or some of these texts are left, which are not JSON
            return None
        # Its key and owner may still hold such a text.
        return row if row.error is None else None

    def first_owner_of(self, raw: bytes) -> StoredOwner:
        """Return the owner by the first value of the tenant, under which the server finds the document."""
        return self.owner_of(None if self.tenant is None else first_of(raw, self.tenant))

    def first_key_of(self, raw: bytes) -> Key | None:
        """Return the key by the first values of its names, ``None`` when it is none of the entity."""
        if self.form.key_in_id:
            return self.key_of_id(value_in(raw, ID))
        if self.ids is not None:
            return self.ids.key_of(first_value(raw, self.places[0]))
        key = tuple(
            self.shown_part(name, first_value(raw, name)) if name in self.typed else first_of(raw, name)
            for name in self.places
        )
        return cast("Key", key) if self.entity.admits_key(key) else None

    def row(self, stored: Document, altered: str | None = None) -> ScanRow:
        """Return the row of a document after its change; ``altered`` as for :meth:`StoredForm.shown`."""
        if self.change is None:
            return self.row_as_it_is(stored, altered)
        before = dict(stored)
        if self.ids is not None and self.ids.key_of(before.get(self.places[0])) is None:
            row = self.refused_row(before, f"its {self.places[0]} is not an ObjectId")
            row.key = None
            return row
        try:
            changed = self.changed(stored, self.change)
        except ChangeRefusedError as error:
            return self.refused_row(before, str(error), error.document)
        row = self.row_as_it_is(changed.document, altered)
        row.rules = tuple(changed.rules)
        return row

    def changed(self, stored: Document, change: DocumentChange) -> ChangedDocument:
        """Return a document after a change, which is made in place.

        Raises:
            ChangeRefusedError: the change refuses it.
        """
        before = {name: stored.get(name) for name in self.form.longs}
        changed = change(stored, self.values)
        for name, value in before.items():
            if name in changed.document and changed.document[name] is not value:
                changed.document[name] = written_long(changed.document[name])
        return changed

    def looked_up(self, raw: bytes, by: str) -> FoundRow | None:
        """Return the row of a document that others name by the value of a field, ``None`` for no such row."""
        mends = self.change is not None and self.change.reads_broken_text
        try:
            stored = bson.decode(raw, BROKEN_TEXT if mends else EXACT)
            value, place = MONGO_VALUES.read(stored.get(by)), stored.get(self.places[0])
            after = stored if self.change is None else self.change(stored, MONGO_VALUES).document
            bson.encode(after)
        # A text that is still not UTF-8 is in no row.
        except (bson.InvalidBSON, ChangeRefusedError, UnicodeEncodeError):
            return None
        key = self.key_of(after)
        is_found = self.ids is None or self.ids.key_of(place) is not None
        if key is None or not is_found or type(value) not in NAMING:
            return None
        return FoundRow(value, self.owner_of(None if self.tenant is None else after.get(self.tenant)), key)

    def refused_row(self, stored: Document, why: str, changed: Document | None = None) -> ScanRow:
        """Return the row of a document that a change refuses: with its key and owner, without content."""
        known = stored if changed is None else changed
        owner = self.owner_of(None if self.tenant is None else known.get(self.tenant))
        content = json_of({"doc": marked("refused", why), "storage": {}})
        return ScanRow(self.key_of(known), owner, content, error=why)

    def row_as_it_is(self, stored: Document, altered: str | None = None) -> ScanRow:
        """Return the row of a document."""
        key, expires = self.key_of(stored), self.form.expiry(stored)
        owner = self.owner_of(None if self.tenant is None else stored.get(self.tenant))
        error = self.form.problem(stored, key)
        content, beside = self.form.shown(stored, key, altered)
        shown = readable_id(stored) if key is None else None
        return ScanRow(key, owner, content, beside, expires, error=error, stored_key=shown)

    def owner_of(self, value: object) -> StoredOwner:
        """Return the owner of a row by the value of the tenant field."""
        if type(value) is str and self.tenant is not None:
            return Tenant(value)
        if self.tenant is None or (value is None and self.may_lack_tenant):
            return NO_TENANT
        return UNKNOWN_TENANT

    def key_of(self, stored: Mapping[str, Any]) -> Key | None:
        """Return the key, ``None`` when it is none of the entity."""
        if self.form.key_in_id:
            return self.key_of_id(stored.get(ID))
        if self.numbers or self.typed:
            return self.key_with_types(stored)
        if len(self.key) == 1:  # as of most entities, and every row passes here
            only = stored.get(self.key[0])
            return (str(only),) if self.entity.key_parts[0].type.admits(only) else None
        key = tuple(stored.get(name) for name in self.key)
        return cast("Key", key) if self.entity.admits_key(key) else None

    def key_of_id(self, identity: object) -> Key | None:
        """Return the key that an ``_id`` is; the server holds numbers of several types to be equal."""
        parts = self.form.key_in_id
        held = identity if len(parts) > 1 else dict.fromkeys(parts, identity)
        if not isinstance(held, dict) or (*held,) != parts:
            return None
        key = tuple(
            self.part_of_id(name, value) for name, value in zip(self.parts, held.values(), strict=True)
        )
        return cast("Key", key) if self.entity.admits_key(key) else None

    def part_of_id(self, name: str, value: object) -> object:
        """Return one part of such a key, by its stored name."""
        if name in self.typed:
            return self.shown_part(name, value)
        is_whole = type(value) is Int64 or (type(value) is float and value.is_integer())
        return int(cast("int | float", value)) if is_whole else value

    def key_with_types(self, stored: Mapping[str, Any]) -> Key | None:
        """Return a key with integers, ObjectIds or UUIDs, for which the client has separate classes."""
        values: Document = {name: stored.get(name) for name in self.key}
        values |= {name: int(values[name]) for name in self.numbers if type(values[name]) is Int64}
        values |= {name: self.shown_part(name, values[name]) for name in self.typed}
        key = tuple(values.values())
        return cast("Key", key) if self.entity.admits_key(key) else None

    def shown_part(self, name: str, value: object) -> str | None:
        """Return the text of an ObjectId or UUID in the key; what is stored as anything else is none."""
        if self.typed[name] is KeyType.OBJECT_ID:
            return value.binary.hex() if type(value) is bson.ObjectId else None
        return uuid_text(value)


def first_value(raw: bytes, name: str) -> object:
    """Return the first value of a name that is an ObjectId or binary data, ``None`` for all others."""
    kind, value = first_element(raw, name) or (0, b"")
    element = bytes([kind]) + b"v\x00" + value
    if kind not in TYPED_ELEMENTS:
        return None
    try:
        return bson.decode((len(element) + 5).to_bytes(4, "little") + element + b"\x00", EXACT)["v"]
    except bson.InvalidBSON:  # the old binary data, with another length inside than outside
        return None


def uuid_text(value: object) -> str | None:
    """Return the text of a UUID as binary data, ``None`` for anything else."""
    if type(value) is not bson.Binary or value.subtype != UUID_SUBTYPE or len(value) != UUID_BYTES:
        return None
    digits = bytes(value).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


UUID_BYTES: Final = 16
# Of ObjectIds and binary data.
TYPED_ELEMENTS: Final = frozenset({0x05, 0x07})
# What the server compares a part of a key with.
KEY_VALUES: Final[Mapping[KeyType, Callable[[str], object]]] = {
    KeyType.OBJECT_ID: bson.ObjectId,
    KeyType.BINARY_UUID: lambda text: bson.Binary(bytes.fromhex(text.replace("-", "")), UUID_SUBTYPE),
}


# How a stored document is shown to a comparison: as canonical JSON, with marks for what is never written.
#
# The form in which the driver writes is BSON type by BSON type: an instant is a date, and so is the object
# that represents one in free JSON, where ids, decimals and bytes have such objects, too; an integer that a
# table holds in 64 bits has 64 bits here too, all others take as many as their value needs, and nothing is
# null outside of free JSON and of lists that say so.


# Types shown as they are. The client has a separate class for integers of 64 bits, so these have 32.
PLAIN: Final = frozenset({str, bool, int, NoneType})
INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_BITS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """Names and places in the documents of one entity; values are shown as they are stored.

    Attributes:
        entity: its description, for the types of the key.
        wire_id: the wire name of ``_id``, where it is part of the wire form.
        has_text_id: whether the key is the text in ``_id``.
        joined: whether ``_id`` is made of the parts of the key.
        key_in_id: the parts of a key that ``_id`` holds as it is, a document of several.
        generated: whether ``_id`` is an ObjectId of which the value is free.
        markers: storage markers and their stored names.
        derived: fields that follow from the content and their stored names.
        internal: the stored names that are no part of the wire form.
        instants: paths of instants from the top.
        typed: those of ObjectIds, UUIDs, decimals and bytes, each with what shows one.
        maps: the fields in which there is free JSON, each with what shows it.
        longs: stored names of the integers that always have 64 bits, and of lists of them.
        versioned: documents count their changes.
        expires: the instant by which retention judges.
        derived_key: the id is part of the wire form unless it is what this returns.
    """

    entity: Entity
    wire_id: str | None
    has_text_id: bool
    joined: bool
    key_in_id: tuple[str, ...]
    generated: bool
    markers: Mapping[str, str]
    derived: Mapping[str, str]
    internal: frozenset[str]
    instants: tuple[tuple[str, ...], ...]
    typed: tuple[tuple[tuple[str, ...], Callable[[Any], object]], ...]
    maps: tuple[tuple[str, MapConverter], ...]
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
            if item.kind is Kind.INTEGER and item.bits == INT64_BITS
        ]
        return cls(
            entity=entity,
            wire_id=entity.document_id if entity.document_id in entity.shapes else None,
            has_text_id=(entity.document_id,) == entity.key and entity.key_parts[0].type is KeyType.TEXT,
            joined=entity.document_id is None and not entity.generated_id and not entity.key_as_id,
            key_in_id=entity.key if entity.key_as_id else (),
            generated=entity.generated_id,
            markers=markers,
            derived=derived,
            internal=internal_names(entity),
            instants=tuple((names[head], *rest) for head, *rest in entity.instants),
            typed=tuple(((names[head], *rest), SHOWN[kind]) for (head, *rest), kind in entity.typed.items()),
            maps=map_converters(entity.model, json_map),
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
        """Return the content and the other values, for :class:`~twinstore.bulk.port.ScanRow`.

        Args:
            stored: the document, which is changed.
            key: its key, ``None`` where it has none.
            altered: the digest of a document that is stored in another form than its decoded values show.
        """
        if self.entity.extra is not None:
            stored = gathered(self.entity, stored)
        self._show_values(stored)
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
            # Under a mark, because null represents a value that may be absent.
            beside[VERSION] = marked("version", plain(stored.get(VERSION)))
        if altered is not None:
            document[MARK + "bson"] = altered
        return json_of({"doc": document, "storage": storage}), json_of(beside)

    def _show_values(self, stored: Document) -> None:
        """Replace the values that JSON has no type for by what shows them, in place."""
        for path in self.instants:
            if path[0] in stored:
                format_instants(stored, path)
        for path, show in self.typed:
            if path[0] in stored:
                show_typed(stored, path, show)
        within(self.maps, stored)
        for name in self.longs:
            if name in stored:
                stored[name] = long_of(stored[name])

    @staticmethod
    def _named(names: Mapping[str, str], stored: Document) -> Document:
        return {name: plain(stored[source]) for name, source in names.items() if source in stored}

    def _add_id(self, document: Document, storage: Document, stored: Document) -> None:
        """Put the id where the wire form has it; another id stored there is shown as it is, null is none."""
        if self.key_in_id:
            self._add_parts(document, stored[ID])
            return
        if self.wire_id is None or self._is_derived(document, storage, stored[ID]):
            return
        place = self.wire_id if document.get(self.wire_id) is None else ID
        document[place] = plain(stored[ID])

    def _add_parts(self, document: Document, identity: Any) -> None:  # noqa: ANN401  # any stored value
        """Put the parts of a key that is the id under their names; any other id is shown under a mark."""
        held = identity if len(self.key_in_id) > 1 else dict.fromkeys(self.key_in_id, identity)
        if type(held) is not dict or (*held,) != self.key_in_id or self._repeats(document):
            document[ID] = marked("id", plain(identity))
            return
        for name, value in held.items():
            known = self.entity.known[name]
            found = shown_each(value, SHOWN[known]) if known in SHOWN else value
            document[name] = plain(long_of(found) if name in self.longs else found)

    def _repeats(self, stored: Mapping[str, Any]) -> bool:
        return any(name in stored for name in self.key_in_id)

    def problem(self, stored: Mapping[str, Any], key: Key | None) -> str | None:
        """Return why a document whose ``_id`` is the key has none, or two."""
        if key is None and self.key_in_id:
            return problem_of_id(self.entity, stored.get(ID))
        if key is None:
            return problem_of_text_id(self.entity, stored) if self.has_text_id else None
        return "it holds its key in its _id and next to it" if self._repeats(stored) else None

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


def format_instants(value: Any, path: tuple[str, ...]) -> None:  # noqa: ANN401  # any stored value
    """Replace the dates at a path by their canonical text, in lists too; text there is marked."""
    if type(value) is list:
        for item in value:
            format_instants(item, path)
    if type(value) is not dict:
        return
    name, *rest = path
    if rest:
        format_instants(value.get(name), tuple(rest))
    elif name in value:
        value[name] = shown_instant(value[name])


def shown_instant(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a date as its canonical text, in lists too, and text under a mark."""
    if type(value) is datetime:
        return instant_text(value)
    if type(value) is list:
        return list(map(shown_instant, value))
    return marked("text", value) if type(value) is str else value


def show_typed(value: Any, path: tuple[str, ...], show: Callable[[Any], object]) -> None:  # noqa: ANN401  # any stored value
    """Replace the values at a path by what shows them, in lists too."""
    if type(value) is list:
        for item in value:
            show_typed(item, path, show)
    if type(value) is not dict or path[0] not in value:
        return
    name, *rest = path
    if rest:
        show_typed(value[name], tuple(rest), show)
    else:
        value[name] = shown_each(value[name], show)


def shown_each(value: Any, show: Callable[[Any], object]) -> object:  # noqa: ANN401  # any stored value
    """Return what shows a value, or each value of a list; a text is marked, because its type is another."""
    if type(value) is list:
        return [shown_each(item, show) for item in value]
    if type(value) is str:
        # No copy takes a text for base64.
        return marked("bson" if show is shown_bytes else "string", value)
    return None if value is None else show(value)


def shown_object_id(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return the digits of an ObjectId; anything else as it is."""
    return value.binary.hex() if type(value) is bson.ObjectId else value


def shown_uuid(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return the text of a UUID; anything else as it is."""
    text = uuid_text(value)
    return value if text is None else text


def shown_decimal(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return the digits of a decimal that needs no exponent; an integer, and any other form, is marked."""
    if type(value) is Int64 or type(value) is int:
        return marked("int64" if type(value) is Int64 else "int32", int(value))
    if type(value) is not bson.Decimal128:
        return marked("bson", {"type": type(value).__name__, "value": repr(value)})
    sign, digits, exponent = value.to_decimal().as_tuple()
    if not isinstance(exponent, int) or exponent > 0 or (sign and not any(digits)):
        return marked("decimal", str(value))
    text = "".join(map(str, digits)).rjust(1 - exponent, "0")
    point = len(text) + exponent
    return f"{'-' if sign else ''}{text[:point]}{f'.{text[point:]}' if exponent else ''}"


def shown_bytes(value: Any) -> object:  # noqa: ANN401  # any stored value
    """Return the base64 of bytes; binary data of another subtype than 0 is marked."""
    return b64encode(value).decode() if type(value) is bytes else value


SHOWN: Final[Mapping[Kind, Callable[[Any], object]]] = {
    Kind.OBJECT_ID: shown_object_id,
    Kind.UUID: shown_uuid,
    Kind.DECIMAL: shown_decimal,
    Kind.BYTES: shown_bytes,
}


def long_of(value: object) -> object:
    """Return an integer of 64 bits as JSON has it; one of 32 bits is marked, also as the item of a list."""
    if type(value) is Int64:
        return int(value)
    if type(value) is list:
        return [item if type(item) is list else long_of(item) for item in value]
    return marked("int32", value) if type(value) is int else value


def written_long(value: object) -> object:
    """Return what a change stores in an integer of 64 bits, or in a list of them, as the driver writes it."""
    if type(value) is list:
        return list(map(written_long, value))
    return Int64(value) if type(value) is int else value


def json_map(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return an object or list of free JSON with its typed values as the objects that represent them.

    An object of that form that is stored as such is marked, because the driver writes the typed value.
    """
    if type(value) is list:
        return json_member(value)
    if type(value) is dict:
        if PLAIN.issuperset(map(type, value.values())):
            return value
        return {name: item if type(item) in PLAIN else json_member(item) for name, item in value.items()}
    return json_map(dict(value.as_doc())) if isinstance(value, bson.DBRef) else value


def json_member(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return a member of free JSON as :func:`json_map` has it."""
    kind = type(value)
    if kind is datetime:
        return {DATE: instant_text(value)}
    if kind is dict:
        return marked("object", value) if is_typed_object(value) else json_map(value)
    if kind is list:
        return value if PLAIN.issuperset(map(type, value)) else list(map(json_member, value))
    shown = SHOWN_AS.get(kind)
    return json_map(value) if shown is None else shown(value)


def json_decimal(value: bson.Decimal128) -> object:
    """Return the object of a decimal, the value itself where it has none or is encoded in another way."""
    shown = {"$numberDecimal": str(value)}
    found = decimal_in(shown)
    return value if found is None or bson.Decimal128(found).bid != value.bid else shown


def json_binary(value: bytes) -> object:
    """Return the object of bytes; the client has a special class for all subtypes but 0."""
    subtype = value.subtype if isinstance(value, bson.Binary) else 0
    return {"$binary": {"base64": b64encode(value).decode(), "subType": f"{subtype:02x}"}}


SHOWN_AS: Final[Mapping[type, Callable[[Any], object]]] = {
    bson.ObjectId: lambda value: {"$oid": value.binary.hex()},
    bson.Decimal128: json_decimal,
    bytes: json_binary,
    bson.Binary: json_binary,
}


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
    return rare_type_json(value)


def rare_type_json(value: Any) -> Any:  # noqa: ANN401  # any stored value
    """Return the JSON of the rarer types of BSON; those that the driver never writes are marked."""
    if isinstance(value, Int64):
        short = INT32_MIN <= value <= INT32_MAX
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

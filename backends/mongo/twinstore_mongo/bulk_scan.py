"""Reading ranges of rows for comparison, straight from the stored values.

Nothing here is shared with the export: it pages with an aggregation that compares across types, and writes
JSON without the models. A value that stands otherwise than the driver writes it is shown under a mark, see
:mod:`twinstore.stored`; a document that the client cannot give back byte by byte, because a name occurs twice
or a type is replaced, is marked as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self, cast

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64

from twinstore.bulk import Key, KeyRange, ScanRow
from twinstore.forks import ending
from twinstore.stored import marked
from twinstore.tenancy import NO_TENANT, UNKNOWN_TENANT, StoredOwner, TenancyKind, Tenant
from twinstore_mongo.derive import stored_names
from twinstore_mongo.exact import exact_document, given_back
from twinstore_mongo.key_order import SIMPLE, fitting_batch, has_key_index, next_parts
from twinstore_mongo.raw import documents_of, first_of, parts_of
from twinstore_mongo.stored_form import StoredForm, json_of

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.catalog import Entity
    from twinstore_mongo.bulk_owners import Chosen
    from twinstore_mongo.connection import Document, OpenDatabase

__all__ = ["CollectionScan"]

STORED: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
FETCH_KEYS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionScan:
    """What one entity looks like in its collection: names and places only, for values are read as stored.

    Attributes:
        entity: its description, for the types of the key.
        key: stored names of the key.
        numbers: those parts of it that are integers.
        tenant: stored name of the tenant, ``None`` where rows name none.
        may_lack_tenant: a row may be without tenant.
        form: how its documents are shown.
    """

    entity: Entity
    key: tuple[str, ...]
    numbers: frozenset[str]
    tenant: str | None
    may_lack_tenant: bool
    form: StoredForm

    @classmethod
    def of(cls, entity: Entity) -> Self:
        """Return the scan of an entity."""
        names = stored_names(entity)
        return cls(
            entity=entity,
            key=tuple(names[name] for name in entity.key),
            numbers=frozenset(names[part.field] for part in entity.key_parts if part.type.is_number),
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
        rows: Chosen,
        batch_size: int,
    ) -> Iterator[list[ScanRow]]:
        """Yield the rows of a range in key order."""
        order = dict.fromkeys(self.key, 1)
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
        with ending(cursor.close):
            yield from map(self.rows, next_parts(store, cursor, indexed=indexed))

    def fetch(
        self, store: OpenDatabase, collection: Collection[Document], keys: Sequence[Key]
    ) -> Iterator[ScanRow]:
        """Yield single rows."""
        for start in range(0, len(keys), FETCH_KEYS):
            condition = self.any_of(keys[start : start + FETCH_KEYS])
            cursor = collection.find_raw_batches(condition, collation=SIMPLE)
            with ending(cursor.close):
                while (raw := store.next_batch(cursor)) is not None:
                    for part in parts_of(raw):
                        yield from self.rows(part)

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
            return [self.careful_row(document) for document in documents_of(raw)]
        # Names that occur twice and types that the client replaces do not come back from the decoded values.
        if b"".join(map(bson.encode, documents)) == raw:
            return [self.row(document) for document in documents]
        return [self.careful_row(document) for document in documents_of(raw)]

    def careful_row(self, raw: bytes) -> ScanRow:
        """Return the row of a document that may be broken or hold what the client changes."""
        try:
            document = bson.decode(raw, STORED)
        except bson.InvalidBSON:
            # Its bytes decide about equality.
            content = json_of({"doc": marked("bson", sha256(raw).hexdigest()), "storage": {}})
            key, owner = self.first_key_of(raw), self.first_owner_of(raw)
            return ScanRow(key, owner, content, stored_bytes=len(raw))
        if bson.encode(document) == raw:
            return self.row(document)
        if (exact := given_back(raw)) is not None:
            return self.row(exact)
        digest = sha256(raw).hexdigest()
        row = self.row(document, digest)
        row.content, row.beside = self.form.shown(exact_document(raw), row.key, digest)
        row.key, row.owner = self.first_key_of(raw), self.first_owner_of(raw)
        return row

    def first_owner_of(self, raw: bytes) -> StoredOwner:
        """Return the owner by the first value of the tenant, under which the server finds the document."""
        return self.owner_of(None if self.tenant is None else first_of(raw, self.tenant))

    def first_key_of(self, raw: bytes) -> Key | None:
        """Return the key by the first values of its names, ``None`` when it is none of the entity."""
        key = tuple(first_of(raw, name) for name in self.key)
        return cast("Key", key) if self.entity.admits_key(key) else None

    def row(self, stored: Document, altered: str | None = None) -> ScanRow:
        """Return the row of a document; ``altered`` as for :meth:`StoredForm.shown`."""
        key, expires = self.key_of(stored), self.form.expiry(stored)
        owner = self.owner_of(None if self.tenant is None else stored.get(self.tenant))
        content, beside = self.form.shown(stored, key, altered)
        return ScanRow(key, owner, content, beside, expires)

    def owner_of(self, value: object) -> StoredOwner:
        """Return the owner of a row by what stands in the field of the tenant."""
        if type(value) is str and self.tenant is not None:
            return Tenant(value)
        if self.tenant is None or (value is None and self.may_lack_tenant):
            return NO_TENANT
        return UNKNOWN_TENANT

    def key_of(self, stored: Mapping[str, Any]) -> Key | None:
        """Return the key, ``None`` when it is none of the entity."""
        if self.numbers:
            return self.key_with_numbers(stored)
        if len(self.key) == 1:  # as of most entities, and every row passes here
            only = stored.get(self.key[0])
            return (str(only),) if self.entity.key_parts[0].type.admits(only) else None
        key = tuple(stored.get(name) for name in self.key)
        return cast("Key", key) if self.entity.admits_key(key) else None

    def key_with_numbers(self, stored: Mapping[str, Any]) -> Key | None:
        """Return a key of which some parts are integers, which the client may have as a class of its own."""
        values: Document = {name: stored.get(name) for name in self.key}
        values |= {name: int(values[name]) for name in self.numbers if type(values[name]) is Int64}
        key = tuple(values.values())
        return cast("Key", key) if self.entity.admits_key(key) else None

"""Where documents are found whose stored key is not that of their model, but becomes it by a change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bson import decode, encode
from typing_extensions import override

from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import object_id
from twinstore.catalog.tenancy import Tenancy, TenancyKind
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import ObjectIdText
from twinstore_mongo.bulk.export import NAIVE
from twinstore_mongo.mapping.codec import FIRST_VERSION, Codec, codec_of
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

if TYPE_CHECKING:
    from bson.int64 import Int64

    from twinstore.bulk.changes import DocumentChange, DocumentChanges
    from twinstore.catalog.row import Row
    from twinstore_mongo.client.types import Document


class Identified(CanonicalModel):
    """What a place needs to know of a row whose ``_id`` is an ObjectId."""

    id: ObjectIdText


def place_of(entity: Entity, changes: DocumentChanges) -> Codec[Any]:
    """Return the codec by which documents are found: ranges are cut and read by what is stored."""
    own, has_object_ids = changes.keys.get(entity.name), entity.name in changes.ids
    if own is None and not has_object_ids:
        return codec_of(entity)
    codec = Codec(by_object_id(entity) if has_object_ids else entity)
    codec.key = codec_of(entity).key if own is None else (own,)
    return codec


def codec_after(entity: Entity, changes: DocumentChanges) -> Codec[Any]:
    """Return the codec of documents after the changes, in which another field than ``_id`` may be the key."""
    if entity.name not in changes.keys:
        return codec_of(entity)
    return Codec(replace(entity, generated_id=True, own_id=None, key_as_id=False))


class WrittenCodec(Codec[Any]):
    """The codec of documents that a change turns into another form before they are stored."""

    def __init__(self, entity: Entity, change: DocumentChange) -> None:
        super().__init__(entity)
        self._change = change

    @override
    def encode(self, row: Row[Any], version: Int64 = FIRST_VERSION) -> Document:
        """Return the document of a row.

        Raises:
            ChangeRefusedError: it has none in that form.
        """
        # Read back, because changes are made for what the client gives.
        document = decode(encode(super().encode(row, version)), NAIVE)
        return self._change(document, MONGO_VALUES).document


def by_object_id(entity: Entity) -> Entity[Identified]:
    """Return the description of the same collection by its ``_id`` alone."""
    return Entity(
        name=entity.name,
        singular=entity.singular,
        module=entity.module,
        model=Identified,
        key_parts=(object_id("id"),),
        tenancy=Tenancy(TenancyKind.NONE),
        group=entity.group,
        collection=entity.collection,
    )

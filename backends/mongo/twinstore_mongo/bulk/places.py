"""Where documents are found whose stored key is not that of their model, but becomes it by a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import object_id
from twinstore.catalog.tenancy import Tenancy, TenancyKind
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import ObjectIdText
from twinstore_mongo.mapping.codec import Codec, codec_of

if TYPE_CHECKING:
    from twinstore.bulk.changes import DocumentChanges


class Identified(CanonicalModel):
    """What a place needs to know of a row whose ``_id`` is an ObjectId."""

    id: ObjectIdText


def place_of(entity: Entity, changes: DocumentChanges) -> Codec[Any]:
    """Return the codec by which documents are found: ranges are cut and read by what is stored."""
    if entity.name in changes.keys:
        codec = Codec(entity)
        codec.key = (changes.keys[entity.name],)
        return codec
    return Codec(by_object_id(entity)) if entity.name in changes.ids else codec_of(entity)


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

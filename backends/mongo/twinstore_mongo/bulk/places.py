"""Where documents are found whose stored key is not that of their model, but becomes it by a change."""

from __future__ import annotations

from dataclasses import replace
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

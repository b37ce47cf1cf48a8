"""What makes the unusual parts of a description wrong: several models in one table, keys in another form."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from twinstore.indexes import EVERYWHERE, StoreKind
from twinstore.keys import KeyType
from twinstore.shapes import Kind, shapes_of
from twinstore.variants import variants_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog import Entity

__all__ = ["problems_of_forms"]


def problems_of_forms(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with a description, as the end of a sentence about the entity."""
    yield from problems_of_variants(entity)
    yield from problems_of_key(entity)
    yield from problems_of_own_id(entity)
    yield from problems_of_generated_id(entity)
    yield from problems_of_assigned(entity)
    yield from problems_of_derived(entity)
    for name, number in Counter(entity.columns.values()).items():
        if number > 1:
            yield f"names {number} columns {name}"


def problems_of_variants(entity: Entity) -> Iterator[str]:
    """Yield what several models in one table lack."""
    variants = variants_of(entity.model)
    if variants and entity.layout.name != "PAYLOAD":
        yield "holds several models, whose fields have no columns in common; use Layout.PAYLOAD"
    # What stores look for by a name of its own must be there whichever model a row is.
    tenant = () if entity.tenant_field is None else (entity.tenant_field,)
    wanted = {*entity.beside, *entity.key, *tenant} & entity.shapes.keys()
    for variant in variants:
        lacking = wanted - {shape.wire for shape in shapes_of(variant)}
        if lacking:
            yield f"holds {variant.__name__}, which has no field {', '.join(sorted(lacking))}"


def problems_of_key(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with the types of the key."""
    for part in entity.key_parts:
        if (part.type is KeyType.HEX) is not (entity.known.get(part.field) is Kind.HEX):
            yield (
                f"has the key part {part.field} of type {part.type.value}, which the field does not hold; "
                "write digits(...) for a derived field of Kind.HEX, and for no other"
            )
    name = entity.key_in_payload
    if name is None:
        return
    if entity.key_parts[0].type is not KeyType.TEXT:
        yield f"has the key {name} in its payload alone, where only texts compare alike in every store"
    if entity.assigned is None:
        yield (
            f"has the key {name} in its payload alone, so its table needs a primary key of its own; name it "
            "beside, or give it a marker that is assigned"
        )
    holding = [index for index in entity.indexes if index.names == (name,) and index.unique]
    if not any(StoreKind.TABLES in index.stores and not index.where for index in holding):
        yield f"has the key {name} in its payload alone, but no unique index of it on tables"


def problems_of_own_id(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with an ``_id`` that is not the key."""
    name = entity.own_id
    if name is None:
        return
    shape = entity.shapes.get(name)
    if entity.single_key is None or name in entity.key:
        yield f"has the own id {name}, which is for a key of one other field that follows from it"
    if (
        shape is None
        or name in entity.markers
        or not shape.always_written
        or shape.value.kind is not Kind.TEXT
    ):
        yield f"has the own id {name}, which must be a text that every model has"


def problems_of_generated_id(entity: Entity) -> Iterator[str]:
    """Yield what contradicts an ``_id`` that nothing in the row tells."""
    if not entity.generated_id:
        return
    if entity.own_id is not None:
        yield f"has the own id {entity.own_id} and a generated one, but documents have one _id"
    if entity.derived_key is not None:
        yield "has a generated id and a key that follows from the content, which is the id; leave out either"
    hidden = [name for name in entity.key if name not in entity.shapes]
    if hidden:
        yield (
            f"has a generated id and the key {', '.join(hidden)}, which is no field of its model; programs "
            "that know documents by a generated id find them by fields of their own"
        )


def problems_of_assigned(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with the marker that numbers rows."""
    found = [marker for marker in entity.storage if marker.assigned]
    if len(found) > 1:
        yield f"has {len(found)} markers that are assigned; rows have one order of insertion"
    for marker in found:
        if marker.kind is not Kind.INTEGER or not marker.required:
            yield f"has the assigned marker {marker.name}, which must be a required integer"
        holding = [index for index in entity.uniques if index.names == (marker.name,)]
        if not any(index.stores == EVERYWHERE and not index.where for index in holding):
            # Only so does a second row with one number fail, and the highest one cost one look.
            yield f"has the assigned marker {marker.name}, but no unique index of it alone on every store"


def problems_of_derived(entity: Entity) -> Iterator[str]:
    """Yield which derived fields are looked for where they are not stored, or cannot be."""
    partial = {item.name for item in entity.derived if item.stores != EVERYWHERE}
    named = {*entity.key, entity.tenant_field, None if entity.parent is None else entity.parent.field}
    if missing := sorted(named & partial, key=str):
        yield f"needs {', '.join(map(str, missing))} on every store"
    for index in entity.indexes:
        for item in entity.derived:
            if item.name in index.names and not index.stores <= item.stores:
                yield f"has the index {index.name} on stores that lack {item.name}"
    for item in entity.derived:
        if item.kind not in {Kind.TEXT, Kind.INTEGER, Kind.HEX}:
            yield f"derives {item.name}, which is {item.kind.value}; use text, integer or {Kind.HEX.value}"

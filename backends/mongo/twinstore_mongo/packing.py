"""How documents hold the slots of packed rows, derived from their codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.fast.native import library
from twinstore.fast.nodes import NodeKind
from twinstore.fast.program import Program, program_of
from twinstore.fast.reading import Identity, NativeDocuments, StoredSlot
from twinstore_mongo.codec import codec_of
from twinstore_mongo.derive import ID

if TYPE_CHECKING:
    import ctypes

    from twinstore.catalog import Entity

__all__ = ["documents_of", "native_documents"]

# By identity, as codecs; what has none is remembered too.
_documents: Final[dict[int, tuple[Entity, NativeDocuments | None]]] = {}


def native_documents(entity: Entity) -> NativeDocuments | None:
    """Return how native code reads the documents of an entity, ``None`` where it cannot."""
    found = library()
    if found is None:
        return None
    known = _documents.get(id(entity))
    if known is None:
        known = _documents.setdefault(id(entity), (entity, _made(found, entity)))
    return known[1]


def _made(found: ctypes.CDLL, entity: Entity) -> NativeDocuments | None:
    program = program_of(entity)
    return documents_of(found, program) if isinstance(program, Program) else None


def documents_of(found: ctypes.CDLL, program: Program) -> NativeDocuments | None:
    """Return how native code reads the documents of a program, ``None`` where it cannot."""
    entity = program.entity
    codec = codec_of(entity)
    slots = [
        StoredSlot(
            "" if codec.names[slot.name] == ID else codec.names[slot.name],
            slot.name in codec.longs or (slot.is_marker and slot.kind is NodeKind.INT),
        )
        for slot in program.slots
    ]
    own = sum(not slot.name for slot in slots)
    if entity.generated_id:
        identity = Identity.GENERATED
    else:
        identity = Identity.JOINED if entity.document_id is None else Identity.SLOT
    # What stands as `_id` and follows from the content is no slot.
    if own != (identity is Identity.SLOT) or len({slot.name for slot in slots}) != len(slots):
        return None
    return NativeDocuments(found, program, identity, slots, versioned=entity.versioned)

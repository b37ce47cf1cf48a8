"""How documents hold the slots of packed rows, derived from their codec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.fast.native import library
from twinstore.fast.nodes import NodeKind
from twinstore.fast.program import Program, program_of
from twinstore.fast.reading import Identity, NativeDocuments, StoredSlot
from twinstore_mongo.codec import codec_of
from twinstore_mongo.derive import ID, internal_names

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Set as AbstractSet

    from twinstore.catalog import Entity

__all__ = ["documents_of", "native_documents"]

# As native code has it.
MOST_SKIPPED: Final = 256
# By identity, as codecs; what has none is remembered too.
_documents: Final[dict[tuple[int, frozenset[str]], tuple[Entity, NativeDocuments | None]]] = {}


def native_documents(entity: Entity, ignored: AbstractSet[str] = frozenset()) -> NativeDocuments | None:
    """Return how native code reads the documents of an entity, ``None`` where it cannot.

    Args:
        entity: the entity.
        ignored: unknown properties at the top that are left out of the rows.
    """
    found, key = library(), (id(entity), frozenset(ignored))
    if found is None:
        return None
    known = _documents.get(key)
    if known is None:
        known = _documents.setdefault(key, (entity, _made(found, entity, key[1])))
    return known[1]


def _made(found: ctypes.CDLL, entity: Entity, ignored: frozenset[str]) -> NativeDocuments | None:
    program = program_of(entity)
    return documents_of(found, program, ignored) if isinstance(program, Program) else None


def documents_of(
    found: ctypes.CDLL, program: Program, ignored: frozenset[str] = frozenset()
) -> NativeDocuments | None:
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
    names = {slot.name for slot in slots}
    # What is a field of the row is never ignored.
    internal = internal_names(entity) - {*names, ID}
    others = ignored - {*codec.names.values(), *internal, *names, ID}
    has_room = len(internal) + len(others) <= MOST_SKIPPED
    if own != (identity is Identity.SLOT) or len(names) != len(slots) or not has_room:
        return None
    return NativeDocuments(
        found,
        program,
        identity,
        slots,
        versioned=entity.versioned,
        skipped=sorted(internal),
        ignored=sorted(others),
    )

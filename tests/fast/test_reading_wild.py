"""Wild documents of every entity: what native code takes is what the exact way makes of it, byte by byte.

``make native-sanitized`` runs these tests too, and then each byte that is read where none is ours is found.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pytest

from docs.parts.entities import MODULES
from tests.fast.hand_made import native_library, packed_values
from tests.fast.oracle import Oracle
from tests.fast.wild import changed, stored_documents
from twinstore.fast.native import Buffer
from twinstore.fast.program import Program, program_of
from twinstore.testing.entities import KIT
from twinstore_mongo.packing import native_documents

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.fast.reading import NativeDocuments

ENTITIES: Final = {
    entity.name: entity
    for entity in (*(entity for module in MODULES for entity in module.catalog.entities), *KIT.entities)
    if isinstance(program_of(entity), Program)
}
EACH: Final = 400
EACH_LONG: Final = 20_000
DRAWN: Final = 12
# Texts of an enumeration that are put into other places too; some have hundreds.
WORDS: Final = 20
# The exact way takes most of the time, and refuses nearly all of what native code declines.
DECLINED_ASKED: Final = 0.1


def words_of(program: Program) -> list[bytes]:
    """Return names and texts that mean something to an entity."""
    names = {field.name for node in program.nodes for field in node.fields}
    return sorted(
        name.encode() for name in names | {it.text for node in program.nodes for it in node.texts[:WORDS]}
    )


def native_of(entity: Entity[Any]) -> tuple[Program, NativeDocuments]:
    """Return the program of an entity and what reads its documents."""
    program, documents = program_of(entity), native_documents(entity)
    assert isinstance(program, Program)
    assert documents is not None
    return program, documents


@pytest.mark.parametrize("name", ENTITIES)
def test_what_is_taken_is_what_the_exact_way_makes_of_it(name: str, *, long_form: bool) -> None:
    program, documents = native_of(ENTITIES[name])
    oracle, seeded = Oracle(program), Random(name)
    words, bases = words_of(program), stored_documents(program.entity, DRAWN)
    met = Counter[str]()
    for _ in range(EACH_LONG if long_form else EACH):
        raw = changed(seeded.choice(bases), seeded, words)
        found = documents.read(raw)
        if found is None or (found.declined and seeded.random() > DECLINED_ASKED):
            met["declined"] += 1
            continue
        expected = oracle.packed(raw)
        if found.declined:
            met["declined, and asked"] += 1
            continue
        (row,) = packed_values(found.rows.tobytes(), len(program.slots))
        assert row == expected, raw
        met["taken"] += 1
    # As many as that a change leaves as they are meant.
    assert met["taken"] > met.total() // 12, met


@pytest.mark.parametrize("name", ENTITIES)
def test_documents_as_the_driver_writes_them_are_taken(name: str) -> None:
    program, documents = native_of(ENTITIES[name])
    oracle = Oracle(program)
    bases = stored_documents(program.entity, DRAWN)
    taken = [raw for raw in bases if documents.accepts(raw)]
    for raw in taken:
        found = documents.read(raw)
        assert found is not None
        assert packed_values(found.rows.tobytes(), len(program.slots)) == [oracle.packed(raw)]
    assert len(taken) >= len(bases) // 4


def test_no_bytes_lead_beyond_their_end(*, long_form: bool) -> None:
    library = native_library()
    seeded = Random("bytes")
    natives = [native_of(entity) for entity in ENTITIES.values()]
    bases = [stored_documents(program.entity, 2) for program, _ in natives]
    buffers = [Buffer(library) for _ in range(3)]
    for _ in range(300_000 if long_form else 3_000):
        number = seeded.randrange(len(natives))
        raw = spoilt(seeded.choice(bases[number]), seeded)
        # A copy of exactly this size, so that a sanitizer sees each byte behind it.
        copy = (ctypes.c_char * len(raw)).from_buffer_copy(raw)
        handles = [buffer.handle for buffer in buffers]
        answer = library.ts_read_documents(natives[number][1].handle.address, copy, len(raw), *handles)
        assert answer in {-1, 0, 1}
        for buffer in buffers:
            buffer.clear()


def spoilt(raw: bytes, seeded: Random) -> bytes:
    """Return bytes that begin as a document may."""
    found = bytearray(raw)
    for _ in range(seeded.randrange(1, 8)):
        at = seeded.randrange(4, len(found))
        found[at] = seeded.choice((0, 1, 2, 3, 4, 5, 0x10, 0x7F, 0x80, 0xC2, 0xFF, seeded.randrange(256)))
    if seeded.random() < 0.3:  # often
        del found[seeded.randrange(5, len(found)) :]
        found[-1] = 0
    if seeded.random() < 0.9:  # mostly
        found[:4] = len(found).to_bytes(4, "little")
    return bytes(found)

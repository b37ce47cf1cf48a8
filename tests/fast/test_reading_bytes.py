"""Bytes of any kind: native code declines them, refuses them as a whole or takes them, and never leaves them.

``make native-sanitized`` runs this too, and then each byte that is read where none is ours ends the run.
"""

from __future__ import annotations

import ctypes
from random import Random
from typing import TYPE_CHECKING

from tests.fast.fuzz import mutants
from tests.fast.hand_made import native_library
from tests.fast.programs import programs
from twinstore.fast.library import Buffer
from twinstore_mongo.bulk.records import documents_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.fast.records import NativeDocuments

# What lengths and types of values are made of, and what tells that a text ends or goes on.
TELLING = (0, 1, 2, 3, 4, 5, 7, 8, 9, 0x0A, 0x10, 0x12, 0x30, 0x5F, 0x7F, 0x80, 0xC2, 0xE0, 0xF0, 0xFF)


def test_no_bytes_lead_beyond_their_end(*, long_form: bool) -> None:
    library = native_library()
    buffers = [Buffer(library) for _ in range(3)]
    handles = [buffer.handle for buffer in buffers]
    answers = set[int]()
    for documents, raw in spoilt_documents(library, 20_000 if long_form else 40):
        # A copy of exactly this size, so that a sanitizer sees each byte behind it.
        copy = (ctypes.c_char * len(raw)).from_buffer_copy(raw)
        answers.add(library.ts_read_documents(documents.handle.address, copy, len(raw), *handles))
        for buffer in buffers:
            buffer.clear()
    assert answers == {-1, 0, 1}


def spoilt_documents(library: ctypes.CDLL, each: int) -> Iterator[tuple[NativeDocuments, bytes]]:
    """Yield bytes that begin as documents of an entity may, and what reads those."""
    for name, program in programs().items():
        seeded, documents = Random(name), documents_of(library, program)
        assert documents is not None
        for raw in mutants(program, seeded, each):
            yield documents, spoilt(raw, seeded)


def spoilt(raw: bytes, seeded: Random) -> bytes:
    """Return a document of which some bytes are others, or that ends early."""
    found = bytearray(raw)
    for _ in range(seeded.randrange(8)):
        found[seeded.randrange(len(found))] = seeded.choice((*TELLING, seeded.randrange(256)))
    fate = seeded.randrange(4)
    if fate == 0:
        del found[seeded.randrange(1, len(found)) :]
        found[-1] = 0
    if fate < 3:  # mostly
        # Else the first length tells that nothing of it is to be looked at.
        found[:4] = len(found).to_bytes(4, "little")
    return bytes(found)

"""Which C files a library was compiled of, and whether all of it is there.

The build loads this file by its path, before anything is installed.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from pathlib import Path

LENGTH = 16
# The head of an ELF file of 64 bits, little-endian: where its table of sections is, their size and number.
ELF = b"\x7fELF\x02\x01"
HEAD = struct.Struct("<40xQ10xHH")
MACHINE = struct.Struct("<18xH")


def source_version(folder: Path) -> str:
    """Return a digest of the C files in a folder, by name and content."""
    digest = sha256()
    for path in sorted(path for path in folder.rglob("*.[ch]") if path.is_file()):
        content = path.read_bytes()
        # With name and length, so that text moved from one file to the next changes the digest.
        digest.update(f"{path.relative_to(folder).as_posix()}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()[:LENGTH]


def is_cut_short(library: Path) -> bool:
    """Return whether the end of a library is missing, as where a disk was full when it was copied.

    The loader of the system does not ask, and the process dies at the first byte that is not there. At the
    end of the file is the table of its sections. A file of another format is left to the loader.

    Raises:
        OSError: the file cannot be read.
    """
    with library.open("rb") as file:
        head = file.read(HEAD.size)
    if len(head) < HEAD.size or not head.startswith(ELF):
        return False
    table, each, sections = HEAD.unpack(head)
    return library.stat().st_size < int(table) + int(each) * int(sections)


def machine_of(program: Path) -> int | None:
    """Return the number of the kind of processor that a library or program is for, ``None`` for no such file.

    Raises:
        OSError: the file cannot be read.
    """
    with program.open("rb") as file:
        head = file.read(MACHINE.size)
    return int(MACHINE.unpack(head)[0]) if len(head) == MACHINE.size and head.startswith(ELF) else None

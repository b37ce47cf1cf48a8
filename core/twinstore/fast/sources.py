"""Which C files a library was compiled of.

The build loads this file by its path, before anything is installed.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

__all__ = ["source_version"]

LENGTH = 16


def source_version(folder: Path) -> str:
    """Return a digest of the C files in a folder, by name and content."""
    digest = sha256()
    for path in sorted(path for path in folder.rglob("*.[ch]") if path.is_file()):
        content = path.read_bytes()
        # With name and length, so that text moved from one file to the next changes the digest.
        digest.update(f"{path.relative_to(folder).as_posix()}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()[:LENGTH]

"""Which tool made a report: name, version and a checksum of its code."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

__all__ = ["TOOL_NAME", "tool_identity"]

TOOL_NAME: Final = "twinstore"
PACKAGES: Final = ("twinstore", "twinstore_backfill")


@cache
def tool_identity() -> dict[str, str]:
    """Return name, version and checksum; the checksum covers every Python file of core and this tool."""
    return {"name": TOOL_NAME, "version": version(TOOL_NAME), "checksum": _checksum()}


def _checksum() -> str:
    digest = sha256()
    for package in PACKAGES:
        for name, file in sorted(_sources(files(package), package)):
            content = file.read_bytes()
            # With name and length, so that text moved from one file to the next changes the checksum.
            digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return f"sha256:{digest.hexdigest()}"


def _sources(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        name = f"{prefix}/{item.name}"
        if item.is_dir():
            yield from _sources(item, name)
        elif item.name.endswith(".py"):
            yield name, item

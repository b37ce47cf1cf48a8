"""The groups of docs/benchmarks.md, each with as many rounds and documents as its figures need."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["PAGE", "Extent"]


class Extent(NamedTuple):
    """How far a group is measured: its rounds, and its documents if they are fewer than requested."""

    runs: int
    documents: int | None = None


# Five rounds of what has a goal; for the others fewer. Some need only half of the documents.
PAGE: Final = {
    "copy": Extent(5),
    "verify": Extent(5),
    "return": Extent(5),
    "mongo": Extent(5),
    "postgres": Extent(5),
    "start": Extent(5),
    "entities": Extent(5),
    "merge": Extent(5, 100_000),
    "tools": Extent(3, 100_000),
    "switch": Extent(3, 100_000),
    "waits": Extent(3),
    "scale": Extent(1),
}

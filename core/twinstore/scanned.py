"""Rows as a comparison reads them: one by one, or as digests of ranges of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.catalog import Key
from twinstore.tenancy import UNKNOWN_TENANT, StoredOwner, label_of

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from datetime import datetime

__all__ = [
    "NOTHING_BESIDE",
    "SECRET_BYTES",
    "Cell",
    "Counted",
    "Digestible",
    "NoDigests",
    "RangeDigests",
    "ScanRow",
    "content_without",
]

SECRET_BYTES: Final = 16
"""The length of the key of digests."""

# What most entities have beside their content.
NOTHING_BESIDE: Final = b"{}"
MODULUS: Final = 2**128


@dataclass(slots=True)
class ScanRow:
    """One row as the verifier reads it.

    Attributes:
        key: the key; ``None`` when what is stored is not a key of the entity.
        owner: who owns the row, as far as the stored value tells.
        content: JSON of ``{"doc": wire form, "storage": markers}`` with sorted keys and no blanks, taken from
            the stored values without the models; what is not in the form in which the driver writes it stands
            under a mark of :mod:`twinstore.stored`.
        beside: in the same form what the store holds beside the content: fields that it repeats, and those
            that follow from the content; null stands for an absent value.
        expires: the instant by which retention judges the row.
        stored_bytes: what the row takes in the store, where ``content`` shows only a digest of it.
        error: why no copy takes the row, where the store can tell; ``content`` then has a mark.
    """

    key: Key | None
    owner: StoredOwner = UNKNOWN_TENANT
    content: bytes = b""
    beside: bytes = NOTHING_BESIDE
    expires: datetime | None = None
    stored_bytes: int = 0
    error: str | None = None

    @property
    def label(self) -> str:
        """The text under which the owner is counted."""
        return label_of(self.owner)

    @property
    def size(self) -> int:
        """About how many bytes the row has."""
        return max(len(self.content), self.stored_bytes)


def content_without(content: bytes, names: AbstractSet[str]) -> bytes:
    """Return the content of a scanned row without some names at the top of its document."""
    try:
        parts = jsontext.loads(content)
    except (ValueError, RecursionError):  # nested too deeply for a copy, too
        return content
    document = parts["doc"] if isinstance(parts, dict) else None
    if not isinstance(parts, dict) or not isinstance(document, dict) or document.keys().isdisjoint(names):
        return content
    kept = {name: value for name, value in document.items() if name not in names}
    return jsontext.dumps_sorted({**parts, "doc": kept})


@dataclass(frozen=True, slots=True)
class Counted:
    """The rows of an entity.

    Attributes:
        rows: their number by the label of their owner.
        largest: the bytes of the largest row as it is stored, ``None`` where the store does not tell them.
    """

    rows: dict[str, int]
    largest: int | None = None


class Digestible(Enum):
    """How a store that has digests of an entity judges its rows."""

    ROWS = "it asks of each row whether the models accept it"
    JUDGED = "it knows of nearly every row whether the models accept it"


@dataclass(frozen=True, slots=True)
class NoDigests:
    """Why a store has no digests of an entity, as reports show it; its rows are compared one by one."""

    reason: str


@dataclass(slots=True)
class Cell:
    """The rows of one owner in one range.

    Attributes:
        count: how many rows the digest is of.
        expired: how many there are beside them that retention removes.
        xor: of the numbers of the rows, each the first 128 bits of the SHA-256 of its ``content``. Reports
            show it and ``sum``; both can be forged and prove nothing.
        sum: of the same numbers, modulo 2^128.
        largest: the most bytes that one of these rows has, an expired one too.
        keyed: the sum, modulo 2^128, of what proves that two sides hold the same rows: of each row the first
            128 bits of the SHA-256 of the secret of the run followed by the SHA-256 of its ``content``.
        ignored: how many of the rows that are not expired have a name that is ignored.
    """

    count: int = 0
    expired: int = 0
    xor: int = 0
    sum: int = 0
    largest: int = 0
    keyed: int = 0
    ignored: int = 0

    def merge(self, other: Cell) -> None:
        """Add the rows of another cell."""
        self.count += other.count
        self.expired += other.expired
        self.xor ^= other.xor
        self.sum = (self.sum + other.sum) % MODULUS
        self.largest = max(self.largest, other.largest)
        self.keyed = (self.keyed + other.keyed) % MODULUS
        self.ignored += other.ignored


@dataclass(slots=True)
class RangeDigests:
    """The digests of the rows of one store by range and owner.

    A row is in them only when it stands as the driver of the store writes it, without a mark and with nothing
    beside its content. Any other one makes its range unproven, and the rows decide as they are read by key.

    Attributes:
        cells: by the number of the range and the label of the owner.
        unproven: ranges of which the cells do not hold every row.
        unplaced: rows of which the range cannot be told; then no range is proved.
        judged: the models would accept each row that a cell of a proved range counts.
        unique: the store holds no two rows of one key, or says of each that it cannot be placed.
        rows: how many were read.
        file: what the store divides into parts, where it does: a row moves into another file, and may then be
            in a part that was read before. Parts of several files leave every row without a place.
    """

    cells: dict[tuple[int, str], Cell] = field(default_factory=dict[tuple[int, str], Cell])
    unproven: set[int] = field(default_factory=set[int])
    unplaced: int = 0
    judged: bool = True
    unique: bool = True
    rows: int = 0
    file: str | None = None

    def merge(self, other: RangeDigests) -> None:
        """Add another part of the same store."""
        for place, cell in other.cells.items():
            self.cells.setdefault(place, Cell()).merge(cell)
        self.unproven |= other.unproven
        self.unplaced += other.unplaced
        if other.file != self.file and other.file is not None:
            self.unplaced += self.file is not None
            self.file = other.file
        self.judged = self.judged and other.judged
        self.unique = self.unique and other.unique
        self.rows += other.rows

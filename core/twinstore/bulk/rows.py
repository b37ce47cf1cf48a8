"""Rows as a comparison reads them: one by one, or as digests of ranges of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from twinstore.catalog.keys import Key
from twinstore.catalog.tenancy import UNKNOWN_TENANT, StoredOwner, label_of
from twinstore.models import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet
    from datetime import datetime

__all__ = [
    "EVERY_RANGE",
    "FOLDED",
    "LONGEST_READABLE",
    "MARK",
    "NO_ADDITIONAL_VALUES",
    "NUMBERS",
    "SECRET_BYTES",
    "Cell",
    "Counted",
    "Digestible",
    "NoDigests",
    "Original",
    "RangeDigests",
    "ScanRow",
    "base64_pieces",
    "content_without",
    "has_marks",
    "marked",
    "unmarked",
]


SECRET_BYTES: Final = 16
"""The length of the key of digests."""

# What most entities have in addition to their content.
NO_ADDITIONAL_VALUES: Final = b"{}"
MODULUS: Final = 2**128
# No owner and no range.
FOLDED: Final = ""
EVERY_RANGE: Final = -1


@dataclass(slots=True)
class ScanRow:
    """One row as the verifier reads it.

    Attributes:
        key: the key; ``None`` when what is stored is not a key of the entity.
        owner: who owns the row, as far as the stored value shows.
        content: JSON of ``{"doc": wire form, "storage": markers}`` with sorted keys and no blanks, taken from
            the stored values without the models; a value in another form than the driver writes is shown
            under a mark of this module.
        beside: in the same form what the store holds in addition to the content: fields that it repeats, and
            those that follow from the content; null means an absent value.
        expires: the instant by which retention judges the row.
        stored_bytes: what the row takes in the store, where ``content`` shows only a digest of it.
        error: why the row cannot be copied, if the store knows; ``content`` then has a mark.
        rules: the numbers of the rules that changed it, see ``BulkPort.with_changes``.
        stored_key: without a ``key``, what is stored in its place, as short extended JSON, if the driver can
            say so.
    """

    key: Key | None
    owner: StoredOwner = UNKNOWN_TENANT
    content: bytes = b""
    beside: bytes = NO_ADDITIONAL_VALUES
    expires: datetime | None = None
    stored_bytes: int = 0
    error: str | None = None
    rules: tuple[int, ...] = ()
    stored_key: str | None = field(default=None, compare=False)

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
        parts = json_text.loads(content)
    except (ValueError, RecursionError):  # nested too deeply for a copy, too
        return content
    document = parts["doc"] if isinstance(parts, dict) else None
    if not isinstance(parts, dict) or not isinstance(document, dict) or document.keys().isdisjoint(names):
        return content
    kept = {name: value for name, value in document.items() if name not in names}
    return json_text.dumps_sorted({**parts, "doc": kept})


@dataclass(frozen=True, slots=True)
class Counted:
    """The rows of an entity.

    Attributes:
        rows: their number by the label of their owner.
        largest: the bytes of the largest row as it is stored, ``None`` if the store does not report them.
    """

    rows: dict[str, int]
    largest: int | None = None


class Digestible(Enum):
    """How a store that has digests of an entity judges its rows."""

    ROWS = "it asks of each row whether the models accept it"
    PREVALIDATED = "it knows of nearly every row whether the models accept it"


@dataclass(frozen=True, slots=True)
class NoDigests:
    """Why a store has no digests of an entity, as reports show it; its rows are compared one by one."""

    reason: str


@dataclass(slots=True)
class Cell:
    """The rows of one owner in one range.

    Attributes:
        count: how many rows the digest is of.
        expired: how many further rows there are that retention removes.
        xor: of the numbers of the rows, each the first 128 bits of the SHA-256 of its ``content``. Reports
            show it and ``sum``; both can be forged and prove nothing.
        sum: of the same numbers, modulo 2^128.
        largest: the most bytes that one of these rows has, an expired one too.
        keyed: the sum, modulo 2^128, of what proves that two sides hold the same rows of the same owners: of
            each row the first 128 bits of the SHA-256 of the key of its owner followed by the SHA-256 of its
            ``content``. That key is the first 128 bits of the SHA-256 of the secret of the run followed by
            the label of the owner.
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

    def remove(self, other: Cell) -> None:
        """Remove the rows of another cell, which has some of the same rows; ``largest`` remains."""
        self.count -= other.count
        self.expired -= other.expired
        self.xor ^= other.xor
        self.sum = (self.sum - other.sum) % MODULUS
        self.keyed = (self.keyed - other.keyed) % MODULUS
        self.ignored -= other.ignored


@dataclass(slots=True)
class RangeDigests:
    """The digests of the rows of one store by range and owner.

    They include a row only if it is stored as the driver of the store writes it, without a mark and with
    nothing in addition to its content. Any other row makes its range unproven; the rows, read by key, then
    decide.

    Attributes:
        cells: by the number of the range and the label of the owner. Where owners are folded, the label of a
            range is :data:`FOLDED`, and :data:`EVERY_RANGE` has the rows of all ranges by owner.
        unproven: ranges of which the cells do not hold every row.
        unplaced: rows whose range is unknown; then no range is proved.
        judged: the models would accept each row that a cell of a proved range counts.
        unique: the store holds no two rows of one key, or says of each that it cannot be placed.
        rows: how many were read.
        rules: by place how many rows of a cell were changed by these rules, as sets of their numbers.
        file: what the store divides into parts, where it does: a row moves into another file, and may then be
            in a part that was read before. Parts of several files leave every row without a place.
    """

    cells: dict[tuple[int, str], Cell] = field(default_factory=dict[tuple[int, str], Cell])
    unproven: set[int] = field(default_factory=set[int])
    unplaced: int = 0
    judged: bool = True
    unique: bool = True
    rows: int = 0
    rules: dict[tuple[int, str], Counter[tuple[int, ...]]] = field(
        default_factory=dict[tuple[int, str], Counter[tuple[int, ...]]]
    )
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
        for place, changed in other.rules.items():
            self.rules.setdefault(place, Counter()).update(changed)


# How a comparison shows a stored value that a copy would not have written in this form.
#
# A scan shows a value as canonical JSON if it is stored in the one form in which the driver of that store
# writes it: the BSON type, the number of bits, the text of a number. A value in any other form is put under a
# mark, an object whose one name begins with U+0000, which no document of ours can hold. So the content of a
# row without marks is equal on two stores exactly when each of them holds what a copy would have stored.


MARK: Final = "\x00"
# The marks of numbers that are right but for their type or spelling.
NUMBERS: Final = frozenset({"int32", "int64", "double", "number"})
# As JSON has the name of a mark. Text that begins so is refused by every model, so nothing else has it.
IN_JSON: Final = b'"\\u0000'


def marked(kind: str, value: object) -> dict[str, object]:
    """Return a value under the mark of a form, such as ``int32``."""
    return {MARK + kind: value}


def has_marks(content: bytes) -> bool:
    """Whether something in a scanned row is stored in another form than the driver writes."""
    return IN_JSON in content


def unmarked(value: dict[str, object]) -> tuple[str, object] | None:
    """Return the form and the value of a mark, ``None`` for any other object."""
    if len(value) != 1:
        return None
    ((name, inner),) = value.items()
    return (name[1:], inner) if name.startswith(MARK) else None


# What a store holds of a row byte by byte, as a quarantine keeps it.
#
# A row may be as large as a store admits, so neither base64 nor readable form is ever made in one piece.


LONGEST_READABLE: Final = 65_536
"""Characters of the readable form of a row, at most."""
# A multiple of three, so that the texts of the pieces make up one base64 text.
PIECE_BYTES: Final = 600_000


class Original(ABC):
    """The stored form of one row; it costs nothing until a caller reads it."""

    __slots__ = ()

    @abstractmethod
    def pieces(self) -> Iterator[str]:
        """Yield one JSON object in pieces of at most a megabyte: the bytes in base64, and a readable form.

        The readable form has at most :data:`LONGEST_READABLE` characters and leaves out what is longer.
        """

    def __str__(self) -> str:
        return "".join(self.pieces())


def base64_pieces(content: bytes) -> Iterator[str]:
    """Yield the base64 of some bytes in pieces."""
    for start in range(0, len(content), PIECE_BYTES):
        yield b64encode(content[start : start + PIECE_BYTES]).decode()

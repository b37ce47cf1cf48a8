"""Keys that a tool gives to rows in place of the ObjectIds of their documents, in the same order.

They are the digits themselves, or a UUID of version 7 with the same time and all other bits. Ranges of rows
are read by ObjectIds, so this finds the one at which the keys from a bound on begin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from bson import ObjectId

from twinstore.catalog.keys import KeyType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.catalog.keys import Key

BITS: Final = 96
OTHER_BITS: Final = 64
DIGITS: Final = 24
# The server has this behind every ObjectId.
BEYOND: Final = False


def digits_of(number: int) -> str:
    """Return the digits of an ObjectId as a number."""
    return f"{number:024x}"


def uuid_of(number: int) -> UUID:
    """Return the UUID of an ObjectId: milliseconds, version, 12 bits, variant, 52 bits, 10 zeros."""
    others = number & ((1 << OTHER_BITS) - 1)
    time = (number >> OTHER_BITS) * 1000
    high, low = others >> 52, others & ((1 << 52) - 1)
    return UUID(int=time << 80 | 7 << 76 | high << 64 | 2 << 62 | low << 10)


@dataclass(frozen=True, slots=True)
class ReplacedIds:
    """The keys of one entity; ``shown`` is that of an ObjectId as a number."""

    shown: Callable[[int], str]

    @classmethod
    def of(cls, kind: KeyType, to: str) -> ReplacedIds:
        """Return the keys of some type that are texts of 24 digits, or of UUIDs."""
        if to != "uuid":
            return cls(digits_of)
        return cls(
            (lambda number: uuid_of(number).hex)
            if kind is KeyType.HEX
            else lambda number: str(uuid_of(number))
        )

    def key_of(self, value: object) -> Key | None:
        """Return the key of a stored value, ``None`` if it is not an ObjectId."""
        return (self.shown(int.from_bytes(value.binary, "big")),) if isinstance(value, ObjectId) else None

    def stored(self, keys: Iterable[Key]) -> list[object]:
        """Return the ObjectIds of keys, of those that have one."""
        found = ((key, self.first_from(str(key[0]))) for key in keys)
        return [value for key, value in found if self.key_of(value) == key]

    def first_from(self, bound: str) -> object:
        """Return the first ObjectId of which the key is not below a bound, in the order of texts.

        A bound of 24 digits may also be an ObjectId.
        """
        if len(bound) == DIGITS and ObjectId.is_valid(bound):
            return ObjectId(bound)
        low, high = 0, 1 << BITS
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.shown(middle) < bound else (low, middle)
        return BEYOND if low == 1 << BITS else ObjectId(digits_of(low))

"""ObjectIds as UUIDs of version 7.

    ObjectId   s s s s r r r r r r r r          seconds since 1970, and 64 bits of process and counter
    UUID       bits 127 to 80                   milliseconds since 1970: the seconds times 1,000
               bits 79 to 76                    7, the version
               bits 75 to 64                    the highest 12 of the 64 bits
               bits 63 and 62                   binary 10, the variant
               bits 61 to 10                    the other 52 of the 64 bits
               bits 9 to 0                      zero

So no two ObjectIds have the same UUID, their order is that of the ObjectIds, and each can be read back.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

MILLISECONDS: Final = 1000
VERSION: Final = 7
VARIANT: Final = 2
LOW_BITS: Final = 52
UNUSED_BITS: Final = 10
DIGITS: Final = 24


def uuid_of(digits: str) -> UUID:
    """Return the UUID of an ObjectId as its 24 digits."""
    value = bytes.fromhex(digits)
    seconds, rest = int.from_bytes(value[:4], "big"), int.from_bytes(value[4:], "big")
    high, low = divmod(rest, 1 << LOW_BITS)
    first = (seconds * MILLISECONDS) << 16 | VERSION << 12 | high
    return UUID(int=first << 64 | VARIANT << 62 | low << UNUSED_BITS)


def digits_of(value: UUID) -> str | None:
    """Return the digits of the ObjectId that has a UUID, ``None`` if none has it."""
    first, second = divmod(value.int, 1 << 64)
    seconds, rest = (first >> 16) // MILLISECONDS, second >> UNUSED_BITS & (1 << LOW_BITS) - 1
    digits = f"{seconds:08x}{first & 0xFFF:03x}{rest:013x}"
    return digits if len(digits) == DIGITS and uuid_of(digits) == value else None

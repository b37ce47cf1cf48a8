"""The UUID of an ObjectId, by arithmetic of integers.

An ObjectId has 4 bytes of seconds since 1970 and 8 other bytes. Its UUID has version 7: 48 bits of
milliseconds (the seconds times 1,000), the version, the highest 12 of the 64 other bits, the variant, the
next 52 of them, 10 zeros.
"""

from __future__ import annotations

import re
from typing import Final
from uuid import UUID

from twinstore.bulk.changes import StoredObjectId
from twinstore.catalog.keys import Key, KeyType

DIGITS: Final = re.compile("[0-9a-fA-F]{24}")
VERSION: Final = 7
VARIANT: Final = 0b10
OTHER_BITS: Final = 64
# Of the other bits those that follow the first 12.
REST_BITS: Final = 52
FREE_BITS: Final = 10


def uuid_of(digits: str) -> UUID:
    """Return the UUID of an ObjectId, given as its 24 digits."""
    seconds, others = divmod(int(digits, 16), 1 << OTHER_BITS)
    first, rest = divmod(others, 1 << REST_BITS)
    value = seconds * 1000
    for part, bits in ((VERSION, 4), (first, 12), (VARIANT, 2), (rest, REST_BITS), (0, FREE_BITS)):
        value = (value << bits) | part
    return UUID(int=value)


def digits_of(value: object) -> str | None:
    """Return the digits of an ObjectId or of their text, ``None`` for anything else."""
    if isinstance(value, StoredObjectId):
        return value.digits
    return value.lower() if type(value) is str and DIGITS.fullmatch(value) else None


def key_after(key: Key, kind: KeyType) -> Key:
    """Return the key of the type of an entity for one that is the digits of an ObjectId."""
    digits = digits_of(key[0])
    if digits is None:
        return key
    found = uuid_of(digits)
    return (found.hex if kind is KeyType.HEX else str(found),)

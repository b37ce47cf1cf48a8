"""The bytes of a document for a quarantine, with as much of it in a readable form as fits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bson import InvalidBSON, decode
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps
from typing_extensions import override

from twinstore.originals import LONGEST_READABLE, Original, base64_pieces
from twinstore_mongo.raw import elements

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["BsonOriginal"]

LENIENT: Final[CodecOptions[dict[str, Any]]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="backslashreplace"
)
# A value beyond it is left out of the readable form, so that the names and the small values find room.
LARGEST_SHOWN: Final = 4096


class BsonOriginal(Original):
    """A document as the server gave it."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        """Take the bytes."""
        self._raw = raw

    @override
    def pieces(self) -> Iterator[str]:
        """Yield ``{"bson": base64, "document": extended JSON}``."""
        yield '{"bson":"'
        yield from base64_pieces(self._raw)
        yield '","document":{'
        yield ",".join(members(self._raw))
        yield "}}"


def members(raw: bytes) -> Iterator[str]:
    """Yield the elements of a document as members of a JSON object while there is room for them."""
    room = LONGEST_READABLE
    for _, name, start, end in elements(raw):
        told = told_of(raw, name, start, end)
        if len(told) > room:
            yield '"$omitted":true'
            return
        # The comma counts too.
        room -= len(told) + 1
        yield told


def told_of(raw: bytes, name: bytes, start: int, end: int) -> str:
    """Return one element as a member of a JSON object; what is long or has no such form is left out."""
    first = start - len(name) - 2
    if end - first <= LARGEST_SHOWN:
        inner = raw[first:end]
        document = (len(inner) + 5).to_bytes(4, "little") + inner + b"\x00"
        try:
            return dumps(decode(document, LENIENT), json_options=CANONICAL_JSON_OPTIONS)[1:-1]
        # Even extended JSON does not know everything that a server stores.
        except (InvalidBSON, TypeError, ValueError, OverflowError, RecursionError):
            pass
    shown = json.dumps(name[:LARGEST_SHOWN].decode(errors="backslashreplace"))
    return f'{shown}:{{"$omitted":{end - start}}}'

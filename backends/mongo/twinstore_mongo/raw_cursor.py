"""Raw batches without an object for each document.

The client makes such objects of every answer before it gives the raw bytes, which takes longer than native
code needs for the documents. Only the answer around them is decoded here; one of another form is left to the
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bson import InvalidBSON, decode
from pymongo.cursor import RawBatchCursor
from typing_extensions import override

from twinstore_mongo.raw import LENGTH_BYTES, elements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_mongo.connection import Document

__all__ = ["LeanCursor", "lean_reply"]

OBJECT: Final = 0x03
LIST: Final = 0x04
CURSOR: Final = b"cursor"
BATCHES: Final = (b"firstBatch", b"nextBatch")
# Where something begins and ends.
Place: TypeAlias = tuple[int, int]


class LeanCursor(RawBatchCursor["Document"]):
    """Gives the raw batches that :meth:`~pymongo.collection.Collection.find_raw_batches` gives."""

    @override
    def _unpack_response(self, response: Any, *arguments: Any, **named: Any) -> Any:
        """Return an answer with its batch in bytes."""
        lean: Any = LeanResponse(response)
        return super()._unpack_response(lean, *arguments, **named)


class LeanResponse:
    """An answer of the server, of which the batch stays as it came."""

    def __init__(self, response: Any) -> None:  # noqa: ANN401  # the client's class
        """Take the answer as the client has it."""
        self._response = response

    def raw_response(self, cursor_id: int | None = None, user_fields: Any = None) -> list[Mapping[str, Any]]:  # noqa: ANN401  # as the client has it
        """Return what the client returns, without decoding the documents of a batch."""
        found = lean_reply(bytes(self._response.payload_document))
        return [found] if found is not None else self._response.raw_response(cursor_id, user_fields)


def lean_reply(payload: bytes) -> Document | None:
    """Return an answer with its batch as the bytes of a list, ``None`` for one of another form."""
    try:
        reply, cursors = parted(payload, (0, len(payload)), (CURSOR,), OBJECT)
        if set(cursors) != {CURSOR}:
            return None
        cursor, batches = parted(payload, cursors[CURSOR], BATCHES, LIST)
    except (ValueError, IndexError, InvalidBSON):
        return None
    if len(batches) != 1:
        return None
    # Most of the answer, so no copy of it is made here.
    whole = memoryview(payload)
    return {
        **reply,
        "cursor": {**cursor, **{name.decode(): whole[begin:end] for name, (begin, end) in batches.items()}},
    }


def parted(
    payload: bytes, document: Place, names: tuple[bytes, ...], kind: int
) -> tuple[Document, dict[bytes, Place]]:
    """Return a document without some elements, decoded, and where the values of those elements stand."""
    apart: dict[bytes, Place] = {}
    rest = bytearray(LENGTH_BYTES)
    for found, name, begin, end in elements(payload, *document):
        if name in names and found == kind:
            apart[name] = begin, end
        else:
            rest += payload[begin - len(name) - 2 : end]
    rest += b"\x00"
    rest[:LENGTH_BYTES] = len(rest).to_bytes(LENGTH_BYTES, "little")
    return decode(bytes(rest)), apart

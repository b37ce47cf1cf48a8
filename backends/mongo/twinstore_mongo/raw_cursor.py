"""Raw batches without an object for each document.

The client makes such objects of every answer before it gives the raw bytes, which takes longer than native
code needs for the documents. Only the answer around them is decoded here; one of another form is left to the
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bson import InvalidBSON, decode
from pymongo.cursor import RawBatchCursor
from typing_extensions import override

from twinstore_mongo.raw import elements

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_mongo.connection import Document

__all__ = ["LeanCursor", "lean_reply"]

OBJECT: Final = 0x03
LIST: Final = 0x04
CURSOR: Final = b"cursor"
BATCHES: Final = (b"firstBatch", b"nextBatch")


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
        found = lean_reply(memoryview(self._response.payload_document))
        return [found] if found is not None else self._response.raw_response(cursor_id, user_fields)


def lean_reply(payload: memoryview) -> Document | None:
    """Return an answer with the bytes of its batch, not copied; ``None`` for one of another form."""
    try:
        reply, cursors = parted(payload, (CURSOR,), OBJECT)
        if set(cursors) != {CURSOR}:
            return None
        cursor, batches = parted(cursors[CURSOR], BATCHES, LIST)
    except (ValueError, IndexError, InvalidBSON):
        return None
    if len(batches) != 1:
        return None
    return {**reply, "cursor": {**cursor, **{name.decode(): batch for name, batch in batches.items()}}}


def parted(
    document: memoryview, names: tuple[bytes, ...], kind: int
) -> tuple[Document, dict[bytes, memoryview]]:
    """Return a document without some elements, decoded, and those elements as they are."""
    apart: dict[bytes, memoryview] = {}
    rest = bytearray(4)
    for found, name, start, end in elements(document):
        if name in names and found == kind:
            apart[name] = document[start:end]
        else:
            rest += document[start - len(name) - 2 : end]
    rest += b"\x00"
    rest[:4] = len(rest).to_bytes(4, "little")
    return decode(bytes(rest)), apart

"""Positions: cluster times as text, and reads as of one."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pymongo
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from pymongo.collection import Collection

    from twinstore.bulk.port import Position
    from twinstore_mongo.client.types import Document

POSITION: Final = re.compile(r"(\d{1,10})\.(\d{1,10})", re.ASCII)
# A cluster time has 32 bits for each of its two parts.
LARGEST_PART: Final = 2**32 - 1


def position_of(time: Timestamp) -> Position:
    """Return ``seconds.increment``."""
    return f"{time.time}.{time.inc}"


def timestamp_of(position: Position) -> Timestamp:
    """Return the cluster time of a position.

    Raises:
        ValidationError: it is not one of MongoDB.
    """
    match = POSITION.fullmatch(position)
    parts = [int(part) for part in match.groups()] if match else []
    if not parts or max(parts) > LARGEST_PART:
        raise ValidationError(
            f"{position!r} is not a MongoDB position; expected seconds.increment, such as 1763632800.5."
        )
    return Timestamp(*parts)


class PointInTime(ReadConcern):
    """Reads see the store as it was at a cluster time; the cursor keeps seeing it.

    pymongo offers no option for it, but sends whatever document a read concern has.

    Attributes:
        is_sent: pymongo has asked for the document; a release that does not sends no time.
    """

    is_sent = False

    def __init__(self, time: Timestamp) -> None:
        super().__init__("snapshot")
        self._time = time

    @property
    def document(self) -> dict[str, Any]:
        """The read concern as the server gets it."""
        self.is_sent = True
        return {**super().document, "atClusterTime": self._time}


def time_not_sent_message() -> str:
    """Return the sentence about a release that does not ask a read concern for its document."""
    return (
        f"pymongo {pymongo.version} does not send the time of a view of the past. Install an earlier release."
    )


def sends_time(collection: Collection[Document]) -> bool:
    """Whether this release of pymongo sends the time of a view; reads one document as of long ago."""
    concern = PointInTime(Timestamp(1, 1))
    try:
        # The server has forgotten that time, and refuses.
        with suppress(OperationFailure):
            collection.with_options(read_concern=concern).find_one()
    except TypeError:  # the document is no longer a property
        return False
    return concern.is_sent

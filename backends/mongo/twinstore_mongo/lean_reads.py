"""Reading documents with our types at once, and one document without a cursor.

The client applies types of ours in a second pass over an answer that it keeps in bytes first, and makes a
cursor for each single document. Both together take as long as the rest of a small read. What is asked, the
session, the retry, the limits and the errors are those of the client; where it has another shape than the
one known here, it does all of it by itself.
"""

from __future__ import annotations

from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Final, Self, cast

import bson
from bson import Code
from bson.codec_options import CodecOptions
from pymongo import MongoClient, ReadPreference, message
from pymongo.collection import Collection
from pymongo.cursor import Cursor
from pymongo.synchronous.pool import Connection
from typing_extensions import override

from twinstore_mongo.connection import DECODING
from twinstore_mongo.derive import ID
from twinstore_mongo.key_order import SIMPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymongo.client_session import ClientSession

    from twinstore_mongo.connection import Document

__all__ = ["find", "find_first"]

FIND: Final = "find"
RETRIED: Final = ("func", "read_pref")
COMMAND: Final = ("dbname", "spec", "read_preference", "codec_options")


class WholeAnswer(CodecOptions["Document"]):
    """How an answer is read in one pass: with our types wherever they occur in it.

    The client takes them out of the options before it reads an answer of which nobody named the parts that
    they are for. The rest of an answer has no values of these types.
    """

    @override
    def with_options(self, **changes: Any) -> Self:
        """Return these options with others in their place, but never without the types."""
        return self if changes == {"type_registry": None} else cast("Self", super().with_options(**changes))


# The options are a tuple of what makes them.
ANSWER: Final = WholeAnswer(*cast("tuple[Any, ...]", DECODING))


class TypedCursor(Cursor["Document"]):
    """A cursor whose answers are read in one pass."""

    @override
    def _unpack_response(self, response: Any, cursor_id: Any, *_: Any, **__: Any) -> Any:
        """Return the answer with our types."""
        return response.unpack_response(cursor_id, ANSWER)


def is_known() -> bool:
    """Whether the client has the shape that is relied on here."""
    client: Any = MongoClient
    try:
        retried = signature(client._retryable_read)  # noqa: SLF001  # as all of it here
        command = signature(Connection.command)
        # What is given below.
        retried.bind(None, None, None, None, FIND)
        command.bind(None, "", {}, None, ANSWER, read_concern=None, collation=None, session=None, client=None)
        # As the client reads an answer: a code is no text to us, and without our types it would be one.
        reply: Any = message._OpMsg(0, bson.encode({ID: Code("")}))  # noqa: SLF001
        (answer,) = reply.unpack_response(0, ANSWER)
    except (AttributeError, TypeError, ValueError):
        return False
    return begins(retried, RETRIED) and begins(command, COMMAND) and isinstance(answer[ID], dict)


def begins(found: Signature, names: tuple[str, ...]) -> bool:
    """Whether the parameters of a method begin with these."""
    return tuple(found.parameters)[1 : len(names) + 1] == names


KNOWN: Final = is_known()


def find(
    collection: Collection[Document],
    condition: Document,
    fields: Sequence[str] | None = None,
    *,
    session: ClientSession | None,
) -> Cursor[Document]:
    """Return a cursor over the documents that satisfy a condition; only some fields where some are named."""
    wanted = None if fields is None else dict.fromkeys(fields, 1)
    if not is_lean(collection):
        return collection.find(condition, wanted, session=session, collation=SIMPLE)
    return TypedCursor(collection, condition, wanted, session=session, collation=SIMPLE)


def find_first(
    collection: Collection[Document], condition: Document, *, session: ClientSession | None
) -> Document | None:
    """Return the first document that satisfies a condition."""
    if not is_lean(collection) or begins_transaction(session):
        return collection.find_one(condition, session=session, collation=SIMPLE)
    database = collection.database
    client: Any = database.client

    def ask(own: ClientSession, _server: object, connection: Any, preference: object) -> Document:  # noqa: ANN401  # the client's class
        # Made for each attempt: the client adds its session and its times.
        command: Document = {FIND: collection.name, "filter": condition, "limit": 1, "singleBatch": True}
        answer: Document = connection.command(
            database.name,
            command,
            preference,
            ANSWER,
            read_concern=collection.read_concern,
            collation=SIMPLE.document,
            session=own,
            client=client,
        )
        return answer

    answer = client._retryable_read(ask, ReadPreference.PRIMARY, session, FIND)  # noqa: SLF001
    documents: list[Document] = answer["cursor"]["firstBatch"]
    return documents[0] if documents else None


def begins_transaction(session: ClientSession | None) -> bool:
    """Whether the next command is the first one of a transaction, which it tells the server.

    Where a login has run out the client logs in and sends a command once more, and only its own cursor tells
    that once more; a command that is sent as below would belong to a transaction that the server never began.
    """
    return session is not None and getattr(session, "_starting_transaction", True) is not False


def is_lean(collection: Collection[Document]) -> bool:
    """Whether a collection is one of a client of that shape, and no stand-in for one."""
    return KNOWN and not is_stand_in(collection)


def is_stand_in(collection: Collection[Document]) -> bool:
    """Whether a collection is of another class, as those of mongomock are."""
    return type(collection) is not Collection

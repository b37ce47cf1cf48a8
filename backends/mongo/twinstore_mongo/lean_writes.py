"""Writing one document without what the client checks and passes on for everything that a write might say.

As in :mod:`twinstore_mongo.lean_reads`, the session, the retry, the limits and the errors are those of the
client, which does all of it by itself where it has another shape than the one known here.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, Final, cast

from pymongo import MongoClient, helpers_shared
from pymongo.synchronous.pool import Connection

from twinstore_mongo.connection import UNTYPED
from twinstore_mongo.lean_reads import COMMAND, begins, is_stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pymongo.client_session import ClientSession

    from twinstore_mongo.connection import Document, Untyped

__all__ = ["insert_first", "write_first"]

INSERT: Final = "insert"
UPDATE: Final = "update"
RETRIED: Final = ("retryable", "func")
# A message may quote a part of a value, cut within a character.
ANSWER: Final = UNTYPED.with_options(unicode_decode_error_handler="replace")


def is_known() -> bool:
    """Whether the client has the shape that is relied on here."""
    client: Any = MongoClient
    try:
        retried = signature(client._retryable_write)  # noqa: SLF001  # as all of it here
        command = signature(Connection.command)
        # What is given below.
        retried.bind(None, True, None, None, UPDATE)  # noqa: FBT003  # of pymongo
        command.bind(
            None,
            "",
            {},
            codec_options=ANSWER,
            write_concern=None,
            session=None,
            client=None,
            retryable_write=True,
        )
    except (AttributeError, TypeError, ValueError):
        return False
    known = callable(getattr(helpers_shared, "_check_write_command_response", None))
    return known and begins(retried, RETRIED) and begins(command, COMMAND)


KNOWN: Final = is_known()


def insert_first(collection: Untyped, document: Document, *, session: ClientSession | None) -> None:
    """Insert one document, which has an ``_id``."""
    if is_stand_in(collection) or not KNOWN:
        collection.insert_one(document, session=session)
        return
    send(
        collection,
        session,
        INSERT,
        lambda: {INSERT: collection.name, "ordered": True, "documents": [document]},
    )


def write_first(
    collection: Untyped,
    condition: Document,
    change: Document | Sequence[Document],
    *,
    upsert: bool = False,
    session: ClientSession | None,
) -> bool:
    """Replace or update the first document that satisfies a condition; return whether there was one.

    Args:
        collection: as :meth:`~twinstore_mongo.connection.OpenDatabase.untyped` gives it.
        condition: the filter.
        change: the document that takes its place, or the stages of an update.
        upsert: insert one where there is none.
        session: of the transaction that this belongs to.
    """
    if is_stand_in(collection) or not KNOWN:
        replaces = isinstance(change, dict)
        # Safe, because each of the two takes the kind that it is given.
        write = cast("Callable[..., Any]", collection.replace_one if replaces else collection.update_one)
        return bool(write(condition, change, upsert=upsert, session=session).matched_count)
    update = {"q": condition, "u": change, "multi": False, "upsert": upsert}
    answer = send(
        collection, session, UPDATE, lambda: {UPDATE: collection.name, "ordered": True, "updates": [update]}
    )
    return bool(answer["n"]) and not answer.get("upserted")


def send(
    collection: Untyped, session: ClientSession | None, name: str, command: Callable[[], Document]
) -> Document:
    """Send a write as the client does, and return the answer."""
    database = collection.database
    client: Any = database.client
    # That of a transaction is the one of its commit.
    concern = None if session is not None and session.in_transaction else collection.write_concern

    def write(own: ClientSession, connection: Any, retryable: bool) -> Document:  # noqa: ANN401, FBT001  # the client's signature
        # Made for each attempt: the client adds its session, the number of the write, and its times.
        answer: Document = connection.command(
            database.name,
            command(),
            codec_options=ANSWER,
            write_concern=concern,
            session=own,
            client=client,
            retryable_write=retryable,
        )
        helpers_shared._check_write_command_response(answer)  # noqa: SLF001
        return answer

    answer: Document = client._retryable_write(True, write, session, name)  # noqa: FBT003, SLF001
    return answer

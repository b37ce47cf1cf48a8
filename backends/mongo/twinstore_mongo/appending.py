"""Appending to an ordered log: the parent is written, the log looked at, all entries are inserted at once.

One entry costs the parent, the last number, the entry and the commit, each a round trip; a hundred of them
cost no more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from bson.int64 import Int64
from pymongo import ReturnDocument
from pymongo.errors import OperationFailure

from twinstore.access import Row
from twinstore.appending import Log, key_text_of, keys_of, last_number
from twinstore.canonical import CanonicalModel
from twinstore.failures import not_found
from twinstore.retrying import repeat
from twinstore_mongo.changing import apply
from twinstore_mongo.codec import codec_of
from twinstore_mongo.compile import filter_of, merged, owned_by
from twinstore_mongo.derive import ID, VERSION
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.writes import insert_several

if TYPE_CHECKING:
    from twinstore.access import Ref
    from twinstore.catalog import Entity
    from twinstore_mongo.access import MongoAccess
    from twinstore_mongo.context import RepositoryContext

    Hold = Callable[[RepositoryContext, Ref], bool]

__all__ = ["append"]

M = TypeVar("M", bound=CanonicalModel)

DOCUMENT_VALIDATION_FAILURE: Final = 121


class UntouchableError(Exception):
    """The validator refuses the parent as it is stored, so that only as a whole it can be written anew."""


def append(access: MongoAccess, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
    """Append to an ordered log; see :class:`twinstore.access.Access`."""
    context = access.context
    if not context.store.capabilities.transactions and not context.in_transaction:
        # Stores without locks find out when they write that another append was faster.
        return repeat(lambda: attempt(access, entity, parent, rows, rewritten))
    # In the transaction of somebody else nothing may fail that could be done in another way.
    if not context.in_transaction and parent.entity.versioned and parent.entity.parent is None:
        try:
            return context.atomic(lambda inner: attempt(access.within(inner), entity, parent, rows, counted))
        except UntouchableError:
            pass  # rolled back; the general way may mend the parent
    return context.atomic(lambda inner: attempt(access.within(inner), entity, parent, rows, rewritten))


def attempt(
    access: MongoAccess, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]], hold: Hold
) -> tuple[Row[M], ...]:
    """Append once.

    The parent is written although nothing in it changes, so that appends to it come one after the other from
    here to the commit. Everything is decided before anything is inserted, so that a refusal leaves the
    transaction of a caller as it was.
    """
    if not hold(access.context, parent):
        raise not_found(parent.entity, key_text_of(parent), DRIVER)
    keys = keys_of(entity, rows)
    found = access.find(entity, parent.scope, keys) if keys else ()
    stored = [row for row in found if row is not None]
    log = Log(entity, DRIVER, stored, lambda: last_number(access, entity, parent))
    appended = tuple(map(log.place, rows))
    if log.new:
        insert_several(access.context, entity, log.new)
    return appended


def rewritten(context: RepositoryContext, parent: Ref) -> bool:
    """Read the parent and write it as it is; return whether it is there."""
    (held,) = apply(context, [parent], lambda found, _: found)
    return held is not None


def counted(context: RepositoryContext, parent: Ref) -> bool:
    """Count a change of the parent, and return whether it is there: one round trip instead of two.

    Of the parent only the key comes back: it may be large, and nothing of it matters to its log.

    Raises:
        UntouchableError: it was written by somebody else, in a form that the validator refuses.
    """
    codec = codec_of(parent.entity)
    condition = merged((filter_of(codec, parent.key), owned_by(codec, parent.scope)))
    with context.writing(parent.entity, parent.key):
        collection = context.collection(parent.entity)
        try:
            change = {"$inc": {VERSION: Int64(1)}}
            found = collection.find_one_and_update(
                condition, change, {ID: 1}, return_document=ReturnDocument.AFTER, session=context.session
            )
        except OperationFailure as error:
            if error.code == DOCUMENT_VALIDATION_FAILURE:
                raise UntouchableError from error
            raise
    return found is not None

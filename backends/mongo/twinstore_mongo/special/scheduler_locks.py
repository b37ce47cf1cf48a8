"""Locks on MongoDB: one document each, changed in single steps by the server clock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from bson import Int64
from pymongo import ReturnDocument
from typing_extensions import override

from twinstore.errors import DuplicateError
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.held_lock import Contender
from twinstore.scheduler.repositories.locks import CONTEND
from twinstore_mongo.access.queries import filter_of
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.layout import joined_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.scheduler.locks import LockInfo
    from twinstore.scheduler.rules.locks import LockClaim
    from twinstore_mongo.access.access import MongoAccess, Special
    from twinstore_mongo.access.execution import RepositoryContext
    from twinstore_mongo.client.types import Document

IS_FREE: Final[Document] = {"$expr": {"$lte": ["$expiresAt", "$$NOW"]}}
IS_HELD: Final[Document] = {"$expr": {"$gt": ["$expiresAt", "$$NOW"]}}
# Never of a lock; so the filter matches nothing, and the upsert inserts or meets the document that is there.
IS_NEW: Final[Document] = {"fence": {"$exists": False}}


class LeaseContender(Contender):
    """Implements :class:`~twinstore.scheduler.held_lock.Contender`; each step is one ``findOneAndUpdate``."""

    def __init__(self, context: RepositoryContext) -> None:
        """Take the store, without a session."""
        self._context = context
        self._is_there = False
        self._codec = codec_of(LOCKS)

    @override
    def acquire(self, claim: LockClaim) -> LockInfo | None:
        owned = taken(claim)
        found = self._step(claim.key, IS_FREE, owned)
        # Documents of locks stay for ever, so a waiting caller checks only once whether it is the first.
        if found is not None or self._is_there:
            return found
        # The server allows no upsert with a condition on its clock, so the first one is inserted separately.
        try:
            return self._step(claim.key, IS_NEW, owned, upsert=True)
        except DuplicateError:
            self._is_there = True
            return None

    @override
    def renew(self, owned: LockInfo, lease: timedelta) -> LockInfo | None:
        return self._step(key_of(owned), {**own(owned), **IS_HELD}, extended(lease))

    @override
    def release(self, owned: LockInfo) -> bool:
        ended = [{"$set": {"expiresAt": "$$NOW"}}]
        return self._step(key_of(owned), {**own(owned), **IS_HELD}, ended) is not None

    @override
    def close(self) -> None:
        """Do nothing: there is only the document."""

    def _step(
        self, key: tuple[str, str], condition: Document, change: list[Document], *, upsert: bool = False
    ) -> LockInfo | None:
        """Change the document of a lock where it satisfies a condition; return it as it is then."""
        with self._context.writing(LOCKS, key):
            which = {**filter_of(self._codec, key), **condition}
            document = self._context.collection(LOCKS).find_one_and_update(
                which, change, upsert=upsert, return_document=ReturnDocument.AFTER
            )
            return None if document is None else self._codec.decode(converted(document)).model


def taken(claim: LockClaim) -> list[Document]:
    """Return the change that gives a lock to a new owner, its fields in canonical order.

    Without ``$literal``, a name that begins with a dollar sign would be read as a field.
    """
    return [
        {
            "$replaceWith": {
                "_id": {"$ifNull": ["$_id", {"$literal": joined_id(claim.key)}]},
                "lockKey": {"$literal": claim.lock_key},
                "tenantId": {"$literal": claim.tenant_id},
                "holderId": {"$literal": claim.holder_id},
                "acquiredAt": "$$NOW",
                "expiresAt": end_of(claim.lease),
                "fence": {"$add": [{"$ifNull": ["$fence", Int64(0)]}, Int64(1)]},
                "metadata": {"$literal": dict(claim.metadata)},
            }
        }
    ]


def extended(lease: timedelta) -> list[Document]:
    """Return the change that extends a lease from now on, its fields in canonical order."""
    kept = ("_id", "lockKey", "tenantId", "holderId", "acquiredAt")
    changed = {"expiresAt": end_of(lease), "renewedAt": "$$NOW"}
    rest = {name: f"${name}" for name in ("fence", "metadata")}
    return [{"$replaceWith": {name: f"${name}" for name in kept} | changed | rest}]


def own(owned: LockInfo) -> Document:
    """Return what distinguishes an ownership from all others of its document."""
    return {"holderId": owned.holder_id, "fence": Int64(owned.fence)}


def key_of(lock: LockInfo) -> tuple[str, str]:
    """Return the key of the document of a lock."""
    return (lock.tenant_id, lock.lock_key)


def end_of(lease: timedelta) -> Document:
    """Return the end of a lease that begins now."""
    return {"$add": ["$$NOW", Int64(lease // timedelta(milliseconds=1))]}


def contend(access: MongoAccess, seconds: float) -> Contender:
    """Return what attempts a lock; there is nothing to wait for."""
    del seconds
    return LeaseContender(access.context)


OPERATIONS: Final[Mapping[str, Special]] = {CONTEND: contend}

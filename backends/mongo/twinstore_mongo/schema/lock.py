"""The lease that lets one process migrate at a time; it uses the server clock."""

from __future__ import annotations

import logging
import os
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError, PyMongoError

from twinstore.errors import MigrationError
from twinstore_mongo.client.errors import DRIVER, loggable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from pymongo.collection import Collection

    from twinstore_mongo.client.types import Document

log = logging.getLogger("twinstore.mongo")

LOCK_ID: Final = "_migration_lock"
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.25
# A renewal may come late by four fifths of the lease: under load, or while a primary is elected.
RENEWALS: Final = 5


@dataclass(slots=True)
class MigrationLease:
    """The lease document: owner, fence and expiry.

    ``lost`` is set when the server has given it to another process, or could have; ``until`` is the instant
    of ``clock`` to which it certainly lasts.
    """

    collection: Collection[Document]
    duration: timedelta
    holder: str
    fence: int = 0
    lost: bool = False
    until: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def try_acquire(self) -> bool:
        """Acquire the lease if no process holds it."""
        requested_at = self.clock()
        free = {"$expr": {"$lte": [{"$ifNull": ["$expiresAt", "$$NOW"]}, "$$NOW"]}}
        taken = {
            # Without $literal, a name of a host that begins with a dollar sign would be read as a field.
            "holder": {"$literal": self.holder},
            "fence": {"$add": [{"$ifNull": ["$fence", 0]}, 1]},
            "acquiredAt": "$$NOW",
            "expiresAt": expiry(self.duration),
        }
        document = self.collection.find_one_and_update(
            {"_id": LOCK_ID, **free}, [{"$set": taken}], return_document=ReturnDocument.AFTER
        )
        self.fence = document["fence"] if document else 0
        self.until = requested_at + self.duration.total_seconds()
        return document is not None

    def renew(self) -> None:
        """Extend the lease, or note that it is lost."""
        # The server counts from when it is asked, so from here it lasts at least as long.
        requested_at = self.clock()
        pipeline = [{"$set": {"expiresAt": expiry(self.duration)}}]
        try:
            self.lost = self.collection.update_one(self._own_lease, pipeline).matched_count == 0
        except PyMongoError as error:
            # In the thread that renews, no caller could catch the error. The next renewal may succeed; if
            # none does in time, the migration stops at its next step.
            log.warning("The migration lease could not be renewed (%s).", loggable(error))
        else:
            self.until = requested_at + self.duration.total_seconds()

    def release(self) -> None:
        """Let the next one in; does nothing when the lease is lost already."""
        try:
            self.collection.update_one(self._own_lease, [{"$set": {"expiresAt": "$$NOW"}}])
        except PyMongoError as error:
            # The work of the migration stays, and the error of a failed one is being raised.
            log.debug("The migration lease could not be released (%s); it runs out.", loggable(error))

    def check(self) -> None:
        """Raise ``MigrationError`` when another process may be migrating by now.

        Also in a process that was stopped for longer than the lease, and has renewed nothing since.
        """
        if self.lost or self.clock() >= self.until:
            raise MigrationError(
                "The migration lease was lost to another process or to a lost connection; "
                "run the migration again.",
                driver=DRIVER,
            )

    @property
    def _own_lease(self) -> dict[str, Any]:
        alive = {"$expr": {"$gt": ["$expiresAt", "$$NOW"]}}
        return {"_id": LOCK_ID, "holder": self.holder, "fence": self.fence, **alive}


def expiry(duration: timedelta) -> dict[str, Any]:
    """Return the expression of an instant that far ahead by the server's clock."""
    return {"$add": ["$$NOW", int(duration.total_seconds() * 1000)]}


@contextmanager
def holding(
    collection: Collection[Document], *, duration: timedelta, timeout: timedelta
) -> Iterator[MigrationLease]:
    """Hold the lease for the length of the block, renewing it several times in its duration.

    Raises:
        MigrationError: another process held it for longer than ``timeout``.
    """
    lease = MigrationLease(collection, duration, f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}")
    wait_for(lease, timeout)
    done = Event()
    # A daemon, because a process that ends must not wait for it; the lease then runs out by itself.
    renewal_thread = Thread(
        target=keep_alive, args=(lease, done), name="twinstore-migration-lease", daemon=True
    )
    renewal_thread.start()
    try:
        yield lease
    finally:
        done.set()
        renewal_thread.join()
        lease.release()


def wait_for(lease: MigrationLease, timeout: timedelta) -> None:
    """Acquire the lease, trying again with growing pauses."""
    # The server allows no upsert with a condition on its clock, so the document must exist before.
    with suppress(DuplicateKeyError):  # another process has just made it
        lease.collection.update_one({"_id": LOCK_ID}, {"$setOnInsert": {"fence": 0}}, upsert=True)
    deadline = time.monotonic() + timeout.total_seconds()
    pause = FIRST_PAUSE
    while not lease.try_acquire():
        if time.monotonic() > deadline:
            raise MigrationError(
                f"Another process has been migrating for more than {timeout.total_seconds():.0f} s; wait "
                "for it or look at the document _migration_lock in the collection _migrations.",
                driver=DRIVER,
            )
        time.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


def keep_alive(lease: MigrationLease, done: Event) -> None:
    """Renew the lease until the work is done or the lease is lost."""
    while not lease.lost and not done.wait(lease.duration.total_seconds() / RENEWALS):
        lease.renew()

"""Workers: the processes that execute runs, and the contract of their registry."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
    Actor,
    Count32,
    Id,
    LowerKeyMap,
    PositiveInt32,
    StringSet,
    TenantId,
    Timestamp,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from twinstore.access.paging import Page

__all__ = ["DEAD_AFTER", "Worker", "WorkerRepository", "WorkerStatus"]

DEAD_AFTER: Final = timedelta(minutes=5)


class WorkerStatus(StrEnum):
    """What a worker does."""

    ACTIVE = "active"
    DRAINING = "draining"
    STOPPED = "stopped"
    DEAD = "dead"


class Worker(CanonicalModel):
    """One process that executes runs. Without a tenant it serves all of them."""

    id: Id
    tenant_id: TenantId | None = None
    hostname: Actor
    process_id: PositiveInt32 | None = None
    job_types: StringSet = ()
    max_concurrent_jobs: PositiveInt32 = 1
    current_jobs: Count32 = 0
    status: WorkerStatus = WorkerStatus.ACTIVE
    last_heartbeat_at: Timestamp
    registered_at: Timestamp
    metadata: LowerKeyMap = Field(default_factory=dict)


class WorkerRepository(Protocol):
    """The registry of workers; every method works in system scope.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` in a session of one tenant,
    ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored document
    that does not form a worker.
    """

    def register(self, worker: Worker) -> Worker:
        """Insert a worker, or replace the one of its id; return what is stored. Atomic.

        The status becomes ``active``; ``registeredAt`` of an existing one is kept. Repeated call: the same.

        Raises:
            DuplicateError: the id belongs to a worker of another tenant, or of none.
        """
        ...

    def heartbeat(self, worker_id: str, now: datetime, *, current_jobs: int | None = None) -> bool:
        """Note that a worker lives, never backwards, and its load if given; revive a dead one. Atomic.

        Absent: false. Repeated call: true, nothing changes.

        Raises:
            InvalidTransitionError: the worker is stopped; it returns by registering again.
        """
        ...

    def get(self, worker_id: str) -> Worker | None:
        """Return one worker. Absent: ``None``."""
        ...

    def get_required(self, worker_id: str) -> Worker:
        """Return one worker as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(
        self,
        *,
        statuses: Collection[WorkerStatus] | None = None,
        tenant_id: str | None = None,
        limit: int = 100,
        page_token: str | None = None,
    ) -> Page[Worker]:
        """Return a page of workers; ``tenant_id`` chooses those that serve this tenant alone.

        Order: (last_heartbeat_at, id). Limit 100, at most 1000. No statuses: nothing matches.
        """
        ...

    def count(self, *, statuses: Collection[WorkerStatus] | None = None, tenant_id: str | None = None) -> int:
        """Return how many workers all pages of :meth:`list` have together. Empty: 0."""
        ...

    def find_dead(
        self, now: datetime, *, threshold: timedelta = DEAD_AFTER, limit: int = 100
    ) -> Page[Worker]:
        """Return the workers that are active or draining and silent since before ``now - threshold``.

        Order: (last_heartbeat_at, id). Limit 100, at most 1000; there is no next page, because what was
        marked is found no more. Empty: an empty page.
        """
        ...

    def mark_dead(self, now: datetime, *, threshold: timedelta = DEAD_AFTER) -> tuple[str, ...]:
        """Set the status of the workers that :meth:`find_dead` finds; return the ids of those changed.

        Order: (last_heartbeat_at, id). Repeated call: ``()``. Not atomic: changes them in batches.
        """
        ...

    def set_status(self, worker_id: str, status: WorkerStatus) -> bool:
        """Move a worker to another status. Absent: false. Repeated call: true, nothing changes. Atomic.

        Raises:
            InvalidTransitionError: the state machine forbids the move.
        """
        ...

    def remove(self, worker_id: str) -> bool:
        """Remove one worker. Absent or repeated: false."""
        ...

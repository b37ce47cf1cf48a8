"""What a write of a worker must satisfy against the stored worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.errors import invalid_transition
from twinstore.scheduler.workers import Worker, WorkerStatus

if TYPE_CHECKING:
    from datetime import datetime

ACTIVE, DRAINING, STOPPED, DEAD = WorkerStatus
MOVES: Final = {ACTIVE: (DRAINING, STOPPED, DEAD), DRAINING: (STOPPED, DEAD), STOPPED: (), DEAD: (ACTIVE,)}


def registered(stored: Worker | None, worker: Worker) -> Worker:
    """Return what a registration stores: active, and known since its first one."""
    return worker.evolve(status=ACTIVE, registered_at=(stored or worker).registered_at)


def alive(stored: Worker, now: datetime, current_jobs: int | None) -> Worker:
    """Return a worker after a sign of life, which never lies before the last one; a dead one revives."""
    # A stopped one goes the same way and is refused by the state machine, with its own message.
    status = ACTIVE if stored.status in {DEAD, STOPPED} else stored.status
    jobs = stored.current_jobs if current_jobs is None else current_jobs
    seen = max(now, stored.last_heartbeat_at)
    return moved(stored, status).evolve(last_heartbeat_at=seen, current_jobs=jobs)


def moved(stored: Worker, status: WorkerStatus) -> Worker:
    """Return a worker in another status; staying is allowed."""
    if status is not stored.status and status not in MOVES[stored.status]:
        move = stored.status, status
        raise invalid_transition("workers", "worker", stored.id, move, "register it again to use it")
    return stored.evolve(status=status)

"""Which range comes next: the ledger hands ranges out, and several processes may share a job."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from logging import getLogger
from math import inf
from threading import Condition, Lock
from typing import TYPE_CHECKING, Final

from twinstore.bulk.release import copy_writer
from twinstore.bulk.unique_moves import UNIQUE_VALUE_TAKEN
from twinstore.ledger import RangeState
from twinstore.ledger.models import key_of_json
from twinstore_backfill.copy.lease import release_dead_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import timedelta

    from twinstore.bulk.port import BulkPort, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.ledger import Claim, CopyJob, Lease, Ledger
    from twinstore_backfill.copy.control import Control
    from twinstore_backfill.copy.lease import ConflictRetry
    from twinstore_backfill.process.stopping import StopSwitch

# How long a thread that finds nothing to do waits before it asks the ledger again what others have done.
IDLE_SECONDS: Final = 1.0
LONGEST_IDLE_SECONDS: Final = 5.0
# How old the job may be from which a thread knows whether it may take a range.
LOOK_SECONDS: Final = 1.0
OPEN: Final = (RangeState.PENDING, RangeState.COPYING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The part that a worker has in a job; by default all of it until the end.

    Attributes:
        takes: whether it copies ranges of an entity; it waits for the end of the others.
        until: when it takes no more, by the monotonic clock.
        waits: whether it waits while others copy what is left.
    """

    takes: Callable[[Entity], bool] = lambda _: True
    until: float = inf
    waits: bool = True


class Watcher:
    """What the coordinator of a job does about whole entities; other workers leave all that to it."""

    def begin(self, entity: Entity) -> None:
        """Hear that an entity begins."""

    def settle(self, entity: Entity) -> bool:
        """Hear that an entity has no open range, before :meth:`end`; return whether ranges were reopened."""
        del entity
        return False

    def end(self, entity: Entity) -> None:
        """Hear that all of an entity is live."""


class RangeQueue:
    """Hands the ranges of a job to the threads of one worker.

    Entities come in copy order. Those with a parent wait until every range of the parent is live, because
    their rows refer to its rows; the others need not wait for anything.
    """

    def __init__(
        self,
        ledger: Ledger,
        job: CopyJob,
        worker: str,
        entities: Sequence[Entity],
        *,
        lease: timedelta,
        stop: StopSwitch,
        conflict_retry: ConflictRetry,
        control: Control,
        watcher: Watcher,
        share: Share,
    ) -> None:
        """Take the job, the worker, who watches whole entities, and its share."""
        self.stopped: str | None = None
        # Whether the job was begun again, or described in another way, since it was read.
        self.changed = False
        self._ledger, self._job, self._lease = ledger, job, lease
        self._share = share
        self._place = job.id, worker
        self._entities = entities
        self._stop = stop
        self._conflict_retry = conflict_retry
        self._control = control
        self._watcher = watcher
        self._begun: set[str] = set()
        # By entity without an open range: whether all of its ranges are live.
        self._ended: dict[str, bool] = {}
        self._begin_lock = Lock()
        self._changed = Condition()
        self._changes = 0
        # Whether a thread waits to ask the ledger again, and for how long.
        self._asked, self._pause = False, IDLE_SECONDS
        # Held while a thread copies a range that may kill this process.
        self._danger = Lock()
        self._dangerous: Claim | None = None
        # As it was seen last, and until when that will do.
        self._seen: CopyJob | None = job
        self._seen_until = 0.0

    def take(self) -> Claim | None:
        """Return the next range, waiting for other workers if there may be one later.

        Return ``None`` if no range is left, a parent has failed, or the job or this process must stop.
        """
        while not self._is_stopping():
            # Before looking: what is returned between the look and the wait then wakes this thread at once.
            seen = self._changes
            claim = self._next()
            # What has ended meanwhile may free ranges that wait for it.
            is_drained = not self._share.waits and self._changes == seen
            if claim is not None or self._is_over() or self._is_stopping() or is_drained:
                # Where one range is free, others may be; and the other threads are over as well.
                self.notify_changed()
                return claim
            self._wait(seen)
        return None

    def end(self, claim: Claim) -> None:
        """Report that a range is finished, given back or lost."""
        if claim is self._dangerous:
            self._dangerous = None
            self._danger.release()
        # Also after a failure: a range that is open again may be what another thread waits for.
        self.notify_changed()

    def _wait(self, seen: int) -> None:
        """Wait until something changes here; one thread at a time asks the ledger again."""
        with self._changed:
            while self._changes == seen and not self._is_stopping():
                asks, self._asked = not self._asked, True
                self._changed.wait(self._pause if asks else IDLE_SECONDS)
                if asks:
                    self._asked = False
                    self._pause = min(2 * self._pause, LONGEST_IDLE_SECONDS)
                    break
        if self._changes == seen:
            # While there is nothing to do: a process that was killed may hold the last ranges.
            release_dead_workers(self._ledger, self._job.id)

    def notify_changed(self) -> None:
        """Wake the threads that wait: a range of this process is finished or open again."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def begin_entity(self, entity: Entity) -> bool:
        """Report that an entity begins, unless that was reported already; return whether it was not."""
        # The others wait, so that no rows are counted of an entity that has not begun.
        with self._begin_lock:
            begins = entity.name not in self._begun
            if begins:
                self._watcher.begin(entity)
            self._begun.add(entity.name)
            return begins

    def _look(self) -> CopyJob | None:
        """Return the job as it was a moment ago, and obey requests to it from outside."""
        if time.monotonic() >= self._seen_until:
            self._seen_until = time.monotonic() + LOOK_SECONDS
            self._seen = found = self._ledger.find(self._job.id)
            if found is None or not is_same(self._job, found):
                self.changed = True
            else:
                self._control.apply_requests(found)
                if found.stop and not found.paused:
                    self.stopped = found.stop_reason or "the job was stopped"
        return None if self.changed else self._seen

    def _next(self) -> Claim | None:
        job = self._look()
        if job is None or job.stop:
            return None
        waiting = [entity for entity in self._entities if self._is_open(entity, job)]
        for entity in waiting:
            # What begins counts its rows, which may take long.
            if self.begin_entity(entity) and ((now := self._look()) is None or now.stop):
                return None
            if self._stop.requested:
                return None
            if not self._share.takes(entity):
                continue
            # Any thread may lose the row in which all of a worker give their sign of life, and a killed
            # process may hold that of its range.
            take = partial(self._ledger.take_pending, *self._place, entity.name, self._lease)
            if claim := self._conflict_retry.run(f"Taking a range of {entity.name}", take):
                self._pause = IDLE_SECONDS
                return claim
        claim, busy = self._take_over([entity.name for entity in waiting if self._share.takes(entity)])
        if claim is None:
            for entity in waiting:
                if entity.name not in busy:
                    self._record_end(entity)
        return claim

    def _take_over(self, names: Sequence[str]) -> tuple[Claim | None, frozenset[str]]:
        """Take a range of a dead worker, of those that may kill this process one at a time."""
        if not names:
            # Nor is it a sign of life, which would count as a worker.
            return None, frozenset()
        alone = self._danger.acquire(blocking=False)
        claim = None
        try:
            take_over = partial(self._ledger.take_over, *self._place, names, self._lease, dangerous=alone)
            claim, busy = self._conflict_retry.run("Taking over a range", take_over)
        finally:
            if alone and claim is not None and claim.dangerous:
                self._dangerous = claim
            elif alone:
                self._danger.release()
        return claim, busy

    def _is_open(self, entity: Entity, job: CopyJob) -> bool:
        return entity.name in job.cut and entity.name not in self._ended and self._may_begin(entity)

    def _is_stopping(self) -> bool:
        ended = self.changed or self.stopped is not None or time.monotonic() >= self._share.until
        return ended or self._stop.requested

    def _may_begin(self, entity: Entity) -> bool:
        """Whether what the rows refer to is there; a parent that this job does not copy is not waited for."""
        if entity.parent is None or entity.parent.entity not in self._entities:
            return True
        return self._ended.get(entity.parent.entity.name, False)

    def _record_end(self, entity: Entity) -> None:
        """Note that an entity has no open range left, here or with another worker."""
        # Looked for under the lock: another thread may have opened ranges again a moment ago.
        with self._begin_lock:
            if self._ledger.has_ranges(self._job.id, entity.name, OPEN):
                return
            if entity.name not in self._ended and not self._watcher.settle(entity):
                complete = not self._ledger.has_ranges(self._job.id, entity.name, (RangeState.FAILED,))
                if complete:
                    self._watcher.end(entity)
                self._ended[entity.name] = complete
        self.notify_changed()

    def _is_over(self) -> bool:
        """Whether no entity can have a range to take any more."""
        return all(entity.name in self._ended or self._is_blocked(entity) for entity in self._entities)

    def _is_blocked(self, entity: Entity) -> bool:
        """Whether ranges of a parent have failed, so that the rows would refer to nothing."""
        parent = None if entity.parent is None else entity.parent.entity
        if parent is None or parent not in self._entities:
            return False
        return self._ended.get(parent.name) is False or self._is_blocked(parent)


def is_same(job: CopyJob, found: CopyJob) -> bool:
    """Whether a job is still what a worker has read; another run may follow other options or rules."""
    return (job.generation, job.settings) == (found.generation, found.settings)


# Rows that waited for a unique value which another range had to give up.
#
# Each range is a separate transaction, so two rows of different ranges that swap their names block each
# other. When all ranges of an entity have been copied, the rows that were refused for a taken value are
# written together, and the ranges are reopened: they find their rows as they should be.


log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MoveResult:
    """The outcome of the rows that waited: how many were written, and how many still wait."""

    settled: int = 0
    waiting: int = 0


def resolve_unique_moves(
    source: BulkPort, target: BulkPort, ledger: Ledger, lease: Lease, entity: Entity
) -> MoveResult:
    """Write together what was refused for a taken value, and open the ranges of these rows again.

    Raises:
        ConcurrencyError: the transaction lost against another writer; nothing was written.
        LeaseLostError: the lease was taken; nothing was written.
    """
    waiting = dict(refused_rows(ledger, lease.job_id, entity)) if entity.uniques else {}
    if not waiting:
        return MoveResult()
    with source.view() as view, copy_writer(target, entity, on_conflict="overwrite") as writer:
        writer.write(sorted(view.records_of(entity, list(waiting)), key=key_of))
        rejected = {item.record.key for item in writer.flush().rejected}
        settled = {key: number for key, number in waiting.items() if key not in rejected}
        if settled:
            # In the transaction of the rows: a range that is open again is copied, by any worker.
            ledger.open_in(writer.access, lease, sorted(set(settled.values())))
            writer.commit()
    log.info("%d rows of %s of %d got a value that is free now", len(settled), entity.name, len(waiting))
    return MoveResult(len(settled), len(waiting) - len(settled))


def refused_rows(ledger: Ledger, job_id: str, entity: Entity) -> Iterator[tuple[Key, int]]:
    """Yield the key and the range of each row that was refused for a taken value."""
    for line in ledger.quarantined(job_id, entity.name):
        key = key_of_json(line.key) if line.part == 0 else None
        if key is not None and line.reason.startswith(UNIQUE_VALUE_TAKEN):
            yield key, line.number


def key_of(record: Record) -> Key:
    """Return by what records are sorted; each has a key, by which it was looked for."""
    return record.key or ()

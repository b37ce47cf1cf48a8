"""Copying the ranges of one entity with several workers."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from logging import getLogger
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from twinstore_backfill.copy.reading import RangeReader, Tally
from twinstore_backfill.stopping import StopRequestedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twinstore.bulk import BulkPort, Ledger, OnConflict, RangeImporter, RangeProgress, Record
    from twinstore.catalog import Entity
    from twinstore_backfill.copy.lease import LeaseKeeper
    from twinstore_backfill.copy.limiter import RateLimiter
    from twinstore_backfill.copy.limits import Limits
    from twinstore_backfill.copy.quarantine import Journal
    from twinstore_backfill.copy.reading import Exports
    from twinstore_backfill.progress import Progress
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["Workshop", "copy_ranges", "tuned_collector"]

log = getLogger(__name__)

YOUNG_OBJECTS: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What the workers of a copy share."""

    exports: Exports
    target: BulkPort
    ledger: Ledger
    keeper: LeaseKeeper
    limits: Limits
    limiter: RateLimiter
    stop: StopSwitch
    progress: Progress
    quarantine: Journal
    conflicts: Journal
    on_conflict: OnConflict
    jobs: int


@contextmanager
def tuned_collector() -> Iterator[None]:
    """Collect garbage rarely: a copy makes many short-lived objects and hardly a cycle."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def copy_ranges(
    shop: Workshop,
    entity: Entity,
    ranges: Sequence[RangeProgress],
    expired: Callable[[Record], bool] | None,
) -> None:
    """Copy the ranges; return when all are live or a stop was requested; raise the first failure."""
    queue: SimpleQueue[RangeProgress] = SimpleQueue()
    for item in ranges:
        queue.put(item)
    worker = Worker(shop, entity, expired, queue)
    with ThreadPoolExecutor(min(shop.jobs, len(ranges)) or 1, thread_name_prefix="copy") as pool:
        for result in [pool.submit(worker.run) for _ in range(min(shop.jobs, len(ranges)))]:
            result.result()


@dataclass(frozen=True, slots=True)
class Worker:
    """Copies ranges from a queue; each thread runs one with an importer of its own."""

    shop: Workshop
    entity: Entity
    expired: Callable[[Record], bool] | None
    queue: SimpleQueue[RangeProgress]

    def run(self) -> None:
        """Copy until the queue is empty or a stop is requested; a failure stops the other workers too."""
        try:
            with self.shop.target.importing() as importer:
                while not self.shop.stop.requested:
                    self._copy(importer, self.queue.get_nowait())
        except (Empty, StopRequestedError):
            return
        except BaseException:
            self.shop.stop.request()
            raise

    def _copy(self, importer: RangeImporter, item: RangeProgress) -> None:
        shop = self.shop
        claim = shop.ledger.claim(shop.keeper.lease, item.number)
        with shop.quarantine.range(item.number) as bad, shop.conflicts.range(item.number) as conflicts:
            reader = RangeReader(
                self.entity, expired=self.expired, limiter=shop.limiter, stop=shop.stop, quarantine=bad
            )
            tally = Tally(reader, bad, conflicts)
            importer.import_range(
                self.entity,
                reader.batches(shop.exports.batches(self.entity, item.within)),
                on_conflict=shop.on_conflict,
                claim=claim,
                tally=tally,
            )
        log.info("range %d of %s is live", item.number, self.entity.name)
        shop.progress.advance(reader.read.total())
        shop.limits.add(tally.result)

"""Workers of a job: threads of one process that claim ranges until there are none, and say that they live.

The coordinator of a copy is one, so is each slice that an engine runs, and ``twinstore backfill work``. They
meet in the ledger alone: it assigns ranges, and their fences decide about commits.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from logging import getLogger
from threading import Event, Thread
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.errors import TwinstoreError
from twinstore_backfill.copy.control import Control, Limits, RateLimiter
from twinstore_backfill.copy.description import options_of
from twinstore_backfill.copy.earlier import EarlierForms
from twinstore_backfill.copy.lease import ConflictRetry, worker_id
from twinstore_backfill.copy.ranges import RangeQueue, Share, Watcher
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.copy.rules import backward_changes
from twinstore_backfill.copy.worker import CopyContext, copy_ranges
from twinstore_backfill.retention import expiry_test

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from datetime import timedelta

    from twinstore.catalog.entity import Entity
    from twinstore.ledger import CopyJob, Ledger
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.engines.sites import Sides
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress

log = getLogger(__name__)


def copy_context(
    job: CopyJob,
    sides: Sides,
    options: CopyOptions,
    entities: Sequence[Entity],
    *,
    worker: str,
    stop: StopSwitch,
    conflict_retry: ConflictRetry,
    progress: Progress,
    watcher: Watcher,
    share: Share,
) -> CopyContext:
    """Return what the threads of one worker share."""
    source, target = sides
    ledger = target.ledger
    rate = None if job.max_rate is None else float(job.max_rate)
    limiter = RateLimiter(rate, stop, workers=partial(ledger.living, job.id, worker))
    queue = RangeQueue(
        ledger,
        job,
        worker,
        entities,
        lease=options.lease,
        stop=stop,
        conflict_retry=conflict_retry,
        control=Control(limiter, job),
        watcher=watcher,
        share=share,
    )
    return CopyContext(
        source=SourceRows(source.bulk, options),
        earlier=EarlierForms(source.bulk, job.settings, options.rules),
        target=target.bulk,
        ledger=ledger,
        queue=queue,
        limits=Limits(ledger, job.id, options, stop),
        limiter=limiter,
        conflict_retry=conflict_retry,
        stop=stop,
        progress=progress,
        entities={entity.name: entity for entity in entities},
        expired={entity.name: expiry_test(entity, target.options, job.as_of) for entity in entities},
        on_conflict=options.on_conflict,
    )


class Worker:
    """One worker that is not the coordinator: it needs the id of a job, and describes nothing itself."""

    def __init__(
        self, sides: Sides, job: CopyJob, stop: StopSwitch, progress: Progress, share: Share
    ) -> None:
        """Join a job.

        Raises:
            PreflightError: it cannot be copied from here: a store, the release or a description is another.
        """
        source, target = sides
        self._job, self._ledger = job, target.ledger
        self._options = options = options_of(job, source, target)
        self._worker = worker_id()
        entities = [entity for entity in source.bulk.entities() if entity.name in options.entities]
        if options.on_conflict == "overwrite":
            # Unique values may move between ranges, which the coordinator settles before it copies these.
            names = {entity.name for entity in entities if entity.uniques}
            share = replace(share, takes=lambda entity: refers_to(entity) not in names)
        self.context = copy_context(
            job,
            (source, target.changed(backward_changes(options.rules, source.bulk.entities()))),
            options,
            entities,
            worker=self._worker,
            stop=stop,
            conflict_retry=ConflictRetry(stop),
            progress=progress,
            watcher=Beginnings(self._ledger, job, progress, options.range_size),
            share=share,
        )

    def run(self, threads: int) -> None:
        """Copy ranges until none is left, the share ends or a stop is requested.

        Raises:
            TwinstoreError: a store is away or not fit.
        """
        with heartbeat(self._ledger, self._job, self._worker, self._options.lease):
            copy_ranges(self.context, threads)


def refers_to(entity: Entity) -> str | None:
    """Return the name of the entity that the rows of one refer to."""
    return None if entity.parent is None else entity.parent.entity.name


class Beginnings(Watcher):
    """Begins the progress of a worker, which knows how many ranges there are and not how many rows."""

    def __init__(self, ledger: Ledger, job: CopyJob, progress: Progress, range_size: int) -> None:
        self._ledger, self._job, self._progress, self._size = ledger, job, progress, range_size

    @override
    def begin(self, entity: Entity) -> None:
        counts = self._ledger.counts(self._job.id, entity.name)
        live = counts.get("live", 0) * self._size
        self._progress.start(entity.name, sum(counts.values()) * self._size, live, estimated=True)


@contextmanager
def heartbeat(ledger: Ledger, job: CopyJob, worker: str, duration: timedelta) -> Generator[None]:
    """Say every third of the lease that a worker lives; its ranges are free at the end."""
    ended = Event()

    def heartbeat() -> None:
        while not ended.wait(duration.total_seconds() / 3):
            try:
                ledger.heartbeat(job.id, worker, duration)
            except Exception as error:  # noqa: BLE001  # a thread that ends in silence would lose the ranges
                log.warning("no sign of life could be given, trying again: %s", type(error).__name__)

    thread = Thread(target=heartbeat, name="alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(TwinstoreError):
            ledger.sign_off(job.id, worker)

"""Workers of a job: threads of one process that claim ranges until there are none, and say that they live.

The coordinator of a copy is one, so is each slice that an engine runs, and ``twinstore backfill work``. They
meet in the ledger alone: it assigns ranges, and their fences decide about commits.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from logging import getLogger
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.errors import TwinstoreError, UnavailableError
from twinstore.ledger import JobState
from twinstore_backfill.copy.control import Control, Limits, RateLimiter, select_job
from twinstore_backfill.copy.description import options_of
from twinstore_backfill.copy.earlier import EarlierForms
from twinstore_backfill.copy.lease import ConflictRetry, worker_id
from twinstore_backfill.copy.ranges import RangeQueue, Share, Watcher, is_same
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.copy.rules import backward_changes
from twinstore_backfill.copy.worker import CopyContext, copy_ranges
from twinstore_backfill.outcome import Exit, PreflightError, UnknownJobError
from twinstore_backfill.process.memory import cache_batch_memory, tuned_gc
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.retention import expiry_test
from twinstore_backfill.stores import has_ledger

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
# How long a worker waits for a job that nobody has begun, and for one that has ended to begin again.
JOB_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 1.0


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
        self, sides: Sides, job: CopyJob, stop: StopSwitch, share: Share, progress: Progress | None = None
    ) -> None:
        """Join a job; without ``progress`` nobody counts its ranges for that.

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
            progress=progress or SilentProgress(),
            watcher=Beginnings(self._ledger, job, progress, options.range_size) if progress else Watcher(),
            share=share,
        )

    def run(self, threads: int) -> None:
        """Copy ranges until none is left, the share ends or a stop is requested.

        Raises:
            TwinstoreError: a store is away or not fit.
        """
        with heartbeat(self._ledger, self._job, self._worker, self._options.lease):
            copy_ranges(self.context, threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReport:
    """What one worker did for a job.

    Attributes:
        job: its id.
        executed: whether it copied; otherwise it only says which job it would join.
        rows: how many rows it read.
        failed: how many ranges it could not copy, by its last try.
        stopped: why the job takes no more ranges; empty if none is left.
        exit_code: as the command ends.
    """

    job: str
    executed: bool
    rows: int = 0
    failed: int = 0
    stopped: str = ""
    exit_code: int = Exit.OK

    def document(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return asdict(self)


def run_work(
    sides: Sides,
    name: str | None,
    *,
    slots: int,
    drain: bool,
    execute: bool,
    progress: Progress,
    stop: StopSwitch,
) -> WorkReport:
    """Join a job and copy ranges until none is left.

    Args:
        sides: source and target.
        name: of the job; by default the only one between the two that is not complete.
        slots: ranges copied at the same time.
        drain: end when no range is free, instead of waiting for those of others.
        execute: copy; otherwise only say which job it would be.
        progress: receives the progress.
        stop: the switch that may stop it.

    Raises:
        PreflightError: the job is not for this place: a store, the release, a description or a function is
            another one.
        UnknownJobError: there is no such job.
        ValidationError: several jobs are not complete.
        InterruptedRunError: a signal asked for the stop; the ranges in hand were given back.
    """
    # With the copy workers may be started that it has to wait for.
    job = awaited_job(sides, name, stop) if execute and not drain else job_to_join(sides, name)
    # Also without execute: what would be refused is refused.
    options_of(job, *sides)
    rows = 0
    while execute and job.state is JobState.RUNNING:
        worker = Worker(sides, job, stop, Share(waits=not drain), progress)
        with tuned_gc(), cache_batch_memory():
            worker.run(slots)
        context = worker.context
        rows += context.share.rows
        stop.raise_if_interrupted("The ranges in hand were given back.")
        found = job_to_join(sides, job.id)
        if is_same(job, found):
            # By the ledger: this worker may have stopped the job itself.
            stopped = found.stop_reason or "" if found.stop and not found.paused else ""
            code = Exit.FAILED if stopped else Exit.OK
            failed = len(context.failures)
            return WorkReport(
                job=job.id, executed=True, rows=rows, failed=failed, stopped=stopped, exit_code=code
            )
        # Begun again, or under other rules.
        job = found
    return WorkReport(job=job.id, executed=execute, rows=rows)


def awaited_job(sides: Sides, name: str | None, stop: StopSwitch) -> CopyJob:
    """Return the job of a worker; wait for a while for one that begins, or begins again.

    Raises:
        PreflightError: the ledger is not ready.
        UnavailableError: none began.
        ValidationError: there are several.
        InterruptedRunError: a signal asked for the stop.
    """
    began = monotonic()
    while True:
        try:
            job = job_to_join(sides, name)
        except PreflightError:
            # The copy is making the ledger.
            if monotonic() - began > JOB_SECONDS:
                raise
        except UnknownJobError as error:
            if monotonic() - began > JOB_SECONDS:
                raise UnavailableError(
                    f"{error.message} A worker waits {JOB_SECONDS:.0f} s for one."
                ) from None
        else:
            ended = job.state is JobState.COMPLETE or (job.stop and not job.paused)
            if not ended or monotonic() - began > AGAIN_SECONDS:
                return job
        stop.wait(LOOK_SECONDS)
        stop.raise_if_interrupted("Nothing was copied.")


def job_to_join(sides: Sides, name: str | None) -> CopyJob:
    """Return the job of a worker; one that is complete only if there is nothing else between the two stores.

    Raises:
        UnknownJobError: there is none.
        ValidationError: there are several.
    """
    source, target = sides
    jobs = list(target.ledger.jobs()) if has_ledger(target) else []
    mine = [
        job
        for job in jobs
        if job.settings.get("module") == source.module
        and job.settings.get("source") in {source.bulk.identity, source.bulk.place}
    ]
    running = [job for job in mine if job.state is JobState.RUNNING]
    if name is None and not running and mine:
        # The latest; a worker that comes late is not wrong.
        return mine[0]
    if name is None and len(running) == 1:
        return running[0]
    found = next((job for job in jobs if job.id == name), None)
    return found or select_job(target, name)


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

"""A copy from beginning to end."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from twinstore.bulk import JobState, RangeState
from twinstore.clock import truncate_to_millisecond
from twinstore_backfill.copy.dry import Rehearsal
from twinstore_backfill.copy.lease import LeaseKeeper, acquire
from twinstore_backfill.copy.limiter import RateLimiter
from twinstore_backfill.copy.limits import Limits
from twinstore_backfill.copy.options import job_id, job_settings, refuse_same_store
from twinstore_backfill.copy.quarantine import CONFLICTS, QUARANTINE, Journal
from twinstore_backfill.copy.reading import Exports
from twinstore_backfill.copy.reporting import REPORT_FILE, CopyResult, Totals, report_document
from twinstore_backfill.copy.retention import expiry_test
from twinstore_backfill.copy.worker import Workshop, copy_ranges, tuned_collector
from twinstore_backfill.files import json_text, require_writable, write_whole
from twinstore_backfill.source import inspect_source
from twinstore_backfill.stores import is_migrated, prepare_target, require_tenants, select_entities

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.bulk import Job, RangeProgress
    from twinstore.catalog import Entity
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.progress import Progress
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store

__all__ = ["DEFAULT_OUT", "run_copy"]

DEFAULT_OUT: Final = Path("backfill")
SHOWN: Final = 100
RESUME: Final = "What is finished is saved; run the same command again to go on."


def run_copy(
    source: Store, target: Store, options: CopyOptions, progress: Progress, stop: StopSwitch
) -> CopyResult:
    """Copy, or rehearse the copy when ``options.execute`` is not set, and write the report.

    Raises:
        ValidationError: an unknown entity, or source and target are the same store.
        ConfigurationError: the report cannot be written.
        PreflightError: the source has nothing or cannot be read in full, or the target cannot be written to.
        LeaseLostError: another worker holds the lease of the job, or took it.
        InterruptedRunError: a signal asked for the stop; finished ranges are saved.
    """
    started = truncate_to_millisecond(datetime.now(UTC))
    out = options.out or (DEFAULT_OUT if options.execute else None)
    if out is not None:
        require_writable(out)
    entities = select_entities(source.bulk, options.entities)
    refuse_same_store(source.bulk, target.bulk)
    state = inspect_source(source)
    require_tenants((source, target) if is_migrated(target) else (source,), options.tenants)
    with tuned_collector():
        if options.execute:
            prepare_target(target)
            result = Copy(source, target, options, progress, stop).run(entities, started)
        else:
            rehearsal = Rehearsal(source, target, options, progress, stop)
            result = rehearsal.run(entities, options.as_of or started, started)
    result = replace(result, warnings=state.warnings)
    if out is not None:
        write_whole(out / REPORT_FILE, json_text(report_document(result)))
    return result


class Copy:
    """One run of a copy that writes."""

    def __init__(
        self, source: Store, target: Store, options: CopyOptions, progress: Progress, stop: StopSwitch
    ) -> None:
        """Take both sides, the options, and who is told."""
        self._source, self._target, self._options = source, target, options
        self._progress, self._stop = progress, stop
        self._ledger = target.bulk.ledger()
        self._limits = Limits(options, stop)
        self._exports = Exports(source.bulk, options.tenants, options.batch_size)

    def run(self, entities: Sequence[Entity], started: datetime) -> CopyResult:
        """Copy what is not copied yet.

        Raises:
            LeaseLostError: another worker holds the lease of the job, or took it.
            InterruptedRunError: a signal asked for the stop.
        """
        options = self._options
        settings = job_settings(options, self._source.bulk, self._target.bulk, entities)
        known = self._ledger.find(job_id(settings))
        job = self._ledger.start(job_id(settings), settings, options.as_of or started)
        lease = acquire(self._ledger, job.id, options.lease)
        with LeaseKeeper(self._ledger, lease, options.lease, self._stop) as keeper:
            shop = self._workshop(job, keeper)
            again = self._prepare(shop, job, fresh=known is None or known.generation != job.generation)
            for entity in entities:
                if not self._stop.requested:
                    self._entity(shop, entity, job, again)
            if keeper.lost is not None:
                raise keeper.lost
            self._stop.raise_if_interrupted(RESUME)
            if not self._limits.exceeded:
                self._ledger.complete(keeper.lease)
        return self._result(shop, job.id, entities, started)

    def _workshop(self, job: Job, keeper: LeaseKeeper) -> Workshop:
        out = self._options.out or DEFAULT_OUT
        return Workshop(
            exports=self._exports,
            target=self._target.bulk,
            ledger=self._ledger,
            keeper=keeper,
            limits=self._limits,
            limiter=RateLimiter(self._options.max_rate, self._stop),
            stop=self._stop,
            progress=self._progress,
            quarantine=Journal(out / QUARANTINE, job),
            conflicts=Journal(out / CONFLICTS, job),
            on_conflict=self._options.on_conflict,
            jobs=self._options.jobs,
        )

    def _prepare(self, shop: Workshop, job: Job, *, fresh: bool) -> AbstractSet[int]:
        """Bring the files in line with the ledger; return the finished ranges to open once more."""
        live = [item for item in self._ledger.ranges(job.id) if item.state is RangeState.LIVE]
        again = self._limits.reopen(live)
        for journal in (shop.quarantine, shop.conflicts):
            if fresh:
                journal.begin()
            else:
                journal.resume({item.number for item in live} - again)
        return again

    def _entity(self, shop: Workshop, entity: Entity, job: Job, again: AbstractSet[int]) -> None:
        ranges = self._planned(shop, entity, job)
        done = [item for item in ranges if item.state is RangeState.LIVE and item.number not in again]
        finished = {item.number for item in done}
        before = sum(sum(item.tally.read.values()) for item in done if item.tally)
        self._progress.start(entity.name, self._exports.count(entity), before)
        todo = [item for item in ranges if item.number not in finished]
        copy_ranges(shop, entity, todo, expiry_test(entity, self._target.options, job.as_of))
        self._progress.finish()

    def _planned(self, shop: Workshop, entity: Entity, job: Job) -> list[RangeProgress]:
        """Return the ranges of an entity; cut the source when the ledger has none."""
        stored = list(self._ledger.ranges(job.id, entity.name))
        if stored:
            return stored
        cut = self._exports.ranges(entity, self._options.range_size)
        self._ledger.plan(shop.keeper.lease, entity.name, cut)
        return list(self._ledger.ranges(job.id, entity.name))

    def _result(self, shop: Workshop, job: str, entities: Sequence[Entity], started: datetime) -> CopyResult:
        totals = Totals()
        for item in self._ledger.ranges(job):
            if item.tally is not None and item.state is RangeState.LIVE:
                totals.add(item.entity, item.tally)
        stored = self._ledger.find(job)
        if stored is None:
            raise LookupError(job)
        return CopyResult(
            executed=True,
            complete=stored.state is JobState.COMPLETE,
            source=self._source,
            target=self._target,
            entities=entities,
            totals=totals,
            as_of=stored.as_of,
            started=started,
            job={"id": stored.id, "generation": stored.generation, "state": stored.state.value},
            stopped=self._limits.exceeded,
            settings=stored.settings,
            quarantine=list(islice(shop.quarantine.entries(), SHOWN)),
            conflicts=list(islice(shop.conflicts.entries(), SHOWN)),
        )

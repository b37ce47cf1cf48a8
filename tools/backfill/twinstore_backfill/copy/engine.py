"""A copy from beginning to end.

    start or find the job -> take its lease -> reopen the ranges that must be processed again -> plan
    -> workers take, copy and commit ranges -> complete -> export the lines -> report

The lease is needed to plan, to complete and to stop. Copying a range needs only the range: the holder of its
fence commits it.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from logging import getLogger
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.clock import truncate_to_millisecond
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.ledger import JobState, RangeState
from twinstore.runtime.secrets import mask_secret_url
from twinstore_backfill.connection_budget import copy_needs, explain_connection_limit
from twinstore_backfill.copy.control import HIGHEST_RATE, Limits
from twinstore_backfill.copy.description import described
from twinstore_backfill.copy.dry_run import DryRun
from twinstore_backfill.copy.earlier import keys_differ
from twinstore_backfill.copy.lease import ConflictRetry, LeaseKeeper, acquire, release_dead_workers, worker_id
from twinstore_backfill.copy.options import (
    DEFAULT_OUT,
    DESCRIBED,
    applied_rules,
    dropping_settings,
    job_id,
    job_settings,
    released_settings,
    with_notes,
)
from twinstore_backfill.copy.others import Others
from twinstore_backfill.copy.quarantine import ExportedLines, export_lines
from twinstore_backfill.copy.ranges import Share, Watcher, resolve_unique_moves
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.copy.report import (
    CopyResult,
    FailedRanges,
    Totals,
    copy_report,
    outcomes_of,
    write_copy_report,
)
from twinstore_backfill.copy.rules import backward_changes, copier_changes
from twinstore_backfill.copy.rules.selection import decides_tenant
from twinstore_backfill.copy.slices import Slices
from twinstore_backfill.copy.source_changes import entity_states, source_changes
from twinstore_backfill.copy.status import MOST_TALLIES
from twinstore_backfill.copy.worker import CopyContext, copy_ranges
from twinstore_backfill.copy.workers import copy_context
from twinstore_backfill.engines import open_engine
from twinstore_backfill.engines.pool import Pool
from twinstore_backfill.engines.processes import CHILDREN, Processes
from twinstore_backfill.engines.sites import Ticket
from twinstore_backfill.outcome import PreflightError, UnknownJobError
from twinstore_backfill.process.files import require_writable
from twinstore_backfill.process.memory import tuned_gc
from twinstore_backfill.process.stopping import StopRequestedError, checked
from twinstore_backfill.report.fast_path import fast_path_report
from twinstore_backfill.retention import resolve_as_of
from twinstore_backfill.rules import job_rules
from twinstore_backfill.stores import (
    has_ledger,
    inspect_source,
    is_migrated,
    left_out_counts,
    preflight,
    prepare_target,
    refuse_same_store,
    refuse_undescribed,
    require_tenants,
    select_entities,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from twinstore.catalog.entity import Entity
    from twinstore.ledger import CopyJob, Lease
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.engines.sites import Specs
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.stores import Store

log = getLogger(__name__)
EARLIER: Final = (
    "An earlier release of twinstore has begun this copy, and its plan cannot be continued. Install that "
    "release again and run the same command; when the copy is complete, a copy by this release begins again."
)

# A large entity is cut into so many ranges at most, of about so many rows at least, and each of those by the
# worker that takes it.
COARSE_RANGES: Final = 1000
COARSE_ROWS: Final = 1_000_000
# Beyond that the interpreter lock of one process is the limit.
THREADS_PER_PROCESS: Final = 8
RESUME: Final = "Finished ranges are saved; run the same command again to continue."


def run_copy(
    source: Store, target: Store, options: CopyOptions, progress: Progress, stop: StopSwitch
) -> CopyResult:
    """Copy, or only compare when ``options.execute`` is not set, and write the report.

    Raises:
        ValidationError: an unknown entity, source and target are the same store, or ``as_of`` has not come.
        ConfigurationError: the report cannot be written.
        PreflightError: the source has nothing or cannot be read in full, or the target cannot be written to.
        LeaseLostError: another process holds the lease of the job, or took it.
        InterruptedRunError: a signal asked for the stop; finished ranges are saved.
    """
    started = truncate_to_millisecond(datetime.now(UTC))
    out = options.saved_in
    if out is not None:
        # Before any work: a copy of hours must not end in a report that cannot be written.
        require_writable(out)
    entities = select_entities(source.bulk, options.entities)
    # Before the target is prepared: it would be the source that is migrated.
    refuse_same_store(source.bulk, target.bulk)
    options = replace(options, rules=job_rules(options.rules, source))
    options.subset.check(entities)
    preflight(partial(SourceRows, source.bulk, options))
    target = target.changed(backward_changes(options.rules, source.bulk.entities()))
    preflight(lambda: target.bulk)
    state = inspect_source(source.changed(copier_changes(options.rules.of_source, source.bulk.entities())))
    as_of = resolve_as_of(source.bulk, options.as_of)
    if options.engine is not None:
        check_engine(options.engine, source, target)
    if not any(decides_tenant(options.rules.of_source, entity) for entity in entities):
        require_tenants((source, target) if is_migrated(target) else (source,), options.tenants)
    with tuned_gc(), explain_connection_limit(copy_needs(options.jobs)):
        if options.execute:
            prepare_target(target)
            refuse_undescribed(target, entities)
            # Of others each query may read all rows.
            watched = [item for item in entities if item.name not in state.absent | state.slow]
            copy = Copy(source, target, options, progress, stop)
            result = copy.run(entities, as_of, started, watched)
        else:
            job = present_job(source, target, options, entities) if has_ledger(target) else None
            dry = DryRun(source, target, options, progress, stop, job=job)
            result = preflight(partial(dry.run, entities, as_of, started))
    result = replace(result, warnings=state.warnings, speed_only=len(state.costs), title=options.title)
    write_copy_report(copy_report(result), out)
    return result


def check_engine(url: str, *sides: Store) -> None:
    """Refuse what cannot lend processes before anything is planned.

    Raises:
        ConfigurationError: no such engine is installed, its client library is missing, or it is away.
        ValidationError: the URL cannot be read, or a store lives in this process only.
    """
    for store in sides:
        if store.spec is None:
            raise ValidationError(f"{store.bulk.place} lives in this process; no worker of --engine sees it.")
    open_engine(url).close()


def present_job_id(source: Store, target: Store, options: CopyOptions, entities: Sequence[Entity]) -> str:
    """Return the id of the job of a copy; one that an earlier version began keeps its id."""
    # The earlier forms only if there is no job under the new id, so that these look-ups end with their jobs.
    forms = (job_settings, released_settings, dropping_settings)
    ids = [job_id(form(options, source, target, entities)) for form in forms]
    return next((found for found in ids if target.ledger.find(found) is not None), ids[0])


def present_job(
    source: Store, target: Store, options: CopyOptions, entities: Sequence[Entity]
) -> CopyJob | None:
    """Return the job that a copy would continue, ``None`` if there is none."""
    return target.ledger.find(present_job_id(source, target, options, entities))


def known_job(target: Store, name: str) -> CopyJob:
    """Return a job.

    Raises:
        UnknownJobError: no job has that name.
    """
    job = target.ledger.find(name)
    if job is None:
        raise UnknownJobError(
            f"No copy with these options was made into {target.bulk.place}; give the options "
            "of the copy, such as --from, --entity and --as-of, as they were given."
        )
    return job


def news(context: CopyContext, slices: Slices | None) -> None:
    """Take in that other workers have finished ranges."""
    context.queue.notify_changed()
    if slices is not None:
        slices.recover()


class Coordinator(Watcher):
    """Does what needs the lease of a job when an entity begins and ends."""

    def __init__(self, copy: Copy, job: CopyJob, keeper: LeaseKeeper, others: Others) -> None:
        self._copy, self._job, self._keeper, self._others = copy, job, keeper, others

    @override
    def begin(self, entity: Entity) -> None:
        self._others.begin(entity.name)
        self._copy.begin(self._job, entity)

    @override
    def settle(self, entity: Entity) -> bool:
        return self._copy.write_moves(self._job, self._keeper, entity)

    @override
    def end(self, entity: Entity) -> None:
        """Say that all of an entity is live, once everything has been heard of it."""
        self._others.look()
        self._copy.progress.finish(entity.name)


class Copy:
    """One run of a copy that writes."""

    def __init__(
        self, source: Store, target: Store, options: CopyOptions, progress: Progress, stop: StopSwitch
    ) -> None:
        self._source, self._target, self._options = source, target, options
        self.progress, self._stop = progress, stop
        self._ledger = target.ledger
        self._conflict_retry = ConflictRetry(stop)
        self._rows = SourceRows(source.bulk, options)
        self._exported = ExportedLines()

    def run(
        self, entities: Sequence[Entity], as_of: datetime, started: datetime, watched: Sequence[Entity] = ()
    ) -> CopyResult:
        """Copy the remaining ranges; ``as_of`` counts if the job begins now.

        Changes of the ``watched`` entities during the copy are reported.

        Raises:
            LeaseLostError: another process holds the lease of the job, or took it.
            InterruptedRunError: a signal asked for the stop.
        """
        worker = worker_id()
        try:
            job, lease = self._acquire_job(entities, as_of, worker)
            # From here on, because cutting a large source alone may take longer than a lease.
            copier = worker if self._copies else None
            with LeaseKeeper(self._ledger, lease, copier, self._options.lease, self._stop) as keeper:
                before = entity_states(self._rows, watched)
                result = self._copy_job(job, entities, worker, keeper, started)
        except StopRequestedError:
            # While it waited for another process.
            self._stop.raise_if_interrupted(RESUME)
            raise
        changes = source_changes(before, entity_states(self._rows, watched))
        return replace(result, source_changes=tuple(changes))

    def _copy_job(
        self, job: CopyJob, entities: Sequence[Entity], worker: str, keeper: LeaseKeeper, started: datetime
    ) -> CopyResult:
        """Copy the ranges of a job that is held; return what it amounted to, while it is still held."""
        others = Others(self._ledger, job.id, worker, self.progress, self._target.bulk.now)
        context = self._context(job, worker, entities, Coordinator(self, job, keeper, others))
        with self._lines_exported(job):
            reopen = lambda: self._reopen_ranges(job, keeper.refresh())  # noqa: E731
            self._conflict_retry.run("Opening ranges again", reopen)
            self._plan(keeper, job, entities)
            self._copy_ranges(context, job, others)
            # Before the signal: that another process has taken over is what a user must know first.
            if keeper.lost is not None:
                raise keeper.lost
            self._stop.raise_if_interrupted(RESUME)
            # What workers have added since they counted.
            context.limits.judge()
            stopped = self._conclude(keeper.refresh()) or context.queue.stopped or ""
        # Before the lease is released: its next holder begins a new generation without these ranges.
        return self._result(job.id, entities, started, stopped, context)

    def _copy_ranges(self, context: CopyContext, job: CopyJob, others: Others) -> None:
        """Copy with the threads of this process and the slices of an engine; workers may join as well."""
        threads, children = self._threads(job), 0
        if self._options.engine is None and self._specs is not None:
            children = (threads - 1) // THREADS_PER_PROCESS
        with self._slices(context, job, children) as slices, others.followed(partial(news, context, slices)):
            copy_ranges(context, threads - children * THREADS_PER_PROCESS)
        if slices is not None and slices.error is not None:
            raise slices.error

    def _slices(
        self, context: CopyContext, job: CopyJob, children: int
    ) -> AbstractContextManager[Slices | None]:
        """Return what keeps an engine busy, if there is one; child processes of this one are one."""
        url = self._options.engine
        if url is None and not children:
            return nullcontext()
        # What slices copy is heard of before this process comes to it.
        for entity in context.entities.values():
            context.queue.begin_entity(entity)
        lend = partial(Processes, str(children)) if url is None else partial(open_engine, url)
        ticket = Ticket.of(self._source, self._target, self._source.bulk.entities(), job.id)
        threads = THREADS_PER_PROCESS if url is None else 1
        pool = Pool(lend, CHILDREN if url is None else mask_secret_url(url))
        return Slices(pool, ticket, context, threads=threads, specs=self._specs)

    @property
    def _specs(self) -> Specs | None:
        source, target = self._source.spec, self._target.spec
        return None if source is None or target is None else (source, target)

    def _acquire_job(self, entities: Sequence[Entity], as_of: datetime, worker: str) -> tuple[CopyJob, Lease]:
        """Return the job with its lease."""
        # A process that was killed may have left a transaction behind that holds the job.
        job = self._conflict_retry.run("Starting the job", partial(self._job, entities, as_of))
        take = partial(acquire, self._ledger, job.id, worker, self._options.lease)
        lease = self._conflict_retry.run("Taking the job", take)
        job = self._begun(lease, entities, as_of)
        # Requests to an earlier run end with it: the command line says what counts now.
        rate = None if self._options.max_rate is None else min(int(self._options.max_rate), HIGHEST_RATE)
        return (job if job.max_rate == rate else self._ledger.set_rate(job.id, rate)), lease

    def _job(self, entities: Sequence[Entity], as_of: datetime) -> CopyJob:
        """Return the job, or create it; a job that an earlier version began keeps its id."""
        found = present_job_id(self._source, self._target, self._options, entities)
        # A retry of the quarantine continues a job, even a complete one.
        retry = self._options.retry_quarantine
        job = known_job(self._target, found) if retry else self._ledger.find(found)
        if job is None:
            return self._ledger.start(found, self._settings(entities, None), as_of)
        is_of_earlier_release = job.is_unmarked and DESCRIBED not in job.settings
        if is_of_earlier_release and (retry or job.state is JobState.RUNNING):
            raise PreflightError(EARLIER)
        return job

    def _begun(self, lease: Lease, entities: Sequence[Entity], as_of: datetime) -> CopyJob:
        """Return the job that is held, under the present rules.

        A complete job begins again only on request, which needs its lease: the ranges of the last generation
        are forgotten, and the holder of the lease may still report on them. So does one whose rows have other
        keys now, because its ranges are cut by the former ones.
        """
        job = known_job(self._target, lease.job_id)
        settings = self._settings(entities, job.settings)
        before = applied_rules(job.settings)[-1]
        again = keys_differ(before, self._options.rules, entities)
        if again or (job.state is JobState.COMPLETE and not self._options.retry_quarantine):
            return self._ledger.start(job.id, settings, as_of, again=again)
        if settings != job.settings:
            self._ledger.describe(lease, settings)
        return known_job(self._target, lease.job_id)

    def _settings(self, entities: Sequence[Entity], before: Mapping[str, str] | None) -> Mapping[str, str]:
        sides = self._source, self._target
        settings = {
            **job_settings(self._options, *sides, entities),
            DESCRIBED: described(self._options, *sides, entities),
        }
        return with_notes(settings, self._source.bulk, self._target.bulk, self._options.rules, before)

    def _context(
        self, job: CopyJob, worker: str, entities: Sequence[Entity], watcher: Watcher
    ) -> CopyContext:
        return copy_context(
            job,
            (self._source, self._target),
            self._options,
            entities,
            worker=worker,
            stop=self._stop,
            conflict_retry=self._conflict_retry,
            progress=self.progress,
            watcher=watcher,
            share=Share(takes=lambda _: self._copies),
        )

    @property
    def _copies(self) -> bool:
        """Whether this process copies ranges itself.

        With an engine only if rows may be overwritten: unique values may then move between ranges, and rows
        that refer to such rows wait for the coordinator to settle that.
        """
        return self._options.engine is None or self._options.on_conflict == "overwrite"

    def _limits(self, job: CopyJob) -> Limits:
        return Limits(self._ledger, job.id, self._options, self._stop)

    def _reopen_ranges(self, job: CopyJob, lease: Lease) -> None:
        """Free ranges of dead workers, and reopen ranges that failed or must be processed again."""
        # First: a stop of an earlier run would end this one before its first range.
        self._ledger.resume(lease)
        # Before ranges are handed out, so that those of a killed process need not wait for its time.
        release_dead_workers(self._ledger, lease.job_id)
        again = {item.number for item in self._ledger.ranges(job.id, state=RangeState.FAILED)}
        again |= set(self._copied_otherwise(job))
        again |= self._limits(job).reopen(self._ledger.noted_ranges(job), again)
        self._ledger.reopen(lease, sorted(again))

    def _copied_otherwise(self, job: CopyJob) -> Iterator[int]:
        """Yield the numbers of the live ranges that were copied under other rules than those of this run."""
        for entity in self._source.bulk.entities():
            under = next(iter(self._options.rules.under(entity)), None)
            yield from self._ledger.copied_otherwise(job.id, entity.name, under)

    def _plan(self, keeper: LeaseKeeper, job: CopyJob, entities: Sequence[Entity]) -> None:
        """Cut the entities of which the ledger has not all ranges; large ones are cut again by workers."""
        for entity in entities:
            if entity.name in job.cut:
                continue
            count = min(COARSE_RANGES, self._rows.count(entity) // COARSE_ROWS)
            coarse = self._rows.in_turn(entity, count)
            ranges = coarse or self._rows.cut(entity, self._rows.range_size(entity))
            # The next run forgets the ranges that are stored by the time of a stop, and begins again.
            ranges = checked(ranges, self._stop)
            self._ledger.plan(keeper.refresh(), entity.name, ranges, coarse=bool(coarse))

    def _threads(self, job: CopyJob) -> int:
        """Return how many threads have something to do."""
        counts = self._ledger.counts(job.id)
        unfinished = sum(count for state, count in counts.items() if state != RangeState.LIVE.value)
        if unfinished < self._options.jobs:
            pending = self._ledger.ranges(job.id, state=RangeState.PENDING)
            # A thread pool cannot have none.
            return self._options.jobs if any(item.coarse for item in pending) else max(1, unfinished)
        return self._options.jobs

    def begin(self, job: CopyJob, entity: Entity) -> None:
        """Begin the progress of an entity with what is live."""
        ranges = self._ledger.counts(job.id, entity.name)
        live = ranges.get(RangeState.LIVE.value, 0)
        size = self._rows.range_size(entity)
        most = sum(ranges.values()) * size
        before = Counter[str]()
        if live > MOST_TALLIES:
            before["read"] = live * size
        elif live:
            for item in self._ledger.ranges(job.id, entity.name, state=RangeState.LIVE):
                before.update(outcomes_of(item.tally) if item.tally else {})
        total, is_large = self._rows.count(entity, most), self._rows.is_large(entity)
        self.progress.start(entity.name, total, before["read"], estimated=is_large)
        self.progress.count(entity.name, before)

    def write_moves(self, job: CopyJob, keeper: LeaseKeeper, entity: Entity) -> bool:
        """Write rows whose unique values moved between ranges; return whether there is more to copy."""
        if self._options.on_conflict != "overwrite":
            return False
        sides = self._rows.port, self._target.bulk
        moves = self._conflict_retry.run(
            f"Settling {entity.name}",
            lambda: resolve_unique_moves(*sides, self._ledger, keeper.refresh(), entity),
        )
        if moves.waiting and not moves.settled:
            # Nothing frees these any more, so that they count like all the others now.
            self._limits(job).judge(waiting=True)
        return bool(moves.settled)

    def _conclude(self, lease: Lease) -> str:
        """Complete the job when every range is live; return why it was stopped."""
        job = known_job(self._target, lease.job_id)
        if job.stop and not job.paused:
            return job.stop_reason or ""
        # By the ledger and not by what this process has done: others may share the job.
        if set(self._ledger.counts(job.id)) <= {RangeState.LIVE.value}:
            # A worker that had joined an earlier run may have finished the range in hand.
            if any(self._copied_otherwise(job)):
                return "ranges were finished under earlier rules meanwhile"
            self._ledger.complete(lease)
        return ""

    @contextmanager
    def _lines_exported(self, job: CopyJob) -> Iterator[None]:
        """Write the files of quarantine and conflicts before, so that none is of another job, and after.

        A failure is not hidden by that of an export: the ledger may be what is away.
        """
        out = self._options.out or DEFAULT_OUT
        export_lines(self._ledger, job, out)
        try:
            yield
        except BaseException:
            try:
                export_lines(self._ledger, job, out)
            except (TwinstoreError, OSError) as error:
                log.warning("the files of quarantine and conflicts are not up to date: %s", error)
            raise
        self._exported = export_lines(self._ledger, job, out)

    def _result(
        self,
        job: str,
        entities: Sequence[Entity],
        started: datetime,
        stopped: str,
        context: CopyContext,
    ) -> CopyResult:
        totals, failed = Totals(), FailedRanges(context.failures)
        for item in self._ledger.ranges(job):
            if item.tally is not None and item.state is RangeState.LIVE:
                totals.add(item.entity, item.tally)
            elif item.state is RangeState.FAILED:
                failed.add(item)
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
            stopped=stopped,
            settings=stored.settings,
            quarantine=self._exported.quarantine,
            conflicts=self._exported.conflicts,
            causes=self._exported.reasons.reports(entities),
            failed=failed,
            left_out=left_out_counts(self._source, self._target, self._options.entities),
            subset=self._options.subset.document(entities) if self._options.subset else None,
            fast_path=fast_path_report(
                context.share.packed, context.share.rows, self._rows.why_exact(entities)
            ),
            rules=self._rows.rules,
        )

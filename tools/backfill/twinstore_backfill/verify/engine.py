"""A verification from beginning to end. Both sides must be free of concurrent writes while it runs.

    count both sides -> cut the source into ranges -> compare each range (in several processes)
    -> query the lists of both sides -> checks C1 to C7 -> verdict, the most severe of them -> report

A fresh start has no source to compare with; see :func:`run_start_clean`.
"""

from __future__ import annotations

import socket
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from logging import getLogger
from time import monotonic
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.bulk.release import copy_counts
from twinstore.catalog.entity import CopyPolicy
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.models import json_text
from twinstore.plugins.modules import module_spec
from twinstore_backfill.accepted import Accepted
from twinstore_backfill.connection_budget import explain_connection_limit, verify_needs
from twinstore_backfill.ignored import check_ignored_fields
from twinstore_backfill.outcome import Exit, PreflightError, tool_identity
from twinstore_backfill.process.memory import tuned_gc
from twinstore_backfill.process.stopping import StopRequestedError
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.reasons import Reasons
from twinstore_backfill.report.fast_path import fast_path_report
from twinstore_backfill.report.model import (
    EXITS,
    Check,
    Envelope,
    LeftOut,
    ParityReport,
    RangeShares,
    SideReport,
    Tool,
)
from twinstore_backfill.retention import resolve_as_of
from twinstore_backfill.rules import job_rules
from twinstore_backfill.rules.model import ANY, DropRule
from twinstore_backfill.stores import (
    NOTHING_LACKED,
    inspect_source,
    left_out_counts,
    left_out_entities,
    preflight,
    refuse_same_store,
    require_tenants,
    select_entities,
    server_ttls,
)
from twinstore_backfill.verify.benchmark import largest_tenants, speed_check, time_lists
from twinstore_backfill.verify.checks import (
    A_PART,
    ONLY_ROWS,
    SCHEMA,
    SMOKE,
    ListContext,
    already_switched,
    approval,
    check_target,
    content_check,
    count_check,
    decode_check,
    direction_warnings,
    expired_warnings,
    grouped,
    held_warnings,
    ignored_reports,
    list_checks,
    lists_skipped,
    mode,
    mode_check,
    next_step,
    reasons,
    recheck_mode,
    rule_reports,
    schema_check,
    skipped,
    smoke_check,
    subset_report,
    verdict_of,
)
from twinstore_backfill.verify.context import Task, VerifyContext
from twinstore_backfill.verify.findings import RangeResult, Shares
from twinstore_backfill.verify.kept import CONTINUE, FILE, KeptResults, Mark, description, earlier_in
from twinstore_backfill.verify.lists import (
    LARGEST_PAGE,
    LISTS,
    BackgroundLists,
    ListResult,
    ListTask,
    list_tasks,
    page_of,
    short_switch_interval,
)
from twinstore_backfill.verify.memory_lock import LARGE_BYTES
from twinstore_backfill.verify.needed_rows import count_lacking, finding_of
from twinstore_backfill.verify.plan import RangePlan, counted_sides, is_long
from twinstore_backfill.verify.processes import WorkerPool, run_tasks
from twinstore_backfill.verify.ranges import ServerTtls
from twinstore_backfill.verify.rules import check_tenants, moves_tenants, verifier_changes
from twinstore_backfill.verify.sampling import rows_of_tenants, tenants_for_lists
from twinstore_backfill.verify.stored_lists import StoredRows, compare_with_rows
from twinstore_backfill.verify.summary import EntityFindings, equivalences, groups
from twinstore_backfill.verify.tasks import key_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.report.model import EntityReport, QueryTimes
    from twinstore_backfill.stores import SourceState, Store
    from twinstore_backfill.verify.options import RowSelection, VerifyOptions

log = getLogger(__name__)
AnyTask = Task[RangeResult | ListResult | Mark]
DOCUMENTS: Final = "documents"
ONE_BY_ONE: Final = "a range with a row that is not stored as a copy stores it is compared row by row"
# Of rows that are read whole to sort them, in the size of the largest.
WHOLE_BYTES: Final = 64 * 1024 * 1024
READY: Final = frozenset({"PASS", "START-CLEAN (approved)"})


def run_verify(  # noqa: PLR0917  # both sides, the request, and the receivers of reports
    source: Store,
    target: Store,
    options: VerifyOptions,
    progress: Progress,
    stop: StopSwitch,
    write: Callable[[Iterable[bytes]], object] = list,
    keep_in: Path | None = None,
) -> ParityReport:
    """Compare two stores and return the report.

    Args:
        source: the side that the service writes.
        target: the side that is judged.
        options: what to compare, and how.
        progress: receives the progress.
        stop: the switch that may stop it.
        write: takes the findings as lines, in order of entities and keys.
        keep_in: the directory that keeps what a verification of many ranges decides, ``None`` for none.

    Raises:
        ValidationError: an unknown entity, source and target are the same store, or ``as_of`` has not come.
        PreflightError: the target is not migrated or not safe to read, the source cannot be read in full, or
            there is nothing that ``options.resume`` can continue.
        InterruptedRunError: a signal asked for the stop.
    """
    started = monotonic()
    entities = select_entities(source.bulk, options.entities)
    refuse_same_store(source.bulk, target.bulk)
    keep = keep_in / FILE if keep_in is not None and mode(options) == "full" else None
    if keep is not None and not options.resume:
        # Before anything takes long: if this run is killed, nobody may continue an earlier one in its place.
        keep.unlink(missing_ok=True)
    options = replace(options, rules=job_rules(options.rules, source))
    check_ignored_fields(options.ignored_fields, source.bulk.entities())
    options.subset.check(entities)
    if options.tenants:
        check_tenants(options.rules, entities)
    changed = source.changed(verifier_changes(options.rules, source.bulk.entities()))
    # Not every driver can read its rows changed.
    preflight(lambda: changed.bulk)
    state = inspect_source(changed)
    as_of, since = resolve_as_of(source.bulk, options.as_of), source.bulk.now()
    preflight(target.storage.check_ready)
    describe, earlier = partial(description, options, source, target, entities), None
    if options.resume:
        if keep is None:
            raise ValidationError("--resume continues what the directory of --out keeps; name it with --out.")
        earlier = earlier_in(keep, describe())
        as_of, since = earlier.as_of, earlier.begun
    kept = KeptResults(keep, describe, earlier)
    if not any(moves_tenants(options.rules, entity) for entity in entities):
        require_tenants((source, target), options.tenants)
    ages = ServerTtls(state.server_ttls, server_ttls(target))
    context = VerifyContext(
        changed,
        target,
        as_of,
        options.batch_size,
        state.absent,
        ages,
        since,
        options.ignored_fields,
        options.subset,
        options.rules,
        state.slow,
    )
    workers = WorkerPool(context, options.jobs, options.engine)
    run = Verification(context, options, progress, stop, state, write, kept, workers)
    try:
        with kept, tuned_gc(), explain_connection_limit(verify_needs(options.jobs)), workers:
            only = options.only
            compare = partial(run.compare, entities) if only is None else partial(run.recheck, entities, only)
            preflight(compare)  # a table that is not as described is first noticed by its scan
    except StopRequestedError:
        stop.raise_if_interrupted(kept.advice)
        raise
    except TwinstoreError as error:
        if kept.advice == CONTINUE and not isinstance(error, PreflightError):
            log.warning(CONTINUE)
        raise
    return run.report(entities, as_of, monotonic() - started)


class Verification:
    """Runs the checks and collects what they find."""

    def __init__(  # noqa: PLR0917  # both sides, the request, and the receivers of reports
        self,
        context: VerifyContext,
        options: VerifyOptions,
        progress: Progress,
        stop: StopSwitch,
        state: SourceState = NOTHING_LACKED,
        write: Callable[[Iterable[bytes]], object] = list,
        kept: KeptResults | None = None,
        workers: WorkerPool | None = None,
    ) -> None:
        """Take both sides, the options, the progress, the state of the source, the lines and the results.

        Without ``workers`` this process runs all tasks.
        """
        self._context, self._options, self._progress, self._stop = context, options, progress, stop
        self._warnings = direction_warnings(options, context) + state.remarks
        self._costs = state.costs
        self._write = write
        self._kept = kept or KeptResults()
        self._workers = workers or WorkerPool(context, 1)
        self._entities: list[EntityReport] = []
        self._equivalences: Counter[str] = Counter()
        self._rules: Counter[int] = Counter()
        self.checks: list[Check] = []
        self._reasons = Reasons()
        self._largest = 0
        self._read = 0
        self._shares = Shares()
        self._without_digests: Mapping[str, str] = {}
        self._lists = ListResult([])
        self._part = DOCUMENTS
        self._times: tuple[QueryTimes, ...] = ()
        self._accepted = Accepted.of(options.rules, ())
        self._lacking = 0

    @property
    def _sampled(self) -> bool:
        return self._options.mode == "sample"

    def compare(self, entities: Sequence[Entity]) -> None:
        """Compare the documents and the lists."""
        options, part = self._options, bool(self._options.subset)
        on_progress = partial(self._progress.advance, DOCUMENTS)
        with (
            short_switch_interval(),
            BackgroundLists(self._context, options.jobs, self._progress, self._stop) as background_lists,
            RangePlan(
                self._context, options, self._stop, on_progress, self._kept.earlier, workers=self._workers
            ) as plan,
        ):
            plan.prepare(entities)
            sides = counted_sides(self._context, options.tenants, entities)
            rows = sum(pair[0] for counts in sides.rows.values() for pair in counts.values())
            counted = self._kept.begin(self._context, sides.rows, is_long=is_long(rows, options.range_size))
            chosen = tenants_for_lists(rows_of_tenants(counted.values()), options.seed)
            # A store counts all of its rows, so its number cannot be compared with that of a part.
            findings = {
                entity.name: EntityFindings(
                    entity,
                    None if part else counted[entity.name],
                    source_is_read=self._context.moves_tenants(entity),
                )
                for entity in entities
            }
            # With chosen tenants the lists over all tenants would compare rows that were not requested.
            list_tenants = chosen.tenants if options.tenants else (*chosen.tenants, None)
            self._progress.start(DOCUMENTS, rows, self._kept.rows)
            plan.begin(entities, counted)
            if plan.largest is not None and not part:
                background_lists.begin(plan.largest, sides.largest, list_tenants, tuple(options.entities))
            self._collect(findings, self._tasks(plan, None if part else list_tenants, background_lists))
            self._without_digests = plan.without_digests
        self._workers.close()
        if not part:
            self._compare_with_rows(counted)
            self._count_lacking()
        lists = self._lists
        self._measure(counted, chosen.tenants)
        respelled = {name for name, found in findings.items() if found.equivalences}
        list_context = ListContext(
            respelled=respelled
            | self._context.changed
            | {item.entity for item in self._entities if item.counts.quarantined},
            approved=self._approved(findings),
            chosen=chosen.note,
        )
        module = self._context.target.module
        smoke, schema = check_target(self._context.target, self._progress)
        self._warnings += held_warnings(self._context.target)
        if not part and not self._sampled:
            self._warnings += expired_warnings(self._entities, self._context.server_ttls.target.keys())
        self.checks = [
            skipped("C1", "counts", A_PART) if part else count_check(self._entities, sampled=self._sampled),
            content_check(self._entities),
            mode_check(self._entities, sampled=self._sampled, part=part),
            *(lists_skipped(module) if part else list_checks(lists, module, list_context)),
            smoke,
            decode_check(self._entities, self._accepted.exceeded),
            schema,
            *self._speed(),
        ]

    def recheck(self, entities: Sequence[Entity], only: RowSelection) -> None:
        """Compare single rows; skip the checks that need all rows."""
        counts = {entity.name: only.counts.get(entity.name, 0) for entity in entities}
        findings = {entity.name: EntityFindings(entity) for entity in entities if counts[entity.name]}
        self._progress.start(DOCUMENTS, sum(counts.values()))
        self._collect(findings, key_tasks(findings, only))
        self._without_digests = dict.fromkeys(findings, "single rows are compared")
        self.checks = [
            skipped("C1", "counts"),
            content_check(self._entities),
            recheck_mode(sum(counts.values()), sum(only.keyless.get(name, 0) for name in counts)),
            *lists_skipped(self._context.target.module, ONLY_ROWS),
            skipped("C6", SMOKE),
            decode_check(self._entities, self._accepted.exceeded),
            skipped("C8", SCHEMA),
        ]

    def _measure(self, counted: Mapping[str, Mapping[str, tuple[int, int]]], tenants: Sequence[str]) -> None:
        """Measure the lists of the largest tenants, and those over all tenants if all are compared."""
        if not self._options.benchmark:
            return
        over_all: tuple[None, ...] = () if self._options.tenants else (None,)
        chosen = (*over_all, *largest_tenants(counted, tenants))
        self._times = time_lists(self._context, chosen, page_of(self._largest), self._progress, self._stop)

    def _speed(self) -> tuple[Check, ...]:
        """Return the check of the speed if a limit is given."""
        limit = self._options.max_ratio
        return () if limit is None else (speed_check(self._times, limit),)

    def _recount(self, entity: Entity) -> dict[str, tuple[int, int]]:
        return counted_sides(self._context, self._options.tenants, [entity]).rows[entity.name]

    def _write_moves(self, findings: Mapping[str, EntityFindings]) -> None:
        """Take into account what retention removed since the rows were counted."""
        for found in findings.values():
            if self._context.removals(found.entity).possible:
                found.settle(partial(self._recount, found.entity), sampled=self._sampled)

    def _collect(self, findings: Mapping[str, EntityFindings], tasks: Iterator[AnyTask | None]) -> None:
        """Carry out the tasks, and keep what ranges and lists show."""
        for known in self._kept.earlier.results() if self._kept.earlier else ():
            self._stop.check()
            self._add(findings[known.entity], known)
        for result in run_tasks(tasks, self._context, self._workers, self._stop):
            if isinstance(result, ListResult):
                self._lists.add(result)
                self._progress.advance(LISTS, 1)
                continue
            self._kept.add(result)
            if isinstance(result, RangeResult):
                # Of what digests prove the progress has heard while they were read.
                self._progress.advance(DOCUMENTS, result.rows - result.shares.rows)
                self._add(findings[result.entity], result)
        self._write_moves(findings)
        self._progress.finish(self._part)
        for found in findings.values():
            self._reasons.merge(found.reasons)
        accepted = Accepted.of(self._options.rules, [found.accepted for found in findings.values()])
        self._accepted, of_quarantine = accepted, accepted.of_quarantine
        self._entities = [
            grouped(found.report(of_quarantine), self._options.groups) for found in findings.values()
        ]
        self._equivalences = sum((found.equivalences for found in findings.values()), Counter[str]())
        self._rules = sum((found.rules for found in findings.values()), Counter[int]())

    def _add(self, findings: EntityFindings, result: RangeResult) -> None:
        self._write(result.findings.lines)
        findings.add(result)
        self._largest = max(self._largest, result.largest)
        self._shares.merge(result.shares)
        self._read += sum(part.seen[0] for part in result.tenants.values())
        self._progress.count(DOCUMENTS, result.outcomes())

    def _approved(self, findings: Mapping[str, EntityFindings]) -> frozenset[str]:
        """Return the entities whose unreadable documents in the source are all accounted for.

        They have properties that were ignored with a reason, and nothing else is wrong with any of them.
        """
        drops = (rule for rule in self._options.rules if isinstance(rule, DropRule))
        with_reason = {rule.entity for rule in drops if rule.reason}
        named = findings.keys() if ANY in with_reason else with_reason & findings.keys()
        reports = {entity.entity: entity.counts for entity in self._entities}
        return frozenset(name for name in named if findings[name].ignored and not reports[name].named)

    def _compare_with_rows(self, counted: Mapping[str, Mapping[str, tuple[int, int]]]) -> None:
        """Compare lists with the rows of the target that the source answers otherwise.

        It lists rows as they are stored, not as rules and what is accepted leave them. The rows of the target
        are proved: they are what a copy stores of the rows of the source.
        """
        approved = {item.entity for item in self._entities if item.counts.approved} | self._context.changed
        open_entities = {item.entity for item in self._entities if item.counts.result != "pass"}
        counts = {entity.name: dict[str, int]() for entity in self._context.target.bulk.entities()}
        counts |= {name: {label: pair[1] for label, pair in rows.items()} for name, rows in counted.items()}
        rows = StoredRows(self._context.target, counts, WHOLE_BYTES // max(self._largest, 1))
        for lists in (self._lists.due, self._lists.lists):
            for place, item in enumerate(lists):
                read = {*item.affected_entities, *item.unreadable_entities}
                if item.result != "pass" and read & approved and not read & open_entities:
                    self._stop.check()
                    rows.keep(item.tenant)
                    lists[place] = compare_with_rows(self._context, item, page_of(self._largest), rows)

    def _count_lacking(self) -> None:
        """Add what no list shows: rows that are never due, because another one is missing."""
        target, asked = self._context.target, set(self._options.entities)
        needed = module_spec(target.module).needed_rows
        if needed is None or (asked and asked.isdisjoint({needed.entity.name, needed.other.name})):
            return
        lacking = count_lacking(target, needed, self._options.tenants)
        rule = self._accepted.rule_of(needed.kind, needed.entity.name)
        if rule is not None:
            self._accepted = self._accepted.with_rows(rule, lacking)
        if rule is not None and self._accepted.holds(rule):
            self._lacking = lacking
        elif lacking:
            self._lists.due.append(finding_of(needed, lacking))

    def _tasks(
        self, plan: RangePlan, list_tenants: tuple[str | None, ...] | None, background_lists: BackgroundLists
    ) -> Iterator[AnyTask | None]:
        narrowed = tuple(self._options.entities)
        yield from plan.tasks()
        if list_tenants is None:
            return
        # The lists need to know how large the documents are.
        yield None
        self._progress.finish(DOCUMENTS)
        self._part = LISTS
        page = page_of(self._largest)
        one_at_a_time = self._largest >= LARGE_BYTES
        found = background_lists.take(page)
        if found is None and plan.largest is not None and not one_at_a_time:
            # Another process would only begin when these are done.
            found = background_lists.fetch(page, list_tenants, narrowed)
            self._stop.check()
        if found is not None:
            self._lists.add(found)
            return
        self._progress.start(LISTS, len(list_tenants))
        yield from list_tasks(list_tenants, page, narrowed, one_at_a_time=one_at_a_time)

    def report(self, entities: Sequence[Entity], as_of: datetime, seconds: float) -> ParityReport:
        """Return the report."""
        options, shares, earlier = self._options, self._shares, self._kept.earlier
        wrong = {item.entity for item in self._entities if item.result == "fail"}
        append_only = [item.name for item in entities if item.append_only and item.name in wrong]
        verdict = verdict_of(self.checks, options)
        ready = verdict in READY and not (already_switched(options, self._context) and not options.approval)
        exceptions = sum(item.counts.approved for item in self._entities) + self._lacking
        refused = (options.require_ready and not ready) or (options.require_no_exceptions and exceptions)
        code = EXITS[verdict]
        if refused and code is Exit.OK:
            code = Exit.INCONCLUSIVE
        causes = tuple(map(self._accepted.approved, self._reasons.reports(entities)))
        return ParityReport(
            envelope=Envelope(
                generated_at=json_text.format_timestamp(datetime.now(UTC)),
                host=socket.gethostname(),
                as_of=json_text.format_timestamp(as_of),
                seconds=round(seconds, 3),
                benchmark=self._times,
                fast_path=fast_path_report(shares.rows + shares.expired, self._read, ONE_BY_ONE),
                ranges=RangeShares(by_digests=shares.proved, row_by_row=shares.compared)
                if mode(options) == "full"
                else None,
                without_digests=dict(sorted(self._without_digests.items())),
                continued=None if earlier is None else json_text.format_timestamp(earlier.begun),
            ),
            tool=Tool(**tool_identity()),
            module=self._context.target.module,
            title=options.title,
            mode=mode(options),
            seed=options.seed if self._sampled else None,
            sample_size=options.sample_size if self._sampled else None,
            as_of=json_text.format_timestamp(options.as_of) if options.as_of else None,
            entities_asked=tuple(options.entities),
            tenants_asked=tuple(sorted(set(options.tenants))),
            subset=subset_report(options, entities),
            source=self._source_side(),
            target=SideReport(**self._context.target.described()),
            switch=options.switch,
            verdict=verdict,
            exit_code=int(code),
            cutover_ready=ready,
            cutover_ready_required=options.require_ready,
            approved_exceptions=exceptions,
            no_exceptions_required=options.require_no_exceptions,
            exceptions=self._accepted.reports(),
            reasons=reasons(self.checks),
            causes=causes,
            warnings=self._warnings + self._costs,
            speed_only=len(self._costs),
            ignored=ignored_reports(options),
            rules=rule_reports(options.rules, self._rules, self._context.changed),
            next_step=next_step(
                verdict,
                options,
                self._context,
                self.checks,
                append_only=append_only,
                causes=[item for item in causes if not item.approved],
            ),
            documents_equal=sum(entity.counts.equal for entity in self._entities),
            approval=approval(options),
            checks=tuple(self.checks),
            groups=groups(self._entities),
            equivalences=equivalences(self._equivalences),
            entities=tuple(self._entities),
            left_out=self._left_out(),
        )

    def _source_side(self) -> SideReport:
        return SideReport(**self._context.source.described())

    def _left_out(self) -> tuple[LeftOut, ...]:
        """Count the entities that are not compared, so that they are not mistaken for proved."""
        source, target = self._context.source, self._context.target
        counted = left_out_counts(source, target, self._options.entities)
        return tuple(LeftOut.model_validate(item) for item in counted)


# A clean start: the user decided to begin without the old data. The source is neither opened nor needed.
#
# count the target -> query its lists -> checks -> verdict -> report


# The lists of one tenant must work too, and an empty store has no tenants; this one never exists.
PROBE_TENANT: Final = "twinstore-smoke"
# There is nothing to compare.
SKIP_REASON: Final = "approved fresh start"
SKIPPED: Final = (("C1", "counts"), ("C2", "content"), ("C3", "mode"))


def run_start_clean(source: str, target: Store, options: VerifyOptions, stop: StopSwitch) -> ParityReport:
    """Check that a store is empty and answers its lists, and return the report.

    Args:
        source: the driver of the source, for the report; ``none`` if there is none.
        target: the store to begin with.
        options: the options of the run; ``approval`` is set.
        stop: the switch that may stop it.

    Raises:
        PreflightError: the target is not migrated or not safe to read.
        InterruptedRunError: a signal asked for the stop.
    """
    started = monotonic()
    as_of = resolve_as_of(target.bulk, options.as_of)
    preflight(target.storage.check_ready)
    # Both sides of the context are the target, so each list is queried twice.
    run = CleanStart(source, VerifyContext(target, target, as_of, options.batch_size), options, stop)
    preflight(run.run_checks)
    stop.raise_if_interrupted("Nothing was written; run the same command again.")
    return run.report((), as_of, monotonic() - started)


class CleanStart(Verification):
    """Looks at a target that nothing is compared with."""

    def __init__(
        self,
        source: str,
        context: VerifyContext,
        options: VerifyOptions,
        stop: StopSwitch,
    ) -> None:
        super().__init__(context, options, SilentProgress(), stop)
        self._source = source
        self._target = context.target

    def run_checks(self) -> None:
        """Make the checks."""
        lists = ListResult([])
        for tenant in (None, PROBE_TENANT):
            lists.add(ListTask(tenant, LARGEST_PAGE, target_only=True).run(self._context))
        self.checks = [
            self._empty_check(),
            *(skipped(name, title, SKIP_REASON) for name, title in SKIPPED),
            *list_checks(lists, self._target.module),
            smoke_check(self._target),
            skipped("C7", "undecodable", SKIP_REASON),
            schema_check(self._target),
        ]

    def _empty_check(self) -> Check:
        """C0: nothing is there but what processes register when they start."""
        port = self._target.bulk
        entities = [entity for entity in port.entities() if entity.copy_policy is not CopyPolicy.LEFT_OUT]
        found = [
            f"{entity.name}: {count:,} {'row' if count == 1 else 'rows'} in target"
            for entity in entities
            if (count := sum(copy_counts(port, entity).values()))
        ]
        return Check(
            id="C0",
            title="empty target",
            result="fail" if found else "pass",
            summary="a fresh start needs an empty target",
            count=len(found),
            findings=tuple(found),
        )

    @override
    def _source_side(self) -> SideReport:
        return SideReport(backend=self._source, identity="", server_version="")

    @override
    def _left_out(self) -> tuple[LeftOut, ...]:
        port = self._target.bulk
        return tuple(
            LeftOut(
                entity=entity.name,
                why=entity.copy_policy.value,
                source={},
                target=dict(sorted(port.counts(entity).items())),
            )
            for entity in left_out_entities(port, ())
        )

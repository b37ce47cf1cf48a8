"""A verification from beginning to end. Both sides must be at rest while it runs.

    count both sides -> cut the source into ranges -> compare each range (in several processes)
    -> ask both sides for their lists -> checks C1 to C7 -> verdict, the weightiest of them -> report

A fresh start only counts the target (C0) and asks it for its lists.
"""

from __future__ import annotations

import socket
from collections import Counter
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.clock import truncate_to_millisecond
from twinstore.config.keys import module_keys
from twinstore.modules import module_spec
from twinstore.tenancy import names_tenant
from twinstore_backfill.copy.options import refuse_same_store
from twinstore_backfill.copy.reporting import left_out_counts
from twinstore_backfill.copy.worker import tuned_collector
from twinstore_backfill.provenance import tool_identity
from twinstore_backfill.report.model import (
    EXITS,
    ApprovalReport,
    Check,
    Envelope,
    LeftOut,
    ParityReport,
    SideReport,
    Tool,
)
from twinstore_backfill.source import SourceState, inspect_source
from twinstore_backfill.stopping import StopRequestedError
from twinstore_backfill.stores import preflight, require_tenants, select_entities
from twinstore_backfill.verify.building import EntityFindings, equivalences, groups
from twinstore_backfill.verify.checks import (
    content_check,
    count_check,
    decode_check,
    list_check,
    mode_check,
    worst,
)
from twinstore_backfill.verify.pool import run_tasks
from twinstore_backfill.verify.sampling import sample_rates
from twinstore_backfill.verify.tasks import ListResult, ListTask, RangeTask, VerifyContext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.bulk import KeyRange
    from twinstore.catalog import Entity
    from twinstore_backfill.progress import Progress
    from twinstore_backfill.report.model import EntityReport, Verdict
    from twinstore_backfill.stopping import StopSwitch
    from twinstore_backfill.stores import Store
    from twinstore_backfill.verify.options import VerifyOptions
    from twinstore_backfill.verify.ranges import RangeResult

__all__ = ["run_verify"]

DOCUMENTS: Final = "documents"
# The default limit of most lists, and so what a service reads.
LARGEST_PAGE: Final = 50
# Both sides hold a page at the same time; this bounds it also where documents are near their largest size.
PAGE_BYTES: Final = 16_000_000


def run_verify(
    source: Store, target: Store, options: VerifyOptions, progress: Progress, stop: StopSwitch
) -> ParityReport:
    """Compare two stores and return the report.

    Raises:
        ValidationError: an unknown entity, or source and target are the same store.
        PreflightError: the target is not migrated or not safe to read, or the source cannot be read in full.
        InterruptedRunError: a signal asked for the stop.
    """
    started = monotonic()
    as_of = options.as_of or truncate_to_millisecond(datetime.now(UTC))
    entities = select_entities(source.bulk, options.entities)
    refuse_same_store(source.bulk, target.bulk)
    # A fresh start needs nothing of the source.
    state = SourceState() if options.approval else inspect_source(source)
    preflight(target.storage.check_ready)
    require_tenants((source, target), options.tenants)
    context = VerifyContext(source, target, as_of, options.batch_size, state.absent)
    run = Verification(context, options, progress, stop, state.warnings)
    try:
        with tuned_collector():
            run.start_clean(entities) if options.approval else run.compare(entities)
    except StopRequestedError:
        stop.raise_if_interrupted("Nothing was written; run the same command again.")
        raise
    return run.report(as_of, monotonic() - started)


class Verification:
    """Runs the checks and collects what they find."""

    def __init__(
        self,
        context: VerifyContext,
        options: VerifyOptions,
        progress: Progress,
        stop: StopSwitch,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """Take both sides, the options, who is told, and what is to be said of the source."""
        self._context, self._options, self._progress, self._stop = context, options, progress, stop
        self._warnings = warnings
        self._entities: list[EntityReport] = []
        self._equivalences: Counter[str] = Counter()
        self._checks: list[Check] = []
        self._largest = 0

    @property
    def _sampled(self) -> bool:
        return self._options.mode == "sample"

    def compare(self, entities: Sequence[Entity]) -> None:
        """Compare the documents and the lists."""
        counted = {entity.name: self._counted(entity) for entity in entities}
        tenants = sorted({label for counts in counted.values() for label in counts if names_tenant(label)})
        findings = {entity.name: EntityFindings(entity, counted[entity.name]) for entity in entities}
        lists = ListResult([])
        tasks = self._tasks(entities, counted, tenants)
        self._progress.start(
            DOCUMENTS, sum(pair[0] for counts in counted.values() for pair in counts.values())
        )
        for result in self._results(tasks):
            if isinstance(result, ListResult):
                lists.add(result)
            else:
                findings[result.entity].add(result)
                self._largest = max(self._largest, result.largest)
                self._progress.advance(DOCUMENTS, sum(part.source.count for part in result.tenants.values()))
        self._progress.finish(DOCUMENTS)
        self._entities = [found.report() for found in findings.values()]
        respelled = {name for name, found in findings.items() if found.equivalences}
        respelled |= {found.entity for found in self._entities if found.counts.quarantined}
        self._equivalences = sum((found.equivalences for found in findings.values()), Counter[str]())
        self._checks = [
            count_check(self._entities, sampled=self._sampled),
            content_check(self._entities),
            mode_check(self._entities, sampled=self._sampled),
            *_list_checks(lists, self._context.target.module, respelled),
            decode_check(self._entities),
        ]

    def start_clean(self, entities: Sequence[Entity]) -> None:
        """Check that the target is empty and answers its lists."""
        target = self._context.target.bulk
        left = {entity.name: sum(target.counts(entity).values()) for entity in entities}
        found = [f"{name}: {count} rows in target" for name, count in left.items() if count]
        self._checks = [
            Check(
                id="C0",
                title="empty target",
                result="fail" if found else "pass",
                summary="a fresh start needs an empty target",
                count=len(found),
                findings=tuple(found),
            ),
            *(
                Check(id=name, title=title, result="skipped", summary="approved fresh start")
                for name, title in (("C1", "counts"), ("C2", "content"), ("C3", "mode"))
            ),
            *_list_checks(self._own_lists(), self._context.target.module, frozenset()),
        ]

    def _results(self, tasks: Iterator[RangeTask | ListTask | None]) -> Iterator[RangeResult | ListResult]:
        return run_tasks(tasks, self._context, self._options.jobs, self._stop)

    def _tasks(
        self,
        entities: Sequence[Entity],
        counted: Mapping[str, Mapping[str, tuple[int, int]]],
        tenants: Sequence[str],
    ) -> Iterator[RangeTask | ListTask | None]:
        yield from self._range_tasks(entities, counted)
        # The lists need to know how large the documents are.
        yield None
        yield from self._list_tasks(tenants)

    def _own_lists(self) -> ListResult:
        task = ListTask(None, LARGEST_PAGE, target_only=True)
        return task.run(self._context)

    def _counted(self, entity: Entity) -> dict[str, tuple[int, int]]:
        """Return the rows that each side counts, by tenant."""
        wanted = set(self._options.tenants)
        # Counted before the scans: a number that differs from what is read then tells of a writer.
        source, target = (side.bulk.counts(entity) for side in (self._context.source, self._context.target))
        return {
            tenant: (source.get(tenant, 0), target.get(tenant, 0))
            for tenant in sorted(source.keys() | target.keys())
            if not wanted or tenant in wanted
        }

    def _range_tasks(
        self, entities: Sequence[Entity], counted: Mapping[str, Mapping[str, tuple[int, int]]]
    ) -> Iterator[RangeTask]:
        options = self._options
        for entity in entities:
            counts = {tenant: pair[0] for tenant, pair in counted[entity.name].items()}
            rates = sample_rates(counts, options.sample_size) if self._sampled else None
            for tenant in sorted(set(options.tenants)) or (None,):
                for within in self._cut(entity, tenant):
                    yield RangeTask(entity.name, tenant, within, rates, options.seed)

    def _cut(self, entity: Entity, tenant: str | None) -> Iterator[KeyRange]:
        """Cut the source; its last range is unbounded, so that rows of the target beyond it are seen."""
        return self._context.source.bulk.cut(entity, self._options.range_size, tenant_id=tenant)

    def _page(self) -> int:
        """Return the rows per page: fewer where documents are large, so that memory stays bounded."""
        return max(1, min(LARGEST_PAGE, PAGE_BYTES // max(self._largest, 1)))

    def _list_tasks(self, tenants: Sequence[str]) -> Iterator[ListTask]:
        yield from (ListTask(tenant, self._page()) for tenant in tenants)
        if not self._options.tenants:
            # With chosen tenants the lists over all tenants would compare rows that nobody asked about.
            yield ListTask(None, self._page())

    def report(self, as_of: datetime, seconds: float) -> ParityReport:
        """Return the report."""
        options = self._options
        verdict = self._verdict()
        ready = verdict in {"PASS", "START-CLEAN (approved)"} and not options.narrowed
        return ParityReport(
            envelope=Envelope(
                generated_at=jsontext.format_timestamp(datetime.now(UTC)),
                host=socket.gethostname(),
                as_of=jsontext.format_timestamp(as_of),
                seconds=round(seconds, 3),
            ),
            tool=Tool(**tool_identity()),
            module=self._context.target.module,
            mode="start-clean" if options.approval else options.mode,
            seed=options.seed if self._sampled else None,
            sample_size=options.sample_size if self._sampled else None,
            as_of=jsontext.format_timestamp(options.as_of) if options.as_of else None,
            entities_asked=tuple(options.entities),
            tenants_asked=tuple(sorted(set(options.tenants))),
            source=SideReport(**self._context.source.described()),
            target=SideReport(**self._context.target.described()),
            switch=options.switch,
            verdict=verdict,
            exit_code=int(EXITS[verdict]),
            cutover_ready=ready,
            reasons=self._reasons(),
            warnings=self._warnings,
            next_step=next_step(verdict, options, self._context.target),
            documents_equal=sum(entity.counts.equal for entity in self._entities),
            approval=_approval(options),
            checks=tuple(self._checks),
            groups=groups(self._entities),
            equivalences=equivalences(self._equivalences),
            entities=tuple(self._entities),
            left_out=self._left_out(),
        )

    def _left_out(self) -> tuple[LeftOut, ...]:
        """Count the entities that are not compared, so that nobody takes them for proved."""
        source, target = self._context.source, self._context.target
        counted = left_out_counts(source, target, self._options.entities)
        return tuple(LeftOut.model_validate(item) for item in counted)

    def _verdict(self) -> Verdict:
        result = worst(check.result for check in self._checks)
        if result == "fail":
            return "FAIL"
        if result == "inconclusive":
            return "INCONCLUSIVE"
        return "START-CLEAN (approved)" if self._options.approval else "PASS"

    def _reasons(self) -> tuple[str, ...]:
        return tuple(
            f"{check.id} {check.title}: {check.findings[0] if check.findings else check.summary}"
            f"{f' (and {check.count - 1} more)' if check.count > 1 else ''}"
            for check in self._checks
            if check.result in {"fail", "inconclusive"}
        )


def _list_checks(found: ListResult, module: str, respelled: AbstractSet[str]) -> tuple[Check, ...]:
    """Return C5, and C4 where the module has a name for the order in which rows are due."""
    due_order = module_spec(module).due_order
    if due_order is None:
        return (list_check("C5", "list order", [*found.due, *found.lists], respelled),)
    return (
        list_check("C4", due_order, found.due, respelled),
        list_check("C5", "list order", found.lists, respelled),
    )


def _approval(options: VerifyOptions) -> ApprovalReport | None:
    given = options.approval
    return ApprovalReport(reason=given.reason, approved_by=given.approved_by) if given else None


def next_step(verdict: Verdict, options: VerifyOptions, store: Store) -> str:
    """Say what to do now."""
    key = ":".join(module_keys(store.module).switch)
    target = store.backend
    if verdict == "FAIL" and options.approval:
        return "Empty the target, or verify without --start-clean."
    if verdict == "FAIL":
        return (
            "Look at what differs. Copying again with --on-conflict overwrite --execute rewrites missing "
            "and different rows; extra rows must be removed by hand. Then verify again."
        )
    if verdict == "INCONCLUSIVE":
        return "Resolve what the reasons list, then verify again in full."
    if options.narrowed:
        return (
            "This is proved for the chosen entities and tenants only; verify without --entity and --tenant."
        )
    if options.switch == target:
        return f"{key} already names {target}; there is nothing left to do."
    return f"Keep the writers stopped, set {key} to {target}, and start the service."

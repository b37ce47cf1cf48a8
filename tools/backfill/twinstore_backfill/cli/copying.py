"""What the commands about copies do and print; imported by the one that runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import RenderableType

from twinstore.errors import ValidationError
from twinstore.ledger import CopyJob, Ledger
from twinstore_backfill.cli.options import Format, TargetSide
from twinstore_backfill.cli.output import (
    cause_texts,
    emit,
    left_out_texts,
    table,
    warning_texts,
)
from twinstore_backfill.copy.control import HIGHEST_RATE, select_job
from twinstore_backfill.copy.options import DEFAULT_OUT, CopyOptions
from twinstore_backfill.copy.quarantine import CONFLICTS, QUARANTINE
from twinstore_backfill.copy.rates import worker_texts
from twinstore_backfill.copy.report import REPORT_FILE, CopyReport, ExtraReport, FailedRange
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.report.model import ExceptionReport
from twinstore_backfill.report.texts import about, clipped, number_of
from twinstore_backfill.subset import described

if TYPE_CHECKING:
    from twinstore_backfill.migration import Migration
    from twinstore_backfill.plan import Estimate, PlanReport
    from twinstore_backfill.progress.record import Progress

COLUMNS = ("read", "written", "unchanged", "conflicts", "quarantined", "expired")
# As many as fit on a screen; the report lists more.
NAMED = 10
DRY_COLUMNS = ("read", "would write", *COLUMNS[2:])


def run_and_show(
    migration: Migration,
    options: CopyOptions,
    output: Format,
    stop: StopSwitch,
    shown: AbstractContextManager[Progress],
    *,
    extra: bool = False,
) -> int:
    """Copy, with ``extra`` remove what only the target has, print the report, and return the exit code."""
    with shown as progress:
        run = migration.copy(options, delete_extra=extra, cancel=stop, progress=progress)
        report = run.result()
    emit(output, report.document(), *copy_texts(report, options.out or DEFAULT_OUT), saved=options.saved_in)
    return report.exit_code


def _extra_texts(removal: ExtraReport | None, *, executed: bool) -> Iterator[str]:
    if removal is None:
        return
    for name, count in removal.found.items():
        done = f"removed: {removal.removed.get(name, 0):,}" if executed else "to be removed with --execute"
        yield f"Extra rows of {name} in the target: {count:,}; {done}."
    yield from (f"- {reason}." for reason in removal.reasons)
    if removal.without_key:
        yield f"Extra rows without a usable key in the target: {removal.without_key:,}; remove them by hand."
    if removal.recheck is not None:
        yield f"These rows compared again: {removal.recheck}."


def copy_texts(report: CopyReport, out: Path) -> Iterator[RenderableType]:
    """Yield what a copy did, and what to do next."""
    rows = [(item.entity, *(getattr(item.total, name) for name in COLUMNS)) for item in report.entities]
    if report.title:
        yield clipped(report.title)
    yield from warning_texts(report.warnings, report.speed_only)
    yield table(("entity", *(COLUMNS if report.executed else DRY_COLUMNS)), rows)
    yield from left_out_texts(report.left_out)
    if report.envelope.fast_path is not None:
        yield str(report.envelope.fast_path)
    if report.subset is not None:
        yield f"Only a part was meant: {described(report.subset.model_dump())}. Other rows were not copied."
    if report.stopped:
        yield f"Stopped: {report.stopped}. Resolve them, then run the same command again."
    if report.failed_ranges.count:
        yield f"Ranges that failed: {report.failed_ranges.count:,}. Run the command again to retry them."
        yield from map(_failure, report.failed_ranges.shown[:NAMED])
    yield from cause_texts(report.causes, REPORT_FILE)
    if report.totals.conflicts:
        where = _see_file(report, out / CONFLICTS)
        yield f"Rows that the target has with different content: {report.totals.conflicts:,}{where}."
    if report.totals.quarantined:
        where = _see_file(report, out / QUARANTINE)
        yield f"Documents that cannot be moved: {report.totals.quarantined:,}{where}."
    yield from map(_accepted, report.exceptions)
    yield from _remarks(report)
    if not report.executed:
        yield "This was a dry run; nothing was written. Add --execute to copy."
    yield from _extra_texts(report.extra, executed=report.executed)


def _accepted(item: ExceptionReport) -> str:
    rows = f"{item.rows:,} of at most {item.most:,}"
    return clipped(f"Accepted by {item.approved_by}: {rows}, {item.kind} of {item.path}. {item.reason}")


def _remarks(report: CopyReport) -> Iterator[str]:
    """Yield what does not change the exit code."""
    if report.rules:
        yield "Rules of the job, with the rows that each changed:"
        for rule in report.rules:
            yield f"- {rule.kind} {rule.path}: {rule.rows:,}. {rule.reason}".rstrip()
    if report.equivalences:
        kinds = ", ".join(f"{item.name} {item.documents:,}" for item in report.equivalences)
        yield (
            f"Rows that both sides hold in a form that no copy writes, left as they are: {kinds}. With "
            "--on-conflict overwrite they get their normal form, except in append-only entities."
        )
    if report.source_changes:
        yield "The source changed during the copy:"
        for item in report.source_changes:
            before, after = (latest or "unknown" for latest in (item.latest_before, item.latest_after))
            yield (
                f"- {item.entity}: {item.rows_before:,} rows before, {item.rows_after:,} after; "
                f"latest date {before} before, {after} after"
            )
        yield (
            "Stop all writers, then copy again with --on-conflict overwrite, and with --delete-extra if rows "
            "were removed."
        )


def _failure(item: FailedRange) -> str:
    return f"- {item.entity}, range {item.range}: {item.reason or 'see the log of the other worker'}"


def _see_file(report: CopyReport, path: Path) -> str:
    return f"; see {path}" if report.executed else ""


NONE: Final = "none"
LONGEST: Final = len(str(HIGHEST_RATE))


def rate_argument(text: str) -> int | None:
    """Return the number of a rate, ``None`` for no limit.

    Raises:
        ValidationError: it is neither a whole number from 1 on nor the word.
    """
    if text.lower() == NONE:
        return None
    # Bounded in length first: turning very many digits into a number takes long.
    number = int(text) if text.isascii() and text.isdecimal() and len(text) <= LONGEST else 0
    if not 1 <= number <= HIGHEST_RATE:
        raise ValidationError(
            f"The rate should be a whole number from 1 to {HIGHEST_RATE}, or {NONE}, not {text!r}."
        )
    return number


def change_job(
    side: TargetSide,
    job: str | None,
    change: Callable[[Ledger, str], CopyJob],
) -> CopyJob:
    """Open a target and change the given job, or the only one that is not complete."""
    with side.opened() as store:
        return change(store.ledger, select_job(store, job).id)


def show_job(output: Format, job: CopyJob) -> None:
    """Print whether a job is paused, and how fast it may be."""
    limit = "no limit" if job.max_rate is None else f"at most {job.max_rate:,} documents per second"
    emit(
        output,
        {"job": job.id, "paused": job.paused, "max_rate": job.max_rate},
        f"{job.id}: {'paused' if job.paused else 'running'}, {limit}.",
    )


Document = dict[str, Any]
STATUS_COLUMNS = ("entity", "finished", "copying", "pending", "failed", "read", "written", "quarantined")


def plan_texts(plan: PlanReport) -> Iterator[RenderableType]:
    """Yield what a copy would do."""
    rows = [
        (item.entity, f"~{item.rows:,}", "", f"~{item.ranges:,}", f"~{item.rows_in_target:,}")
        if item.estimated
        else (item.entity, item.rows, len(item.tenants), item.ranges, item.rows_in_target)
        for item in plan.entities
    ]
    yield f"From {plan.source.place}"
    yield f"to   {plan.target.place}"
    yield table(("entity", "rows", "tenants", "ranges", "in target"), rows)
    yield from left_out_texts(plan.left_out)
    if plan.subset is not None:
        yield f"Only a part is meant: {described(plan.subset.model_dump())}."
    yield from warning_texts(plan.warnings, plan.speed_only)
    if plan.unknown:
        yield "Documents with these unknown properties go to quarantine, unless you drop the property with"
        yield from (f"  --ignore-unknown {shlex.quote(path)}" for path in plan.unknown)
    yield from _expected_causes(plan)
    yield f"Pending migrations of the target: {', '.join(plan.pending_migrations) or 'none'}."
    if plan.effects:
        yield "A copy is refused until `twinstore migrate run` on the target has your consent to"
        yield from (f"  {item.text}: {item.option}" for item in plan.effects)
    if not plan.rows:
        yield "The source has no rows to copy."
        return
    yield (
        f"{'~' if plan.estimated else ''}{number_of(plan.rows, 'row')}; {about(plan.estimate.seconds)} at "
        f"{plan.estimate.documents_per_second:,} documents per second: {plan.estimate.basis}. A trial run "
        "into a scratch database shows how long it takes with your target."
    )
    yield from limit_texts(plan.estimate)


def limit_texts(estimate: Estimate) -> Iterator[str]:
    """Yield what a copy would be limited by if it wrote as fast as it read the sample."""
    share = f"{estimate.computing or 0:.0%} of the time"
    if estimate.limit == "client":
        yield (
            f"The limit is the client: it computed {share} while it read these documents one by one. More "
            "cores or machines help, until the target is the limit; the fast path computes far less."
        )
    elif estimate.limit == "servers":
        yield (
            f"The limit is the servers: the client computed only {share} while it read these documents, and "
            "waited otherwise. More --jobs help if it waits for the network; more machines do not."
        )


def _expected_causes(plan: PlanReport) -> Iterator[RenderableType]:
    """Yield what a copy would refuse or change."""
    if plan.sampled is None:
        yield from cause_texts(plan.causes, "--format json")
    elif plan.causes:
        read = number_of(sum(plan.sampled.values()), "document")
        yield f"In a sample of {read}; --full reads all. Between how many have a cause is 95 % sure."
        bounds = [(item.low, item.high) for item in plan.causes]
        yield from cause_texts(plan.causes, "--format json", bounds)


def status_texts(document: Document) -> Iterator[RenderableType]:
    """Yield the progress of jobs."""
    if not document["jobs"]:
        yield f"No copy into {document['target']['place']} was started."
        if not document["ledger"]:
            yield "If release 0.1.0 copied into it, its jobs are shown after the next `copy --execute`."
    for job in document["jobs"]:
        yield f"{job['id']}: {job['state']}, generation {job['generation']}, started {job['started_at']}"
        yield f"  from {job['settings'].get('source_place') or job['settings'].get('source')}"
        yield from _narrowed_texts(job["settings"])
        yield f"  lease: {_lease(job['lease'])}"
        yield from (f"  worker {text}" for text in worker_texts(job))
        if job["paused"]:
            yield "  paused: `twinstore backfill resume` lets it go on"
        if job["max_rate"] is not None:
            yield f"  at most {job['max_rate']:,} documents per second"
        if job["stopped"] is not None:
            yield f"  stopped: {job['stopped']}"
        rows = [
            (
                item["entity"],
                item["ranges"]["live"],
                item["ranges"]["copying"],
                item["ranges"]["pending"],
                item["ranges"]["failed"],
                *("" if item.get(name, 0) is None else item.get(name, 0) for name in ("read", "written")),
                item.get("quarantined", 0),
            )
            for item in job["entities"]
        ]
        yield table(STATUS_COLUMNS, rows)


def _narrowed_texts(settings: Mapping[str, str]) -> Iterator[str]:
    """Yield what a job skipped, so that a complete job is not mistaken for a copy of everything."""
    if tenants := json.loads(settings.get("tenants") or "[]"):
        named = (json.dumps(tenant, ensure_ascii=False) for tenant in tenants)
        yield f"  these tenants only: {', '.join(named)}"
    if part := settings.get("subset"):
        yield f"  a part only: {described(json.loads(part))}"
    if dropped := json.loads(settings.get("ignore_unknown") or "[]"):
        yield f"  without the values at: {', '.join(dropped)}"
    if rules := json.loads(settings.get("rules") or "[]"):
        yield f"  under these rules: {', '.join(rules)}"


def _lease(lease: Document | None) -> str:
    if lease is None:
        return "not held"
    return f"held by {lease['holder']} until {lease['expires_at']}"

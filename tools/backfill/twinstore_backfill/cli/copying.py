"""What the commands about copies do and print; imported by the one that runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
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
from twinstore_backfill.copy.dry_run import DUPLICATES
from twinstore_backfill.copy.engine import DEFAULT_OUT, run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.quarantine import CONFLICTS, QUARANTINE
from twinstore_backfill.copy.report import REPORT_FILE, CopyResult, failure_document, report_document
from twinstore_backfill.copy.rules.tallies import counted_rules
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process.files import json_text, wrap_write_errors, write_atomic
from twinstore_backfill.process.memory import cache_batch_memory
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.report.failures import Failure, report_failures
from twinstore_backfill.report.model import CauseReport
from twinstore_backfill.report.texts import about, clipped, number_of
from twinstore_backfill.stores import Store, is_migrated
from twinstore_backfill.subset import described

if TYPE_CHECKING:
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.repair.engine import ExtraRows

COLUMNS = ("read", "written", "unchanged", "conflicts", "quarantined", "expired")
# As many as fit on a screen; the report lists more.
NAMED = 10
DRY_COLUMNS = ("read", "would write", *COLUMNS[2:])


@contextmanager
def copy_directory(out: Path | None, *, execute: bool) -> Iterator[None]:
    """Let the report in a directory agree with how a copy ends, whatever happens meanwhile.

    The report of an earlier run is removed first. If there is no result, the report says why.
    """
    with report_failures(out or (DEFAULT_OUT if execute else None), (REPORT_FILE, DUPLICATES), _failure_file):
        yield


def _failure_file(failure: Failure) -> dict[str, bytes]:
    return {REPORT_FILE: json_text(failure_document(failure))}


def copy_and_report(
    sides: AbstractContextManager[tuple[Store, Store]],
    options: CopyOptions,
    output: Format,
    stop: StopSwitch,
    shown: AbstractContextManager[Progress],
    *,
    extra: bool = False,
) -> int:
    """Copy, with ``extra`` remove what only the target has, print the report, and return the exit code."""
    removal: ExtraRows | None = None
    saved = options.out or (DEFAULT_OUT if options.execute else None)
    with wrap_write_errors(saved), sides as (left, right), shown as progress:
        with cache_batch_memory():
            result = run_copy(left, right, options, progress, stop)
        # While the stores are open: it asks them for their identity and version.
        document = report_document(result)
        # A copy that was stopped leaves its own work for the next run.
        if extra and result.complete and is_migrated(right):
            from twinstore_backfill.repair.engine import delete_extra  # compares, which few copies do

            removal = delete_extra(left, right, options, result.as_of, progress, stop)
            document |= {"extra": removal.document(), "exit_code": int(result.exit or removal.exit)}
            if saved is not None:
                write_atomic(saved / REPORT_FILE, json_text(document))
    texts = [
        *copy_texts(result, options.out or DEFAULT_OUT),
        *_extra_texts(removal, executed=options.execute),
    ]
    emit(output, document, *texts, saved=saved)
    return int(result.exit or (Exit.OK if removal is None else removal.exit))


def _extra_texts(removal: ExtraRows | None, *, executed: bool) -> Iterator[str]:
    if removal is None:
        return
    for name, count in removal.found.items():
        done = f"removed: {removal.removed.get(name, 0):,}" if executed else "to be removed with --execute"
        yield f"Extra rows of {name} in the target: {count:,}; {done}."
    yield from (f"- {reason}." for reason in removal.reasons)
    if removal.keyless:
        yield f"Extra rows without a usable key in the target: {removal.keyless:,}; remove them by hand."
    if removal.recheck is not None:
        yield f"These rows compared again: {removal.recheck.verdict}."


def copy_texts(result: CopyResult, out: Path) -> Iterator[RenderableType]:
    """Yield what a copy did, and what to do next."""
    rows = []
    for entity in result.entities:
        counts = result.totals.of(entity.name)
        rows.append((entity.name, *(counts[name] for name in COLUMNS)))
    columns = COLUMNS if result.executed else DRY_COLUMNS
    if result.title:
        yield clipped(result.title)
    yield from warning_texts(result.warnings, result.speed_only)
    yield table(("entity", *columns), rows)
    yield from left_out_texts(result.left_out)
    if result.fast_path is not None:
        yield str(result.fast_path)
    totals = result.totals.all()
    if result.subset is not None:
        yield f"Only a part was meant: {described(result.subset)}. Other rows were not copied."
    if result.stopped:
        yield f"Stopped: {result.stopped}. Resolve them, then run the same command again."
    if result.failed.count:
        yield f"Ranges that failed: {result.failed.count:,}. Run the command again to retry them."
        yield from map(_failure, result.failed.shown[:NAMED])
    yield from cause_texts(result.causes, REPORT_FILE)
    if totals["conflicts"]:
        where = _see_file(result, out / CONFLICTS)
        yield f"Rows that the target has with different content: {totals['conflicts']:,}{where}."
    if totals["quarantined"]:
        where = _see_file(result, out / QUARANTINE)
        yield f"Documents that cannot be moved: {totals['quarantined']:,}{where}."
    yield from _remarks(result)
    if not result.executed:
        yield "This was a dry run; nothing was written. Add --execute to copy."


def _remarks(result: CopyResult) -> Iterator[str]:
    """Yield what does not change the exit code."""
    if rules := counted_rules(result.rules, result.totals.rules):
        yield "Rules of the job, with the rows that each changed:"
        for rule in rules:
            yield f"- {rule['kind']} {rule['path']}: {rule['rows']:,}. {rule['reason']}".rstrip()
    if found := result.totals.equivalences:
        kinds = ", ".join(f"{name} {count:,}" for name, count in sorted(found.items()))
        yield (
            f"Rows that both sides hold in a form that no copy writes, left as they are: {kinds}. With "
            "--on-conflict overwrite they get their normal form, except in append-only entities."
        )
    if result.source_changes:
        yield "The source changed during the copy:"
        for item in result.source_changes:
            before, after = (item[f"latest_{side}"] or "unknown" for side in ("before", "after"))
            yield (
                f"- {item['entity']}: {item['rows_before']:,} rows before, {item['rows_after']:,} after; "
                f"latest date {before} before, {after} after"
            )
        yield (
            "Stop all writers, then copy again with --on-conflict overwrite, and with --delete-extra if rows "
            "were removed."
        )


def _failure(item: Mapping[str, object]) -> str:
    return f"- {item['entity']}, range {item['range']}: {item['reason'] or 'see the log of the other worker'}"


def _see_file(result: CopyResult, path: Path) -> str:
    return f"; see {path}" if result.executed else ""


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


def plan_texts(document: Document) -> Iterator[RenderableType]:
    """Yield what a copy would do."""
    rows = [
        (item["entity"], item["rows"], len(item["tenants"]), item["ranges"], item["rows_in_target"])
        for item in document["entities"]
    ]
    yield f"From {document['source']['place']}"
    yield f"to   {document['target']['place']}"
    yield table(("entity", "rows", "tenants", "ranges", "in target"), rows)
    yield from left_out_texts(document["left_out"])
    if document["subset"] is not None:
        yield f"Only a part is meant: {described(document['subset'])}."
    yield from warning_texts(document["warnings"], document["speed_only"])
    if document["unknown"]:
        yield "Documents with these unknown properties go to quarantine, unless you drop the property with"
        yield from (f"  --ignore-unknown {shlex.quote(path)}" for path in document["unknown"])
    yield from _expected_causes(document)
    pending = document["pending_migrations"]
    yield f"Pending migrations of the target: {', '.join(pending) or 'none'}."
    if document["effects"]:
        yield "A copy is refused until `twinstore migrate run` on the target has your consent to"
        yield from (f"  {item['text']}: {item['option']}" for item in document["effects"])
    estimate = document["estimate"]
    if not document["rows"]:
        yield "The source has no rows to copy."
        return
    yield (
        f"{number_of(document['rows'], 'row')}; {about(estimate['seconds'])} at "
        f"{estimate['documents_per_second']:,} documents per second: {estimate['basis']}. A trial run into a "
        "scratch database shows how long it takes with your target."
    )


def _expected_causes(document: Document) -> Iterator[RenderableType]:
    """Yield what a copy would refuse or change."""
    causes = [
        CauseReport.model_validate({n: v for n, v in item.items() if n in CauseReport.model_fields})
        for item in document["causes"]
    ]
    bounds = [(item["low"], item["high"]) for item in document["causes"]]
    if document["sampled"] is None:
        yield from cause_texts(causes, "--format json")
    elif causes:
        read = number_of(sum(document["sampled"].values()), "document")
        yield f"In a sample of {read}; --full reads all. Between how many have a cause is 95 % sure."
        yield from cause_texts(causes, "--format json", bounds)


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
                item.get("read", 0),
                item.get("written", 0),
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

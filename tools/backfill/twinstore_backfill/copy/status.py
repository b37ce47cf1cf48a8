"""The plan of a copy, and its progress."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, TypedDict

from twinstore.bulk.rows import MARK
from twinstore.catalog.keys import KeyRange
from twinstore.ledger import RangeState
from twinstore.migrations.migration import MigrationState
from twinstore.models import json_text
from twinstore_backfill.copy.options import job_id, job_settings
from twinstore_backfill.copy.quarantine import export_lines
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.copy.report import FailedRanges, Totals
from twinstore_backfill.outcome import UnknownJobError, effect_document
from twinstore_backfill.retention import resolve_as_of
from twinstore_backfill.rules.checking import check_rules
from twinstore_backfill.rules.model import NO_RULES, path_text
from twinstore_backfill.stores import (
    has_ledger,
    initializers_of,
    inspect_source,
    is_migrated,
    left_out_counts,
    preflight,
    refuse_same_store,
    require_tenants,
    select_entities,
)
from twinstore_backfill.survey import Surveyor, bounds_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from pathlib import Path

    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.ledger import CopyJob, Ledger
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.stores import Store
    from twinstore_backfill.survey import Survey

# The rate of a copy as a share of the rate of reading alone: rough, as the plan is.
SHARE_OF_READING: Final = 0.4
# Rows of each entity, and names, so that documents with names like keys do not fill the screen.
SAMPLE_OF_NAMES: Final = 500
MOST_NAMES: Final = 20
BASIS: Final = (
    f"{SHARE_OF_READING:.0%} of the rate at which documents were read and decoded just now, because a copy "
    "also writes"
)


def plan_document(
    source: Store, target: Store, options: CopyOptions, *, full: bool = False
) -> dict[str, object]:
    """Return what a copy would do; reads both sides, of the source a sample or all rows, and writes nothing.

    Raises:
        ValidationError: an unknown entity, source and target are the same store, or ``as_of`` has not come.
        PreflightError: the source has nothing, or cannot be read in full.
    """
    entities = select_entities(source.bulk, options.entities)
    refuse_same_store(source.bulk, target.bulk)
    check_rules(options.rules, source.bulk.entities())
    options.subset.check(entities)
    state = inspect_source(source)
    as_of = resolve_as_of(source.bulk, options.as_of)
    migrated = is_migrated(target)
    require_tenants((source, target) if migrated else (source,), options.tenants)
    planned = [_planned(entity, source, target if migrated else None, options) for entity in entities]
    rows = sum(item["rows"] for item in planned)
    surveyor = Surveyor(source, target, options, as_of)
    for entity, item in zip(entities, planned, strict=True):
        if full:
            surveyor.full(entity)
        elif item["rows"]:
            surveyor.sample(entity, item["rows"], slow=entity.name in state.slow)
    survey = surveyor.survey
    rate = survey.rate * SHARE_OF_READING
    initializers = initializers_of(target)
    statuses = [status for initializer in initializers for status in initializer.status()]
    effects = [effect for initializer in initializers for effect in preflight(initializer.effects)]
    settings = job_settings(options, source, target, entities)
    return {
        "job": job_id(settings),
        "settings": dict(settings),
        "subset": options.subset.document(entities) if options.subset else None,
        "source": source.described(),
        "target": target.described(),
        "pending_migrations": [item.name for item in statuses if item.state is MigrationState.PENDING],
        "effects": [effect_document(item) for item in effects],
        "warnings": list(state.warnings),
        "speed_only": len(state.costs),
        "unknown": [option for entity in entities for option in _unknown(entity, source, options)],
        "entities": planned,
        "left_out": left_out_counts(source, target, options.entities),
        "causes": _causes(survey, entities, planned),
        "sampled": None if full else dict(survey.rows),
        "rows": rows,
        "estimate": {
            "documents_per_second": round(rate),
            "seconds": round(rows / rate) if rate else 0,
            "basis": BASIS,
        },
    }


class EntityPlan(TypedDict):
    """One entity of a plan."""

    entity: str
    rows: int
    tenants: dict[str, int]
    ranges: int
    rows_in_target: int


def _planned(entity: Entity, source: Store, target: Store | None, options: CopyOptions) -> EntityPlan:
    rows = SourceRows(source.bulk, options)
    tenants = rows.counted(entity, options.range_size)
    there = {}
    if target is not None:
        there = SourceRows(target.bulk, replace(options, rules=NO_RULES)).counted(entity, options.range_size)
    return {
        "entity": entity.name,
        "rows": sum(tenants.values()),
        "tenants": tenants,
        "ranges": sum(1 for _ in rows.cut(entity, options.range_size)),
        "rows_in_target": sum(there.values()),
    }


def _unknown(entity: Entity, source: Store, options: CopyOptions) -> list[str]:
    """Return unknown properties at the top of documents of a sample, as ``--ignore-unknown`` takes them."""
    known = {"_id", *entity.shapes, *options.rules.dropped(entity)}
    found: set[str] = set()
    with source.bulk.view() as view:
        for tenant in sorted(set(options.tenants)) or (None,):
            batches = view.rows(entity, KeyRange(), tenant_id=tenant, batch_size=SAMPLE_OF_NAMES)
            found.update(name for row in next(batches, ()) for name in _names(row) - known)
    # What a terminal does not show cannot be pasted.
    nameable = (name for name in sorted(found) if name.isprintable() and name)
    return [path_text((entity.name, name)) for name in islice(nameable, MOST_NAMES)]


def _names(row: ScanRow) -> set[str]:
    """Return the top-level names of a document that hold a value; a null means an absent value."""
    content = json_text.loads(row.content)
    document = content["doc"] if isinstance(content, dict) else None
    if not isinstance(document, dict):
        return set()
    return {name for name, value in document.items() if value is not None and not name.startswith(MARK)}


def _causes(
    survey: Survey, entities: Sequence[Entity], planned: Sequence[EntityPlan]
) -> list[dict[str, object]]:
    """Return what a copy would refuse or change, each with between how many documents have it."""
    rows = {item["entity"]: item["rows"] for item in planned}
    found: list[dict[str, object]] = []
    for item in survey.reasons.reports(entities):
        read = survey.rows[item.entity]
        low, high = bounds_of(item, read, rows[item.entity])
        found.append({**item.model_dump(mode="json"), "sampled": read, "low": low, "high": high})
    return found


def status_document(target: Store, only: str | None = None, out: Path | None = None) -> dict[str, object]:
    """Return the jobs in the ledger of a target, with progress and the holder of the lease.

    If ``out`` is given, write the quarantine and the conflicts of a job there: of ``only``, or of the latest.

    Raises:
        UnknownJobError: there is no job ``only``.
    """
    ledger = target.ledger if has_ledger(target) else None
    jobs = [job for job in ledger.jobs() if only in {None, job.id}] if ledger else []
    if only is not None and not jobs:
        raise UnknownJobError(
            f"Job {only!r} does not exist in {target.bulk.place}; leave out --job to see every job."
        )
    if ledger is None:
        return {"target": target.described(), "jobs": []}
    if out is not None and jobs:
        export_lines(ledger, jobs[0], out)
    # That of the server, which is also the one that lets a lease expire.
    now = target.bulk.now()
    return {"target": target.described(), "jobs": [_job(ledger, job, now) for job in jobs]}


def latest_job(target: Store, only: str | None) -> CopyJob:
    """Return the job of that name, or the one that was started last.

    Raises:
        UnknownJobError: there is none.
    """
    ledger = target.ledger if has_ledger(target) else None
    found = next((job for job in ledger.jobs() if only in {None, job.id}), None) if ledger else None
    if found is None:
        what = "No copy was started" if only is None else f"Job {only!r} does not exist"
        raise UnknownJobError(f"{what} in {target.bulk.place}; `twinstore backfill status` shows every job.")
    return found


def _job(ledger: Ledger, job: CopyJob, now: datetime) -> dict[str, object]:
    lease = ledger.lease(job.id)
    states: dict[str, Counter[str]] = {}
    totals, failed = Totals(), FailedRanges({})
    for item in ledger.ranges(job.id):
        states.setdefault(item.entity, Counter({state.value: 0 for state in RangeState}))[item.state] += 1
        if item.tally is not None and item.state is RangeState.LIVE:
            totals.add(item.entity, item.tally)
        elif item.state is RangeState.FAILED:
            failed.add(item)
    return {
        "id": job.id,
        "state": job.state.value,
        "generation": job.generation,
        "started_at": json_text.format_timestamp(job.started_at),
        "as_of": json_text.format_timestamp(job.as_of),
        "settings": dict(job.settings),
        "stopped": (job.stop_reason or "") if job.stop and not job.paused else None,
        "paused": job.paused,
        "max_rate": job.max_rate,
        "lease": None
        if lease is None
        else {
            "holder": lease.holder,
            "fence": lease.fence,
            "expires_at": json_text.format_timestamp(lease.expires_at),
            "seconds_left": round((lease.expires_at - now).total_seconds(), 1),
        },
        "entities": [
            {"entity": name, "ranges": dict(counts), **totals.of(name)} for name, counts in states.items()
        ],
        "failed_ranges": {"count": failed.count, "shown": failed.shown},
        "totals": totals.all(),
    }

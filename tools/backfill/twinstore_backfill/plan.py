"""The plan of a copy: what it would do, would refuse and would change, and about how long it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, TypedDict

from twinstore.bulk.rows import MARK
from twinstore.catalog.keys import KeyRange
from twinstore.migrations.migration import MigrationState
from twinstore.models import json_text
from twinstore_backfill.copy.options import job_id, job_settings
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.outcome import effect_document
from twinstore_backfill.retention import resolve_as_of
from twinstore_backfill.rules import check_job
from twinstore_backfill.rules.model import NO_RULES, path_text
from twinstore_backfill.stores import (
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

    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
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
    check_job(options.rules, source.bulk.entities())
    options.subset.check(entities)
    state = inspect_source(source.changed(copier_changes(options.rules, source.bulk.entities())))
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

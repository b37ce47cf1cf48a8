"""The plan of a copy: what it would do, would refuse and would change, and about how long it takes."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from twinstore.bulk.rows import MARK
from twinstore.catalog.keys import KeyRange
from twinstore.migrations.migration import MigrationState
from twinstore.models import json_text
from twinstore_backfill.copy.options import job_id, job_settings
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.outcome import effect_document
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.report.model import CauseReport, Frozen, LeftOut, SideReport, SubsetReport
from twinstore_backfill.retention import resolve_as_of
from twinstore_backfill.rules import job_rules
from twinstore_backfill.rules.model import NO_RULES, path_text
from twinstore_backfill.stores import (
    identity_needs,
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
    from collections.abc import Iterator, Sequence

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


class EntityPlan(Frozen):
    """One entity of a plan.

    Attributes:
        entity: its name.
        rows: how many rows the source has.
        tenants: the same by tenant; ``:none`` for rows without one, empty for an unknown one.
        ranges: in how many ranges they are copied.
        rows_in_target: how many rows the target has.
        estimated: whether a side has so many that the numbers are estimated, and not known by tenant.
    """

    entity: str
    rows: int
    tenants: dict[str, int]
    ranges: int
    rows_in_target: int
    estimated: bool


class PlannedEffect(Frozen):
    """What the server of the target would do to rows that are there, and so needs consent.

    Attributes:
        kind: its kind.
        name: the collection or table.
        rows: how many rows, ``null`` if that is not counted.
        more: whether there are more.
        text: the effect, in words.
        option: the option of ``migrate run`` that agrees to it.
    """

    kind: str
    name: str
    rows: int | None
    more: bool
    text: str
    option: str


class PlannedCause(CauseReport):
    """A reason for which documents would not be copied, or would be changed.

    Attributes:
        sampled: how many documents of the entity were read.
        low, high: between how many of all documents have it, with 95 % confidence.
    """

    sampled: int
    low: int
    high: int


class Estimate(Frozen):
    """How long a copy takes.

    Attributes:
        documents_per_second: the rate.
        seconds: the time.
        basis: where the rate comes from.
        computing: in which share of the time this process computed while it read documents; otherwise it
            waited for the source. ``null`` if it read none.
        limit: what took most of that time, the client or the servers.
    """

    documents_per_second: int
    seconds: int
    basis: str
    computing: float | None = None
    limit: Literal["client", "servers"] | None = None


class PlanReport(Frozen):
    """What a copy would do.

    Attributes:
        job: the id that its job has.
        settings: the options that make two runs the same job.
        subset: the selected part of the rows, ``null`` for all.
        source, target: both sides.
        pending_migrations: the migrations that the copy would apply to the target.
        effects: what of them needs consent.
        warnings: what does not change the result.
        speed_only: how many of them, the last ones, only say what makes reading slow.
        unknown: properties that no model knows, as ``--ignore-unknown`` takes them; of a sample.
        entities: rows and ranges by entity, in copy order.
        left_out: entities that are not copied.
        causes: what would be refused or changed, and why, the most frequent first.
        sampled: how many documents of each entity were read for them, ``null`` for all.
        rows: rows of all entities.
        estimated: whether that number is estimated, at least in part.
        estimate: how long it takes.
    """

    job: str
    settings: dict[str, str]
    subset: SubsetReport | None
    source: SideReport
    target: SideReport
    pending_migrations: tuple[str, ...]
    effects: tuple[PlannedEffect, ...]
    warnings: tuple[str, ...]
    speed_only: int
    unknown: tuple[str, ...]
    entities: tuple[EntityPlan, ...]
    left_out: tuple[LeftOut, ...]
    causes: tuple[PlannedCause, ...]
    sampled: dict[str, int] | None
    rows: int
    estimated: bool
    estimate: Estimate


def plan_copy(
    source: Store, target: Store, options: CopyOptions, stop: StopSwitch | None = None, *, full: bool = False
) -> PlanReport:
    """Return what a copy would do; reads both sides, of the source a sample or all rows, and writes nothing.

    Raises:
        ValidationError: an unknown entity, source and target are the same store, or ``as_of`` has not come.
        PreflightError: the source has nothing, or cannot be read in full.
        StopRequestedError: ``stop`` was requested.
    """
    entities = select_entities(source.bulk, options.entities)
    refuse_same_store(source.bulk, target.bulk)
    options = replace(options, rules=job_rules(options.rules, source))
    options.subset.check(entities)
    state = inspect_source(source.changed(copier_changes(options.rules, source.bulk.entities())))
    as_of = resolve_as_of(source.bulk, options.as_of)
    migrated = is_migrated(target)
    require_tenants((source, target) if migrated else (source,), options.tenants)
    there = target if migrated else None
    planned = [_planned(entity, source, there, options, full=full) for entity in entities]
    rows = sum(item.rows for item in planned)
    surveyor = Surveyor(source, target, options, as_of, stop or StopSwitch())
    for entity, item in zip(entities, planned, strict=True):
        if full:
            surveyor.full(entity)
        elif item.rows:
            surveyor.sample(entity, item.rows, slow=entity.name in state.slow)
    survey = surveyor.survey
    rate = survey.rate * SHARE_OF_READING
    # Each range of an entity without an index of its key, and a cut into several.
    sorts = {item.entity: item.ranges + (item.ranges > 1) for item in planned}
    sorting = sum(seconds * sorts[name] for name, seconds in survey.sorting.items())
    initializers = initializers_of(target)
    statuses = [status for initializer in initializers for status in initializer.status()]
    effects = [effect for initializer in initializers for effect in preflight(initializer.effects)]
    settings = job_settings(options, source, target, entities)
    subset = options.subset.document(entities) if options.subset else None
    return PlanReport(
        job=job_id(settings),
        settings=dict(settings),
        subset=None if subset is None else SubsetReport.model_validate(subset),
        source=SideReport(**source.described()),
        target=SideReport(**target.described()),
        pending_migrations=tuple(item.name for item in statuses if item.state is MigrationState.PENDING),
        effects=tuple(PlannedEffect.model_validate(effect_document(item)) for item in effects),
        warnings=(*identity_needs(source.bulk, target.bulk), *state.warnings),
        speed_only=len(state.costs),
        unknown=tuple(option for entity in entities for option in _unknown(entity, source, options)),
        entities=tuple(planned),
        left_out=tuple(map(LeftOut.model_validate, left_out_counts(source, target, options.entities))),
        causes=tuple(_causes(survey, entities, planned)),
        sampled=None if full else dict(survey.rows),
        rows=rows,
        estimated=any(item.estimated for item in planned),
        estimate=Estimate(
            documents_per_second=round(rate),
            seconds=round(sorting + rows / rate) if rate else 0,
            basis=BASIS,
            computing=None if survey.computing is None else round(survey.computing, 2),
            limit=limit_of(survey.computing),
        ),
    )


def limit_of(computing: float | None) -> Literal["client", "servers"] | None:
    """Return what more of the time went to: the client if it computed for half of it or more."""
    return None if computing is None else "client" if computing >= 0.5 else "servers"  # noqa: PLR2004


def _planned(
    entity: Entity, source: Store, target: Store | None, options: CopyOptions, *, full: bool
) -> EntityPlan:
    rows = SourceRows(source.bulk, options)
    there = None if target is None else SourceRows(target.bulk, replace(options, rules=NO_RULES))
    size = rows.range_size(entity)
    if not full and (rows.is_large(entity) or (there is not None and there.is_large(entity))):
        number = rows.count(entity)
        return EntityPlan(
            entity=entity.name,
            rows=number,
            tenants={},
            ranges=-(-number // size) or 1,
            rows_in_target=0 if there is None else there.count(entity),
            estimated=True,
        )
    tenants = rows.counted(entity, size)
    return EntityPlan(
        entity=entity.name,
        rows=sum(tenants.values()),
        tenants=tenants,
        ranges=sum(1 for _ in rows.cut(entity, size)),
        rows_in_target=0 if there is None else sum(there.counted(entity, size).values()),
        estimated=False,
    )


def _unknown(entity: Entity, source: Store, options: CopyOptions) -> list[str]:
    """Return unknown properties at the top of documents of a sample, as ``--ignore-unknown`` takes them."""
    known = {"_id", *entity.shapes, *options.rules.dropped(entity)}
    found: set[str] = set()
    # After the rules and functions, because a copy judges what these leave.
    with SourceRows(source.bulk, options).port.view() as view:
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
) -> Iterator[PlannedCause]:
    """Yield what a copy would refuse or change, each with between how many documents have it."""
    rows = {item.entity: item.rows for item in planned}
    for item in survey.reasons.reports(entities):
        read = survey.rows[item.entity]
        low, high = bounds_of(item, read, rows[item.entity])
        yield PlannedCause(**dict(item), sampled=read, low=low, high=high)

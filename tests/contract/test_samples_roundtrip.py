"""Every sample is stored and comes back byte for byte: by repository and by import, on every driver."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson.codec_options import CodecOptions
from pymongo import MongoClient

import twinstore
from tests.stores import DRIVERS, fresh_settings, kept
from twinstore import scheduler
from twinstore.bulk import KeyRange, Record
from twinstore.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.ledger import Ledger, RangeTally
from twinstore.scheduler import (
    AuditRecord,
    ImpactSet,
    Run,
    RunState,
    RunStats,
    RunSummary,
    Schedule,
    Trigger,
    selector_digest,
)
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.tenancy import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.databases import MongoDatabase
    from twinstore import SchedulerStorage
    from twinstore.bulk import BulkPort, ImportOutcome
    from twinstore.catalog import Entity

FOLDER: Final = Path(__file__).parents[2] / "samples/api/scheduler"
TENANT: Final = "acme"
MINUTES: Final = timedelta(minutes=5)
SAMPLES: Final[dict[str, tuple[str, type[CanonicalModel]]]] = {
    "schedule.json": ("schedules", Schedule),
    "schedule-minimal.json": ("schedules", Schedule),
    "trigger.json": ("triggers", Trigger),
    "run.json": ("runs", Run),
    "run-no-deltas.json": ("runs", Run),
    "impact-set.json": ("impact_snapshots", ImpactSet),
    "audit.json": ("audit", AuditRecord),
    "run-summary.json": ("run_summaries", RunSummary),
}
# A trigger is written with its schedule and has no write of its own, so its sample is imported.
WRITABLE: Final = tuple(name for name in SAMPLES if name != "trigger.json")


def sample(name: str) -> Any:  # noqa: ANN401  # the callers know which model it is
    return CanonicalJsonSerializer.deserialize(SAMPLES[name][1], (FOLDER / name).read_bytes())


def write_run(storage: SchedulerStorage, wanted: Run) -> None:
    """Take a run through the allowed states until it is the wanted one."""
    if wanted.state is RunState.PLANNING:
        storage.runs.create(wanted)
        return
    planning = wanted.evolve(
        state=RunState.PLANNING, stats=RunStats(), started_at=None, finished_at=None, deltas=(), reason=None
    )
    storage.runs.create(planning)
    queued = planning.evolve(
        state=RunState.QUEUED, stats=wanted.stats.evolve(completed=0), reason=wanted.reason
    )
    running = queued.evolve(state=RunState.RUNNING, started_at=wanted.started_at)
    for step in (queued, running, wanted):
        assert storage.runs.update(step)


WRITE: Final[dict[str, Callable[[SchedulerStorage, Any], object]]] = {
    "schedules": lambda storage, model: storage.schedules.upsert(model),
    "runs": write_run,
    "impact_snapshots": lambda storage, model: storage.impact_snapshots.upsert(TENANT, model),
    "audit": lambda storage, model: storage.audit.append(model),
    "run_summaries": lambda storage, model: storage.run_summaries.upsert(model),
}
READ: Final[dict[str, Callable[[SchedulerStorage, Any], CanonicalModel]]] = {
    "schedules": lambda storage, model: storage.schedules.get_required(TENANT, model.id),
    "triggers": lambda storage, model: storage.triggers.get_required(TENANT, model.schedule_id),
    "runs": lambda storage, model: storage.runs.get_required(TENANT, model.id),
    "impact_snapshots": lambda storage, model: storage.impact_snapshots.get_required(
        TENANT, model.snapshot_id
    ),
    "audit": lambda storage, model: storage.audit.get_required(TENANT, model.id),
    "run_summaries": lambda storage, model: storage.run_summaries.get_required(TENANT, model.schedule_id),
}


def by_repository(storage: SchedulerStorage) -> None:
    for name in WRITABLE:
        WRITE[SAMPLES[name][0]](storage, sample(name))


def by_import(storage: SchedulerStorage) -> None:
    """Import each entity as one range."""
    port = storage.bulk
    port.ledger_initializer.ensure_migrations()
    ledger = Ledger(port.access())
    job = ledger.start("samples", {}, datetime(2025, 11, 1, tzinfo=UTC))
    lease = ledger.acquire(job.id, "test", MINUTES)
    for entity in SCHEDULER.entities:
        ledger.plan(lease, entity.name, [KeyRange()])
        claim = ledger.take(job.id, "test", entity.name, MINUTES)
        assert claim is not None
        records = [record(entity, name) for name, (owner, _) in SAMPLES.items() if owner == entity.name]
        with port.writer(entity, check=partial(ledger.hold, claim=claim)) as writer:
            writer.write(records)
            ledger.finish(writer.access, claim, all_written(len(records), writer.flush()))
            writer.commit()
    ledger.release(lease)


def record(entity: Entity, name: str) -> Record:
    model = sample(name)
    storage: dict[str, object] = {}
    if isinstance(model, ImpactSet):
        digest = selector_digest(model.selector, TENANT)
        storage = {"snapshotId": model.snapshot_id, "tenantId": TENANT, "selectorDigest": digest}
    values = {**model.wire(), **storage}
    return Record(tuple(str(values[part]) for part in entity.key), Tenant(TENANT), model, storage)


def all_written(expected: int, outcome: ImportOutcome) -> RangeTally:
    assert outcome.written == {TENANT: expected}
    assert not outcome.rejected
    assert not outcome.conflicts
    return RangeTally(read={TENANT: expected}, written=outcome.written)


ROADS: Final[dict[str, Callable[[SchedulerStorage], None]]] = {
    "repository": by_repository,
    "import": by_import,
}


@pytest.fixture(scope="module", params=[(driver, road) for driver in DRIVERS for road in ROADS], ids="-".join)
def road(request: pytest.FixtureRequest) -> Iterator[tuple[str, SchedulerStorage]]:
    """Write all samples on one road into a fresh store of one driver, and open the store anew."""
    driver, name = request.param
    with fresh_settings(driver, request) as settings:
        with twinstore.open_storage(settings) as writing:
            writing.scheduler.initializer.ensure_migrations()
            ROADS[name](writing.scheduler)
        with twinstore.open_storage(settings) as reading:
            yield name, reading.scheduler


def test_this_file_knows_every_sample() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_stored_sample_comes_back_byte_for_byte(road: tuple[str, SchedulerStorage], name: str) -> None:
    way, storage = road
    found = READ[SAMPLES[name][0]](storage, sample(name))
    if way == "repository" and name not in WRITABLE:
        assert isinstance(found, Trigger)
        assert found.id == sample(name).id  # the derived id of the sample is the one a schedule's write gives
        return
    assert CanonicalJsonSerializer.serialize_pretty(found) == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", SAMPLES)
def test_an_exported_sample_comes_back_byte_for_byte(road: tuple[str, SchedulerStorage], name: str) -> None:
    way, storage = road
    if way == "import":
        entity = SCHEDULER.entity(SAMPLES[name][0])
        assert (FOLDER / name).read_bytes() in exported(storage.bulk, entity)


def exported(port: BulkPort, entity: Entity) -> list[bytes]:
    with port.view() as view:
        rows = [row for batch in view.records(entity, KeyRange()) for row in batch]
    return [CanonicalJsonSerializer.serialize_pretty(row.model) for row in rows if row.model is not None]


@pytest.mark.parametrize("way", ROADS)
def test_the_stored_document_of_mongodb_is_the_sample(way: str, mongo_database: MongoDatabase) -> None:
    with twinstore.open_storage(kept(mongo_database.config)) as storage:
        storage.scheduler.initializer.ensure_migrations()
        ROADS[way](storage.scheduler)
    names = WRITABLE if way == "repository" else tuple(SAMPLES)
    with closing(MongoClient[dict[str, Any]](mongo_database.url)) as client:
        for name in names:
            stored = wire_of(raw_document(client, mongo_database.name, name), name)
            wanted = json.loads((FOLDER / name).read_text("utf-8"))
            assert stored == wanted, name
            assert in_order(stored) == in_order(wanted), name


def raw_document(client: MongoClient[dict[str, Any]], database: str, name: str) -> dict[str, Any]:
    collection = client[database].get_collection(
        SAMPLES[name][0], codec_options=CodecOptions[dict[str, Any]](tz_aware=True)
    )
    values = json.loads((FOLDER / name).read_text("utf-8"))
    own = values.get("id", values.get("snapshotId"))
    key = {"_id": own} if own else {name: values[name] for name in ("tenantId", "scheduleId")}
    document = collection.find_one(key)
    assert document is not None, name
    return document


def wire_of(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Turn a raw document into the wire form by the rules alone, without the driver."""
    assert next(iter(document)) == "_id"
    identity = {"impact-set.json": "snapshotId", "run-summary.json": ""}.get(name, "id")
    named = {identity if field == "_id" else field: value for field, value in document.items()}
    return {field: json_value(value) for field, value in named.items() if field and not field.startswith("_")}


def in_order(values: dict[str, Any]) -> str:
    """Show values with the order of all fields but the id, which MongoDB keeps in front."""
    return json.dumps({field: value for field, value in values.items() if field not in {"id", "snapshotId"}})


def json_value(value: object) -> Any:  # noqa: ANN401  # JSON
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, dict):
        return {field: json_value(inner) for field, inner in value.items()}
    if isinstance(value, list):
        return [json_value(inner) for inner in value]
    return value


def test_every_model_of_a_sample_is_public() -> None:
    assert {kind.__name__ for _, kind in SAMPLES.values()} <= set(scheduler.__all__)

"""Every sample is stored and comes back byte for byte: by repository and by import, on every driver."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson.codec_options import CodecOptions
from pymongo import MongoClient

import twinstore
from docs.parts.samples import samples_of
from tests.stores import DRIVERS, fresh_settings, kept
from twinstore import scheduler
from twinstore.bulk import KeyRange, Record
from twinstore.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.ledger import Ledger, RangeTally
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.scheduler.module import MODULE
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.databases import MongoDatabase
    from twinstore import SchedulerStorage
    from twinstore.bulk import BulkPort, ImportOutcome
    from twinstore.catalog import Entity
    from twinstore.testing.examples import Example

FOLDER: Final = Path(__file__).parents[2] / "samples/api/scheduler"
TENANT: Final = "acme"
MINUTES: Final = timedelta(minutes=5)


# What callers are told or ask for is stored as the row of another model, or not at all.
NOT_STORED: Final = (scheduler.PolicyRunRequest, scheduler.PolicyRunStatus)


def example_of(model: type[CanonicalModel]) -> Example:
    """Return the entity of the model of a sample."""
    found = [item for item in SCHEDULER_EXAMPLES.examples if issubclass(model, item.entity.model)]
    assert len(found) == 1, f"{model.__name__} is the model of no entity"
    return found[0]


SAMPLES: Final = {
    name: example_of(model) for name, model in samples_of(MODULE).items() if model not in NOT_STORED
}
# What is written with another entity has no write of its own, so its sample is imported.
WRITABLE: Final = tuple(
    name
    for entity in SCHEDULER.entities  # parents first
    for name, item in SAMPLES.items()
    if item.entity == entity and item.drawn is not None
)


def sample(name: str) -> CanonicalModel:
    return CanonicalJsonSerializer.deserialize(SAMPLES[name].entity.model, (FOLDER / name).read_bytes())


def by_repository(storage: SchedulerStorage) -> None:
    for name in WRITABLE:
        SAMPLES[name].store(storage.unbound, TENANT, sample(name))


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
        records = [record(name) for name, item in SAMPLES.items() if item.entity == entity]
        with port.writer(entity, check=partial(ledger.hold, claim=claim)) as writer:
            writer.write(records)
            tally = all_written(records, writer.flush())
            ledger.finish(writer.access, claim, tally)
            writer.commit()
    ledger.release(lease)


def record(name: str) -> Record:
    item, model = SAMPLES[name], sample(name)
    row = item.row(TENANT, model)
    owner = item.entity.owner_of(row.model, row.storage)
    return Record(item.entity.key_of(row.model, row.storage), owner, model, row.storage)


def all_written(records: Sequence[Record], outcome: ImportOutcome) -> RangeTally:
    expected = Counter(record.label for record in records)
    assert outcome.written == expected
    assert not outcome.rejected
    assert not outcome.conflicts
    return RangeTally(read=expected, written=outcome.written)


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


def test_every_entity_has_a_sample() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(samples_of(MODULE))
    assert {item.entity for item in SAMPLES.values()} == set(SCHEDULER.entities)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_stored_sample_comes_back_byte_for_byte(road: tuple[str, SchedulerStorage], name: str) -> None:
    way, storage = road
    item, wanted = SAMPLES[name], sample(name)
    # That of the lock is of no tenant.
    found = item.found(storage.unbound, getattr(wanted, "tenant_id", None) or TENANT, wanted)
    assert isinstance(found, CanonicalModel)
    if way == "repository" and name not in WRITABLE:
        # The derived id of the sample is the one that the write of its schedule gives.
        assert item.key(TENANT, found) == item.key(TENANT, wanted)
        return
    assert CanonicalJsonSerializer.serialize_pretty(found) == (FOLDER / name).read_bytes()


@pytest.mark.parametrize("name", SAMPLES)
def test_an_exported_sample_comes_back_byte_for_byte(road: tuple[str, SchedulerStorage], name: str) -> None:
    way, storage = road
    if way == "import":
        assert (FOLDER / name).read_bytes() in exported(storage.bulk, SAMPLES[name].entity)


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
            entity = SAMPLES[name].entity
            stored = wire_of(raw_document(client, mongo_database.name, name), entity)
            wanted = json.loads((FOLDER / name).read_text("utf-8"))
            assert stored == wanted, name
            assert in_order(stored, entity) == in_order(wanted, entity), name


def raw_document(client: MongoClient[dict[str, Any]], database: str, name: str) -> dict[str, Any]:
    item = SAMPLES[name]
    collection = client[database].get_collection(
        item.entity.collection, codec_options=CodecOptions[dict[str, Any]](tz_aware=True)
    )
    entity, row = item.entity, item.row(TENANT, sample(name))
    wanted = entity.key if entity.document_id is None else (entity.document_id,)
    names = wanted if entity.document_id is None else ("_id",)
    values = [entity.value(row.model, row.storage, name) for name in wanted]
    document = collection.find_one(dict(zip(names, values, strict=True)))
    assert document is not None, name
    return document


def wire_of(document: dict[str, Any], entity: Entity) -> dict[str, Any]:
    """Turn a raw document into the wire form by the rules alone, without the driver."""
    assert next(iter(document)) == "_id"
    names = {"_id": entity.document_id or "_id"}
    named = {names.get(field, field): value for field, value in document.items()}
    return {field: json_value(value) for field, value in named.items() if not field.startswith("_")}


def in_order(values: dict[str, Any], entity: Entity) -> str:
    """Show values with the order of all fields but the id, which MongoDB keeps in front."""
    return json.dumps({field: value for field, value in values.items() if field != entity.document_id})


def json_value(value: object) -> Any:  # noqa: ANN401  # JSON
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, dict):
        return {field: json_value(inner) for field, inner in value.items()}
    if isinstance(value, list):
        return [json_value(inner) for inner in value]
    return value


def test_every_model_of_a_sample_is_public() -> None:
    assert {item.entity.model.__name__ for item in SAMPLES.values()} <= set(scheduler.__all__)

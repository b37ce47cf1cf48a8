"""The collections of the ledger of copies, and what 0.1.0 kept of it next to the data."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import encode
from bson.int64 import Int64
from bson.objectid import ObjectId

import twinstore
from tests.support.releases import mongo_collections, restore_mongo
from twinstore.catalog.keys import KeyRange
from twinstore.ledger import LEDGER_MODULE, Ledger, RangeState
from twinstore.ledger.catalog import JOBS, LEDGER, RANGES
from twinstore.migrations.migration import MigrationState
from twinstore.scheduler.catalog import TRIGGERS
from twinstore.testing.copying import ledger_of
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.layout import collection_specs, joined_id
from twinstore_mongo.schema.proposal import draft_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler.storage import SchedulerStorage

Document = dict[str, Any]
STEP: Final = "001_create_ledger"
STEPS: Final = (STEP, "002_index_finished_ranges")
OLD: Final = ("backfill_jobs", "backfill_ranges")
NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


@pytest.fixture
def storage(empty_mongo_database: MongoDatabase) -> Iterator[SchedulerStorage]:
    with opened(empty_mongo_database) as storage:
        yield storage


@contextmanager
def opened(database: MongoDatabase) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_storage(database.config) as storage:
        yield storage


def old_job(job_id: str, generation: int = 1, planned: int = 1) -> Document:
    """Return a job as 0.1.0 stored it."""
    return {
        "_id": job_id,
        "settings": [{"name": "entities", "value": "audit"}, {"name": "a.b", "value": "$c"}],
        "state": "running",
        "asOf": NOON,
        "generation": Int64(generation),
        "startedAt": NOON,
        "planned": Int64(planned),
        "fence": Int64(3),
    }


def old_range(job_id: str, number: int = 0, generation: int = 1, **values: object) -> Document:
    """Return a range as 0.1.0 stored it."""
    return {
        "_id": ObjectId(),
        "jobId": job_id,
        "generation": Int64(generation),
        "entity": "audit",
        "number": Int64(number),
        "state": "pending",
        **values,
    }


def content(database: Database[Document], entity: Entity) -> list[Document]:
    """Return the documents of an entity of the ledger by their id."""
    return list(database[entity.collection].find().sort("_id"))


def test_the_shipped_step_makes_what_is_described() -> None:
    draft = draft_of(LEDGER_MODULE)
    assert (draft.text, draft.contradictions) == (None, ())


def test_the_collections_are_next_to_those_of_the_module(
    storage: SchedulerStorage, database: Database[Document]
) -> None:
    initializer = storage.bulk.ledger_initializer
    assert [item.state for item in initializer.status()] == [MigrationState.PENDING] * len(STEPS)
    assert initializer.effects() == ()
    assert initializer.ensure_migrations().applied == STEPS
    again = initializer.ensure_migrations()
    assert (again.applied, again.already_applied, again.changes) == ((), STEPS, ())
    assert initializer.verify() == ()
    for collection in collection_specs(LEDGER):
        wanted = {"_id_", *(index.name for index in collection.indexes)}
        assert set(database[collection.name].index_information()) == wanted
        assert "validator" in database[collection.name].options()
    recorded = database["_migrations"].find({"checksum": {"$exists": True}}).sort("_id")
    assert [row["_id"] for row in recorded] == [f"twinstore:{step}" for step in STEPS]
    assert all(item.state is MigrationState.PENDING for item in storage.initializer.status())


def test_what_is_carried_over_is_stored_as_this_version_stores_it(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    restore_mongo(empty_mongo_database)
    with opened(empty_mongo_database) as storage:
        storage.bulk.ledger_initializer.ensure_migrations()
    sources = {item["name"]: item["documents"] for item in mongo_collections()}
    for entity, old in zip((JOBS, RANGES), OLD, strict=True):
        codec = codec_of(entity)
        found = content(database, entity)
        assert len(found) == len(sources[old])
        for document in found:
            stored = codec.encode(codec.decode(document))
            assert list(stored) == list(document)
            assert encode(stored) == encode(document)
        # The older release finds its own where it was.
        assert sorted(map(encode, database[old].find())) == sorted(map(encode, sources[old]))


def test_every_key_and_every_name_of_a_job_is_carried_over(
    storage: SchedulerStorage, database: Database[Document]
) -> None:
    everything = "".join(map(chr, range(128))) + '\\u0041 \\" é \u2028 \uffff \U0001f600'
    keys = [("a",), ("",), ("", ""), (everything, "]"), ('","', "\\"), ("\x00", "\x00\\", "\n")]
    jobs = ["plain", "with:colon", ":", "14:copy:1:1", "😀:x"]
    ends = [None, *keys, None]
    for job in jobs:
        database[OLD[0]].insert_one(old_job(job, planned=len(keys) + 1))
        for number, (lower, upper) in enumerate(pairwise(ends)):
            given: dict[str, Any] = {
                name: list(key) for name, key in (("lower", lower), ("upper", upper)) if key is not None
            }
            database[OLD[1]].insert_one(old_range(job, number, **given))
    storage.bulk.ledger_initializer.ensure_migrations()
    ledger = ledger_of(storage)
    for job in jobs:
        found = list(ledger.ranges(job))
        assert [(item.within.lower, item.within.upper) for item in found] == list(pairwise(ends))
        assert [item.number for item in found] == list(range(1, len(ends)))
        stored = {item["_id"] for item in database[RANGES.collection].find({"jobId": job})}
        assert stored == {joined_id((job, item.number)) for item in found}
        carried = ledger.find(job)
        assert carried is not None
        assert carried.settings == {"entities": "audit", "a.b": "$c"}
        goes_on(ledger, job, len(found))


def goes_on(ledger: Ledger, job: str, ranges: int) -> None:
    """Make sure that the next range to be planned follows those that were carried over."""
    lease = ledger.acquire(job, "me", HOUR)
    assert lease.fence == 4
    ledger.plan(lease, TRIGGERS.name, [KeyRange()])
    assert [item.number for item in ledger.ranges(job, TRIGGERS.name)] == [ranges + 1]


def test_only_the_ranges_of_the_present_generation_are_carried_over(
    storage: SchedulerStorage, database: Database[Document]
) -> None:
    database[OLD[0]].insert_one(old_job("copy", generation=2, planned=2))
    live = {"state": "live", "finishedAt": NOON, "tally": {"read": [{"tenant": "t", "count": Int64(2**40)}]}}
    database[OLD[1]].insert_many(
        [
            old_range("copy", 0, 1, **live),
            old_range("copy", 0, 2, **live),
            old_range("copy", 1, 2, **{**live, "state": "copying"}),
            old_range("of no job", 0, 1),
        ]
    )
    storage.bulk.ledger_initializer.ensure_migrations()
    first, second = ledger_of(storage).ranges("copy")
    assert database[RANGES.collection].count_documents({}) == 2
    assert (first.state, first.finished_at) == (RangeState.LIVE, NOON)
    assert first.tally is not None
    assert (first.tally.read, first.tally.written) == ({"t": 2**40}, {})
    assert (second.state, second.tally, second.finished_at) == (RangeState.PENDING, None, None)
    assert (second.worker, second.fence, second.attempts) == (None, 0, 0)


def test_a_carry_over_that_was_interrupted_goes_on_and_undoes_nothing(
    storage: SchedulerStorage, database: Database[Document]
) -> None:
    initializer = storage.bulk.ledger_initializer
    for job in ("begun", "done"):
        database[OLD[0]].insert_one(old_job(job, planned=2))
        database[OLD[1]].insert_many(old_range(job, number) for number in range(2))
    initializer.ensure_migrations()
    before = content(database, JOBS), content(database, RANGES)
    # As if the server had gone in the middle: no job but one, a range that is missing, no row in the ledger.
    database["_migrations"].delete_one({"_id": f"twinstore:{STEP}"})
    database[JOBS.collection].delete_one({"_id": "begun"})
    database[RANGES.collection].delete_one({"_id": "begun:2"})
    assert initializer.ensure_migrations().applied == (STEP,)
    assert (content(database, JOBS), content(database, RANGES)) == before
    # What became of a job since stays as it is.
    database["_migrations"].delete_one({"_id": f"twinstore:{STEP}"})
    database[RANGES.collection].delete_one({"_id": "done:2"})
    database[JOBS.collection].update_one({"_id": "done"}, {"$set": {"state": "complete"}})
    changed = content(database, JOBS), content(database, RANGES)
    assert initializer.ensure_migrations().applied == (STEP,)
    assert (content(database, JOBS), content(database, RANGES)) == changed

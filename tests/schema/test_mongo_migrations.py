from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from pymongo import MongoClient
from pymongo.errors import WriteError

import twinstore
from tests.schema.migrators import expire_lease, killed
from tests.support.databases import MONGO_STEPS as STEPS
from twinstore.errors import EffectKind, MigrationError, ValidationError
from twinstore.migrations.migration import Consent, MigrationState
from twinstore.testing.scheduler.builders import (
    make_impact_set,
    rich_audit_record,
    rich_impact_set,
    rich_run,
    rich_run_summary,
    rich_schedule,
)
from twinstore_mongo.schema.lock import MigrationLease, holding
from twinstore_mongo.schema.migrator import MongoInitializer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase
    from twinstore.scheduler.storage import SchedulerStorage

Document = dict[str, Any]
SECOND = timedelta(seconds=1)
WANTED = {
    "schedules": {"_id_", "ux_tenantId_name", "ix_tenantId_enabled", "ix_whenCron", "ix_tenantId_name__id"},
    "triggers": {"_id_", "ux_scheduleId", "ix_nextFireAt_tenantId__id", "ix_tenantId_nextFireAt__id"},
    "runs": {
        "_id_",
        "ix_tenantId_createdAt__id",
        "ix_tenantId_scheduleId_createdAt__id",
        "ix_state_createdAt__id",
        "ix_pending_tenantId_createdAt__id",
        "ttl_finishedAt",
    },
    "impact_snapshots": {
        "_id_",
        "ix__tenantId__selectorDigest_generatedAt__id",
        "ix__tenantId__runId_generatedAt__id",
        "ix__tenantId_generatedAt__id",
        "ix_generatedAt",
    },
    "audit": {
        "_id_",
        "ix_tenantId_occurredAt__id",
        "ix_tenantId_scheduleId_occurredAt__id",
        "ix_tenantId_runId_occurredAt__id",
        "ix_tenantId_category_occurredAt__id",
    },
    "run_summaries": {"_id_", "ux_tenantId_scheduleId"},
}


@contextmanager
def opened(database: MongoDatabase, **options: int) -> Iterator[SchedulerStorage]:
    config = {**database.config, "Scheduler": {"Storage": options}}
    with twinstore.add_scheduler_storage(config) as storage:
        yield storage


def initializer(storage: SchedulerStorage) -> MongoInitializer:
    found = cast("Any", storage.initializer).twinstore_part
    assert isinstance(found, MongoInitializer)
    return found


def index(database: Database[Document], collection: str, name: str) -> Document:
    return dict(database[collection].index_information()[name])


def test_the_first_call_makes_the_wanted_indexes_and_the_second_does_nothing(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    with opened(empty_mongo_database) as storage:
        with pytest.raises(MigrationError, match="001_scheduler_baseline, 010_backfill_ledger"):
            storage.check_ready()
        first = storage.initializer.ensure_migrations()
        ledger = list(database["_migrations"].find().sort("_id"))
        second = storage.initializer.ensure_migrations()
    assert first.applied == STEPS
    assert (second.applied, second.already_applied, second.changes) == ((), STEPS, ())
    assert list(database["_migrations"].find().sort("_id")) == ledger
    assert set(next(row for row in ledger if row["_id"] == "scheduler:001_scheduler_baseline")) == {
        "_id",
        "migration_name",
        "category",
        "checksum",
        "applied_at",
        "applied_by",
        "duration_ms",
        "collections",
    }
    assert {name: set(database[name].index_information()) for name in WANTED} == WANTED
    names = index(database, "schedules", "ux_tenantId_name")
    assert names["unique"]
    assert names["partialFilterExpression"] == {"deletedAt": None}
    assert index(database, "runs", "ttl_finishedAt")["expireAfterSeconds"] == 15_552_000
    assert "expireAfterSeconds" not in index(database, "impact_snapshots", "ix_generatedAt")


def test_the_lease_lets_one_in_at_a_time_and_grows_its_fence(database: Database[Document]) -> None:
    ledger = database["_migrations"]
    with holding(ledger, duration=30 * SECOND, timeout=SECOND) as first:
        competitor = MigrationLease(ledger, 30 * SECOND, "rival")
        assert not competitor.try_acquire()
        with (
            pytest.raises(MigrationError, match="migrating"),
            holding(ledger, duration=SECOND, timeout=timedelta(0)),
        ):
            pass
    with holding(ledger, duration=30 * SECOND, timeout=SECOND) as second:
        assert second.fence == first.fence + 1


def test_a_lease_whose_owner_died_expires_by_the_clock_of_the_server(database: Database[Document]) -> None:
    ledger = database["_migrations"]
    ledger.insert_one({"_id": "_migration_lock", "fence": 0})
    dead = MigrationLease(ledger, timedelta(milliseconds=50), "dead")
    assert dead.try_acquire()
    with holding(ledger, duration=30 * SECOND, timeout=10 * SECOND) as heir:
        assert heir.fence == dead.fence + 1
        dead.renew()
        with pytest.raises(MigrationError, match="lost"):
            dead.check()


def test_a_migration_that_was_killed_holds_up_the_next_for_ten_seconds_at_most(
    empty_mongo_database: MongoDatabase,
    database: Database[Document],
    long_form: bool,  # noqa: FBT001  # a fixture
) -> None:
    settings = empty_mongo_database.config
    killed(settings, "create graph_jobs", 1, expire=False)
    left = database["_migrations"].find_one({"_id": "_migration_lock"})
    assert left is not None
    now = database.command("hello")["localTime"].replace(tzinfo=UTC)
    assert timedelta(0) < left["expiresAt"] - now <= 10 * SECOND
    if not long_form:
        expire_lease(settings)
    started = time.monotonic()
    with opened(empty_mongo_database) as storage:
        assert storage.initializer.ensure_migrations().applied[-1] == STEPS[-1]
    # Far below the patience of a migration that waits for another one.
    assert time.monotonic() - started < 60


def test_a_lease_is_kept_for_as_long_as_its_holder_works(database: Database[Document]) -> None:
    ledger = database["_migrations"]
    # Renewed five times in its life, so a busy machine may be late by four fifths of it.
    with holding(ledger, duration=5 * SECOND, timeout=SECOND) as lease:
        competitor = MigrationLease(ledger, SECOND, "rival")
        seen: set[object] = set()
        while len(seen) < 3:
            assert not competitor.try_acquire()
            found = ledger.find_one({"_id": "_migration_lock"})
            assert found is not None
            seen.add(found["expiresAt"])
        lease.check()
    assert competitor.try_acquire()


def test_a_holder_that_was_stopped_goes_on_to_no_other_step(database: Database[Document]) -> None:
    """The thread that renews was stopped too, so only the clock shows that the lease ran out."""
    ledger = database["_migrations"]
    ledger.insert_one({"_id": "_migration_lock", "fence": 0})
    asleep = [0.0]
    lease = MigrationLease(ledger, 10 * SECOND, "me", clock=lambda: time.monotonic() + asleep[0])
    assert lease.try_acquire()
    lease.check()
    asleep[0] = 10.0
    with pytest.raises(MigrationError, match="lost"):
        lease.check()
    lease.renew()  # no other process has acquired it meanwhile
    lease.check()


def test_one_renewal_that_fails_is_no_loss_of_the_lease(database: Database[Document]) -> None:
    ledger = database["_migrations"]
    ledger.insert_one({"_id": "_migration_lock", "fence": 0})
    ahead = [0.0]
    lease = MigrationLease(ledger, 10 * SECOND, "me", clock=lambda: time.monotonic() + ahead[0])
    assert lease.try_acquire()
    with MongoClient[Document]("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=1") as nowhere:
        lease.collection = nowhere["nowhere"]["_migrations"]
        lease.renew()
        lease.check()
        ahead[0] = 10.0
        with pytest.raises(MigrationError, match="lost"):
            lease.check()


def test_the_ledger_of_another_module_is_left_alone(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    database["_migrations"].insert_one({"_id": "tracking:001_baseline", "migration_name": "001_baseline"})
    with opened(empty_mongo_database) as storage:
        assert storage.initializer.ensure_migrations().applied == STEPS
        storage.check_ready()


def test_duplicates_under_a_unique_index_are_listed_before_later_indexes_are_built(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    rows = [{"tenantId": "t", "name": f"n{number:03}"} for number in range(120) for _ in range(2)]
    database["schedules"].insert_many(rows)
    with opened(empty_mongo_database) as storage:
        with pytest.raises(MigrationError, match="t / n000") as caught:
            storage.initializer.ensure_migrations()
        assert caught.value.message.count(" / n") == 100
        assert "t / n099" in caught.value.message
        assert set(database["schedules"].index_information()) == {"_id_"}
        assert "ix_tenantId_createdAt__id" not in database["runs"].index_information()
        database["schedules"].delete_many({})
        assert storage.initializer.ensure_migrations().applied == STEPS


def test_soft_deleted_schedules_are_no_duplicates(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    rows: list[Document] = [{"tenantId": "t", "name": "n", "deletedAt": number} for number in range(3)]
    database["schedules"].insert_many([*rows, {"tenantId": "t", "name": "n"}])
    accept = {Consent(EffectKind.VALIDATOR, "schedules")}
    with opened(empty_mongo_database) as storage:
        assert storage.initializer.ensure_migrations(accept=accept).applied == STEPS


def test_retention_is_switched_on_changed_and_off_again(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    def age() -> object:
        return index(database, "impact_snapshots", "ix_generatedAt").get("expireAfterSeconds")

    for days, seconds in ((0, None), (2, 172_800), (1, 86_400), (0, None)):
        with opened(empty_mongo_database, ImpactRetentionDays=days) as storage:
            report = storage.initializer.ensure_migrations()
            assert age() == seconds
            assert bool(report.changes) == (report.already_applied == STEPS)
            assert storage.initializer.verify() == ()


def test_an_unknown_index_is_reported_and_kept(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    with opened(empty_mongo_database) as storage:
        storage.initializer.ensure_migrations()
        database["runs"].create_index([("retryOf", 1)], name="mine")
        assert storage.initializer.ensure_migrations().unknown == ("runs.mine",)
        assert storage.initializer.verify() == ("The index runs.mine belongs to no migration.",)
    assert "mine" in database["runs"].index_information()


def test_an_equal_index_under_another_name_will_do(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    database["schedules"].create_index([("whenCron", 1)], name="whenCron_1")
    with opened(empty_mongo_database) as storage:
        assert storage.initializer.ensure_migrations().applied == STEPS
        assert storage.initializer.verify() == ()
    assert "ix_whenCron" not in database["schedules"].index_information()


def test_another_index_in_the_way_is_named(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    database["schedules"].create_index([("tenantId", 1), ("name", 1)], name="mine", unique=True, sparse=True)
    database["runs"].create_index([("finishedAt", 1)], name="mine", expireAfterSeconds=5, hidden=True)
    with opened(empty_mongo_database) as storage, pytest.raises(MigrationError, match="ttl_finishedAt"):
        storage.initializer.ensure_migrations()


def test_the_validators_refuse_what_no_model_has(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    with opened(empty_mongo_database) as storage:
        storage.initializer.ensure_migrations()
    for document in ({"_id": "x"}, {"_id": 5}):
        for collection in WANTED:
            with pytest.raises(WriteError) as caught:
                database[collection].insert_one(dict(document))
            assert caught.value.code == 121


def test_the_validators_admit_what_the_library_writes(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    with opened(empty_mongo_database, RunRetentionDays=0) as storage:
        storage.initializer.ensure_migrations()
        storage.schedules.upsert(rich_schedule("t", "s-1"))
        storage.audit.append(rich_audit_record("t", "a-1"))
        storage.run_summaries.upsert(rich_run_summary("t", "s-1"))
        storage.impact_snapshots.upsert("t", rich_impact_set("t"), run_id="r-1")
        storage.impact_snapshots.upsert("t", make_impact_set())
    document = rich_document()
    database["runs"].insert_one(document)


def rich_document() -> Document:
    """Return a finished run with whole doubles where integers are expected and a foreign field."""
    wire: Document = rich_run("t", "r-1").wire()
    stats = {name: float(value) for name, value in wire.pop("stats").items()}
    return {"_id": wire.pop("id"), **plain(wire), "stats": stats, "_class": "Run"}


def plain(value: Any) -> Any:  # noqa: ANN401  # any part of a wire form
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("undo", "problem"),
    [
        (
            lambda database: database.drop_collection("audit"),
            "The collection audit is missing.",
        ),
        (
            lambda database: database["schedules"].drop_index("ux_tenantId_name"),
            "The index schedules.ux_tenantId_name is missing.",
        ),
    ],
    ids=["collection", "unique index"],
)
def test_a_storage_is_not_ready_while_rows_could_be_stored_that_the_schema_forbids(
    empty_mongo_database: MongoDatabase,
    database: Database[Document],
    undo: Callable[[Database[Document]], object],
    problem: str,
) -> None:
    with opened(empty_mongo_database) as storage:
        storage.initializer.ensure_migrations()
        database["audit"].drop_index("ix_tenantId_occurredAt__id")
        storage.check_ready()
        undo(database)
        with pytest.raises(MigrationError, match=f"{problem} Run `twinstore migrate run"):
            storage.check_ready()
        storage.initializer.ensure_migrations()
        storage.check_ready()


def test_a_document_that_the_validator_refuses_is_a_validation_error(
    empty_mongo_database: MongoDatabase, database: Database[Document]
) -> None:
    with opened(empty_mongo_database) as storage:
        storage.initializer.ensure_migrations()
        database.command("collMod", "audit", validator={"impossible": 1})
        with pytest.raises(ValidationError, match="validator"):
            storage.audit.append(rich_audit_record("t", "a-1"))


def test_the_script_for_administrators_holds_every_index_and_ledger_row(
    empty_mongo_database: MongoDatabase,
) -> None:
    with opened(empty_mongo_database) as storage:
        script = storage.initializer.export()
    for collection, names in WANTED.items():
        assert f'db.createCollection("{collection}"' in script
        assert all(f'"name": "{name}"' in script for name in names - {"_id_"})
    assert all(f'"scheduler:{name}"' in script for name in STEPS)
    assert script.index("ux_scheduleId") < script.index("ix_tenantId_enabled")
    assert '"expireAfterSeconds": 15552000' in script


def test_a_step_of_the_release_category_waits_for_the_administrator(
    empty_mongo_database: MongoDatabase,
) -> None:
    with opened(empty_mongo_database) as storage:
        first = initializer(storage)
        late = replace(first.steps[1], name="100_later")
        widened = replace(first, steps=(*first.steps, late))
        assert late.category == "release"
        assert widened.ensure_migrations().applied == STEPS
        assert {item.name: item.state for item in widened.status()}["100_later"] is MigrationState.PENDING
        widened.check_applied()
        assert widened.ensure_migrations(release=True).applied == ("100_later",)

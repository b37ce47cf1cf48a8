"""What migrations make on MongoDB: the customer's indexes in either form, by the step and by the script."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from docs.parts.shipped import script_files
from tests.schema.shell import Shell
from tests.support.modules import on_mongo
from twinstore.testing.instants import at
from twinstore.testing.taskrunner.builders import make_log_entry, make_pack_run

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer

# As the customer's document lists them, in its order: the key, and whether it is unique.
LISTED: Final[dict[str, list[tuple[list[tuple[str, int]], bool]]]] = {
    "pack_runs": [
        ([("_id", 1)], False),
        ([("updatedAt", -1)], False),
        ([("tenantId", 1), ("updatedAt", -1)], False),
    ],
    "pack_run_logs": [
        ([("_id", 1)], False),
        ([("runId", 1), ("sequence", 1)], True),
        ([("runId", 1), ("timestamp", 1)], False),
        ([("timestamp", 1)], False),
    ],
    "pack_artifacts": [([("_id", 1)], False), ([("runId", 1), ("name", 1)], True), ([("runId", 1)], False)],
    "pack_run_approvals": [([("_id", 1)], False), ([("runId", 1), ("approvalId", 1)], True)],
}
# Our further indexes, with the list that needs each.
OURS: Final = {
    "pack_runs": [
        [("updatedAt", -1), ("_id", 1)],  # runs of all tenants
        [("tenantId", 1), ("updatedAt", -1), ("_id", 1)],  # runs of one tenant, and those of none
    ],
    "pack_run_logs": [[("runId", 1), ("timestamp", 1), ("sequence", 1)]],  # read_window
    "pack_artifacts": [],
    "pack_run_approvals": [[("runId", 1), ("status", 1)]],
}
STEP: Final = "20251106-task-runner-baseline"
STEPS: Final = {"_id": {"$regex": "^taskrunner:"}}
DAY: Final = 86_400


def migrate(database: MongoDatabase, **options: object) -> None:
    with twinstore.add_taskrunner_storage(on_mongo(database, **options)) as storage:
        storage.initializer.ensure_migrations()
        assert storage.initializer.verify() == ()


def schema_of(database: Database[Any]) -> dict[str, object]:
    """Return indexes and options of every collection."""
    return {name: (database[name].index_information(), database[name].options()) for name in LISTED}


def option_of(database: Database[Any], index: str, option: str) -> object:
    (collection,) = [name for name in LISTED if index in database[name].index_information()]
    return database[collection].index_information()[index].get(option)


@pytest.mark.parametrize("collection", LISTED)
def test_the_indexes_are_those_of_the_document_in_its_order(
    empty_mongo_database: MongoDatabase, database: Database[Any], collection: str
) -> None:
    migrate(empty_mongo_database)
    found = list(database[collection].index_information().values())
    listed = LISTED[collection]
    assert [(item["key"], item.get("unique", False)) for item in found[: len(listed)]] == listed
    assert [item["key"] for item in found[len(listed) :]] == OURS[collection]
    assert {item.get("expireAfterSeconds") for item in found} == {None}
    sparse = [item["key"] for item in found if item.get("sparse")]
    assert sparse == ([[("tenantId", 1), ("updatedAt", -1)]] if collection == "pack_runs" else [])


def test_the_step_is_recorded_under_the_name_of_the_document(
    empty_mongo_database: MongoDatabase, database: Database[Any]
) -> None:
    migrate(empty_mongo_database)
    (row,) = database["_migrations"].find(STEPS)
    assert (row["_id"], row["migration_name"], row["category"]) == (f"taskrunner:{STEP}", STEP, "schema")
    with twinstore.add_taskrunner_storage(on_mongo(empty_mongo_database)) as storage:
        assert [item.name for item in storage.initializer.status()] == [STEP]
        assert storage.initializer.ensure_migrations().applied == ()


def test_the_shipped_script_has_the_effect_of_the_step(
    empty_mongo_database: MongoDatabase, mongo_server: MongoServer, database: Database[Any], tmp_path: Path
) -> None:
    (script,) = script_files()
    assert script.name == f"{STEP}.mongosh"
    with mongo_server.database() as other:
        migrate(other)
        by_step = database.client[other.name]
        for _ in range(2):
            assert Shell(database).run(script.read_text("utf-8"), tmp_path / "script.js") == ""
        assert schema_of(database) == schema_of(by_step)
        # The library notes the collections itself, when it next looks at the ledger.
        aside = {"applied_at": 0, "applied_by": 0, "duration_ms": 0, "collections": 0}
        recorded = [list(found["_migrations"].find(STEPS, aside)) for found in (database, by_step)]
        assert recorded[0] == recorded[1]
        assert len(recorded[0]) == 1
    with twinstore.add_taskrunner_storage(on_mongo(empty_mongo_database)) as storage:
        storage.check_ready()
        assert storage.initializer.verify() == ()


def test_the_tenant_index_is_sparse_until_tenancy_is_enforced(
    empty_mongo_database: MongoDatabase, database: Database[Any]
) -> None:
    enforced = {"Tenancy": {"Enforced": True}}
    name, before = "ix_tenantId_updatedAt", []
    for options in ({}, enforced, {}):
        migrate(empty_mongo_database, **options)
        before.append(option_of(database, name, "sparse"))
    assert before == [True, None, True]


def test_logs_expire_only_where_an_age_is_set_and_it_may_be_set_later(
    empty_mongo_database: MongoDatabase, database: Database[Any]
) -> None:
    migrate(empty_mongo_database)
    assert option_of(database, "ix_timestamp", "expireAfterSeconds") is None
    with twinstore.add_taskrunner_storage(on_mongo(empty_mongo_database)) as storage:
        storage.pack_runs.create(make_pack_run(None, "r"))
        recent = datetime.now(UTC) - timedelta(days=1)
        storage.pack_run_logs.append([make_log_entry("r", timestamp=recent)])
    migrate(empty_mongo_database, Storage={"LogRetentionDays": 30})
    assert option_of(database, "ix_timestamp", "expireAfterSeconds") == 30 * DAY
    migrate(empty_mongo_database, Storage={"LogRetentionDays": 7})
    assert option_of(database, "ix_timestamp", "expireAfterSeconds") == 7 * DAY
    migrate(empty_mongo_database)
    assert option_of(database, "ix_timestamp", "expireAfterSeconds") is None


def test_an_age_that_would_remove_logs_at_once_needs_consent(empty_mongo_database: MongoDatabase) -> None:
    migrate(empty_mongo_database)
    with twinstore.add_taskrunner_storage(on_mongo(empty_mongo_database)) as storage:
        storage.pack_runs.create(make_pack_run(None, "r"))
        storage.pack_run_logs.append([make_log_entry("r", timestamp=at())])
    config = on_mongo(empty_mongo_database, Storage={"LogRetentionDays": 30})
    with (
        twinstore.add_taskrunner_storage(config) as storage,
        pytest.raises(twinstore.ConsentRequiredError, match="pack_run_logs"),
    ):
        storage.initializer.ensure_migrations()


def test_documents_have_the_ids_of_the_document(
    empty_mongo_database: MongoDatabase, database: Database[Any]
) -> None:
    migrate(empty_mongo_database)
    with twinstore.add_taskrunner_storage(on_mongo(empty_mongo_database)) as storage:
        storage.pack_runs.create(make_pack_run(None, "r"))
        storage.pack_run_logs.append([make_log_entry("r", 2**40)])
    (run,), (entry,) = list(database["pack_runs"].find()), list(database["pack_run_logs"].find())
    assert (run["_id"], "runId" in run, "tenantId" in run) == ("r", False, False)
    assert (type(entry["_id"]).__name__, entry["runId"]) == ("ObjectId", "r")
    query = {"sequence": {"$type": "long"}}
    assert database["pack_run_logs"].count_documents(query) == 1

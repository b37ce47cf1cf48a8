"""The customer's block of settings: four collections, its mirror for workers, the switch in two spellings."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient

import twinstore
from twinstore import ConfigurationError
from twinstore.taskrunner import ALL_TENANTS
from twinstore.testing.taskrunner.builders import make_approval, make_artifact, make_draft, make_pack_run
from twinstore_mongo.testing import MongoTaskRunnerTestContext

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase, MongoServer
    from twinstore import TaskRunnerStorage

SAMPLE: Final = Path(__file__).parents[2] / "samples/config/appsettings.json"
NAMES: Final = {
    "RunsCollection": "their_runs",
    "LogsCollection": "their_logs",
    "ArtifactsCollection": "their_artifacts",
    "ApprovalsCollection": "their_approvals",
}


def block_of(database: MongoDatabase, **changes: object) -> dict[str, Any]:
    """Return the block of the customer's page for a database, without its name."""
    mongo = json.loads(SAMPLE.read_text())["TaskRunner"]["Storage"]["Mongo"]
    del mongo["Database"]
    server, _, options = database.url.partition("/?")
    url = f"{server}/{database.name}?{options}"
    return {"Storage": {"Mode": "mongo", "Mongo": {**mongo, "ConnectionString": url, **changes}}}


def use(storage: TaskRunnerStorage) -> None:
    """Write a document into every collection."""
    storage.initializer.ensure_migrations()
    storage.pack_runs.create(make_pack_run(None, "r"))
    storage.pack_run_logs.append_next("r", make_draft())
    storage.pack_artifacts.upload(make_artifact("r", "report"))
    storage.pack_run_approvals.save("r", [make_approval(None, "r")])


def collections_of(database: MongoDatabase) -> dict[str, int]:
    """Return the collections of a database that hold something of a task runner."""
    with closing(MongoClient[Any](database.url)) as client:
        found = client[database.name]
        names = [name for name in found.list_collection_names() if not name.startswith("_")]
        return {name: found[name].count_documents({}) for name in sorted(names)}


def test_the_block_of_the_customer_opens_the_task_runner(empty_mongo_database: MongoDatabase) -> None:
    with twinstore.open_storage({"TaskRunner": block_of(empty_mongo_database)}) as storage:
        use(storage.taskrunner)
    assert collections_of(empty_mongo_database) == {
        "pack_artifacts": 1,
        "pack_run_approvals": 1,
        "pack_run_logs": 1,
        "pack_runs": 1,
    }


def test_the_four_collections_may_have_other_names(empty_mongo_database: MongoDatabase) -> None:
    config = {"TaskRunner": block_of(empty_mongo_database, **NAMES)}
    with twinstore.add_taskrunner_storage(config) as storage:
        use(storage)
        assert storage.initializer.verify() == ()
        assert storage.pack_runs.get("r", tenant_id=ALL_TENANTS) is not None
    assert collections_of(empty_mongo_database) == dict.fromkeys(sorted(NAMES.values()), 1)


def test_both_spellings_of_a_collection_must_agree(empty_mongo_database: MongoDatabase) -> None:
    same = block_of(empty_mongo_database, RunsCollection="r", Collections={"pack_runs": "r"})
    with twinstore.add_taskrunner_storage({"TaskRunner": same}):
        pass
    other = block_of(empty_mongo_database, RunsCollection="r", Collections={"pack_runs": "x"})
    with pytest.raises(
        ConfigurationError, match=r"RunsCollection .* contradicts|contradicts .*RunsCollection"
    ):
        twinstore.add_taskrunner_storage({"TaskRunner": other})
    shared = {"Persistence": {"TaskRunner": "Mongo", "Mongo": {"RunsCollection": "r"}}}
    with pytest.raises(ConfigurationError, match="Unknown setting Persistence:Mongo:RunsCollection"):
        twinstore.add_taskrunner_storage(shared)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ({"RunsCollection": "x", "LogsCollection": "x"}, "hold both pack_runs and pack_run_logs"),
        ({"RunsCollection": "pack_artifacts"}, "hold both pack_runs and pack_artifacts"),
        ({"RunsCollection": "_migrations"}, "are taken"),
        ({"RunsCollection": "system.runs"}, "are taken"),
        ({"RunsCollection": "  "}, "white space"),
        ({"RunsCollection": "r$"}, "dollar sign"),
        ({"RunsCollection": "r..s"}, "dots"),
    ],
)
def test_a_collection_is_of_one_entity_and_has_a_possible_name(
    empty_mongo_database: MongoDatabase, names: dict[str, str], why: str
) -> None:
    config = {"TaskRunner": block_of(empty_mongo_database, **names)}
    with pytest.raises(ConfigurationError, match=why):
        twinstore.add_taskrunner_storage(config)
    # Two that swap their names do not meet.
    swapped = {"RunsCollection": "pack_run_logs", "LogsCollection": "pack_runs"}
    with twinstore.add_taskrunner_storage(
        {"TaskRunner": block_of(empty_mongo_database, **swapped)}
    ) as storage:
        use(storage)
    assert set(collections_of(empty_mongo_database).values()) == {1}


def test_a_worker_reads_the_mirror_of_the_block(
    empty_mongo_database: MongoDatabase, mongo_server: MongoServer
) -> None:
    with mongo_server.database() as other:
        config = {
            "TaskRunner": block_of(empty_mongo_database),
            "Worker": block_of(other, **NAMES),
        }
        for role, database, runs in (
            (None, empty_mongo_database, "pack_runs"),
            ("worker", other, "their_runs"),
        ):
            with twinstore.add_taskrunner_storage(config, role=role) as storage:
                use(storage)
            assert collections_of(database)[runs] == 1


def test_a_test_of_a_host_gets_a_database_that_is_dropped(
    mongo_server: MongoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TWINSTORE_TEST_MONGO_URL", raising=False)
    with pytest.raises(ConfigurationError, match="TWINSTORE_TEST_MONGO_URL"):
        MongoTaskRunnerTestContext()
    context = MongoTaskRunnerTestContext(mongo_server.url, options={"tenancy_enforced": True})
    with pytest.raises(ConfigurationError, match="not entered"):
        _ = context.storage
    with context as entered:
        entered.storage.check_ready()
        assert not entered.storage.admits_no_tenant
        assert entered.database in mongo_server.client.list_database_names()
    assert context.database not in mongo_server.client.list_database_names()
    assert MongoTaskRunnerTestContext.__name__ == "MongoTaskRunnerTestContext"

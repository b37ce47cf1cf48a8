"""The exported script, run as JavaScript against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import twinstore
from tests.schema.shell import Shell
from tests.support.databases import MONGO_STEPS
from tests.support.foreign import Document, fill_with_pymongo
from tests.support.releases import restore_mongo
from twinstore.ledger.catalog import LEDGER

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, MongoServer


@pytest.fixture
def script(empty_mongo_database: MongoDatabase) -> str:
    with twinstore.add_scheduler_storage(empty_mongo_database.config) as storage:
        return storage.initializer.export()


def differences(database: MongoDatabase) -> tuple[str, ...]:
    with twinstore.add_scheduler_storage(database.config) as storage:
        return storage.initializer.verify()


def test_the_script_makes_the_wanted_schema_and_may_be_repeated(
    empty_mongo_database: MongoDatabase, database: Database[Document], script: str, tmp_path: Path
) -> None:
    for _ in range(2):
        assert Shell(database).run(script, tmp_path / "script.js") == ""
        assert differences(empty_mongo_database) == ()
    assert database["_migrations"].count_documents({}) == len(MONGO_STEPS)


def test_the_script_asks_before_the_server_removes_or_refuses_documents(
    empty_mongo_database: MongoDatabase, database: Database[Document], script: str, tmp_path: Path
) -> None:
    fill_with_pymongo(database)
    refused = Shell(database).run(script, tmp_path / "script.js")
    assert (
        "Plain indexes were made, nothing else. Agree to ttl: {runs: 10}, validator: {run_summaries: 6}"
        in refused
    )
    assert "ix_tenantId_createdAt__id" in database["runs"].index_information()
    assert "expireAfterSeconds" not in database["runs"].index_information()["ttl_finishedAt"]
    assert database["run_summaries"].options() == {}
    assert "_migrations" not in database.list_collection_names()
    empty, runs = "{ttl: {}, validator: {}}", "{ttl: {runs: 9}, validator: {run_summaries: 6}}"
    assert "Agree to ttl: {runs: 10}\n" in Shell(database).run(
        script.replace(empty, runs), tmp_path / "script.js"
    )
    agreed = script.replace(empty, runs.replace("9", "10"))
    assert Shell(database).run(agreed, tmp_path / "script.js") == ""
    assert database["runs"].index_information()["ttl_finishedAt"]["expireAfterSeconds"] == 15_552_000
    assert [line for line in differences(empty_mongo_database) if "runs.theirs" not in line] == []


def test_the_script_carries_the_ledger_over_as_the_migration_does(
    empty_mongo_database: MongoDatabase,
    mongo_server: MongoServer,
    database: Database[Document],
    tmp_path: Path,
) -> None:
    def ledger_of(found: Database[Document]) -> dict[str, list[Document]]:
        names = [entity.collection for entity in LEDGER.entities]
        return {name: list(found[name].find().sort("_id")) for name in names}

    with mongo_server.database() as other:
        restore_mongo(other)
        with twinstore.add_scheduler_storage(other.config) as storage:
            storage.bulk.ledger_initializer.ensure_migrations()
        wanted = ledger_of(database.client[other.name])
    restore_mongo(empty_mongo_database)
    with twinstore.add_scheduler_storage(empty_mongo_database.config) as storage:
        initializer = storage.bulk.ledger_initializer
        for _ in range(2):
            assert Shell(database).run(initializer.export(), tmp_path / "script.js") == ""
            assert initializer.verify() == ()
            assert ledger_of(database) == wanted
        assert wanted["twinstore_ranges"]
        database["twinstore_ranges"].delete_many({})
        # What is recorded is not brought here again.
        assert Shell(database).run(initializer.export(), tmp_path / "script.js") == ""
        assert ledger_of(database) == wanted | {"twinstore_ranges": []}


def test_an_index_of_the_script_compares_by_code_point_in_a_collection_that_does_not(
    empty_mongo_database: MongoDatabase, database: Database[Document], script: str, tmp_path: Path
) -> None:
    database.create_collection("runs", collation={"locale": "en", "strength": 2})
    assert Shell(database).run(script, tmp_path / "script.js") == ""
    (problem,) = differences(empty_mongo_database)
    assert problem.startswith("The collection runs compares texts by its own collation (en)")

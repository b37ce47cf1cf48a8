"""A job file with ``reverse = true``: the rows of a new service as documents of the old one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId
from bson.int64 import Int64
from pymongo import MongoClient

from tests.support.copies import invoke, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunStats
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy import processes
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.copies import Answer
    from tests.support.databases import MongoDatabase, PostgresDatabase

Document = dict[str, Any]
JOB: Final = """
module = "scheduler"
from = "Mongo"
to = "Postgres"

[[map]]
path = "runs.status"
values = { done = "completed", waiting = "queued" }
reason = "words of 2019"

[[rename]]
path = "runs.status"
to = "state"
reason = "renamed"

[[rename]]
path = "runs.stats.pending"
to = "stats.queued"
reason = "renamed"

[[id]]
path = "runs.scheduleId"
to = "uuid"
reason = "an ObjectId"
"""
NOON: Final = datetime(2021, 7, 1, 12, tzinfo=UTC)
OID: Final = ObjectId("5f43a1b2c3d4e5f60718293a")
UUID_OF_OID: Final = "0174202f-9f50-7c3d-9397-d81c60a4e800"


def stored_run(key: str, **more: object) -> Document:
    """Return a run as the old service wrote it."""
    return {
        "_id": key,
        "schemaVersion": "scheduler.run@1",
        "tenantId": "acme",
        "trigger": "cron",
        "status": "waiting",
        "createdAt": NOON,
        "stats": {("pending" if name == "queued" else name): Int64(1) for name in RunStats().wire()},
        "scheduleId": OID,
        **more,
    }


@pytest.fixture
def old(empty_mongo_database: MongoDatabase) -> Iterator[Database[Document]]:
    """Return the database of the old service."""
    with MongoClient[Document](empty_mongo_database.url) as client:
        found = client[empty_mongo_database.name]
        runs = [stored_run(f"r{number}") for number in range(5)]
        found["runs"].insert_many([*runs, stored_run("r5", status="done", finishedAt=NOON)])
        yield found


@pytest.fixture
def run(
    old: Database[Document],
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Answer]:
    """Return a command under the rules, forward or backwards, with another database of MongoDB if wanted."""
    del old

    def command(name: str, *more: object, reverse: bool = True, database: str | None = None) -> Answer:
        settings = server_settings(postgres_database, empty_mongo_database)
        if database is not None:
            settings["Persistence"]["Mongo"]["Database"] = database
        config = write_config(tmp_path / "settings.json", settings)
        job = tmp_path / "job.toml"
        job.write_text(f"reverse = {str(reverse).lower()}\n{JOB}")
        arguments = ("backfill", "--job-file", job, name, "--config", config, *more, "--format", "json")
        return invoke(capsys, *arguments)

    return command


def totals(answer: Answer) -> Document:
    """Return what became of the runs."""
    assert answer.out, answer.err
    return {entity["entity"]: entity for entity in answer.json["entities"]}["runs"]


def test_rows_of_the_new_service_come_back_as_documents_of_the_old_one(
    old: Database[Document], run: Callable[..., Answer], postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "out")
    assert run("copy", "--execute", *out, reverse=False).code == Exit.OK
    report = run("verify", reverse=False).json
    print([x for e in report["entities"] for x in e.get("equivalences",())] or report.keys(), report.get("equivalences"), report["reasons"])
    assert report["verdict"] == "PASS", report["reasons"]
    untouched = old["runs"].find_one({"_id": "r0"})
    settings = load_settings(server_settings(postgres_database), environ={})
    with open_store("scheduler", "Postgres", settings) as store:
        runs = store.storage.runs
        print(dir(runs))
    for a in (run("copy"), run("copy", "--execute", *out), run("verify"), run("copy", "--execute", "--on-conflict", "overwrite", *out), run("verify")):
        print(a.code, a.out[:3000], a.err[:1000])
    print(list(old["runs"].find({})))
    raise AssertionError

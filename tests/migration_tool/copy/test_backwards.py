"""A job file with ``reverse = true``: the rows of a new service as documents of the old one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pytest
from bson import ObjectId
from bson.int64 import Int64
from pymongo import MongoClient

from tests.support.copies import invoke, memory_pair, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.migration import CopyOptions, Migration
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunStats
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy import engine
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.rules.model import JobRules, RenameRule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.copies import Answer
    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase

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
OTHER_UUID: Final = "0199fa3b-6f4c-7d1e-8a2b-1c3d5e7f9a0b"
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


def runs_in(answer: Answer) -> dict[str, int]:
    """Return what became of the runs, without zeros."""
    assert answer.out, answer.err
    found = {entity["entity"]: entity["total"] for entity in answer.json["entities"]}["runs"]
    return {name: count for name, count in found.items() if count}


def test_rows_of_the_new_service_come_back_as_documents_of_the_old_one(  # noqa: PLR0917  # fixtures
    old: Database[Document],
    run: Callable[..., Answer],
    postgres_database: PostgresDatabase,
    mongo_server: MongoServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execute = ("--execute", "--out", tmp_path / "out", "--range-size", 2)
    overwrite = (*execute, "--on-conflict", "overwrite")
    assert run("copy", *execute, reverse=False).code == Exit.OK
    assert run("verify", reverse=False).json["verdict"] == "PASS"
    indexes = old["runs"].index_information()
    # The old service's own documents say the same, so they are not written again.
    assert runs_in(run("copy", *execute)) == {"read": 6, "unchanged": 6}
    before = list(old["runs"].find().sort("_id"))
    with open_store("scheduler", "Postgres", load_settings(postgres_database.config, environ={})) as store:
        runs = store.storage.runs
        runs.cancel("acme", "r1", NOON)
        runs.cancel("acme", "r2", NOON)
        for number, key in enumerate((UUID_OF_OID, OTHER_UUID, None)):
            made = make_run("acme", f"new{number}", state=RunState.QUEUED, created_at=NOON)
            runs.create(made.evolve(schedule_id=key))
    report = run("verify").json
    assert (report["verdict"], report["source"]["backend"]) == ("FAIL", "Mongo")
    assert runs_in(run("copy")) == {"read": 9, "written": 3, "unchanged": 4, "conflicts": 2}
    assert runs_in(run("copy", *overwrite)) == {"read": 9, "written": 5, "unchanged": 4}
    assert run("verify").json["verdict"] == "PASS"
    after = {document["_id"]: document for document in old["runs"].find()}
    assert [after[document["_id"]] for document in before[3:]] == before[3:]
    assert [after[f"r{number}"]["status"] for number in (1, 2)] == ["cancelled", "cancelled"]
    new = [after[f"new{number}"] for number in range(3)]
    assert [document.get("scheduleId") for document in new] == [OID, OTHER_UUID, None]
    assert all(document["status"] == "waiting" and "state" not in document for document in new)
    assert all("pending" in document["stats"] and "queued" not in document["stats"] for document in new)
    assert old["runs"].index_information() == indexes
    assert runs_in(run("copy", *overwrite)) == {"read": 9, "unchanged": 9}
    # An empty database gets the same, from several processes.
    monkeypatch.setattr(engine, "THREADS_PER_PROCESS", 1)
    with mongo_server.database() as empty:
        assert runs_in(run("copy", *execute, "--jobs", 2, database=empty.name)) == {"read": 9, "written": 9}
        written = {document["_id"]: document for document in old.client[empty.name]["runs"].find()}
        assert {**written["r3"], "_version": 0} == {**before[3], "_version": 0}
        assert run("verify", database=empty.name).json["verdict"] == "PASS"
    # What is planted is found and put right.
    old["runs"].update_one({"_id": "r3"}, {"$set": {"status": "planning"}})
    assert run("verify").json["verdict"] == "FAIL"
    assert runs_in(run("copy")) == {"read": 9, "unchanged": 8, "conflicts": 1}
    assert runs_in(run("copy", *overwrite)) == {"read": 9, "unchanged": 8, "written": 1}
    assert run("verify").json["verdict"] == "PASS"


def test_a_row_that_the_rules_do_not_give_back_is_refused(
    old: Database[Document], run: Callable[..., Answer], postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with open_store("scheduler", "Postgres", load_settings(postgres_database.config, environ={})) as store:
        # As the rules read it, these digits would be a UUID.
        store.storage.runs.create(make_run("acme", "new").evolve(schedule_id=str(OID)))
    answer = run("copy", "--execute", "--out", tmp_path / "out")
    assert (answer.code, runs_in(answer)) == (Exit.INCONCLUSIVE, {"read": 1, "quarantined": 1})
    assert [item["cause"] for item in answer.json["causes"]] == ["target"]
    assert old["runs"].find_one({"_id": "new"}) is None
    # A verification finds that only one side has it.
    assert run("verify").json["verdict"] == "FAIL"


def test_a_store_that_holds_only_rows_of_the_models_takes_none_back(tmp_path: Path) -> None:
    rename = RenameRule(number=1, line=1, entity="runs", path=("was",), to=("error",))
    with memory_pair(tmp_path) as pair, pytest.raises(PreflightError, match="rules of this job cannot"):
        pair.copy(rules=JobRules((rename,), reverse=True))


def test_a_program_goes_back_as_the_command_does(
    old: Database[Document], run: Callable[..., Answer], postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    assert run("copy", "--execute", "--out", tmp_path / "out", reverse=False).code == Exit.OK
    with open_store("scheduler", "Postgres", load_settings(postgres_database.config, environ={})) as store:
        store.storage.runs.cancel("acme", "r1", NOON)
    at = ("--as-of", NOON.isoformat())
    answer = run("copy", "--on-conflict", "overwrite", *at).json
    job, settings = tmp_path / "job.toml", tmp_path / "settings.json"
    back = Migration("postgres", "mongo", "scheduler", job, settings=settings)
    options = CopyOptions(on_conflict="overwrite", out=tmp_path / "back", as_of=NOON)
    report = back.copy(options).result().document()
    assert {**report, "envelope": None} == {**answer, "envelope": None}
    written = back.copy(replace(options, execute=True)).result().totals
    assert written.model_dump() == answer["totals"]
    changed = old["runs"].find_one({"_id": "r1"})
    assert changed is not None
    assert (changed["status"], changed["scheduleId"]) == ("cancelled", OID)
    forth = Migration("mongo", "postgres", "scheduler", job, settings=settings)
    assert forth.verify().result().verdict == "PASS"
    for refused in (back.plan(), back.copy(options, delete_extra=True), back.repair(tmp_path, execute=True)):
        with pytest.raises(ValidationError, match="is not possible with reverse = true in the job file"):
            refused.result()


@pytest.mark.parametrize("command", ["plan", "repair", "copy --delete-extra"])
def test_what_has_no_way_back_is_refused(run: Callable[..., Answer], command: str) -> None:
    name, *more = command.split()
    answer = run(name, *more)
    assert answer.code == Exit.USAGE
    assert "is not possible with reverse = true in the job file" in answer.json["error"]["message"]

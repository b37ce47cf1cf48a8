"""A database with what seven years leave behind moves by a job file alone; its source is only read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest

from tests.migration_tool.sources.test_mongo import admin, guarded
from tests.support.copies import invoke, open_store, unexpected_rows, write_config
from tests.support.foreign import Document, counted_writes, insert
from tests.support.legacy_database import SAME_NAME, SHARES, WARTS, WHOLE, documents, planted
from twinstore.config import load_settings
from twinstore.scheduler.catalog import SCHEDULES
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.database import Database

    from tests.support.databases import PostgresDatabase
    from twinstore_embedded import MongoServer

__all__ = ["admin", "guarded"]

JOB: Final = Path(__file__).with_name("legacy_job.toml")
KEPT: Final[Document] = {"Scheduler": {"Storage": {"RunRetentionDays": 0}}}
REFUSED: Final = 190


def fill(database: Database[Document], total: int) -> None:
    for entity in SHARES:
        insert(database[entity.name], (item.document for item in documents(total) if item.entity is entity))


def content(admin: MongoClient[Document], name: str) -> tuple[object, dict[str, int]]:
    """Return the digests of all collections of a database, and how often its server wrote."""
    return admin[name].command("dbHash")["collections"], counted_writes(admin)


def refused_keys(quarantine: Path) -> set[tuple[str, str]]:
    lines = map(json.loads, quarantine.read_text().splitlines())
    return {(line["entity"], *line["key"]) for line in lines}


@pytest.mark.parametrize("total", [2000, pytest.param(WHOLE, marks=pytest.mark.long)])
def test_every_document_is_copied_by_a_rule_or_refused_with_an_accepted_cause(  # noqa: PLR0917  # fixtures
    guarded: MongoServer,
    admin: MongoClient[Document],
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    total: int,
) -> None:
    name = f"legacy_{uuid4().hex[:8]}"
    fill(admin[name], total)
    mongo = {"ConnectionString": guarded.user_url(name, "reader", "read"), "Database": name}
    source = write_config(
        tmp_path / "source.json", {"Persistence": {"Scheduler": "Mongo", "Mongo": mongo}} | KEPT
    )
    before = content(admin, name)
    theirs: Document = {**postgres_database.config, **KEPT}
    target = write_config(tmp_path / "target.json", theirs)
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres", "--format", "json")
    files = ("--source-config", source, "--target-config", target, "--out", tmp_path)

    def run(code: Exit, *command: str) -> Any:  # noqa: ANN401  # the JSON of a command
        answer = invoke(capsys, "backfill", "--job-file", JOB, *command, *sides, *files)
        assert answer.code == code, answer.json.get("reasons", answer.err)
        return answer.json

    causes = {(wart.entity.name, wart.cause): planted(wart, total) for wart in WARTS if wart.cause}
    copied = run(Exit.OK, "copy", "--execute")
    refused = refused_keys(tmp_path / "quarantine.ndjson")
    assert (copied["totals"]["read"], copied["totals"]["written"]) == (total, total - len(refused))
    assert (len(refused), len(refused) <= REFUSED) == (sum(causes.values()), True)
    kept = ((item.entity, item.row) for item in documents(total) if item.place not in refused)
    with open_store("scheduler", "postgres", load_settings(theirs, environ={}), read_only=True) as store:
        assert unexpected_rows(store.bulk, kept) == []
    report = run(Exit.OK, "verify", "--require-cutover-ready")
    assert (report["verdict"], report["cutover_ready"], report["reasons"]) == ("PASS", True, [])
    found = {(item["entity"], item["cause"]): item["documents"] for item in report["causes"]}
    assert (found, all(item["approved"] for item in report["causes"])) == (causes, True)
    # What a rule expresses is nowhere accepted instead, and no rule of the job is idle.
    accepted = {(item["path"], item["kind"]): item["rows"] for item in report["exceptions"]}
    fired_by_none = SHARES[SCHEDULES] * total // WHOLE - planted(SAME_NAME, total)
    assert accepted == {**causes, ("*", "no_trigger"): fired_by_none}
    assert [item["path"] for item in report["rules"] if not item["rows"]] == []
    assert content(admin, name) == before


def test_the_job_is_short() -> None:
    lines = JOB.read_text().splitlines()
    assert (len(lines) <= 70, max(map(len, lines)) <= 120) == (True, True)

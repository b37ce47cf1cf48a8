"""Copy and verification between a real MongoDB and a real PostgreSQL, in both directions."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from bson import Code, ObjectId
from psycopg import sql
from pymongo import MongoClient

from tests.backfill.toolkit import (
    AS_OF,
    DOCUMENTS_PER_TENANT,
    Answer,
    Pair,
    contents_of,
    fill,
    invoke,
    open_store,
    rows_of,
    server_settings,
    write_config,
)
from tests.shipped import LEDGER_FILES
from twinstore.config import load_settings
from twinstore.scheduler.catalog import SCHEDULER
from twinstore_backfill.outcome import Exit
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk import BulkPort

Run = Callable[..., Answer]
DIRECTIONS = ["mongo to postgres", "postgres to mongo"]
long_at = partial(pytest.param, marks=pytest.mark.long)


@pytest.fixture
def databases(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> dict[str, MongoDatabase | PostgresDatabase]:
    return {"mongo": mongo_database, "postgres": postgres_database}


@pytest.fixture
def settings(databases: dict[str, MongoDatabase | PostgresDatabase]) -> dict[str, object]:
    """Return one settings document that names both servers."""
    return server_settings(databases["postgres"], databases["mongo"])


@contextmanager
def opened(settings: dict[str, object], direction: str, directory: Path) -> Iterator[Pair]:
    source, target = direction.split(" to ")
    loaded = load_settings(settings, environ={})
    with open_store("scheduler", source, loaded) as left, open_store("scheduler", target, loaded) as right:
        left.storage.initializer.ensure_migrations()
        yield Pair(left, right, directory)


@pytest.fixture(params=DIRECTIONS)
def pair(request: pytest.FixtureRequest, settings: dict[str, object], tmp_path: Path) -> Iterator[Pair]:
    with opened(settings, request.param, tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


@pytest.fixture
def forward(settings: dict[str, object], tmp_path: Path) -> Iterator[Pair]:
    with opened(settings, DIRECTIONS[0], tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


def all_content(port: BulkPort) -> dict[str, list[bytes]]:
    return {entity.name: contents_of(port, entity) for entity in port.entities()}


def xmins(database: PostgresDatabase) -> list[tuple[Any, ...]]:
    with psycopg.connect(database.superuser_url) as connection:
        rows = [
            (name, *row)
            for name in (entity.name for entity in SCHEDULER.entities)
            for row in connection.execute(
                sql.SQL("SELECT ctid::text, xmin::text FROM scheduler.{}").format(sql.Identifier(name))
            )
        ]
    return sorted(rows)


@pytest.mark.usefixtures("native_first")
def test_what_was_copied_is_proved_equal_and_read_alike(pair: Pair) -> None:
    result = pair.copy()
    assert (result.exit, result.complete) == (Exit.OK, True)
    assert all_content(pair.target.bulk) == all_content(pair.source.bulk)
    report = pair.verify()
    assert (report.verdict, report.reasons) == ("PASS", ())
    assert report.documents_equal == 2 * DOCUMENTS_PER_TENANT
    assert report.equivalences == ()


def test_a_second_run_writes_no_row(forward: Pair, postgres_database: PostgresDatabase) -> None:
    forward.copy()
    before = xmins(postgres_database)
    second = forward.copy()
    assert second.totals.all()["written"] == 0
    assert second.totals.all()["unchanged"] == 2 * DOCUMENTS_PER_TENANT
    assert xmins(postgres_database) == before != []


def test_there_and_back_again_changes_nothing(settings: dict[str, object], tmp_path: Path) -> None:
    with opened(settings, DIRECTIONS[0], tmp_path) as pair:
        fill(pair.source.storage)
        before = all_content(pair.source.bulk)
        pair.copy()
    with opened(settings, DIRECTIONS[1], tmp_path) as back:
        result = back.copy()
        assert result.totals.all()["unchanged"] == 2 * DOCUMENTS_PER_TENANT
        assert all_content(back.target.bulk) == before


@pytest.mark.parametrize("pair", [long_at(DIRECTIONS[0]), DIRECTIONS[1]], indirect=True)
def test_several_processes_come_to_the_same_report(pair: Pair) -> None:
    pair.copy()
    alone, together = (pair.verify(jobs=jobs).model_dump(mode="json") for jobs in (1, 2))
    del alone["envelope"], together["envelope"]
    assert json.dumps(alone) == json.dumps(together)


@pytest.mark.parametrize("pair", [DIRECTIONS[0], long_at(DIRECTIONS[1])], indirect=True)
def test_a_dry_run_writes_nothing_to_a_store(pair: Pair) -> None:
    before = rows_of(pair.target.bulk)
    result = pair.copy(execute=False)
    assert result.totals.all()["written"] == 2 * DOCUMENTS_PER_TENANT
    assert rows_of(pair.target.bulk) == before
    assert not has_ledger(pair.target) or list(pair.target.ledger.jobs()) == []


class TestBadDocuments:
    """One of each class, planted past every check of the server."""

    @pytest.fixture
    def planted(self, forward: Pair, mongo_database: MongoDatabase) -> Pair:
        with MongoClient[dict[str, Any]](mongo_database.url) as client:
            runs = client[mongo_database.name]["runs"]
            good = runs.find_one({"_id": "acme-run-1"})
            assert good is not None
            changes: list[dict[str, Any]] = [
                {"_id": "bad-state", "state": "lost"},
                {"_id": "bad-nul", "retryOf": "a\x00b"},
                {"_id": ObjectId("64b7f0c2a1b2c3d4e5f60718")},
                {"_id": 17},
                {"_id": "bad-field", "foreign": 1},
                {"_id": "bad-tenant", "tenantId": 5},
                {"_id": "bad-date", "createdAt": "yesterday"},
                {"_id": "bad-number", "stats": {**good["stats"], "queued": float("nan")}},
                {"_id": "acme-run-1 "},
                {"_id": "blank-tenant", "tenantId": " acme "},
                {"_id": "bad-code", "scheduleId": Code("x", {"a": 1})},
                {"_id": "bad-inner-code", "reason": {"cursor": Code("x")}},
            ]
            client[mongo_database.name].command("collMod", "runs", validator={}, validationLevel="off")
            runs.insert_many([{**good, **change} for change in changes])
        return forward

    def test_never_stop_the_load_are_kept_once_and_leave_the_proof_open(self, planted: Pair) -> None:
        planted.copy()
        result = planted.copy()
        assert (result.exit, result.complete) == (Exit.INCONCLUSIVE, True)
        assert result.totals.all()["unchanged"] == 2 * DOCUMENTS_PER_TENANT
        assert result.totals.of("runs")["quarantined"] == 12
        lines = (planted.directory / "quarantine.ndjson").read_text().splitlines()
        kept = [json.loads(line) for line in lines]
        assert len(kept) == 12
        assert all(entry["reason"] and json.loads(entry["raw"]) for entry in kept)
        assert sorted(str(entry["key"]) for entry in kept) == [
            "None",
            "None",
            "['acme-run-1 ']",
            "['bad-code']",
            "['bad-date']",
            "['bad-field']",
            "['bad-inner-code']",
            "['bad-nul']",
            "['bad-number']",
            "['bad-state']",
            "['bad-tenant']",
            "['blank-tenant']",
        ]
        report = planted.verify()
        assert (report.verdict, report.exit_code) == ("INCONCLUSIVE", Exit.INCONCLUSIVE)
        runs = next(entity for entity in report.entities if entity.entity == "runs")
        assert runs.quarantined.count == 12


def test_timestamps_stored_as_text_are_copied_and_counted(
    forward: Pair, mongo_database: MongoDatabase
) -> None:
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        database = client[mongo_database.name]
        database.command("collMod", "audit", validator={}, validationLevel="off")
        database["audit"].update_one(
            {"_id": "acme-audit-1"}, {"$set": {"occurredAt": "2025-10-26T15:05:01.000900+01:00"}}
        )
    result = forward.copy()
    assert result.totals.of("audit")["text_timestamp"] == 1
    assert result.exit is Exit.OK
    report = forward.verify()
    assert {item.name: item.documents for item in report.equivalences} == {"text_timestamp": 1}


class TestCommands:
    @pytest.fixture
    def config(self, settings: dict[str, object], tmp_path: Path) -> Path:
        return write_config(tmp_path / "settings.json", settings)

    @pytest.fixture
    def run(self, config: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
        def command(name: str, *more: object) -> Answer:
            sides = ("--module", "scheduler", "--from", "Mongo", "--to", "Postgres")
            as_of = ("--as-of", AS_OF.isoformat()) if name in {"copy", "verify"} else ()
            out = ("--out", tmp_path / "out") if name in {"copy", "verify"} else ()
            chosen = sides if name != "status" else (*sides[:2], *sides[4:])
            return invoke(capsys, "--config", config, "backfill", name, *chosen, *as_of, *out, *more)

        return command

    def test_plan_copy_status_verify(self, run: Run, forward: Pair) -> None:
        del forward
        plan = run("plan", "--format", "json")
        assert (plan.code, plan.json["rows"]) == (0, 2 * DOCUMENTS_PER_TENANT)
        # The copy makes the schema of its ledger.
        assert plan.json["pending_migrations"] == list(LEDGER_FILES)
        dry = run("copy")
        assert dry.code == 0
        assert "nothing was written" in dry.out
        copied = run("copy", "--execute", "--format", "json", "--range-size", "4")
        assert (copied.code, copied.json["complete"]) == (0, True)
        status = run("status", "--format", "json")
        (job,) = status.json["jobs"]
        assert (job["state"], job["lease"], job["totals"]["written"]) == (
            "complete",
            None,
            2 * DOCUMENTS_PER_TENANT,
        )
        verified = run("verify")
        assert verified.code == 0
        assert f"PASS: {2 * DOCUMENTS_PER_TENANT} documents equal." in verified.out
        assert "set Persistence:Scheduler to Postgres" in verified.out

    def test_one_changed_one_missing_and_one_extra_row_in_all_four_formats(
        self, run: Run, forward: Pair, postgres_database: PostgresDatabase, tmp_path: Path
    ) -> None:
        forward.copy()
        with psycopg.connect(postgres_database.superuser_url) as connection:
            connection.execute("UPDATE scheduler.schedules SET name = 'Renamed' WHERE id = 'acme-schedule-1'")
            connection.execute("DELETE FROM scheduler.runs WHERE id = 'umbrella-run-3'")
            connection.execute(
                "CREATE TEMP TABLE one AS SELECT * FROM scheduler.audit WHERE id = 'acme-audit-1';"
                "UPDATE one SET id = 'zzz-extra'; INSERT INTO scheduler.audit SELECT * FROM one"
            )
        answer = run("verify")
        assert answer.code == Exit.DIFFERENT
        for suffix in ("json", "xml", "md", "html"):
            text = (tmp_path / "out" / f"parity-report.{suffix}").read_text().replace("\\", "")
            for expected in ("acme-schedule-1", "doc.name", "umbrella-run-3", "zzz-extra"):
                assert expected in text, (suffix, expected)
        for expected in (
            'different schedules "acme-schedule-1": doc.name',
            'missing runs "umbrella-run-3"',
            'extra audit "zzz-extra"',
        ):
            assert expected in answer.out
        assert "Renamed" not in answer.out

    def test_two_verifications_write_the_same_bytes_apart_from_the_envelope(
        self, run: Run, forward: Pair, tmp_path: Path
    ) -> None:
        forward.copy()
        reports = []
        for _ in range(2):
            run("verify")
            report = json.loads((tmp_path / "out" / "parity-report.json").read_text())
            del report["envelope"]
            reports.append(json.dumps(report))
        assert reports[0] == reports[1]


@pytest.mark.usefixtures("exact_first")
def test_retention_of_the_target_decides_what_is_expired(settings: dict[str, object], tmp_path: Path) -> None:
    settings["Scheduler"] = {"Storage": {"ImpactRetentionDays": 1, "RunRetentionDays": 0}}
    with opened(settings, DIRECTIONS[1], tmp_path) as pair:
        fill(pair.source.storage)
        later = datetime(2025, 10, 28, tzinfo=UTC)
        result = pair.copy(as_of=later)
        assert result.totals.of("impact_snapshots")["expired"] == 4
        report = pair.verify(as_of=later)
        assert (report.verdict, report.reasons) == ("PASS", ())

"""A verification leaves for the repair every row that differs, and whether the cutover is ready."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pymongo import MongoClient

from tests.migration_tool.cli.test_verify_command import sides_of
from tests.migration_tool.verify.test_corruptions import copied, merged_settings
from tests.migration_tool.verify.test_verify import change
from tests.support.copies import AS_OF, invoke
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.verify.findings import field_of
from twinstore_memory.rows import encode, store_unchecked, stored_rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.copies import MemoryPair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore_backfill.report.model import ParityReport

pytestmark = pytest.mark.usefixtures("copied")

MANY = 250


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    """Return settings of both servers."""
    return merged_settings(mongo_database, postgres_database)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def verify(pair: MemoryPair, directory: Path, *more: object) -> tuple[object, ...]:
    return ("backfill", "verify", *sides_of(pair, directory), "--as-of", AS_OF.isoformat(), *more)


def test_every_row_that_differs_is_a_line_with_its_paths_and_digests(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(MANY):
        store_unchecked(
            pair.stores[1], encode(RUNS, make_run("acme", f"extra-{number:03}", created_at=at(number)))
        )
    change(pair.stores[1], RUNS, "acme-run-1", createdAt=at(-5))
    answer = invoke(capsys, *verify(pair, tmp_path, "--out", tmp_path))
    assert answer.code == Exit.DIFFERENT
    file = tmp_path / "differences.ndjson"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = lines_of(file)
    assert [line["key"] for line in lines if line["kind"] == "extra"] == [
        [f"extra-{number:03}"] for number in range(MANY)
    ]
    (different,) = (line for line in lines if line["kind"] == "different")
    assert (different["entity"], different["key"], different["tenant"]) == ("runs", ["acme-run-1"], "acme")
    assert (different["paths"], different["path_count"]) == (["doc.createdAt"], 1)
    assert different["source_digest"] != different["target_digest"]
    assert "different runs, field doc.createdAt: 1" in answer.out


def test_a_run_that_fails_leaves_no_differences_of_an_earlier_one(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(capsys, *verify(pair, tmp_path, "--out", tmp_path)).code == Exit.OK
    assert (tmp_path / "differences.ndjson").read_bytes() == b""
    assert invoke(capsys, *verify(pair, tmp_path, "--out", tmp_path, "--tenant", "nosuch")).code == Exit.USAGE
    assert not list(tmp_path.glob("*differences*"))


def test_a_target_row_under_the_key_of_a_source_row_that_no_copy_takes_is_stale(pair: MemoryPair) -> None:
    change(pair.stores[0], RUNS, "acme-run-1", unknown=1)
    report = pair.verify()
    runs = next(entity for entity in report.entities if entity.entity == "runs")
    assert (report.verdict, runs.counts.stale, runs.counts.different) == ("FAIL", 1, 0)
    (stale,) = runs.stale.shown
    assert stale.key == ("acme-run-1",)
    assert "unknown" in (stale.reason or "")


def test_what_no_copy_takes_is_named_with_its_reason(pair: MemoryPair) -> None:
    row = stored_rows(pair.stores[0], RUNS)["acme-run-1",]
    document = {**row.document, "id": "new", "state": "odd"}
    store_unchecked(pair.stores[0], replace(row, key=("new",), document=document))
    report = pair.verify()
    runs = next(entity for entity in report.entities if entity.entity == "runs")
    assert report.verdict == "INCONCLUSIVE"
    (named,) = runs.quarantined.shown
    assert "state" in (named.reason or "")
    assert "odd" not in (named.reason or "")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("doc.deltas[17].imageDigest", "doc.deltas[].imageDigest"),
        ('doc.labels["a b"]', "doc.labels[*]"),
        ('doc.labels["a\\"]b"].x', "doc.labels[*].x"),
        ("doc.x (only in target)", "doc.x (only in target)"),
    ],
)
def test_fields_are_the_same_for_every_item_of_a_list_and_every_name_of_a_map(path: str, field: str) -> None:
    assert field_of(path) == field


class TestReadiness:
    def test_a_narrowed_verification_is_partial_and_not_enough_where_readiness_is_required(
        self, pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        narrowed = verify(pair, tmp_path, "--entity", "runs", "--format", "json")
        answer = invoke(capsys, *narrowed)
        assert (answer.code, answer.json["verdict"], answer.json["cutover_ready"]) == (0, "PARTIAL", False)
        answer = invoke(capsys, *narrowed, "--require-cutover-ready")
        assert (answer.code, answer.json["exit_code"]) == (Exit.INCONCLUSIVE, Exit.INCONCLUSIVE)
        whole = verify(pair, tmp_path, "--require-cutover-ready", "--format", "json")
        answer = invoke(capsys, *whole)
        assert (answer.code, answer.json["verdict"], answer.json["cutover_ready"]) == (0, "PASS", True)

    def test_a_switch_that_names_the_target_already_is_said_and_never_ready(
        self, settings: dict[str, object], tmp_path: Path
    ) -> None:
        with copied(settings, "mongo to postgres", tmp_path) as pair:
            before, after = (pair.verify(switch=switch) for switch in ("Mongo", "Postgres"))
        assert (before.verdict, before.cutover_ready, before.warnings) == ("PASS", True, ())
        assert (after.verdict, after.cutover_ready) == ("PASS", False)
        assert "Persistence:Scheduler names Postgres already" in after.warnings[0]


class TestSchemaOfTheTarget:
    """Equal rows do not prove that later writes are right while a key, an index or a policy is missing."""

    def test_postgres(
        self, settings: dict[str, object], postgres_database: PostgresDatabase, tmp_path: Path
    ) -> None:
        with (
            copied(settings, "mongo to postgres", tmp_path) as pair,
            psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
        ):
            connection.execute("CREATE INDEX for_speed ON scheduler.runs (created_at, state)")
            assert pair.verify().verdict == "PASS"
            (((policy,),), ((pending,),)) = (
                connection.execute(found).fetchall()
                for found in (
                    "SELECT policyname FROM pg_policies WHERE tablename = 'audit'",
                    "SELECT indexdef FROM pg_indexes WHERE indexname = 'idx_runs_pending'",
                )
            )
            weaker = f"CREATE POLICY {policy} ON scheduler.audit USING (true)"
            for damage, mended, is_refused in (
                ("DROP INDEX scheduler.idx_runs_pending", pending, False),
                (
                    "CREATE UNIQUE INDEX own ON scheduler.runs (created_at, id)",
                    "DROP INDEX scheduler.own",
                    False,
                ),
                (
                    "ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY",
                    "ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY",
                    True,
                ),
                (
                    "ALTER TABLE scheduler.audit DROP CONSTRAINT audit_pkey",
                    "ALTER TABLE scheduler.audit ADD PRIMARY KEY (id)",
                    True,
                ),
                (f"DROP POLICY {policy} ON scheduler.audit; {weaker}", "SELECT 1", True),
            ):
                statements: tuple[Any, Any] = (damage, mended)
                connection.execute(statements[0])
                if is_refused:
                    with pytest.raises(PreflightError):
                        pair.verify()
                else:
                    assert_open(pair.verify())
                connection.execute(statements[1])

    def test_mongo(self, settings: dict[str, object], mongo_database: MongoDatabase, tmp_path: Path) -> None:
        with (
            copied(settings, "postgres to mongo", tmp_path) as pair,
            MongoClient[dict[str, Any]](mongo_database.url) as client,
        ):
            runs = client[mongo_database.name]["runs"]
            runs.create_index("triggeredBy", name="for_speed")
            assert pair.verify().verdict == "PASS"
            for damage in (
                partial(runs.create_index, [("createdAt", 1), ("_id", 1)], name="own", unique=True),
                partial(runs.create_index, "startedAt", name="own", expireAfterSeconds=10**9),
            ):
                damage()
                assert_open(pair.verify())
                runs.drop_index("own")
            runs.drop_index(min(set(runs.index_information()) - {"_id_", "for_speed"}))
            assert_open(pair.verify())


def assert_open(report: ParityReport) -> None:
    assert (report.verdict, report.cutover_ready) == ("INCONCLUSIVE", False)
    assert any("target schema" in reason for reason in report.reasons)

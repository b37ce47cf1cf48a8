"""Under rules digests prove what a comparison row by row proves, and packed rows are what the models copy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.migration_tool.verify.test_digests import TENANTS, assert_alike, shares
from tests.migration_tool.verify.test_rules import counts
from tests.support.copies import long_ago, server_settings
from tests.support.digests import limit_digests
from tests.unit.fast.test_reverse_copy import lines, told
from twinstore.fast.library import SWITCH, fast_path
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.rules.model import (
    DateRule,
    DefaultRule,
    DropRule,
    JobRules,
    MapRule,
    RenameRule,
    ReplaceRule,
    Rule,
)
from twinstore_mongo.client.bson import raw_batches

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.collection import Collection

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase

ROWS: Final = 120


def rule(kind: type[Rule], number: int, path: str, **more: Any) -> Rule:  # noqa: ANN401  # the parts of any rule
    given = {"reason": "r", **more}
    return kind(number=number, line=number, entity="runs", path=tuple(path.split(".")), **given)


# By the last digit of the id what another program left, and the rule that makes it right.
LEFT: Final[tuple[tuple[Rule, list[dict[str, Any]]], ...]] = (
    (
        rule(MapRule, 1, "state", values={"doing": "planning"}),
        [{"$set": {"state": "doing"}}],
    ),
    (
        rule(DateRule, 2, "createdAt", formats=("%d.%m.%Y %H:%M:%S",), zone="UTC"),
        [{"$set": {"createdAt": {"$dateToString": {"date": "$createdAt", "format": "%d.%m.%Y %H:%M:%S"}}}}],
    ),
    (
        rule(RenameRule, 3, "plan", to=("scheduleId",)),
        [{"$set": {"plan": "$scheduleId"}}, {"$unset": "scheduleId"}],
    ),
    (rule(DefaultRule, 4, "trigger", value="manual"), [{"$unset": "trigger"}]),
    (
        rule(ReplaceRule, 5, "reason.manualReason", old="#", by=""),
        [{"$set": {"reason.manualReason": {"$concat": ["#", "$reason.manualReason"]}}}],
    ),
    (rule(DropRule, 6, "stats.old"), [{"$set": {"stats.old": [1, None]}}]),
    (rule(DropRule, 7, "legacy"), [{"$set": {"legacy": "x", "stats.old": 1}}]),
)
RULES: Final = JobRules(tuple(made for made, _ in LEFT))
CHANGED: Final = [ROWS // 10] * 5 + [ROWS // 5, ROWS // 10]
# What is left to a comparison of the rows, or is found.
FAULTS: Final[tuple[dict[str, Any], ...]] = (
    {"$set": {"state": "Doing"}},
    {"$set": {"createdAt": "31.02.2025 10:00:00"}},
    {"$set": {"createdAt": "2025-10-26T14:05:00Z"}},
    {"$set": {"plan": "other"}},
    {"$set": {"unknown": 1}},
    {"$set": {"stats.queued": 2.0}},
    {"$set": {"trigger": None}},
    {"$set": {"tenantId": "umbrella"}},
    {"$set": {"state": "cancelled", "startedAt": long_ago(401), "finishedAt": long_ago(400)}},
    {"$set": {"state": "doing", "reason.manualReason": "#other#"}},
)

pytestmark = pytest.mark.skipif(not fast_path().is_on, reason="the native library is off")


@pytest.fixture
def runs(empty_mongo_database: MongoDatabase) -> Iterator[Collection[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        yield client[empty_mongo_database.name]["runs"]


@pytest.fixture
def pair(
    runs: Collection[dict[str, Any]],
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    """Return a source in need of rules, and a target with what they give."""
    monkeypatch.setattr("twinstore_backfill.verify.partition.ROWS_PER_DIGEST", 7)
    settings = server_settings(
        empty_mongo_database, postgres_database, validators=False, RunRetentionDays=300
    )
    with opened(settings, DIRECTIONS[0], tmp_path) as pair:
        for number in range(ROWS):
            run = make_run(
                TENANTS[number % 3],
                f"run-{number:03}",
                schedule_id=f"s{number % 4}",
                reason={"manualReason": "asked"},
            )
            pair.source.storage.runs.create(run)
        pair.copy()
        for digit, (_, left) in enumerate(LEFT):
            runs.update_many({"_id": {"$regex": f"{digit}$"}}, left)
        yield pair


def test_a_target_with_what_rules_leave_is_proved_by_digests_alone(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = assert_alike(pair, monkeypatch, entities=("runs",), range_size=40, rules=RULES)
    assert (shares(report).row_by_row, report.documents_equal) == (0, ROWS)
    assert [item.rows for item in report.rules] == CHANGED
    assert {item.name: item.documents for item in report.equivalences} == {"ignored": ROWS // 5}
    for missing in RULES:
        rules = JobRules(tuple(item for item in RULES if item is not missing))
        report = pair.verify(entities=("runs",), range_size=40, rules=rules)
        assert report.verdict == "FAIL", missing.kind


def test_without_a_reason_the_rows_of_a_drop_are_named(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = JobRules(tuple(replace(item, reason="") if item.number == 7 else item for item in RULES))
    report = assert_alike(pair, monkeypatch, entities=("runs",), range_size=40, rules=rules)
    assert report.verdict == "INCONCLUSIVE"
    assert counts(report)["unproved"] == ROWS // 10


def test_faults_of_wild_stores_are_the_same_row_by_row(
    pair: Pair,
    runs: Collection[dict[str, Any]],
    postgres_database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(runs)
    with monkeypatch.context() as folded:
        limit_digests(folded, 20, 2)
        report = assert_alike(pair, folded, entities=("runs",), range_size=40, rules=RULES)
    assert shares(report).by_digests > 0
    assert (report.verdict, counts(report)["different"]) == ("FAIL", 3)
    # A row that a rule changed, and one that none did.
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE scheduler.runs SET trigger = 3 - trigger WHERE id IN ('run-100', 'run-118')"
        )
    report = assert_alike(pair, monkeypatch, entities=("runs",), range_size=40, rules=RULES, jobs=2)
    assert counts(report)["different"] == 5
    assert shares(report).by_digests > 0


def test_a_copy_of_packed_rows_is_that_of_the_models(
    pair: Pair,
    runs: Collection[dict[str, Any]],
    postgres_database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(runs)
    found = []
    for switch in ("on", "off"):
        with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
            connection.execute(
                "TRUNCATE scheduler.runs, scheduler.backfill_ranges, scheduler.backfill_jobs CASCADE"
            )
            monkeypatch.setenv(SWITCH, switch)
            result = pair.copy(entities=("runs",), rules=RULES, range_size=40, max_quarantine=None)
            rows = connection.execute("SELECT runs::text FROM scheduler.runs ORDER BY id").fetchall()
        packed = 0 if result.fast_path is None else result.fast_path.rows
        assert (packed > ROWS * 0.8) is (switch == "on")
        found.append((told(result), lines(pair.directory), rows))
    assert found[0] == found[1]


def plant(runs: Collection[dict[str, Any]]) -> None:
    """Plant faults in documents that rules change and in others, and what the client does not give back."""
    for number, fault in enumerate(FAULTS):
        runs.update_one({"_id": f"run-{number * 11:03}"}, fault)
    for number, (good, bad) in enumerate(((b"asked", b"ask\xff\xfe"), (b"stats\0", b"state\0"))):
        raw = bytes(b"".join(raw_batches(runs.find_raw_batches({"_id": f"run-11{number}"}))))
        runs.delete_one({"_id": f"run-11{number}"})
        runs.insert_one(RawBSONDocument(raw.replace(good, bad)))

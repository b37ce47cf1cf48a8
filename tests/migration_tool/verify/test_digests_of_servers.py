"""The same of real servers and native digests: wild stores, with digests first and row by row."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson.int64 import Int64
from psycopg import sql
from psycopg.types.json import Jsonb
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, long_at, opened
from tests.migration_tool.verify.test_digests import TENANTS, assert_alike, shares
from tests.support.copies import fill, long_ago, server_settings
from tests.support.digests import limit_digests
from twinstore.fast.library import SWITCH, fast_path
from twinstore.scheduler.runs import DeltaSummary
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase

ROWS: Final = 240
# What is set in documents that are chosen by chance; a key that exists decides of a row that is removed.
IN_MONGO: Final[tuple[dict[str, Any], ...]] = (
    {"$set": {"stats.queued": 3}},
    {"$set": {"stats.queued": 0.0}},
    {"$set": {"stats.queued": Int64(4)}},
    {"$set": {"scheduleId": " blank "}},
    {"$set": {"tenantId": "umbrella"}},
    {"$set": {"createdAt": "2025-10-26T14:05:00Z"}},
    {"$set": {"unknown": [1, None]}},
    {"$set": {"error": None}},
    {"$set": {"_seen": True}},
    {"$set": {"finishedAt": long_ago(400), "startedAt": long_ago(401), "state": "cancelled"}},
    {"$unset": {"tenantId": ""}},
    {"$unset": {"_version": ""}},
    {"$set": {"_version": 7}},
    {"$set": {"reason": {"impactWindowFrom": "2025-10-26T14:05:00.000500+00:00"}}},
)
IN_POSTGRES: Final = (
    "stats = jsonb_set(stats, '{queued}', '3')",
    "stats = jsonb_set(stats, '{queued}', '0.0')",
    "stats = stats || '{\"more\": 1}'",
    "schedule_id = schedule_id || ' '",
    "tenant_id = 'umbrella'",
    "created_at = created_at + interval '1 millisecond'",
    "created_at = created_at + interval '1 microsecond'",
    "trigger = 3 - trigger",
    'reason = \'{"cursor": "\\u00e9\\u2028"}\'',
)

pytestmark = pytest.mark.skipif(not fast_path().is_on, reason="the native library is off")


@pytest.fixture
def pair(
    request: pytest.FixtureRequest,
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    """Return two stores that hold the same; ranges for digests have seven rows."""
    monkeypatch.setattr("twinstore_backfill.verify.partition.ROWS_PER_DIGEST", 7)
    # Validators would refuse most of what is planted here.
    settings = server_settings(empty_mongo_database, postgres_database, validators=False)
    with opened(settings, request.param, tmp_path) as pair:
        fill(pair.source.storage, TENANTS)
        for number in range(ROWS):
            pair.source.storage.runs.create(make_run(TENANTS[number % 3], f"run-{number:03}"))
        pair.copy()
        yield pair


@pytest.mark.parametrize("pair", [DIRECTIONS[0], long_at(DIRECTIONS[1])], indirect=True)
def test_equal_stores_are_proved_by_native_digests(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    report = assert_alike(pair, monkeypatch, entities=("schedules", "runs", "audit"), range_size=40, jobs=2)
    assert report.verdict == "PARTIAL"
    assert (shares(report).row_by_row, report.documents_equal) == (0, ROWS + 3 * (3 + 7 + 4))


@pytest.mark.parametrize("pair", [long_at(DIRECTIONS[0]), DIRECTIONS[1]], indirect=True)
def test_wild_stores_give_the_same_report_and_the_same_findings(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
) -> None:
    random_ = random.Random(13)
    some = random_.sample(range(ROWS), 2 * len(IN_MONGO) + len(IN_POSTGRES))
    with (
        MongoClient[dict[str, Any]](empty_mongo_database.url) as client,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
    ):
        runs = client[empty_mongo_database.name]["runs"]
        for fault in (*IN_MONGO, *IN_MONGO):
            runs.update_one({"_id": f"run-{some.pop():03}"}, fault)
        for change in IN_POSTGRES:
            statement = sql.SQL("UPDATE scheduler.runs SET {} WHERE id = %s").format(sql.SQL(change))
            connection.execute(statement, [f"run-{some.pop():03}"])
        runs.delete_one({"_id": f"run-{min(set(range(ROWS)) - set(some)):03}"})
        runs.insert_one({"_id": 17, "tenantId": "acme"})
        ended = {"finishedAt": long_ago(400) - timedelta(days=1), "state": "cancelled"}
        runs.insert_one({**(runs.find_one({"_id": "run-007"}) or {}), "_id": "old-1", **ended})
    assert assert_alike(pair, monkeypatch, range_size=40, entities=("runs",)).verdict == "FAIL"
    # Without the key that is none, which may leave more to the exact way.
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        client[empty_mongo_database.name]["runs"].delete_one({"_id": 17})
    report = assert_alike(pair, monkeypatch, range_size=40, jobs=2)
    assert shares(report).by_digests > 0
    assert shares(report).row_by_row > 0
    limit_digests(monkeypatch, 10, 3)
    report = assert_alike(pair, monkeypatch, range_size=20, entities=("runs",), jobs=2)
    assert not report.envelope.without_digests.keys() & {"runs"}
    assert min(shares(report).by_digests, shares(report).row_by_row) > 0


# In a run of both databases: a blank, a default that an object lacks, a null in one, and a list out of order.
DELTAS: Final = [
    {**DeltaSummary(image_digest=f"sha256:{digit * 64}").wire(), "kevHits": [], "topFindings": []}
    for digit in "ba"
]
ALIKE: Final[tuple[dict[str, Any], ...]] = (
    {"reason": {"manualReason": " asked "}},
    {"stats": {"candidates": 1}},
    {"reason": {"manualReason": None, "cursor": "c"}},
    {"deltas": DELTAS},
)
KINDS: Final = {"whitespace": 1, "default_for_absent": 1, "null_for_absent": 1, "set_order": 1}


@pytest.mark.parametrize("pair", [DIRECTIONS[0], long_at(DIRECTIONS[1])], indirect=True)
def test_what_both_hold_in_another_form_is_counted_by_digests_rows_and_copies(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
) -> None:
    with (
        MongoClient[dict[str, Any]](empty_mongo_database.url) as client,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
    ):
        for number, given in enumerate(ALIKE):
            ((name, value),) = given.items()
            key = f"run-{number * 50:03}"
            client[empty_mongo_database.name]["runs"].update_one({"_id": key}, {"$set": given})
            statement = sql.SQL("UPDATE scheduler.runs SET {} = %s WHERE id = %s").format(
                sql.Identifier(name)
            )
            connection.execute(statement, [value if isinstance(value, str) else Jsonb(value), key])
    report = assert_alike(pair, monkeypatch, range_size=40, entities=("runs",))
    assert {item.name: item.documents for item in report.equivalences} == KINDS
    # Of each of the other ranges digests have proved all.
    assert shares(report).row_by_row == len(ALIKE)
    assert report.verdict == "INCONCLUSIVE"
    for switch in ("on", "off"):
        with monkeypatch.context() as chosen:
            chosen.setenv(SWITCH, switch)
            result = pair.copy(range_size=40, entities=("runs",))
        assert (result.exit, result.totals.all()["conflicts"]) == (Exit.OK, 0)
        assert result.totals.equivalences == KINDS

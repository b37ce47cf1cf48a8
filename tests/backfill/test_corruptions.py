"""What somebody may do to a target after a copy: it is named, a copy rewrites it, and then all is equal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson import Code, Regex
from bson.int64 import Int64
from psycopg import sql
from pymongo import MongoClient

from tests.backfill.test_between_servers import opened
from tests.backfill.toolkit import fill

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.backfill.toolkit import Pair
    from tests.databases import MongoDatabase, PostgresDatabase

Documents = dict[str, Any]
RUN: Final = "acme-run-1"
# A statement for PostgreSQL, and what the report says of the row; runs have no other rows under test.
IN_POSTGRES: Final = {
    "a null for a counter": ("runs", "stats = jsonb_set(stats, '{newLow}', 'null')"),
    "a number in another spelling": ("runs", "stats = jsonb_set(stats, '{queued}', '0.0')"),
    "a name of Python": ("runs", "stats = (stats - 'newHigh') || '{\"new_high\": 0}'"),
    "an unknown name": ("runs", "stats = stats || '{\"more\": 1}'"),
    "a microsecond": (
        "runs",
        'reason = \'{"impactWindowFrom": "2025-10-26T14:05:00.000500+00:00"}\'',
    ),
    "a millisecond": ("runs", "created_at = created_at + interval '1 millisecond'"),
    "a blank at the end": ("runs", "schedule_id = schedule_id || ' '"),
    "another enumeration": ("runs", "trigger = 3 - trigger"),
    "an upper case": ("audit", "category = upper(category)"),
    "a null in metadata": ("audit", "metadata = metadata || '{\"c\": null}'"),
    "an upper case key": ("audit", 'metadata = \'{"KEY": "v"}\''),
    "a wrong order": ("schedules", "subscribers = array_append(subscribers, 'zzz')"),
    "a repeated instant": ("impact_snapshots", "generated_at = generated_at - interval '300 days'"),
    "another digest": ("impact_snapshots", "content_digest = repeat('0', length(content_digest))"),
    "another count": ("impact_snapshots", "image_count = image_count + 1"),
    "a null in a payload": ("impact_snapshots", "payload = jsonb_set(payload, '{total}', 'null')"),
}
IN_MONGO: Final[dict[str, tuple[str, Documents]]] = {
    "a null for a counter": ("runs", {"stats.newLow": None}),
    "a double": ("runs", {"stats.queued": 0.0}),
    "a long": ("runs", {"stats.queued": Int64(0)}),
    "a name of Python": ("runs", {"created_at": "2025-10-26T14:05:01Z"}),
    "an instant as text": ("runs", {"createdAt": "2025-10-26T14:05:01+00:00"}),
    "a blank at the end": ("runs", {"scheduleId": "acme-schedule-1 "}),
    "a null at the top": ("runs", {"error": None}),
    "an empty list": ("runs", {"deltas": []}),
    "an internal field": ("runs", {"_seen": True}),
    "the id once more": ("runs", {"id": RUN}),
    "a version that is a double": ("runs", {"_version": 1.0}),
    "code in a text": ("audit", {"message": Code("x")}),
    "an expression": ("audit", {"metadata": {"a": Regex("x")}}),
    "an upper case key": ("audit", {"metadata": {"KEY": "v"}}),
    "another digest": ("impact_snapshots", {"_contentDigest": "sha256:0"}),
    "another count": ("impact_snapshots", {"_imageCount": Int64(77)}),
    "a count of 64 bits": ("impact_snapshots", {"_imageCount": {"$toLong": "$_imageCount"}}),
    "a name of Python in a payload": ("impact_snapshots", {"usage_only": True}),
}


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    return merged_settings(mongo_database, postgres_database)


def merged_settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    """Return settings of two servers."""
    merged: dict[str, dict[str, object]] = {}
    for database in (mongo_database, postgres_database):
        persistence = database.config["Persistence"]
        assert isinstance(persistence, dict)
        merged |= persistence
    # They would refuse most of what is planted here.
    merged["Mongo"] = {**merged["Mongo"], "Validators": False}
    return {"Persistence": merged, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}


@contextmanager
def copied(settings: dict[str, object], direction: str, directory: Path) -> Iterator[Pair]:
    with opened(settings, direction, directory) as pair:
        fill(pair.source.storage)
        pair.copy()
        assert pair.verify().verdict == "PASS"
        yield pair


def assert_named_and_repaired(
    pair: Pair,
    plant: Callable[[str, str], None],
    empty: Callable[[str], object],
    faults: dict[str, str],
) -> None:
    """Plant one fault after the other into a row of its entity; a copy overwrites no audit record."""
    for name, entity in faults.items():
        plant(name, entity)
        report = pair.verify()
        found = next((item for item in report.entities if item.counts.different), None)
        assert found is not None, name
        assert (name, report.verdict, report.cutover_ready) == (name, "FAIL", False)
        assert (name, found.entity, found.different.count) == (name, entity, 1)
        if entity == "audit":
            empty(entity)
        pair.copy(on_conflict="overwrite")
        assert (name, pair.verify().verdict) == (name, "PASS")


def test_every_corruption_of_postgresql_is_named_and_repaired(
    settings: dict[str, object], postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with (
        copied(settings, "mongo to postgres", tmp_path) as pair,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
    ):

        def plant(name: str, entity: str) -> None:
            table = sql.Identifier("scheduler", entity)
            key = sql.Identifier("snapshot_id" if entity == "impact_snapshots" else "id")
            statement = sql.SQL(
                "UPDATE {0} SET {1} WHERE {2} = (SELECT min({2}) FROM {0} WHERE tenant_id = 'acme')"
            )
            change: Any = IN_POSTGRES[name][1]
            assert connection.execute(statement.format(table, sql.SQL(change), key)).rowcount == 1

        def empty(entity: str) -> None:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("scheduler", entity)))

        faults = {name: entity for name, (entity, _) in IN_POSTGRES.items()}
        assert_named_and_repaired(pair, plant, empty, faults)


def test_every_corruption_of_mongodb_is_named_and_repaired(
    settings: dict[str, object], mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    with (
        copied(settings, "postgres to mongo", tmp_path) as pair,
        MongoClient[Documents](mongo_database.url) as client,
    ):
        database: Database[Documents] = client[mongo_database.name]

        def plant(name: str, entity: str) -> None:
            tenant = "_tenantId" if entity == "impact_snapshots" else "tenantId"
            first = database[entity].find_one({tenant: "acme", **({"_id": RUN} if entity == "runs" else {})})
            assert first is not None
            change = {"$set": IN_MONGO[name][1]}
            computed = name == "a count of 64 bits"
            database[entity].update_one({"_id": first["_id"]}, [change] if computed else change)

        def empty(entity: str) -> None:
            database[entity].delete_many({})

        faults = {name: entity for name, (entity, _) in IN_MONGO.items()}
        assert_named_and_repaired(pair, plant, empty, faults)

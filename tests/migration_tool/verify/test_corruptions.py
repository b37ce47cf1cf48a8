"""Corruptions of a target after a copy: each is named, a copy rewrites it, and then all is equal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson import Code, Regex
from bson.int64 import Int64
from psycopg import sql
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import opened
from tests.support.copies import fill, server_settings
from twinstore.catalog.keys import KeyRange
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, SCHEDULER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_backfill.report.model import EntityReport

Documents = dict[str, Any]
ISO: Final = "%Y-%m-%dT%H:%M:%S+00:00"
# What is set, in words of PostgreSQL, and in which entity.
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
    "an instant as text": ("runs", {"createdAt": {"$dateToString": {"date": "$createdAt", "format": ISO}}}),
    "a blank at the end": ("runs", {"scheduleId": "acme-schedule-1 "}),
    "a null at the top": ("runs", {"error": None}),
    "an empty list": ("runs", {"deltas": []}),
    "an internal field": ("runs", {"_seen": True}),
    "the id once more": ("runs", {"id": "$_id"}),
    "a version that is a double": ("runs", {"_version": 1.0}),
    "code in a text": ("audit", {"message": Code("x")}),
    "an expression": ("audit", {"metadata": {"a": Regex("x")}}),
    "an upper case key": ("audit", {"metadata": {"KEY": "v"}}),
    "another digest": ("impact_snapshots", {"_contentDigest": "sha256:0"}),
    "another count": ("impact_snapshots", {"_imageCount": Int64(77)}),
    "a count of 64 bits": ("impact_snapshots", {"_imageCount": {"$toLong": "$_imageCount"}}),
    "a name of Python in a payload": ("impact_snapshots", {"usage_only": True}),
}
# Those that follow from the row.
COMPUTED: Final = frozenset({"an instant as text", "the id once more", "a count of 64 bits"})


@pytest.fixture
def settings(empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    return merged_settings(empty_mongo_database, postgres_database)


def merged_settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, object]:
    """Return settings of two servers."""
    # Validators would refuse most of what is planted here.
    return server_settings(mongo_database, postgres_database, validators=False)


@contextmanager
def copied(settings: dict[str, object], direction: str, directory: Path) -> Iterator[Pair]:
    with opened(settings, direction, directory) as pair:
        fill(pair.source.storage)
        pair.copy()
        assert pair.verify().verdict == "PASS"
        yield pair


def assert_named_and_repaired(
    pair: Pair,
    plant: Callable[[str, Entity, Key], None],
    empty: Callable[[str], object],
    faults: dict[str, str],
) -> None:
    """Plant each fault into a separate row, in turns if an entity has fewer rows.

    A copy overwrites no audit record, so these are removed before.
    """
    for turn in turns(pair, faults):
        for name, (entity, key) in turn.items():
            plant(name, entity, key)
        report = pair.verify()
        assert (report.verdict, report.cutover_ready) == ("FAIL", False)
        planted = sorted((entity.name, entity.key_text(key)) for entity, key in turn.values())
        named = [(item.entity, key) for item in report.entities for key in keys_of(item)]
        assert sorted(named) == planted, sorted(set(planted) ^ set(named))
        if any(entity is AUDIT for entity, _ in turn.values()):
            empty("audit")
        pair.copy(on_conflict="overwrite")
        again = pair.verify()
        assert again.verdict == "PASS", [row for item in again.entities for row in item.different.shown]


def keys_of(entity: EntityReport) -> list[str]:
    """Return the keys of the rows that differ; nothing else may be wrong."""
    counts = entity.counts
    assert (counts.missing, counts.extra, counts.stale, counts.undecodable) == (0, 0, 0, 0)
    assert len(entity.different.shown) == counts.different
    return [":".join(map(str, row.key or ())) for row in entity.different.shown]


def turns(pair: Pair, faults: dict[str, str]) -> Iterator[dict[str, tuple[Entity, Key]]]:
    """Yield portions of the faults, each with a row that no other fault of its portion has."""
    rows = {name: keys_in(pair, SCHEDULER.entity(name)) for name in set(faults.values())}
    left = dict(faults)
    while left:
        free = {name: iter(keys) for name, keys in rows.items()}
        turn = {
            name: (SCHEDULER.entity(entity), key)
            for name, entity in left.items()
            if (key := next(free[entity], None)) is not None
        }
        left = {name: entity for name, entity in left.items() if name not in turn}
        yield turn


def keys_in(pair: Pair, entity: Entity) -> list[Key]:
    """Return the keys of the target in order."""
    with pair.target.bulk.view() as view:
        return [row.key for batch in view.rows(entity, KeyRange()) for row in batch if row.key is not None]


@pytest.mark.usefixtures("native_first")
def test_every_corruption_of_postgresql_is_named_and_repaired(
    settings: dict[str, object], postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with (
        copied(settings, "mongo to postgres", tmp_path) as pair,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection,
    ):

        def plant(name: str, entity: Entity, key: Key) -> None:
            table = sql.Identifier("scheduler", entity.name)
            column = sql.Identifier("snapshot_id" if entity is IMPACT_SNAPSHOTS else "id")
            change: Any = IN_POSTGRES[name][1]
            statement = sql.SQL("UPDATE {} SET {} WHERE {} = %s")
            found = connection.execute(statement.format(table, sql.SQL(change), column), key)
            assert found.rowcount == 1, name

        def empty(entity: str) -> None:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier("scheduler", entity)))

        faults = {name: entity for name, (entity, _) in IN_POSTGRES.items()}
        assert_named_and_repaired(pair, plant, empty, faults)


@pytest.mark.usefixtures("exact_first")
def test_every_corruption_of_mongodb_is_named_and_repaired(
    settings: dict[str, object], empty_mongo_database: MongoDatabase, tmp_path: Path
) -> None:
    with (
        copied(settings, "postgres to mongo", tmp_path) as pair,
        MongoClient[Documents](empty_mongo_database.url) as client,
    ):
        database: Database[Documents] = client[empty_mongo_database.name]

        def plant(name: str, entity: Entity, key: Key) -> None:
            change = {"$set": IN_MONGO[name][1]}
            done = database[entity.collection].update_one(
                {"_id": key[0]}, [change] if name in COMPUTED else change
            )
            assert done.modified_count == 1, name

        def empty(entity: str) -> None:
            database[entity].delete_many({})

        faults = {name: entity for name, (entity, _) in IN_MONGO.items()}
        assert_named_and_repaired(pair, plant, empty, faults)

"""Copies by packed rows: from PostgreSQL to MongoDB with the fast path as without it, and every other way."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import opened
from tests.migration_tool.copy.test_hostile_stores import settings
from tests.support.copies import BY_HAND, TENANTS, Pair, fill, open_store
from tests.support.hostile_documents import ENTITIES
from tests.support.hostile_rows import drop_rules, good_lines, hostile_rows, insert_hostile_rows
from twinstore.catalog.entity import CopyPolicy
from twinstore.config import load_settings
from twinstore.fast.library import SWITCH
from twinstore.scheduler.catalog import RUNS
from twinstore_backfill.copy.report import copy_report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from twinstore_backfill.copy.report import CopyResult

EACH: Final = 15
EACH_OF_LONG: Final = 40
# What differs between two runs over equal rows, or between two databases.
OWN: Final = frozenset({"envelope", "job", "settings", "target"})
OWN_OF_LINE: Final = frozenset({"job", "generation"})


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_wild_rows_become_the_same_documents_reports_and_quarantine(
    seed: int,
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    long_form: bool,
) -> None:
    with postgres_server.migrated_database() as source, both(mongo_server, source, tmp_path) as sides:
        plant(source, sides[0][1], seed, EACH_OF_LONG if long_form else EACH)
        totals = Counter[str]()
        for on_conflict in ("fail", "fail", "overwrite"):
            totals += copied_alike(sides, monkeypatch, on_conflict)
            for target, _ in sides:
                spoil(target)
        assert all(totals[name] for name in ("written", "unchanged", "quarantined", "conflicts"))


def test_only_the_packed_rows_that_the_server_refuses_are_quarantined(
    mongo_server: MongoServer,
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with postgres_server.migrated_database() as source, both(mongo_server, source, tmp_path) as sides:
        fill(sides[0][1].source.storage)
        for target, _ in sides:
            with MongoClient[dict[str, Any]](target.url) as client:
                client[target.name][RUNS.collection].create_index("tenantId", unique=True, name="one")
        totals = copied_alike(sides, monkeypatch, "fail")
        # One run of each tenant is written.
        assert len(stored(sides[0][0])[RUNS.collection]) == len(TENANTS)
        assert totals["quarantined"] == (BY_HAND[RUNS] - 1) * len(TENANTS)
        reasons = {line["reason"] for line in lines(sides[0][1].directory)}
        assert reasons == {"a unique value of index one is taken in the target"}


def copied_alike(
    sides: Sequence[tuple[MongoDatabase, Pair]], monkeypatch: pytest.MonkeyPatch, on_conflict: str
) -> Counter[str]:
    """Copy with the fast path to the first and without it to the second, and compare; return the counts."""
    found: list[tuple[dict[str, object], object, object]] = []
    totals = Counter[str]()
    for switch, (target, pair) in zip(("on", "off"), sides, strict=True):
        monkeypatch.setenv(SWITCH, switch)
        result = pair.copy(range_size=1000, max_conflicts=10_000, on_conflict=on_conflict)
        assert result.complete
        assert result.fast_path is not None
        assert bool(result.fast_path.rows) == (switch == "on")
        found.append((told(result), lines(pair.directory), stored(target)))
        totals = result.totals.all()
    fast, exact = found
    for name in fast[0]:
        assert fast[0][name] == exact[0][name], name
    assert fast[1:] == exact[1:]
    return totals


def test_what_went_there_and_back_is_stored_as_it_was(
    mongo_server: MongoServer, postgres_server: PostgresServer, tmp_path: Path, *, long_form: bool
) -> None:
    with (
        postgres_server.migrated_database() as between,
        mongo_server.migrated_database() as first,
        mongo_server.database() as last,
        mongo_server.database() as beside,
        postgres_server.migrated_database() as other,
    ):
        with opened(settings(first, between), "mongo to postgres", tmp_path / "there") as pair:
            fill(pair.source.storage, TENANTS if long_form else TENANTS[:1])
            check_whole(pair.copy())
        with opened(settings(last, between), "postgres to mongo", tmp_path / "back") as pair:
            check_whole(pair.copy())
        assert unversioned(last) == unversioned(first)
        with between_two("mongo", first.config, beside.config, tmp_path / "beside") as pair:
            check_whole(pair.copy())
            assert pair.verify().verdict == "PASS"
        assert unversioned(beside) == unversioned(first)
        with between_two("postgres", between.config, other.config, tmp_path / "other") as pair:
            check_whole(pair.copy())
            assert pair.verify().verdict == "PASS"


@contextmanager
def both(
    mongo: MongoServer, source: PostgresDatabase, directory: Path
) -> Iterator[Sequence[tuple[MongoDatabase, Pair]]]:
    """Open copies from one source to two targets."""
    with ExitStack() as stack:
        targets = [stack.enter_context(mongo.migrated_database()) for _ in range(2)]
        yield [
            (
                target,
                stack.enter_context(
                    opened(settings(target, source), "postgres to mongo", directory / str(number))
                ),
            )
            for number, target in enumerate(targets)
        ]


@contextmanager
def between_two(
    backend: str, source: dict[str, object], target: dict[str, object], directory: Path
) -> Iterator[Pair]:
    """Open a copy between two stores of one driver."""
    both_settings = [
        load_settings({**config, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}, environ={})
        for config in (source, target)
    ]
    with (
        open_store("scheduler", backend, both_settings[0]) as left,
        open_store("scheduler", backend, both_settings[1]) as right,
    ):
        right.storage.initializer.ensure_migrations()
        yield Pair(left, right, directory)


def plant(source: PostgresDatabase, pair: Pair, seed: int, each: int) -> None:
    """Put wild rows of each entity into the source."""
    with psycopg.connect(source.superuser_url, autocommit=True) as connection:
        for entity in ENTITIES:
            good = good_lines(connection, pair.source.bulk, entity, each)
            drop_rules(connection, entity)
            insert_hostile_rows(connection, entity, hostile_rows(entity, good, seed))
        # Reports contain estimated row counts; the server may update its estimate between two copies.
        connection.execute("ANALYZE")


def stored(target: MongoDatabase) -> dict[str, list[bytes]]:
    """Return the documents of every entity."""
    with MongoClient[RawBSONDocument](target.url, document_class=RawBSONDocument) as client:
        return {
            entity.collection: sorted(
                bytes(document.raw) for document in client[target.name][entity.collection].find()
            )
            for entity in ENTITIES
        }


def unversioned(target: MongoDatabase) -> dict[str, list[bytes]]:
    """Return the same for entities copied as they are, without the versions: these begin again."""
    found = stored(target)
    return {
        entity.collection: [raw.partition(b"\x12_version")[0] for raw in found[entity.collection]]
        for entity in ENTITIES
        if entity.copy_policy is CopyPolicy.COPIED
    }


def spoil(target: MongoDatabase) -> None:
    """Remove some documents of each entity and change others."""
    with MongoClient[dict[str, Any]](target.url) as client:
        for entity in ENTITIES:
            collection = client[target.name][entity.collection]
            keys = [document["_id"] for document in collection.find({}, {"_id": 1}).sort("_id")]
            collection.delete_many({"_id": {"$in": keys[::3]}})
            collection.update_many(
                {"_id": {"$in": keys[1::7]}}, {"$set": {"_odd": 1}}, bypass_document_validation=True
            )


def told(result: CopyResult) -> dict[str, object]:
    """Return what a copy reports, but for what is its own."""
    return {name: value for name, value in copy_report(result).document().items() if name not in OWN}


def lines(directory: Path) -> list[dict[str, object]]:
    """Return the lines of a quarantine."""
    text = (directory / "quarantine.ndjson").read_text("utf-8")
    # Only there: texts hold what else separates lines.
    found = (json.loads(line) for line in text.split("\n") if line)
    return [{name: value for name, value in line.items() if name not in OWN_OF_LINE} for line in found]


def check_whole(result: CopyResult) -> None:
    """Check that every row was copied, and that native code has packed some."""
    assert result.complete
    assert not result.totals.all()["quarantined"]
    assert result.fast_path is not None
    assert result.fast_path.rows

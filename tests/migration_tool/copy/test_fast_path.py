"""A copy amounts to the same with the fast path on and off: table, report, quarantine and conflicts."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import psycopg
import pytest
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from pymongo import MongoClient

from tests.migration_tool.copy.test_hostile_stores import planted
from tests.support.copies import Pair, numbered_row, open_store
from twinstore.catalog.row import Row
from twinstore.config import load_settings
from twinstore.fast.library import SWITCH
from twinstore.scheduler.catalog import AUDIT, EXECUTION_LOGS, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore_backfill.copy.report import copy_report
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.copy.report import CopyResult

WILD: Final = (SCHEDULES, TRIGGERS, RUNS, EXECUTION_LOGS, AUDIT)
EACH: Final = 80
DAY: Final = 86_400
# What is done to rows of the target between two copies: other content, and gone.
CHANGED: Final[dict[Entity, str]] = {
    SCHEDULES: "timezone = 'Mars/North'",
    RUNS: "schedule_id = 'changed'",
    AUDIT: "message = 'changed'",
}

pytestmark = pytest.mark.native


@dataclass(frozen=True, slots=True)
class Amounted:
    """What a copy left behind."""

    tables: dict[str, list[Any]]
    report: dict[str, Any]
    files: dict[str, bytes]


@pytest.fixture(scope="module")
def source(mongo_server: MongoServer) -> Iterator[MongoDatabase]:
    """Documents of every kind: good, mutated, expired, with a key or a name that another one has."""
    with mongo_server.database() as database, MongoClient[dict[str, Any]](database.url) as client:
        found = client[database.name]
        for entity in WILD:
            # The unique values of ours keep out what a copy must be able to meet.
            found[entity.collection].drop_indexes()
            planted(found, entity, EACH, 5)
            if good := [RawBSONDocument(raw) for raw in good_documents(entity)]:
                found[entity.collection].insert_many(good, bypass_document_validation=True)
        yield database


def good_documents(entity: Entity) -> Iterator[bytes]:
    """Yield documents that native code takes, among them some that retention or the target refuses."""
    rng, codec = Random(entity.name), codec_of(entity)  # not for secrets
    if entity is RUNS:
        for number in range(400):
            run = make_run(f"t{number % 3}", f"run-{number:05}", state=rng.choice(list(RunState)))
            if run.finished_at is not None and number % 4 == 0:
                run = run.evolve(finished_at=at(2 * DAY + number))
            yield bson.encode(codec.encode(Row(run)))
    if entity is EXECUTION_LOGS:
        example = SCHEDULER_EXAMPLES.of(entity)
        for number in range(300):
            row = numbered_row(example, example.small("t0", "log"), "t0", number)
            # One in ten is there twice, under two ids.
            for time in range(1 + (number % 10 == 0)):
                document = codec.encode(row)
                yield bson.encode({**document, "_id": f"{document['_id']}/{time}"})
    if entity is SCHEDULES:
        for number in range(300):
            # One in ten has a name that another one has, and some a character that the target refuses.
            name = f"name {number - number % 10 if number % 10 < 2 else number}"
            schedule = make_schedule("t0", f"schedule-{number:05}").evolve(name=name)
            document = codec.encode(Row(schedule))
            if number % 50 == 7:
                document["createdBy"] = "not\x00text"
            yield bson.encode(document)


@pytest.fixture
def settings(source: MongoDatabase) -> dict[str, Any]:
    found = source.config["Persistence"]
    assert isinstance(found, dict)
    return {"Persistence": found, "Scheduler": {"Storage": {"RunRetentionDays": 1}}}


def copied(
    settings: dict[str, Any],
    target: PostgresDatabase,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    switch: str,
    between: Sequence[str] = (),
    **options: object,
) -> tuple[Amounted, CopyResult]:
    """Copy into a new database, and again after some statements if there are any."""
    persistence = target.config["Persistence"]
    assert isinstance(persistence, dict)
    both = {**settings, "Persistence": {**settings["Persistence"], **persistence}}
    given: dict[str, Any] = {
        "entities": tuple(entity.name for entity in WILD),
        "as_of": at(3 * DAY),
        "range_size": 300,
        "max_conflicts": 10**6,
        **options,
    }
    loaded = load_settings(both, environ={})
    with (
        open_store("scheduler", "mongo", loaded, read_only=True) as left,
        open_store("scheduler", "postgres", loaded) as right,
    ):
        pair = Pair(left, right, directory)
        monkeypatch.setenv(SWITCH, "off")
        if between:
            pair.copy(**{**given, "on_conflict": "fail", "out": directory / "first"})
            with psycopg.connect(target.superuser_url, autocommit=True) as connection:
                for statement in between:
                    connection.execute(statement.encode())
        monkeypatch.setenv(SWITCH, switch)
        result = pair.copy(**given)
        return amounted(result, target, directory), result


def amounted(result: CopyResult, target: PostgresDatabase, directory: Path) -> Amounted:
    """Return everything that a copy left behind, without what names its job."""
    assert result.job is not None
    job = str(result.job["id"]).encode()
    with closing(psycopg.connect(target.superuser_url)) as connection:
        tables = {
            entity.name: connection.execute(
                sql.SQL("SELECT t::text FROM {} AS t ORDER BY 1").format(
                    sql.Identifier(entity.module, entity.name)
                )
            ).fetchall()
            for entity in WILD
        }
    report = copy_report(result).document()
    kept = ("totals", "entities", "quarantine", "conflicts", "failed_ranges", "state", "exit_code")
    files = {path.name: path.read_bytes().replace(job, b"job") for path in sorted(directory.glob("*.ndjson"))}
    return Amounted(tables, {name: report[name] for name in kept}, files)


def both_ways(
    settings: dict[str, Any],
    server: PostgresServer,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    **options: Any,  # noqa: ANN401  # options of a copy
) -> tuple[Amounted, CopyResult]:
    """Copy the fast way and the exact way; what is left behind is equal. Return what it is."""
    found: list[tuple[Amounted, CopyResult]] = []
    for name, switch in (("fast", ""), ("exact", "off")):
        with server.migrated_database() as target:
            place = directory / name
            place.mkdir()
            found.append(copied(settings, target, place, monkeypatch, switch=switch, **options))
    (fast, result), (exact, other) = found
    assert result.fast_path is not None
    assert other.fast_path is not None
    assert (other.fast_path.state, other.fast_path.rows) == ("off", 0)
    assert fast.tables == exact.tables
    assert fast.report == exact.report
    assert fast.files == exact.files
    return fast, result


def test_a_wild_collection_is_copied_the_same_with_the_fast_path_on_and_off(
    settings: dict[str, Any],
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, result = both_ways(settings, postgres_server, tmp_path, monkeypatch)
    totals = found.report["totals"]
    # Each of these occurred; otherwise the comparison would not cover it.
    assert all(totals[name] for name in ("written", "quarantined", "expired")), totals
    assert result.fast_path is not None
    assert 0 < result.fast_path.rows < result.fast_path.of


@pytest.mark.parametrize("on_conflict", ["fail", pytest.param("overwrite", marks=pytest.mark.long)])
def test_a_second_copy_is_the_same_with_the_fast_path_on_and_off(
    on_conflict: str,
    settings: dict[str, Any],
    postgres_server: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    between = [
        statement.format(table=f"{entity.module}.{entity.name}", change=change)
        for statement in (
            "UPDATE {table} SET {change} WHERE id ~ '[37]$'",
            "DELETE FROM {table} WHERE id ~ '[15]$'",
        )
        for entity, change in CHANGED.items()
    ]
    found, result = both_ways(
        settings, postgres_server, tmp_path, monkeypatch, between=between, on_conflict=on_conflict
    )
    totals = found.report["totals"]
    # With ``overwrite`` there are those that are only appended to.
    assert all(totals[name] for name in ("written", "unchanged", "quarantined", "expired", "conflicts"))
    assert result.fast_path is not None
    assert result.fast_path.rows

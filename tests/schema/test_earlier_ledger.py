"""A ledger of an earlier release is migrated without consent, and its ranges begin with no death counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from pymongo import MongoClient

import twinstore
from tests.support.copies import invoke, write_config
from twinstore.ledger.catalog import RANGES
from twinstore.scheduler.catalog import AUDIT
from twinstore.testing.copying import HOUR, ledger_of, ranges_at, started
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings

COUNTING: Final = "003_count_deaths_of_workers.sql"


def made_by_earlier_release(driver: str, request: pytest.FixtureRequest) -> Settings:
    """Return the settings of a store whose ledger has a range of a dead worker and no count of deaths."""
    database: MongoDatabase | PostgresDatabase = request.getfixturevalue(f"empty_{driver}_database")
    with twinstore.add_scheduler_storage(database.config) as storage:
        storage.initializer.ensure_migrations()
        storage.bulk.ledger_initializer.ensure_migrations()
        ledger = ledger_of(storage)
        job_id = started(ledger, AUDIT, ranges_at("m")).job_id
        ledger.take(job_id, "dead", AUDIT.name, HOUR)
        ledger.leave(job_id, "dead")
    if driver == "mongo":
        forget_in_mongo(request.getfixturevalue("empty_mongo_database"))
    else:
        forget_in_postgres(request.getfixturevalue("empty_postgres_database"))
    return database.config


def forget_in_mongo(database: MongoDatabase) -> None:
    with MongoClient[dict[str, Any]](database.url) as client:
        ranges = client[database.name][RANGES.collection]
        assert not ranges.count_documents({"deaths": {"$exists": True}})
        validator = ranges.options()["validator"]
        del validator["$jsonSchema"]["properties"]["deaths"]
        client[database.name].command({"collMod": ranges.name, "validator": validator})


def forget_in_postgres(database: PostgresDatabase) -> None:
    with psycopg.connect(database.owner_url) as connection:
        connection.execute("ALTER TABLE twinstore.ranges DROP COLUMN deaths")
        connection.execute("DELETE FROM twinstore.schema_migrations WHERE migration_name = %s", [COUNTING])


@pytest.mark.parametrize("driver", ["mongo", "postgres"])
def test_its_ranges_go_on_with_no_death(driver: str, request: pytest.FixtureRequest) -> None:
    settings = made_by_earlier_release(driver, request)
    with twinstore.add_scheduler_storage(settings) as storage:
        initializer = storage.bulk.ledger_initializer
        assert initializer.verify() != ()
        assert initializer.effects() == ()
        initializer.ensure_migrations()
        assert initializer.verify() == ()
        ledger = ledger_of(storage)
        (job,) = ledger.jobs()
        assert [item.deaths for item in ledger.ranges(job.id)] == [0, 0]
        for worker in ("one", "two"):
            assert ledger.take(job.id, worker, AUDIT.name, HOUR) is not None
        assert [(item.worker, item.deaths) for item in ledger.ranges(job.id)] == [("two", 1), ("one", 0)]


def test_a_command_that_only_reads_it_says_what_to_run(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "settings.json", made_by_earlier_release("postgres", request))
    sides = ("--config", config, "--module", "scheduler")
    refused = invoke(capsys, "backfill", "status", *sides, "--to", "postgres")
    assert (refused.code, "migrate run --module" in refused.err) == (Exit.PREFLIGHT_REFUSED, True)
    migrated = invoke(capsys, "migrate", "run", *sides, "--backend", "postgres")
    assert (migrated.code, COUNTING in migrated.out) == (Exit.OK, True)
    shown = invoke(capsys, "backfill", "status", *sides, "--to", "postgres")
    assert (shown.code, "running, generation 1" in shown.out) == (Exit.OK, True)

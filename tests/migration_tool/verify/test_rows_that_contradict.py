"""Rows whose columns or derived fields say one thing and their content another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from pymongo import MongoClient

import twinstore
from tests.migration_tool.copy.test_between_servers import opened
from tests.migration_tool.copy.test_hostile_stores import settings
from twinstore.errors import DocumentDecodeError
from twinstore.testing.scheduler.builders import make_policy_job
from twinstore.testing.scheduler.graph_jobs import make_graph_build_job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore_backfill.report.model import EntityReport, ParityReport

OTHER_UUID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def pair(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> Iterator[Pair]:
    with twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage:
        storage.policy_jobs.create(make_policy_job("acme", "p-1"))
        storage.graph_jobs.insert(make_graph_build_job("acme", "g-1"))
    with opened(settings(mongo_database, postgres_database), "postgres to mongo", tmp_path) as pair:
        yield pair


def entity_of(report: ParityReport, name: str) -> EntityReport:
    return next(item for item in report.entities if item.entity == name)


def change(database: PostgresDatabase, statement: str) -> None:
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        assert connection.execute(statement.encode()).rowcount == 1


@pytest.mark.parametrize(
    ("table", "change_of"),
    [
        ("graph_jobs", f"id = '{OTHER_UUID}'"),
        ("graph_jobs", "tenant_id = 'umbrella'"),
        ("policy_jobs", "id = 'p-2'"),
        ("policy_jobs", "tenant_id = 'umbrella'"),
    ],
)
def test_one_under_the_key_or_tenant_of_another_is_quarantined(
    table: str, change_of: str, pair: Pair, postgres_database: PostgresDatabase
) -> None:
    change(postgres_database, f"UPDATE scheduler.{table} SET {change_of}")  # noqa: S608  # of the test
    result = pair.copy()
    assert result.totals.of(table)["quarantined"] == 1
    report = pair.verify()
    assert (report.verdict, entity_of(report, table).counts.quarantined) == ("INCONCLUSIVE", 1)


def test_the_job_of_another_tenant_is_never_shown(postgres_database: PostgresDatabase, pair: Pair) -> None:
    del pair
    change(postgres_database, "UPDATE scheduler.policy_jobs SET tenant_id = 'umbrella'")
    with (
        twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage,
        pytest.raises(DocumentDecodeError, match="its column tenant_id and its payload name different rows"),
    ):
        storage.policy_jobs.get("umbrella", "p-1")


@pytest.mark.parametrize(
    ("table", "change_of", "path"),
    [
        ("graph_jobs", "status = 2", "beside.status"),
        ("graph_jobs", "type = 1 - type", "beside.type"),
        ("policy_jobs", "lease_owner = 'somebody'", "beside.leaseOwner"),
        ("policy_jobs", "attempt_count = 9", "beside.attemptCount"),
    ],
)
def test_one_that_lists_show_elsewhere_leaves_the_proof_open(
    table: str, change_of: str, path: str, pair: Pair, postgres_database: PostgresDatabase
) -> None:
    change(postgres_database, f"UPDATE scheduler.{table} SET {change_of}")  # noqa: S608  # of the test
    assert pair.copy().totals.of(table)["written"] == 1
    report = pair.verify()
    (row,) = entity_of(report, table).unproved.shown
    assert (report.verdict, row.paths) == ("INCONCLUSIVE", (f"{path} (beside)",))


def test_no_document_is_shown_under_the_key_of_another(mongo_database: MongoDatabase) -> None:
    job = make_graph_build_job("acme", "g-1")
    with (
        twinstore.add_scheduler_mongo_storage(mongo_database.config) as storage,
        MongoClient[dict[str, Any]](mongo_database.url) as client,
    ):
        storage.initializer.ensure_migrations()
        storage.graph_jobs.insert(job)
        other = UUID(OTHER_UUID).hex
        jobs = client[mongo_database.name]["graph_jobs"]
        assert jobs.update_one({}, {"$set": {"_uuid": other}}).modified_count == 1
        with pytest.raises(DocumentDecodeError, match="its field _uuid and its content name different rows"):
            storage.graph_jobs.get_build_job("acme", f"{job.id[:4]}{other}")


def test_an_id_that_is_stored_twice_is_one_and_has_a_name(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    with twinstore.add_scheduler_mongo_storage(mongo_database.config) as storage:
        storage.policy_jobs.create(make_policy_job("acme", "p-1"))
    with MongoClient[dict[str, Any]](mongo_database.url) as client:
        client[mongo_database.name]["policy_jobs"].update_one({"_id": "p-1"}, {"$set": {"id": "p-1"}})
    with opened(settings(mongo_database, postgres_database), "mongo to postgres", tmp_path) as pair:
        assert pair.copy().totals.of("policy_jobs")["written"] == 1
        report = pair.verify()
    assert {item.name: item.documents for item in report.equivalences} == {"id_repeated": 1}
    assert report.verdict == "PASS"

"""Leases beside ten thousand jobs of somebody else, jobs that nobody can read, and jobs of megabytes."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pymongo import MongoClient

import twinstore
from tests.stores import kept
from twinstore.scheduler.enums import PolicyRunJobStatus, PolicyRunPriority
from twinstore.scheduler.policy_jobs import PolicyRunInputs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.policy_builders import as_submitted, make_policy_job
from twinstore_postgres.mapping.owners import ScopeKind
from twinstore_postgres.special.scheduler_claims import lease_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.scheduler.storage import SchedulerStorage

DISPATCHING: Final = PolicyRunJobStatus.DISPATCHING
CROWD: Final = 10_000
FEW: Final = 20
# Ten thousand jobs of one tenant, all of them urgent and in front; every third or all of them are for later.
FILL: Final = """
INSERT INTO scheduler.policy_jobs
SELECT (jsonb_populate_record(job, jsonb_build_object('id', 'crowd ' || i, 'tenant_id', 'crowd', 'run_id',
        'crowd ' || i, 'priority', 2, 'available_at', at + (1 - least(i %% %(each)s, 1)) * interval '1 hour',
        'payload', job.payload || jsonb_build_object('id', 'crowd ' || i, 'tenantId', 'crowd', 'runId',
        'crowd ' || i, 'priority', 'emergency')))).*
  FROM scheduler.policy_jobs job, generate_series(1, %(crowd)s) i, (SELECT %(at)s::timestamptz) t(at)
 WHERE job.id = 'template'
"""
POISON: Final = """
UPDATE scheduler.policy_jobs SET payload = payload || '{"mode": "s3cr3t"}' WHERE id = %s
"""


@pytest.fixture(params=["mongo", "postgres"])
def storage(request: pytest.FixtureRequest) -> Iterator[SchedulerStorage]:
    """Open a migrated store of its own."""
    database: MongoDatabase | PostgresDatabase = request.getfixturevalue(f"{request.param}_database")
    with twinstore.open_storage(kept(database.config)) as opened:
        opened.scheduler.initializer.ensure_migrations()
        yield opened.scheduler


def poison(request: pytest.FixtureRequest, job: PolicyRunJob) -> None:
    """Let nobody read a job any more."""
    if "mongo" in request.node.callspec.id:
        mongo: MongoDatabase = request.getfixturevalue("mongo_database")
        with closing(MongoClient[dict[str, Any]](mongo.url)) as client:
            change = {"q": {"_id": job.id}, "u": {"$set": {"mode": "s3cr3t"}}}
            client[mongo.name].command(
                "update", "policy_jobs", updates=[change], bypassDocumentValidation=True
            )
        return
    postgres: PostgresDatabase = request.getfixturevalue("postgres_database")
    with psycopg.connect(postgres.superuser_url, autocommit=True) as connection:
        payload = (
            """UPDATE scheduler.policy_jobs SET payload = payload || '{"mode": "s3cr3t"}' WHERE id = %s"""
        )
        connection.execute(payload, [job.id])


def test_a_job_that_nobody_can_read_keeps_no_other_from_its_worker(
    storage: SchedulerStorage, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = storage.policy_jobs
    names = [("t1", "a"), ("t2", "b"), ("t1", "c"), ("t2", "d")]
    made = [jobs.create(make_policy_job(tenant, name)) for tenant, name in names]
    for broken in (made[0], made[2]):
        poison(request, broken)
    first = jobs.lease_next("w", at(1))
    rest = jobs.lease_many("w", at(1))
    assert [job.id for job in (first, *rest) if job is not None] == ["b", "d"]
    assert jobs.lease_next("w", at(1)) is None
    told = [record.getMessage() for record in caplog.records if "passed over" in record.getMessage()]
    assert sorted("'a'" in text for text in told) == [False, True]
    assert not any("s3cr3t" in text for text in told)


@pytest.mark.parametrize(
    "storage", ["mongo", pytest.param("postgres", marks=pytest.mark.long)], indirect=True
)
def test_jobs_of_megabytes_are_leased_and_submitted_in_one_batch(storage: SchedulerStorage) -> None:
    jobs = storage.policy_jobs
    inputs = PolicyRunInputs(environment={"text": "\N{GRINNING FACE}" * 500_000})
    for number in range(12):
        jobs.create(make_policy_job("t", f"job {number:02}", inputs=inputs))
    leased = jobs.lease_many("w", at(1), tenant_id="t")
    assert [job.id for job in leased] == [f"job {number:02}" for number in range(12)]
    after = [as_submitted(job, at(2)) for job in leased]
    assert jobs.complete_many(after, DISPATCHING, lease_owner="w", now=at(2)) == (True,) * 12
    assert jobs.get("t", "job 11") == after[11]


@pytest.mark.parametrize("each", [1, 3])
def test_a_crowd_in_front_costs_other_workers_nothing(postgres_database: PostgresDatabase, each: int) -> None:
    with twinstore.open_storage(postgres_database.config) as opened:
        jobs = opened.scheduler.policy_jobs
        jobs.create(make_policy_job("other", "template", available_at=at(2)))
        jobs.create(make_policy_job("small", "mine", priority=PolicyRunPriority.NORMAL))
        with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
            connection.execute(FILL, {"crowd": CROWD, "at": at(), "each": each})
            connection.execute("VACUUM ANALYZE scheduler.policy_jobs")
        assert read_for_a_lease(postgres_database, "small") < FEW
        assert read_for_a_lease(postgres_database, None) < FEW
        mine = jobs.lease_next("w", at(1), tenant_id="small" if each > 1 else None)
        assert mine is not None
        assert mine.id == "mine"
        # Whoever serves every tenant takes the urgent ones first, as the order of leases says.
        crowd = jobs.lease_next("w", at(1))
        assert ("nobody" if crowd is None else crowd.tenant_id) == ("crowd" if each > 1 else "nobody")


def read_for_a_lease(database: PostgresDatabase, tenant: str | None) -> int:
    """Return how many pages a lease of one job reads or writes, from memory or not."""
    kind = ScopeKind.EVERYBODY if tenant is None else ScopeKind.TENANT
    owner = () if tenant is None else (tenant,)
    values = (at(1), *owner, at(1), "w", at(1) + timedelta(minutes=1), Jsonb({}))
    with psycopg.connect(database.app_url) as connection:
        connection.execute("SELECT set_config('app.tenant_id', %s, true)", [tenant or "system"])
        statement = b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + lease_statement(kind, 1)
        ((plan,),) = connection.execute(statement, values).fetchall()
        connection.rollback()
    node = next(part for part in parts(plan[0]["Plan"]) if part["Node Type"] == "LockRows")
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def parts(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan and all below it."""
    yield node
    for child in node.get("Plans", ()):
        yield from parts(child)

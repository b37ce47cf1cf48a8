"""Each policy job goes to one worker at a time, whatever becomes of the workers.

The workers are killed in a program of their own, ``tests.support.claiming``.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
import pytest
from psycopg.types.json import Jsonb
from pymongo import MongoClient

import twinstore
from tests.support import forked
from tests.support.databases import fresh_settings, without_retention
from tests.support.outages import whole_lines
from tests.support.server_supervisor import ROOT
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import WORKERS
from twinstore.scheduler.enums import PolicyRunJobStatus, PolicyRunPriority
from twinstore.scheduler.policy_jobs import PolicyRunInputs
from twinstore.scheduler.workers import WorkerStatus
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import as_submitted, make_policy_job
from twinstore.testing.scheduler.examples import make_worker
from twinstore_postgres.mapping.tenancy import ScopeKind
from twinstore_postgres.special.scheduler_claims import lease_statement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.access.protocol import Access
    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.scheduler.storage import SchedulerStorage

THREADS: Final = 16
DISPATCHING: Final = PolicyRunJobStatus.DISPATCHING
SUBMITTED: Final = PolicyRunJobStatus.SUBMITTED
# Jobs, kills and the time after which everybody is killed are those of one wave.
BOUNDED: Final = {"jobs": 240, "processes": 4, "kills": 10, "every": 0.15, "seconds": 60, "lasting": 0}
FULL: Final = {"jobs": 2000, "processes": 6, "kills": 60, "every": 0.2, "seconds": 120, "lasting": 150}


@pytest.mark.parametrize(
    ("driver", "batch"),
    [
        *(("memory", 1), ("mongo", 1), ("postgres", 9)),
        *(
            pytest.param(driver, batch, marks=pytest.mark.long)
            for driver, batch in (("memory", 9), ("mongo", 9), ("postgres", 1))
        ),
    ],
)
def test_sixteen_threads_of_one_name_lease_and_submit_each_job_once(
    driver: str, batch: int, request: pytest.FixtureRequest
) -> None:
    with fresh_settings(driver, request) as settings, twinstore.open_storage(settings) as storage:
        scheduler = storage.scheduler
        scheduler.initializer.ensure_migrations()
        wanted = [f"job {number:03}" for number in range(THREADS * 12)]
        for number, name in enumerate(wanted):
            scheduler.policy_jobs.create(make_policy_job(f"t{number % 3}", name))
        barrier = Barrier(THREADS)
        with ThreadPoolExecutor(THREADS) as pool:
            answers = [pool.submit(drain, scheduler, barrier, batch) for _ in range(THREADS)]
        leased = [job for answer in answers for job in answer.result()]
        assert sorted(leased) == wanted
        counted = Counter[PolicyRunJobStatus]()
        for tenant in ("t0", "t1", "t2"):
            counted.update(scheduler.policy_jobs.count_by_status(tenant))
        assert counted == {SUBMITTED: len(wanted)}


def drain(storage: SchedulerStorage, barrier: Barrier, batch: int) -> list[str]:
    """Lease and submit until nothing is left; return the ids of the jobs."""
    found: list[str] = []
    barrier.wait(60)
    while jobs := storage.policy_jobs.lease_many("same", at(1), limit=batch):
        found += [job.id for job in jobs]
        after = [as_submitted(job, at(2)) for job in jobs]
        done = storage.policy_jobs.complete_many(after, DISPATCHING, lease_owner="same", now=at(2))
        assert done == (True,) * len(jobs)
    return found


@pytest.mark.parametrize("driver", ["mongo", "postgres"])
@pytest.mark.parametrize("size", [BOUNDED, pytest.param(FULL, marks=pytest.mark.long)], ids=["few", "many"])
def test_workers_that_are_killed_lose_no_job_and_share_none(
    driver: str, size: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with fresh_settings(driver, request) as settings:
        with twinstore.open_storage(settings) as storage:
            storage.scheduler.initializer.ensure_migrations()
        plan = {**size, "settings": settings, "notes": str(notes), "seed": 8}
        done = forked.run(
            ["-m", "tests.support.claiming"],
            given=json.dumps(plan),
            cwd=ROOT,
            timeout=size["seconds"] + size["lasting"] + 60,
        )
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["kills"] >= size["kills"] / 3
    assert Counter(status for status, _ in report["stored"].values()) == {"submitted": len(report["stored"])}
    assert len(report["stored"]) >= size["jobs"]
    attempts = {name: count for name, (_, count) in report["stored"].items()}
    lines, torn = whole_lines(notes)
    assert torn <= report["kills"]
    judge(lines, attempts)


def judge(notes: list[list[Any]], attempts: dict[str, int]) -> None:
    """Assert that leases of one job follow each other, and that one of them ended in its submission."""
    leases: dict[str, list[tuple[int, str, str]]] = {}
    submitted = Counter[str]()
    for what, job, attempt, _, now, until in notes:
        if what == "leased":
            leases.setdefault(job, []).append((attempt, now, until))
        else:
            submitted[job] += 1
    assert max(submitted.values()) == 1
    assert max(attempts.values()) > 1, "no lease has expired"
    for job, found in leases.items():
        numbers = [attempt for attempt, _, _ in sorted(found)]
        assert len(set(numbers)) == len(numbers), f"{job} was leased twice in one attempt"
        assert numbers[-1] <= attempts[job]
        for (_, _, until), (_, now, _) in pairwise(sorted(found)):
            assert datetime.fromisoformat(until) <= datetime.fromisoformat(now) + timedelta(milliseconds=1)


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
    """Open a separate migrated store."""
    database: MongoDatabase | PostgresDatabase = request.getfixturevalue(f"{request.param}_database")
    with twinstore.open_storage(without_retention(database.config)) as opened:
        opened.scheduler.initializer.ensure_migrations()
        yield opened.scheduler


def poison(request: pytest.FixtureRequest, job: PolicyRunJob) -> None:
    """Make every further read of a job fail."""
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


def test_an_unreadable_job_keeps_no_other_from_its_worker(
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
        # A worker that serves every tenant leases urgent jobs first, as the order of leases says.
        crowd = jobs.lease_next("w", at(1))
        assert ("nobody" if crowd is None else crowd.tenant_id) == ("crowd" if each > 1 else "nobody")


def read_for_a_lease(database: PostgresDatabase, tenant: str | None) -> int:
    """Return how many pages a lease of one job reads or writes, from memory or not."""
    kind = ScopeKind.ANY_TENANT if tenant is None else ScopeKind.TENANT
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


MINUTE = timedelta(minutes=1)


def test_a_claim_of_several_states_passes_over_locked_rows(postgres_database: PostgresDatabase) -> None:
    with (
        twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage,
        psycopg.connect(postgres_database.superuser_url) as competitor,
    ):
        for number, name in enumerate("abc"):
            storage.workers.register(make_worker("acme", name, last_heartbeat_at=at(number)))
        competitor.execute("SELECT FROM scheduler.workers WHERE id = 'a' FOR UPDATE")
        access = cast("Access", vars(storage.workers)["_access"])  # no repository marks one row at a time
        query = queries.dead_workers(at() + 10 * MINUTE, MINUTE, limit=1)
        marked = access.mark(WORKERS, query, {"status": WorkerStatus.DEAD.value})
        assert [row.model.id for row in marked] == ["b"]

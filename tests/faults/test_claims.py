"""Each policy job goes to one worker at a time, whatever becomes of the workers.

The workers are killed in a program of their own, ``tests.faults.claiming``.
"""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from tests import forked
from tests.faults.notes import whole_lines
from tests.server_supervisor import ROOT
from tests.stores import fresh_settings
from twinstore.scheduler.enums import PolicyRunJobStatus
from twinstore.testing.instants import at
from twinstore.testing.scheduler.policy_builders import as_submitted, make_policy_job

if TYPE_CHECKING:
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
            ["-m", "tests.faults.claiming"],
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

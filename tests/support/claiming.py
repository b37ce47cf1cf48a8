"""A program whose workers lease policy jobs and are killed at random; ``test_claims`` reads what it prints.

    python -m tests.support.claiming < plan.json

Workers are processes of four threads. Each records a lease before it continues and an answer after it has
come, one line at a time in a file that all of them append to, so that the records outlive their writer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import twinstore
from tests.support.outages import append_line, opened
from twinstore.clock import SystemClock
from twinstore.errors import TwinstoreError
from twinstore.scheduler.enums import PolicyRunJobStatus
from twinstore.testing.scheduler.builders import as_submitted, make_policy_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.scheduler.policy_jobs import PolicyRunJob
    from twinstore.scheduler.storage import SchedulerStorage

    Plan = dict[str, Any]

THREADS: Final = 4
BATCH: Final = 7
LEASE: Final = timedelta(milliseconds=700)
CLOCK: Final = SystemClock()
PENDING, DISPATCHING, SUBMITTED, *_ = PolicyRunJobStatus
TENANTS: Final = ("ta", "tb", "tc")
POLL_SECONDS: Final = 0.02


class Notes:
    """The file that all workers append to."""

    def __init__(self, path: Path) -> None:
        self._file = opened(path)

    def add(self, what: str, job: PolicyRunJob, owner: str, now: datetime) -> None:
        """Append one line."""
        append_line(self._file, [what, job.id, job.attempt_count, owner, now.isoformat(), lease_end(job)])


def lease_end(job: PolicyRunJob) -> str | None:
    """Return when the lease of a job expires."""
    return None if job.lease_expires_at is None else job.lease_expires_at.isoformat()


def leased(storage: SchedulerStorage, owner: str, random: Random, now: datetime) -> list[PolicyRunJob]:
    """Lease one job or several, of one tenant or of all."""
    tenant = random.choice((None, None, *TENANTS))
    jobs = storage.policy_jobs
    if random.random() < 0.5:
        job = jobs.lease_next(owner, now, lease=LEASE, tenant_id=tenant)
        return [] if job is None else [job]
    return list(jobs.lease_many(owner, now, limit=BATCH, lease=LEASE, tenant_id=tenant))


def work(storage: SchedulerStorage, notes: Notes, owner: str, seed: str) -> None:
    """Lease and submit until the process is killed, or nothing is left that is not submitted."""
    random = Random(seed)
    while any_left(storage):
        now = CLOCK.now()
        batch = leased(storage, owner, random, now)
        for job in batch:
            notes.add("leased", job, owner, now)
        if random.random() < 0.1:
            continue  # forgets them, and their leases expire
        later = CLOCK.now()
        after = [as_submitted(job, later) for job in batch]
        answers = storage.policy_jobs.complete_many(after, DISPATCHING, lease_owner=owner, now=later)
        for job, answer in zip(batch, answers, strict=True):
            if answer:
                notes.add("submitted", job, owner, later)


def any_left(storage: SchedulerStorage) -> bool:
    """Whether a job is not submitted yet."""
    return any(set(storage.policy_jobs.count_by_status(tenant)) - {SUBMITTED} for tenant in TENANTS)


def worker(plan: Plan, number: int) -> None:
    """Work in several threads on a storage of this process; all owners have one name."""
    notes = Notes(Path(plan["notes"]))
    with twinstore.open_storage(plan["settings"]) as storage, ThreadPoolExecutor(THREADS) as pool:
        seeds = [f"{plan['seed']}/{number}/{thread}" for thread in range(THREADS)]
        for running in [pool.submit(work, storage.scheduler, notes, "worker", seed) for seed in seeds]:
            running.result()


def started(plan: Plan, number: int) -> int:
    """Start a worker in a separate process; return its id."""
    return forked(lambda: worker(plan, number))


def forked(action: Callable[[], None]) -> int:
    """Run an action in a child, which ends then; return its id. An error ends it with 1."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        action()
        code = 0
    except TwinstoreError as error:
        os.write(2, f"{type(error).__name__}: {error.message}\n".encode())
    except BaseException:  # noqa: BLE001  # it must not go on as if it were its parent
        traceback.print_exc()
    os._exit(code)


def supervise(plan: Plan, storage: SchedulerStorage) -> int:
    """Kill workers at random and start others in their place until all is done; return how many died."""
    random, begin = Random(plan["seed"]), time.monotonic()
    running = {started(plan, number) for number in range(plan["processes"])}
    number, kills = len(running), 0
    deadline, next_kill = begin + plan["seconds"], begin
    while running:
        # Waits for the end of a child, or a little.
        signal.sigtimedwait({signal.SIGCHLD}, POLL_SECONDS)
        storage.policy_jobs.release_expired(CLOCK.now())
        overdue = time.monotonic() > deadline
        # By the clock: on a busy machine a round takes seconds, and would kill too few.
        alive = sorted(running)
        while alive and (overdue or (kills < plan["kills"] and time.monotonic() > next_kill)):
            os.kill(alive.pop(random.randrange(len(alive))), signal.SIGKILL)
            kills += 1
            next_kill += random.expovariate(1 / plan["every"])
        for child in sorted(running):
            ended, _ = os.waitpid(child, os.WNOHANG)
            if ended:
                running.discard(child)
                if not overdue and any_left(storage):
                    running.add(started(plan, number))
                    number += 1
    return kills


def main() -> None:
    """Store the jobs, let workers have them, and print what became of them."""
    plan: Plan = json.load(sys.stdin)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    with twinstore.open_storage(plan["settings"]) as opened:
        storage = opened.scheduler
        names: list[tuple[str, str]] = []
        kills, end = 0, time.monotonic() + plan["lasting"]
        # In waves, because how long some jobs last depends on the machine.
        while not names or time.monotonic() < end:
            numbers = range(len(names), len(names) + plan["jobs"])
            wave = [(f"job {number:05}", TENANTS[number % 3]) for number in numbers]
            for name, tenant in wave:
                storage.policy_jobs.create(make_policy_job(tenant, name))
            names += wave
            kills += supervise(plan, storage)
        stored = {name: storage.policy_jobs.get_required(tenant, name) for name, tenant in names}
    statuses = {name: [job.status.value, job.attempt_count] for name, job in stored.items()}
    print(json.dumps({"kills": kills, "stored": statuses}))  # noqa: T201  # the report


if __name__ == "__main__":
    main()

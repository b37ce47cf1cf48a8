"""A worker: registers, claims policy jobs, executes them and says what came out, all over HTTP.

    python -m scheduler_service.worker --url http://127.0.0.1:8000 --tenant acme

It renews the lease of the job it holds at a third of its length. Where the lease is lost it writes nothing
more, neither to the run nor to its log: another worker has the job. Where it is killed, the lease runs out
and the job returns to the queue. An outage of the service is waited for.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Thread
from typing import Final
from uuid import uuid4

import httpx

from scheduler_service.bodies import ClaimRequest, Completion
from scheduler_service.client import NOT_FOUND, ApiError, Client
from twinstore import Clock, SystemClock
from twinstore.scheduler import ExecutionLogEntry, PolicyRunJob, PolicyRunStats, Run, RunState, Worker

__all__ = ["JobWorker", "Work", "WorkError", "evaluate", "main"]

log = logging.getLogger("scheduler_service.worker")

# The variable that holds the token of a worker; other processes could read an argument.
TOKEN: Final = "SCHEDULER_SERVICE_TOKEN"  # noqa: S105  # its name
CONFLICT: Final = 409
DUPLICATE_NUMBER: Final = "conflict"  # a number in a log that another process has used
NO_LONGER_OWNED: Final = {NOT_FOUND, CONFLICT}
LogFunction = Callable[[str], None]
Work = Callable[[PolicyRunJob, LogFunction], PolicyRunStats]


class WorkError(Exception):
    """The work on a job failed, for good."""


def evaluate(job: PolicyRunJob, append_log: LogFunction) -> PolicyRunStats:
    """Stand for what a worker really does: look at each SBOM of a job."""
    for sbom in job.inputs.sbom_set:
        append_log(f"evaluated {sbom}")
    return PolicyRunStats(components=len(job.inputs.sbom_set))


@dataclass
class JobWorker:
    """One worker, which takes one job at a time.

    Attributes:
        client: the service.
        worker_id: what it is called; a worker that starts again under its name takes its own place.
        work: what it does with a job; returns what came out, or raises ``WorkError``.
        clock: of what it logs; leases are counted by the clock of the service.
        lease: seconds for which it holds a job unless it renews the lease.
        pause: seconds between two claims when there is nothing to do.
        renew: seconds between two renewals of the lease; default: a third of it.
    """

    client: Client
    tenant: str
    worker_id: str
    work: Work = evaluate
    clock: Clock = field(default_factory=SystemClock)
    lease: float = 60.0
    pause: float = 1.0
    renew: float | None = None
    stop: Event = field(default_factory=Event)

    def run(self) -> None:
        """Claim and execute until asked to stop; end the job at hand first."""
        with waiting():
            self._register()
        while not self.stop.is_set():
            worked = False
            with waiting():
                worked = self._work_once()
            if not worked:
                self.stop.wait(self.pause)
        with waiting():
            self.client.move_worker(self.worker_id, "drain")
            self.client.move_worker(self.worker_id, "stop")

    def _work_once(self) -> bool:
        """Claim and execute once; return whether there was something to do."""
        jobs = self._claimed()
        for job in jobs:
            self._execute(job)
        if not jobs:
            self.client.heartbeat(self.worker_id, 0)
        return bool(jobs)

    def _claimed(self) -> tuple[PolicyRunJob, ...]:
        try:
            return self.client.claim(self.worker_id, ClaimRequest(lease_seconds=self.lease))
        except ApiError as error:
            if error.status not in NO_LONGER_OWNED:
                raise
            self._register()  # it counted as dead after a long silence, or the service was away before
            return ()

    def _register(self) -> None:
        now = self.clock.now()
        self.client.register(
            Worker(
                id=self.worker_id,
                tenant_id=self.tenant,
                hostname=socket.gethostname(),
                job_types=("policy",),
                last_heartbeat_at=now,
                registered_at=now,
            )
        )

    def _execute(self, job: PolicyRunJob) -> None:
        try:
            self._conclude(job)
        except ApiError as error:
            # The lease is lost, or the job was cancelled or removed: it is no longer ours to say anything of.
            if error.status not in NO_LONGER_OWNED:
                raise

    def _conclude(self, job: PolicyRunJob) -> None:
        """Do the work and say what came out."""
        try:
            with self._lease_renewed(job):
                stats = self._worked(job)
        except WorkError as error:
            self.client.fail(job, reason(error))
        else:
            completion = Completion(worker_id=self.worker_id, attempt=job.attempt_count, stats=stats)
            self.client.complete(job, completion)

    def _worked(self, job: PolicyRunJob) -> PolicyRunStats:
        """Do the work, with the run of the job before and after, where it has one."""
        run = self.client.run(job.run_id or "")
        if run is None or run.state.terminal:  # an attempt before ended the run, and not the job
            return self.work(job, lambda _: None)
        run = self._started(run, job)
        append_log = self._log_function(run, job)
        append_log(f"attempt {job.attempt_count} of {self.worker_id}")
        try:
            stats = self.work(job, append_log)
        except WorkError as error:
            ended = run.evolve(state=RunState.ERROR, error=reason(error), finished_at=self.clock.now())
            self.client.put_run(ended, job)
            raise
        self.client.put_run(run.evolve(state=RunState.COMPLETED, finished_at=self.clock.now()), job)
        return stats

    def _started(self, run: Run, job: PolicyRunJob) -> Run:
        if run.state is RunState.PLANNING:
            run = self.client.put_run(run.evolve(state=RunState.QUEUED), job)
        if run.state is RunState.QUEUED:
            run = self.client.put_run(run.evolve(state=RunState.RUNNING, started_at=self.clock.now()), job)
        return run

    def _log_function(self, run: Run, job: PolicyRunJob) -> LogFunction:
        """Return what appends to the log of a run.

        Each entry gets its number here, so that a call which is repeated appends it once.
        """
        numbers = count(self.client.last_sequence(run.id) + 1)

        def append_log(text: str) -> None:
            now = self.clock.now()
            entry = ExecutionLogEntry(tenant_id=self.tenant, run_id=run.id, logged_at=now, message=text)
            for number in numbers:
                try:
                    self.client.put_log(entry.evolve(sequence=number), job)
                except ApiError as error:
                    if error.problem.code != DUPLICATE_NUMBER:
                        raise
                else:
                    break

        return append_log

    @contextmanager
    def _lease_renewed(self, job: PolicyRunJob) -> Generator[None]:
        """Renew the lease, and say that the worker lives, until the work is done."""
        done = Event()

        def renew() -> None:
            while not done.wait(self.renew or self.lease / 3):
                try:
                    with waiting():
                        self.client.renew(job, self.lease)
                        self.client.heartbeat(self.worker_id, 1)
                except ApiError:
                    return  # lost; the last call for the job is refused and says so

        thread = Thread(target=renew, name="renew", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


@contextmanager
def waiting() -> Generator[None]:
    """Log an outage that lasts longer than the patience of a call; what was being done is done again."""
    try:
        yield
    except httpx.TransportError as error:
        log.warning("the service cannot be reached: %s", error)
    except ApiError as error:
        if not error.problem.retryable:
            raise
        log.warning("the service cannot serve: %s", error)


def reason(error: WorkError) -> str:
    """Return why work failed; a job and a run need some text."""
    return str(error).strip() or type(error).__name__


def main(work: Work = evaluate, clock: Clock | None = None) -> None:
    """Work until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--tenant", required=True)
    parser.add_argument("--id", default=f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}")
    parser.add_argument("--lease", type=float, default=60.0, help="seconds for which a job is held")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two claims of nothing")
    parser.add_argument("--renew", type=float, help="seconds between two renewals of a lease")
    options = parser.parse_args()
    if not (token := os.environ.get(TOKEN)):
        parser.error(f"set {TOKEN} to the token of this worker")
    with Client(options.url, options.tenant, token) as client:
        worker = JobWorker(
            client,
            options.tenant,
            options.id,
            work,
            clock or SystemClock(),
            options.lease,
            options.pause,
            options.renew,
        )

        def end(*_: object) -> None:
            worker.stop.set()

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, end)
        worker.run()


if __name__ == "__main__":
    main()

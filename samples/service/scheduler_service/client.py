"""The calls that a worker makes, over HTTP; what is read and written are the models of the library."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import quote, urlencode

import httpx

from scheduler_service.bodies import ClaimRequest, Completion, Failure, Heartbeat, Listing, Renewal
from twinstore import CanonicalJsonSerializer, ValidationError
from twinstore.fastapi import Problem
from twinstore.models.canonical import CanonicalModel
from twinstore.scheduler import ExecutionLogEntry, PolicyRunJob, Run, Worker

__all__ = ["ApiError", "Client"]

M = TypeVar("M", bound=CanonicalModel)
TIMEOUT: Final = 30.0  # seconds in which a call is repeated that may succeed later
NOT_FOUND: Final = 404
UNAVAILABLE: Final = {502, 503, 504}  # what a proxy answers while the service behind it is away


class ApiError(Exception):
    """The service refused a call."""

    def __init__(self, status: int, problem: Problem) -> None:
        """Take what it said."""
        super().__init__(f"{status} {problem.code}: {problem.message}")
        self.status = status
        self.problem = problem


class Client:
    """The service as one tenant sees it. Safe to use from several threads."""

    def __init__(
        self, url: str, tenant: str, token: str, *, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """Take where the service is, whose calls these are, and the token that proves it."""
        self._http = httpx.Client(
            base_url=f"{url}/tenants/{quote(tenant, safe='')}",
            headers={"Authorization": f"Bearer {token}"},
            timeout=30.0,
        )
        self._sleep = sleep

    def register(self, worker: Worker) -> Worker:
        """Register a worker."""
        return self._call("PUT", f"/workers/{quote(worker.id, safe='')}", worker, Worker)

    def heartbeat(self, worker_id: str, current_jobs: int) -> Worker:
        """Say that a worker lives."""
        sign = Heartbeat(current_jobs=current_jobs)
        return self._call("POST", f"/workers/{quote(worker_id, safe='')}/heartbeat", sign, Worker)

    def move_worker(self, worker_id: str, move: str) -> Worker:
        """Let a worker ``drain`` or ``stop``."""
        return self._call("POST", f"/workers/{quote(worker_id, safe='')}/{move}", None, Worker)

    def claim(self, worker_id: str, request: ClaimRequest) -> tuple[PolicyRunJob, ...]:
        """Claim jobs."""
        path = f"/workers/{quote(worker_id, safe='')}/claims"
        return self._call("POST", path, request, Listing[PolicyRunJob]).items

    def renew(self, job: PolicyRunJob, lease_seconds: float) -> PolicyRunJob:
        """Hold a job for longer."""
        renewal = Renewal(
            worker_id=str(job.lease_owner), attempt=job.attempt_count, lease_seconds=lease_seconds
        )
        return self._move(job, "renew", renewal)

    def complete(self, job: PolicyRunJob, completion: Completion) -> PolicyRunJob:
        """Say that a job is done."""
        return self._move(job, "complete", completion)

    def fail(self, job: PolicyRunJob, error: str) -> PolicyRunJob:
        """Say that a job failed."""
        failure = Failure(worker_id=str(job.lease_owner), attempt=job.attempt_count, error=error)
        return self._move(job, "fail", failure)

    def _move(self, job: PolicyRunJob, move: str, body: CanonicalModel) -> PolicyRunJob:
        return self._call("POST", f"/policy-jobs/{quote(job.id, safe='')}/{move}", body, PolicyRunJob)

    def run(self, run_id: str) -> Run | None:
        """Read a run."""
        try:
            return self._call("GET", f"/runs/{quote(run_id, safe='')}", None, Run)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def put_run(self, run: Run, job: PolicyRunJob) -> Run:
        """Change a run while its job is held."""
        return self._call("PUT", f"/runs/{quote(run.id, safe='')}{_under(job)}", run, Run)

    def last_sequence(self, run_id: str) -> int:
        """Return the number of the last entry in the log of a run, or 0."""
        path, last = f"/runs/{quote(run_id, safe='')}/logs?limit=5000&afterSequence=", 0
        while items := self._call("GET", f"{path}{last}", None, Listing[ExecutionLogEntry]).items:
            last = items[-1].sequence or 0
        return last

    def put_log(self, entry: ExecutionLogEntry, job: PolicyRunJob) -> None:
        """Append an entry that has a number, which makes a repetition harmless, while its job is held."""
        path = f"/runs/{quote(entry.run_id, safe='')}/logs/{entry.sequence}{_under(job)}"
        self._call("PUT", path, entry, ExecutionLogEntry)

    def _call(self, method: str, path: str, body: CanonicalModel | None, answer: type[M]) -> M:
        """Make a call, again where the service says that it may succeed later, or cannot be reached."""
        content = None if body is None else CanonicalJsonSerializer.serialize(body)
        end = time.monotonic() + TIMEOUT
        while True:
            error: Exception
            pause = 1.0
            try:
                response = self._http.request(
                    method, path, content=content, headers={"Content-Type": "application/json"}
                )
            except httpx.TransportError as failure:
                error = failure
            else:
                if response.is_success:
                    return CanonicalJsonSerializer.deserialize(answer, response.content)
                problem = _problem(response)
                error = ApiError(response.status_code, problem)
                if not problem.retryable:
                    raise error
                pause = float(response.headers.get("Retry-After", pause))
            if time.monotonic() + pause > end:
                raise error
            self._sleep(pause)

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close its connections."""
        self._http.close()


def _under(job: PolicyRunJob) -> str:
    """Return the lease under which a worker writes, as a query."""
    lease = {"leaseJobId": job.id, "leaseWorkerId": job.lease_owner, "leaseAttempt": job.attempt_count}
    return f"?{urlencode(lease)}"


def _problem(response: httpx.Response) -> Problem:
    """Return what the service said, or what stands between it and here."""
    try:
        return CanonicalJsonSerializer.deserialize(Problem, response.content)
    except ValidationError:
        unavailable = response.status_code in UNAVAILABLE
        return Problem(
            code="no_answer", message="The answer is not one of the service.", retryable=unavailable
        )

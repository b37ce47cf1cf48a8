"""The worker of the sample service when things go wrong: lost leases, lost answers, outages, failed work."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import httpx
import pytest

from scheduler_service import client as client_module
from scheduler_service.client import Client
from scheduler_service.firing import tick
from scheduler_service.worker import JobWorker, WorkError
from tests.service.serving import JSON
from twinstore.scheduler import PolicyRunJob, PolicyRunStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scheduler_service.worker import LogFunction, Work
    from tests.service.conftest import Api

SAMPLES: Final = Path(__file__).parents[2] / "samples/api/scheduler"
STATS: Final = PolicyRunStats(components=1)
LEASE: Final = timedelta(seconds=60)


@dataclass
class Tenant:
    """A tenant with one run that waits for a worker."""

    api: Api
    name: str
    clients: ExitStack
    run_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.run_id = f"run:{self.name}"
        for path, sample in (("/runs", "run-no-deltas"), ("/policy-runs", "policy-run-request")):
            body = json.loads((SAMPLES / f"{sample}.json").read_bytes())
            body |= {"tenantId": self.name, "id" if path == "/runs" else "runId": self.run_id}
            content = json.dumps(body)
            answer = self.api.http.post(f"/tenants/{self.name}{path}", content=content, headers=JSON)
            assert answer.is_success, answer.text

    def get(self, path: str) -> Any:  # noqa: ANN401  # JSON
        return self.api.http.get(f"/tenants/{self.name}{path}").raise_for_status().json()

    @property
    def run(self) -> dict[str, Any]:
        return dict(self.get(f"/runs/{self.run_id}"))

    @property
    def job(self) -> dict[str, Any]:
        (job,) = self.get("/policy-jobs")["items"]
        return dict(job)

    @property
    def log(self) -> list[str]:
        return [entry["message"] for entry in self.get(f"/runs/{self.run_id}/logs")["items"]]

    def worker(self, work: Work, name: str = "w1") -> JobWorker:
        """Return a worker that ends after its first job."""

        def once(job: PolicyRunJob, say: LogFunction) -> PolicyRunStats:
            worker.stop.set()
            return work(job, say)

        url = str(self.api.http.base_url)
        client = self.clients.enter_context(
            Client(url, self.name, f"{self.name}/worker", sleep=lambda _: None)
        )
        worker_id = f"{self.name}/{name}"
        worker = JobWorker(client, self.name, worker_id, once, self.api.clock, pause=0.01, renew=1000)
        return worker


@pytest.fixture
def tenant(api: Api) -> Iterator[Tenant]:
    now = api.clock.now()
    with ExitStack() as clients:
        yield Tenant(api, f"t-{uuid4().hex}", clients)
    api.clock.set_to(now)


def spoken(job: PolicyRunJob, say: LogFunction) -> PolicyRunStats:
    del job
    say("evaluated")
    return STATS


@pytest.mark.parametrize("late", ["say", "fail", "end"])
def test_a_worker_that_lost_its_lease_writes_nothing_more(tenant: Tenant, late: str) -> None:
    def stopped(_: PolicyRunJob, say: LogFunction) -> PolicyRunStats:
        # As after SIGSTOP and SIGCONT: the lease ran out, and another worker has done the job meanwhile.
        tenant.api.clock.advance(LEASE * 2)
        tick(tenant.api.scheduler, tenant.api.clock.now())
        tenant.worker(spoken, "w2").run()
        before[:] = tenant.run, tenant.job, tenant.log
        if late == "say":
            say("too late")
        if late == "fail":
            raise WorkError
        return PolicyRunStats(components=99)

    before: list[object] = []
    tenant.worker(stopped).run()
    assert [tenant.run, tenant.job, tenant.log] == before
    assert tenant.run["state"] == tenant.job["status"] == "completed"
    names = [f"attempt {number} of {tenant.name}/w{number}" for number in (1, 2)]
    assert tenant.log == [*names, "evaluated"]


def test_an_expired_lease_admits_no_report_although_no_one_has_the_job(tenant: Tenant) -> None:
    def stopped(job: PolicyRunJob, say: LogFunction) -> PolicyRunStats:
        tenant.api.clock.advance(LEASE * 2)
        return spoken(job, say)

    tenant.worker(stopped).run()
    assert tenant.log == [f"attempt 1 of {tenant.name}/w1"]
    assert (tenant.run["state"], tenant.job["status"]) == ("running", "dispatching")


def disturbed(
    monkeypatch: pytest.MonkeyPatch,
    answer: Callable[[httpx.Request, Callable[[], httpx.Response]], httpx.Response],
) -> None:
    """Let ``answer`` replace the network: it gets each call except reads, and the function that makes it."""
    handle = httpx.HTTPTransport.handle_request

    def handled(transport: httpx.HTTPTransport, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return handle(transport, request)
        return answer(request, lambda: handle(transport, request))

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handled)


def test_nothing_is_done_twice_where_answers_are_lost(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: set[tuple[str, bytes]] = set()

    def lost(request: httpx.Request, send: Callable[[], httpx.Response]) -> httpx.Response:
        answer, key = send(), (request.url.path, request.content)
        if key not in made and not request.url.path.endswith("/claims"):
            made.add(key)
            answer.close()
            raise httpx.ReadError("the answer is lost", request=request)
        return answer

    disturbed(monkeypatch, lost)
    tenant.worker(spoken).run()
    assert tenant.log == [f"attempt 1 of {tenant.name}/w1", "evaluated"]
    assert tenant.run["state"] == tenant.job["status"] == "completed"
    actions = [record["action"] for record in tenant.get(f"/audit?runId={tenant.run_id}")["items"]]
    assert sorted(actions) == sorted({*actions})


def test_entries_of_others_in_the_same_log_stay(tenant: Tenant) -> None:
    def beside(job: PolicyRunJob, say: LogFunction) -> PolicyRunStats:
        entry = {"tenantId": tenant.name, "runId": tenant.run_id, "message": "of another program"}
        body = json.dumps({"items": [entry | {"loggedAt": "2026-01-05T12:00:00Z"}]})
        path = f"/tenants/{tenant.name}/runs/{tenant.run_id}/logs"
        assert tenant.api.http.post(path, content=body, headers=JSON).is_success
        return spoken(job, say)

    tenant.worker(beside).run()
    assert tenant.log == [f"attempt 1 of {tenant.name}/w1", "of another program", "evaluated"]


@pytest.mark.parametrize("how", ["gone", "proxy"])
def test_an_outage_longer_than_its_patience_is_waited_for(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    calls: list[str] = []

    def away(request: httpx.Request, send: Callable[[], httpx.Response]) -> httpx.Response:
        calls.append(request.url.path.rpartition("/")[2])
        if len(calls) <= 2:
            if how == "gone":
                raise httpx.ConnectError("refused", request=request)
            return httpx.Response(502, text="<html>Bad Gateway</html>", request=request)
        return send()

    monkeypatch.setattr(client_module, "TIMEOUT", 0.0)
    disturbed(monkeypatch, away)
    tenant.worker(spoken).run()
    assert calls[1:3] == ["claims", "claims"]  # the second one is refused, because it is not registered
    assert tenant.run["state"] == tenant.job["status"] == "completed"


def test_failed_work_ends_its_job_and_its_run(tenant: Tenant) -> None:
    def failed(_: PolicyRunJob, __: LogFunction) -> PolicyRunStats:
        raise WorkError

    tenant.worker(failed).run()
    assert (tenant.job["status"], tenant.job["lastError"]) == ("failed", "WorkError")
    assert (tenant.run["state"], tenant.run["error"]) == ("error", "WorkError")


def test_a_job_that_is_removed_while_it_is_held_stops_no_worker(tenant: Tenant) -> None:
    def removed(job: PolicyRunJob, say: LogFunction) -> PolicyRunStats:
        path = f"/tenants/{tenant.name}/policy-jobs/{job.id}"
        assert tenant.api.http.delete(path).is_success
        return spoken(job, say)

    tenant.worker(removed).run()
    assert tenant.get("/policy-jobs")["items"] == []
    assert tenant.log == [f"attempt 1 of {tenant.name}/w1"]

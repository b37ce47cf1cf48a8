"""The bodies of the sample service are the samples of the library, byte for byte, on either database.

The configuration alone decides which one answers.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import pytest

from scheduler_service.firing import tick
from tests.service.conftest import NOW
from tests.service.serving import JSON
from tests.support import forked
from tests.support.databases import environment_of, without_retention
from twinstore import CanonicalJsonSerializer, open_storage
from twinstore.scheduler import RunQueryOptions, RunState, Trigger

if TYPE_CHECKING:
    from httpx import Response

    from tests.service.conftest import Api
    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings

SERVICE: Final = Path(__file__).parents[2] / "samples/service/nightly.py"
TENANT: Final = "acme"
TOKEN: Final = re.compile(r"next (\S+)$", re.MULTILINE)
EXPECTED: Final = """\
schedule hourly: next at 2025-10-26 03:00:00+00:00
schedule nightly: next at 2025-10-27 00:30:00+00:00
schedule weekly: next at 2025-10-27 02:00:00+00:00
runs acme-run-07=completed acme-run-06=completed acme-run-05=completed next TOKEN
runs acme-run-04=completed acme-run-03=completed acme-run-02=completed next TOKEN
runs acme-run-01=completed acme-run-00=completed next None
summary: 8 runs, 7 new high
audit: 24 records, latest run.completed
"""


def output_of_service(settings: Settings) -> str:
    """Run the service as a separate process and return what it prints."""
    done = forked.run([SERVICE, "--tenant", TENANT], env=environment_of(settings))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sample_service_prints_the_same_on_both_stores(
    empty_mongo_database: MongoDatabase, empty_postgres_database: PostgresDatabase
) -> None:
    stores = without_retention(empty_mongo_database.config), without_retention(empty_postgres_database.config)
    on_mongo, on_postgres = map(output_of_service, stores)
    assert TOKEN.sub(lambda match: match[0] if match[1] == "None" else "next TOKEN", on_mongo) == EXPECTED
    assert on_mongo == on_postgres
    # Nothing it does fails or changes anything the second time.
    assert output_of_service(stores[1]) == on_postgres
    # Equal output could also mean that both wrote to one store.
    for settings in stores:
        with open_storage(settings) as storage:
            page = storage.scheduler.runs.list(TENANT, RunQueryOptions(states=[RunState.COMPLETED]))
            assert len(page) == 8, settings


SAMPLES: Final = Path(__file__).parents[2] / "samples/api/scheduler"
RUN: Final = "run:acme:sch_nightly_prod:20251026T020000Z"
ACME: Final = "/tenants/acme"


@dataclass(frozen=True)
class Route:
    """Where a sample is written, and where it is read."""

    method: str
    path: str
    read: str = ""


ROUTES: Final = {
    "audit.json": Route("POST", "/audit", "/audit/audit_0123456789abcdef0123456789abcdef"),
    "execution-log.json": Route("PUT", f"/runs/{RUN}/logs/1"),
    "graph-build-job.json": Route("POST", "/graph-jobs", "/graph-jobs/gbj_5f0c1d2e3b4a59687786a5b4c3d2e1f0"),
    "graph-overlay-job.json": Route(
        "POST", "/graph-jobs", "/graph-jobs/goj_0f1e2d3c4b5a69788796a5b4c3d2e1f5"
    ),
    "impact-set.json": Route("PUT", "/impact-sets/snap_example_0001"),
    "run-no-deltas.json": Route("POST", "/runs", "/runs/run:acme:adhoc:1"),
    "run-summary.json": Route("PUT", "/schedules/sch_nightly_prod/summary"),
    "run.json": Route("PUT", f"/runs/{RUN}"),
    "schedule-minimal.json": Route("PUT", "/schedules/sch_minimal"),
    "schedule.json": Route("PUT", "/schedules/sch_nightly_prod"),
    "worker.json": Route("PUT", "/workers/worker-eu-1"),
}
# Bodies that are not written over HTTP in the form in which they are read, and why; each has a test below.
ASSIGNED: Final = {
    "graph-job-event.json": "one event is read in the list of those of its job",
    "lock.json": "holder, instants and fence are the database's, given when the lock is acquired",
    "policy-run-job.json": "a new job has no attempt; attempts and leases are counted by the queue",
    "policy-run-request.json": "asks for a run, of which the status is read",
    "policy-run-status.json": "derived from the job of the run",
    "trigger.json": "made with its schedule, and changed by firing",
}


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def sent(api: Api, method: str, path: str, body: bytes) -> Response:
    return api.http.request(method, f"{ACME}{path}", content=body, headers=JSON)


def make_run(api: Api) -> None:
    """Create the run of the samples, unless it is there."""
    changed = json.loads(sample("run.json"))
    for name in ("startedAt", "finishedAt", "deltas"):
        del changed[name]
    for state in ("queued", "running"):
        started = {"startedAt": "2025-10-26T02:00:01.500+00:00"} if state == "running" else {}
        body = json.dumps({**changed, "state": state, **started}).encode()
        method, path = ("POST", "/runs") if state == "queued" else ("PUT", f"/runs/{RUN}")
        assert sent(api, method, path, body).status_code in {200, 201, 409}


def test_every_sample_has_a_route_or_a_reason() -> None:
    assert {path.name for path in SAMPLES.glob("*.json")} == {*ROUTES, *ASSIGNED}


@pytest.mark.parametrize("name", ROUTES)
def test_what_is_sent_is_answered_and_read_again_byte_for_byte(api: Api, name: str) -> None:
    route, body = ROUTES[name], sample(name)
    tenant = json.loads(body).get("tenantId", "acme")
    if RUN in route.path:
        make_run(api)
    base = f"/tenants/{tenant}"
    stored = api.http.request(route.method, f"{base}{route.path}", content=body, headers=JSON)
    read = api.http.get(f"{base}{route.read or route.path}")
    assert (stored.status_code in {200, 201}, stored.content) == (True, body), stored.text
    assert (read.status_code, read.content) == (200, body)
    if stored.status_code == 201:
        assert api.http.get(stored.headers["Location"]).content == body


def test_an_event_stands_in_the_list_of_its_job_byte_for_byte(api: Api) -> None:
    body = sample("graph-job-event.json")
    job = json.loads(body)["payload"]["job"]["id"]
    assert sent(api, "POST", "/graph-jobs", sample("graph-build-job.json")).status_code in {201, 409}
    # The newest, because the event that the service wrote has the time of the service.
    changed = body.replace(b'"ts": "2025', b'"ts": "2027').replace(
        b'"occurredAt": "2025', b'"occurredAt": "2027'
    )
    stored = sent(api, "POST", f"/graph-jobs/{job}/events", changed)
    assert (stored.status_code, stored.content) == (201, changed)
    page = api.http.get(f"{ACME}/graph-jobs/{job}/events", params={"limit": 1}).text
    first = page[page.index("    {") : page.index("\n  ],")]
    assert textwrap.dedent(first) + "\n" == changed.decode()


def test_a_lock_is_read_as_the_database_holds_it(api: Api) -> None:
    with api.scheduler.locks.acquire("planner", timedelta(0), tenant_id="acme"):
        found = api.scheduler.locks.inspect("planner", tenant_id="acme")
        assert found is not None
        read = api.http.get(f"{ACME}/locks/planner")
    assert read.content == CanonicalJsonSerializer.serialize_pretty(found)


def test_a_request_becomes_the_job_and_the_status_of_the_samples_byte_for_byte(api: Api) -> None:
    # Asked for at two, claimed by a worker that falls silent, and returned when its lease has run out.
    asked_at = datetime(2025, 10, 26, 2, tzinfo=UTC)
    worker = json.loads(sample("worker.json")) | {"tenantId": "acme", "id": "worker-eu-1"}
    api.http.delete("/tenants/tenant-alpha/workers/worker-eu-1")
    api.clock.set_to(asked_at)
    try:
        assert sent(api, "POST", "/policy-runs", sample("policy-run-request.json")).status_code == 200
        assert sent(api, "PUT", "/workers/worker-eu-1", json.dumps(worker).encode()).status_code == 200
        api.clock.advance(timedelta(seconds=1.5))
        claimed = sent(api, "POST", "/workers/worker-eu-1/claims", b'{"leaseSeconds": 60}')
        assert [job["attemptCount"] for job in claimed.json()["items"]] == [1]
        api.clock.set_to(asked_at + timedelta(seconds=62))
        tick(api.scheduler, api.clock.now())
    finally:
        api.clock.set_to(NOW)
        api.http.delete(f"{ACME}/workers/worker-eu-1")
    (job,) = claimed.json()["items"]
    assert api.http.get(f"{ACME}/policy-jobs/{job['id']}").content == sample("policy-run-job.json")
    again = sent(api, "POST", "/policy-runs", sample("policy-run-request.json"))
    read = api.http.get(f"{ACME}/policy-runs/{job['runId']}")
    assert again.content == read.content == sample("policy-run-status.json")


def test_a_trigger_is_read_in_canonical_form(api: Api) -> None:
    assert sent(api, "PUT", "/schedules/sch_nightly_prod", sample("schedule.json")).status_code == 200
    read = api.http.get(f"{ACME}/schedules/sch_nightly_prod/trigger").content
    assert (
        CanonicalJsonSerializer.serialize_pretty(CanonicalJsonSerializer.deserialize(Trigger, read)) == read
    )


def test_ids_with_any_character_are_reached(api: Api) -> None:
    schedule = json.loads(sample("schedule-minimal.json"))
    for number, odd in enumerate(("a/b", "a?b#c", "100 %2F", "ü:画", "a/../b", "logs/1")):
        body = json.dumps({**schedule, "id": odd, "name": f"odd {number}"}).encode()
        path = f"/schedules/{quote(odd, safe='')}"
        assert sent(api, "PUT", path, body).status_code == 200, odd
        assert api.http.get(f"{ACME}{path}").json()["id"] == odd

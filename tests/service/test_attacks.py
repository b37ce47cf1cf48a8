"""Wrong and hostile requests: each gets a named error, which reveals nothing about other tenants."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest

from scheduler_service.app import create_app
from tests.service.serving import JSON, served

if TYPE_CHECKING:
    from httpx import Response

    from tests.service.conftest import Api

SAMPLES: Final = Path(__file__).parents[2] / "samples/api/scheduler"
ACME: Final = "/tenants/acme"
SCHEDULE: Final = json.loads((SAMPLES / "schedule-minimal.json").read_bytes())
RUN: Final = json.loads((SAMPLES / "run-no-deltas.json").read_bytes())
WORKER: Final = json.loads((SAMPLES / "worker.json").read_bytes())
REQUEST: Final = json.loads((SAMPLES / "policy-run-request.json").read_bytes())


def sent(api: Api, method: str, path: str, body: object) -> Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return api.http.request(method, path, content=content, headers=JSON)


def refused(answer: Response, status: int, code: str) -> dict[str, Any]:
    """Return the body of an error after a look at its form."""
    assert answer.headers["Content-Type"] == "application/json"
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["code"]) == (status, code), problem
    assert problem.keys() <= {"code", "message", "retryable", "outcome", "fields"}
    assert ("Retry-After" in answer.headers) == problem["retryable"]
    return problem


BODIES: Final = {
    "no JSON": (b"{", 400),
    "nothing": (b"", 400),
    "a list": (b"[]", 400),
    "null": (b"null", 400),
    "a text": (b'"x"', 400),
    "another encoding": (json.dumps(SCHEDULE).encode("utf-16"), 400),
    "no UTF-8": (b'{"id": "\xff"}', 400),
    "a key twice": (b'{"id": "sch_minimal", "id": "sch_minimal"}', 400),
    "not a number": (b'{"limits": {"maxJobs": NaN}}', 400),
    "a huge number": (b'{"limits": {"maxJobs": 1' + b"0" * 5000 + b"}}", 400),
    "very deep": (b"[" * 200_000 + b"]" * 200_000, 400),
    "half a surrogate": (json.dumps({**SCHEDULE, "name": "\ud800"}).encode(), 400),
    "U+0000": (json.dumps({**SCHEDULE, "name": "a\0b"}).encode(), 400),
    "another property": (json.dumps({**SCHEDULE, "colour": "red"}).encode(), 400),
    "a bad time rule": (json.dumps({**SCHEDULE, "whenCron": "61 * * * *"}).encode(), 400),
    "an instant without offset": (
        json.dumps({**SCHEDULE, "createdAt": "2025-10-01T08:00:00"}).encode(),
        400,
    ),
    "too large": (json.dumps({**SCHEDULE, "name": "x" * 5_000_000}).encode(), 413),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_is_refused_by_name(api: Api, name: str) -> None:
    body, status = BODIES[name]
    answer = sent(api, "PUT", f"{ACME}/schedules/sch_minimal", body)
    refused(answer, status, "too_large" if status == 413 else "validation_error")


def test_a_refused_body_is_not_quoted(api: Api) -> None:
    body = {**SCHEDULE, "mode": "s3cret-value", "timezone": 17, "enabled": "s3cret-flag"}
    problem = refused(sent(api, "PUT", f"{ACME}/schedules/sch_minimal", body), 400, "validation_error")
    assert {field["path"] for field in problem["fields"]} >= {"body.mode", "body.timezone", "body.enabled"}
    assert "s3cret" not in json.dumps(problem)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/schedules/sch_minimal", {**SCHEDULE, "tenantId": "globex"}),
        ("POST", "/runs", {**RUN, "tenantId": "globex"}),
        ("PUT", "/runs/run:acme:adhoc:1", {**RUN, "tenantId": "globex"}),
        ("PUT", "/workers/worker-eu-1", WORKER),
        ("PUT", "/workers/worker-eu-1", {key: WORKER[key] for key in WORKER if key != "tenantId"}),
        ("POST", "/policy-runs", {**REQUEST, "tenantId": "globex"}),
    ],
)
def test_a_body_of_another_tenant_is_refused(api: Api, method: str, path: str, body: object) -> None:
    refused(sent(api, method, f"{ACME}{path}", body), 403, "tenant_scope")


@pytest.mark.parametrize(
    ("tenant", "status", "code"),
    [
        ("system", 403, "tenant_scope"),
        ("%20system%20", 403, "tenant_scope"),
        ("a:b", 400, "validation_error"),
        ("%20", 400, "validation_error"),
        ("a%00b", 400, "validation_error"),
        ("%FF", 400, "validation_error"),
        ("x" * 129, 400, "validation_error"),
        ("%7B%22$ne%22:null%7D", 400, "validation_error"),
        ("' OR 1=1 --", 404, "not_found"),
    ],
)
def test_a_tenant_that_is_none_sees_nothing(api: Api, tenant: str, status: int, code: str) -> None:
    for path in ("schedules/sch_minimal", "workers/worker-eu-1", "locks/planner", "audit/x", "graph-jobs/x"):
        refused(api.http.get(f"/tenants/{tenant}/{path}"), status, code)


def test_nothing_of_a_tenant_is_seen_or_changed_by_another(api: Api) -> None:
    run, worker = {**RUN, "id": "run:secret"}, {**WORKER, "id": "w/secret", "tenantId": "acme"}
    schedule = {**SCHEDULE, "id": "sch_secret", "name": "secret"}
    stored = (
        ("PUT", "/schedules/sch_secret", schedule),
        ("POST", "/runs", {**run, "scheduleId": "sch_secret"}),
        ("PUT", "/workers/w%2Fsecret", worker),
        ("POST", "/policy-runs", {**REQUEST, "runId": "policy:secret"}),
    )
    for method, path, body in stored:
        assert sent(api, method, f"{ACME}{path}", body).is_success, path
    (job,) = [
        item["id"]
        for item in api.http.get(f"{ACME}/policy-jobs").json()["items"]
        if item["runId"] == "policy:secret"
    ]
    held = {"workerId": "w/secret", "attempt": 0}
    foreign: tuple[tuple[str, str, object, int], ...] = (
        ("GET", "/schedules/sch_secret", None, 404),
        ("GET", "/schedules/sch_secret/trigger", None, 404),
        ("GET", "/schedules/sch_secret/summary", None, 404),
        ("DELETE", "/schedules/sch_secret", None, 404),
        ("POST", "/schedules/sch_secret/restore", None, 404),
        ("PUT", "/schedules/sch_secret", {**schedule, "tenantId": "globex"}, 409),
        ("GET", "/runs/run:secret", None, 404),
        ("PUT", "/runs/run:secret", {**run, "tenantId": "globex"}, 404),
        ("POST", "/runs", {**run, "tenantId": "globex"}, 409),
        ("POST", "/runs/run:secret/retry", None, 404),
        ("GET", "/workers/w%2Fsecret", None, 404),
        ("PUT", "/workers/w%2Fsecret", {**worker, "tenantId": "globex"}, 409),
        ("POST", "/workers/w%2Fsecret/heartbeat", {}, 404),
        ("POST", "/workers/w%2Fsecret/drain", None, 404),
        ("POST", "/workers/w%2Fsecret/claims", {}, 404),
        ("DELETE", "/workers/w%2Fsecret", None, 404),
        ("GET", f"/policy-jobs/{job}", None, 404),
        ("GET", "/policy-runs/policy:secret", None, 404),
        ("POST", "/policy-runs/policy:secret/cancel", {}, 404),
        ("POST", f"/policy-jobs/{job}/complete", held, 404),
        ("DELETE", f"/policy-jobs/{job}", None, 404),
    )
    for method, path, content, status in foreign:
        answer = sent(api, method, f"/tenants/globex{path}", b"" if content is None else content)
        assert answer.status_code == status, (method, path, answer.text)
        assert "acme" not in answer.text
    for path in ("schedules", "triggers", "runs", "workers", "policy-jobs", "policy-runs", "audit"):
        assert api.http.get(f"/tenants/globex/{path}").json()["items"] == [], path
    assert api.http.get("/tenants/globex/schedules/sch_secret/runs").json()["items"] == []
    assert api.http.get(f"{ACME}/workers/w%2Fsecret").json()["status"] == "active"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/runs?limit=0", 400, "validation_error"),
        ("/runs?limit=many", 400, "validation_error"),
        ("/runs?state=banana", 400, "validation_error"),
        ("/runs?createdAfter=yesterday", 400, "validation_error"),
        ("/runs/%00", 400, "validation_error"),
        ("/runs/%0A", 400, "validation_error"),
        (f"/runs/{'x' * 257}", 400, "validation_error"),
        ("/runs/unknown", 404, "not_found"),
        ("/runs/unknown/logs/0", 400, "validation_error"),
        ("/runs/unknown/logs/1", 404, "not_found"),
        ("/runs/unknown/logs/99999999999999999999", 400, "validation_error"),
        ("/graph-jobs/unknown", 404, "not_found"),
        ("/graph-jobs/gbj_xyz", 404, "not_found"),
        ("/nonsense", 404, "not_found"),
        ("/runs/", 404, "not_found"),
        ("/runs/%FF", 400, "validation_error"),
        ("/runs/%ED%A0%80", 400, "validation_error"),
        ("%FF/runs", 400, "validation_error"),
        ("/schedules/x/deletion", 404, "not_found"),
    ],
)
def test_a_bad_question_is_refused_by_name(api: Api, path: str, status: int, code: str) -> None:
    refused(api.http.get(f"{ACME}{path}"), status, code)


def test_a_method_that_a_path_has_not_is_refused_by_name(api: Api) -> None:
    answer = api.http.patch(f"{ACME}/runs/x")
    refused(answer, 405, "method_not_allowed")
    assert answer.headers["Allow"]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Content-Type", "text/plain"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Content-Type", ""),
        ("Content-Encoding", "gzip"),
    ],
)
def test_a_body_that_is_not_sent_as_json_is_refused_by_name(api: Api, header: str, value: str) -> None:
    headers = {**JSON, header: value}
    answer = api.http.put(f"{ACME}/schedules/sch_minimal", content=json.dumps(SCHEDULE), headers=headers)
    assert "application/json" in refused(answer, 415, "not_json")["message"]


def test_an_actor_of_any_script_goes_into_the_audit_as_the_token_has_it(api: Api) -> None:
    schedule = {**SCHEDULE, "id": "sch_script", "name": "script"}
    headers = {**JSON, "Authorization": f"Bearer acme/{quote('Jürgen 画')}", "X-Actor": "somebody else"}
    path = f"{ACME}/schedules/sch_script"
    assert api.http.put(path, content=json.dumps(schedule), headers=headers).is_success
    (record,) = api.http.get(f"{ACME}/audit", params={"scheduleId": "sch_script"}).json()["items"]
    assert record["actor"]["actorId"] == "Jürgen 画"


@pytest.mark.parametrize(
    ("header", "status", "code"),
    [
        ("", 401, "unauthorized"),
        ("Bearer", 401, "unauthorized"),
        ("Bearer nonsense", 401, "unauthorized"),
        ("Basic YTpi", 401, "unauthorized"),
        ("Bearer globex/eve", 403, "tenant_scope"),
        ("Bearer ACME/eve", 403, "tenant_scope"),
        ("Bearer /eve", 401, "unauthorized"),
    ],
)
def test_a_token_of_no_tenant_or_another_one_is_refused(
    api: Api, header: str, status: int, code: str
) -> None:
    for path in ("runs", "workers/w1", "locks/planner", "audit"):
        answer = api.http.get(f"{ACME}/{path}", headers={"Authorization": header})
        refused(answer, status, code)
        assert ("WWW-Authenticate" in answer.headers) == (status == 401)


def test_without_a_check_of_tokens_all_are_refused_and_no_page_is_served() -> None:
    with served(create_app({"Persistence": {"Scheduler": "Memory"}})) as client:
        refused(client.get(f"{ACME}/runs"), 401, "unauthorized")
        for path in ("/docs", "/openapi.json", "/metrics"):
            refused(client.get(path), 404, "not_found")
        assert client.get("/readyz").json() == {"status": "ok"}


def test_a_request_id_that_is_too_long_is_refused_by_name(api: Api) -> None:
    answer = api.http.get(f"{ACME}/runs", headers={"X-Request-Id": "x" * 257})
    refused(answer, 400, "validation_error")


def test_a_worker_cannot_do_what_it_may_not(api: Api) -> None:
    worker = {**WORKER, "id": "w1", "tenantId": "acme"}
    assert sent(api, "PUT", f"{ACME}/workers/w1", worker).is_success
    assert sent(
        api, "POST", f"{ACME}/policy-runs", {**REQUEST, "runId": "policy:w1", "priority": "emergency"}
    ).is_success
    (job,) = sent(api, "POST", f"{ACME}/workers/w1/claims", {"leaseSeconds": 10}).json()["items"]
    path = f"{ACME}/policy-jobs/{quote(job['id'])}"
    mine = {"workerId": "w1", "attempt": 1}
    for held in ({**mine, "workerId": "w2"}, {**mine, "attempt": 0}, {**mine, "attempt": 2}):
        refused(sent(api, "POST", f"{path}/renew", held), 409, "lease_lost")
        refused(sent(api, "POST", f"{path}/complete", held), 409, "lease_lost")
    for bad in ({**mine, "leaseSeconds": 0}, {**mine, "leaseSeconds": 1e9}, {**mine, "attempt": -1}, {}):
        refused(sent(api, "POST", f"{path}/renew", bad), 400, "validation_error")
    for limit in (0, 1001, "all"):
        claims = sent(api, "POST", f"{ACME}/workers/w1/claims", {"limit": limit})
        refused(claims, 400, "validation_error")
    done = [sent(api, "POST", f"{path}/complete", {**mine, "stats": {"components": 1}}) for _ in range(2)]
    assert [answer.status_code for answer in done] == [200, 200]
    assert done[0].content == done[1].content
    for move, said in (("fail", {"error": "late"}), ("release", {"error": "late"}), ("renew", {})):
        refused(sent(api, "POST", f"{path}/{move}", {**mine, **said}), 409, "invalid_transition")
    assert sent(api, "POST", f"{ACME}/workers/w1/stop", b"").is_success
    refused(sent(api, "POST", f"{ACME}/workers/w1/claims", {}), 409, "conflict")
    refused(sent(api, "POST", f"{ACME}/workers/w1/heartbeat", {}), 409, "invalid_transition")


def test_a_run_moves_along_its_states_alone(api: Api) -> None:
    run = {**RUN, "id": "run:moves"}
    assert sent(api, "POST", f"{ACME}/runs", run).status_code == 201
    path = f"{ACME}/runs/run:moves"
    refused(sent(api, "POST", f"{ACME}/runs", run), 409, "duplicate")
    running = {**run, "state": "running", "startedAt": "2025-10-26T09:00:01+00:00"}
    refused(sent(api, "PUT", path, running), 409, "invalid_transition")
    refused(sent(api, "PUT", f"{path}?expectedState=queued", {**run, "state": "queued"}), 409, "conflict")
    refused(sent(api, "PUT", path, {**run, "id": "run:other"}), 400, "validation_error")
    refused(sent(api, "PUT", path, {**run, "trigger": "cron"}), 400, "validation_error")

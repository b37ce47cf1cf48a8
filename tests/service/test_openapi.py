"""The OpenAPI page of the sample service is complete; a client generated from it reaches every operation."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import pytest
from pydantic.alias_generators import to_snake

from scheduler_service.app import create_app
from twinstore.scheduler import policy_job_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.conftest import Api

SAMPLES: Final = Path(__file__).parents[2] / "samples/api/scheduler"
METHODS: Final = {"get", "put", "post", "delete"}
TENANT: Final = "acme"
# The client writes microseconds.
SPELLING: Final = re.compile(r"(\.\d+)?\+(?=00:00)")
CLIENT: Final = "generated_scheduler_client"


@cache
def page() -> dict[str, Any]:
    return create_app().openapi()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for path in document["paths"].values()
        for method, operation in path.items()
        if method in METHODS
    }


def test_every_operation_says_what_it_does_and_what_it_answers() -> None:
    found = operations(page())
    assert len(found) >= 60
    for name, operation in found.items():
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        success = next(status for status in operation["responses"] if status.startswith("2"))
        if success != "204":
            schema = operation["responses"][success]["content"]["application/json"]["schema"]
            assert schema.keys() & {"$ref", "anyOf", "oneOf"}, name
        problems = {
            status: answer["content"]["application/json"]["schema"]
            for status, answer in operation["responses"].items()
            if not status.startswith("2")
        }
        assert {"503"} <= problems.keys() or name == "healthz", name
        assert all(schema == {"$ref": "#/components/schemas/Problem"} for schema in problems.values()), name


def test_every_schema_of_the_page_is_there() -> None:
    document = page()
    wanted = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert wanted <= document["components"]["schemas"].keys()
    assert not {"HTTPValidationError", "ValidationError"} & document["components"]["schemas"].keys()


def test_the_pages_are_served(api: Api) -> None:
    assert api.http.get("/openapi.json").json() == page()
    docs = api.http.get("/docs")
    assert (docs.status_code, docs.headers["Content-Type"].partition(";")[0]) == (200, "text/html")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Generate a client from the page and import it."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.json").write_text(json.dumps(page()))
    (folder / "config.yaml").write_text("post_hooks: []\n")  # by default it formats what it wrote
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "openapi_python_client",
                "generate",
                "--meta",
                "none",
                "--fail-on-warning",
            ),
            *("--path", str(folder / "openapi.json"), "--config", str(folder / "config.yaml")),
            *("--output-path", str(folder / CLIENT)),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    try:
        yield import_module(CLIENT)
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.split(".")[0] == CLIENT]:
            del sys.modules[name]


@dataclass(frozen=True)
class Step:
    """A call of a generated function: the values in path and query, and the body as JSON."""

    operation: str
    arguments: dict[str, Any] = field(default_factory=dict)
    body: dict[str, Any] | None = None


def sample(name: str, **changes: object) -> dict[str, Any]:
    """Return a sample with other properties; ``None`` leaves one out."""
    found: dict[str, Any] = {**json.loads((SAMPLES / f"{name}.json").read_text()), **changes}
    return {key: value for key, value in found.items() if value is not None}


def story() -> Iterator[Step]:
    """Yield a call of each operation, in an order in which each of them succeeds."""
    yield Step("healthz")
    yield Step("readyz")
    yield from story_of_schedules()
    yield from story_of_runs()
    yield from story_of_documents()
    yield from story_of_policies()
    yield from story_of_graph_jobs()


def story_of_schedules() -> Iterator[Step]:
    one = {"schedule_id": "sch_nightly_prod"}
    yield Step("put_schedule", one, sample("schedule"))
    yield Step("get_schedule", one)
    yield Step("list_schedules", {"limit": 1})
    yield Step("get_trigger", one)
    yield Step("recalculate_trigger", one)
    yield Step("list_triggers")
    yield Step("fire_trigger", one)
    yield Step("put_summary", one, sample("run-summary"))
    yield Step("get_summary", one)
    yield Step("list_summaries")
    yield Step("delete_schedule", one)
    yield Step("get_deletion", one)
    yield Step("restore_schedule", {**one, "enabled": True})


def story_of_runs() -> Iterator[Step]:
    planned = sample("run-no-deltas", id="run:1/a", scheduleId="sch_nightly_prod")
    one = {"run_id": "run:1/a"}
    yield Step("post_run", {"x-request-id": "Zoe"}, planned)
    yield Step("put_run", {**one, "expectedState": "planning"}, {**planned, "state": "queued"})
    ended = {"state": "cancelled", "finishedAt": "2025-10-26T09:01:00+00:00"}
    yield Step("put_run", one, {**planned, **ended})
    yield Step("get_run", one)
    yield Step("list_runs", {"state": ["cancelled", "queued"], "ascending": True})
    yield Step("retry_run", {**one, "newRunId": "run:2"})
    yield Step("list_schedule_runs", {"schedule_id": "sch_nightly_prod"})
    yield Step("rebuild_summary", {"schedule_id": "sch_nightly_prod"})
    entry = sample("execution-log", runId="run:1/a")
    yield Step("append_logs", one, {"items": [{**entry, "sequence": 1}]})
    yield Step("put_log", {**one, "sequence": 2}, {**entry, "sequence": 2})
    yield Step("get_log", {**one, "sequence": 2})
    yield Step("list_logs", one)
    yield Step(
        "put_impact_set",
        {"snapshot_id": "snap_1", "runId": "run:1/a"},
        sample("impact-set", snapshotId="snap_1"),
    )
    yield Step("list_run_impact_sets", one)


def story_of_documents() -> Iterator[Step]:
    one = {"snapshot_id": "snap_1"}
    yield Step("post_impact_set", {}, sample("impact-set", snapshotId=None))
    yield Step("get_impact_set", one)
    yield Step("list_impact_sets")
    yield Step("get_latest_impact_set", {}, sample("impact-set")["selector"])
    yield Step("delete_impact_set", one)
    yield Step("post_audit", {"x-request-id": "req-1"}, sample("audit"))
    yield Step("get_audit", {"audit_id": sample("audit")["id"]})
    yield Step("list_audit", {"category": "schedule"})
    yield Step("get_lock", {"lock_key": "planner"})


def story_of_policies() -> Iterator[Step]:
    worker = {"worker_id": "node/1"}
    yield Step("put_worker", worker, sample("worker", id="node/1", tenantId=TENANT))
    yield Step("get_worker", worker)
    yield Step("list_workers", {"status": ["active"]})
    for number, end in enumerate(("complete", "fail", "release"), start=1):
        run = {"run_id": f"policy:{number}"}
        held = {"workerId": "node/1", "attempt": 1}
        job = {"job_id": policy_job_id(TENANT, run["run_id"])}
        said = {"stats": {"components": 3}} if end == "complete" else {"error": "because"}
        yield Step("post_policy_run", {}, sample("policy-run-request", runId=run["run_id"]))
        yield Step("get_policy_run", run)
        yield Step("claim", worker, {"limit": 1})
        yield Step("renew_policy_job", job, {**held, "leaseSeconds": 30.0})
        yield Step(f"{end}_policy_job", job, {**held, **said})
        if end == "fail":
            yield Step("retry_policy_run", run)
            yield Step("cancel_policy_run", run, {"reason": "no longer wanted"})
    new = ("attemptCount", "lastAttemptAt", "lastError")
    job = sample("policy-run-job", id="pjob_1", runId="policy:4", **dict.fromkeys(new))
    yield Step("post_policy_job", {}, job)
    yield Step("get_policy_job", {"job_id": "pjob_1"})
    yield Step("list_policy_jobs", {"status": ["pending"]})
    yield Step("list_policy_runs", {"limit": 2})
    yield Step("count_policy_jobs")
    yield Step("delete_policy_job", {"job_id": "pjob_1"})
    for name in ("heartbeat", "drain", "stop", "delete_worker"):
        yield Step(name, worker, {"currentJobs": 0} if name == "heartbeat" else None)


def story_of_graph_jobs() -> Iterator[Step]:
    job = sample("graph-build-job", startedAt=None, status="queued")
    one = {"job_id": job["id"]}
    yield Step("post_graph_job", {}, job)
    yield Step("post_graph_job", {}, sample("graph-overlay-job"))
    running = {"status": "running", "startedAt": "2025-10-26T14:05:01.250+00:00", "attempts": 3}
    yield Step("put_graph_job", {**one, "expected": "queued"}, {**job, **running})
    yield Step("get_graph_job", one)
    yield Step("list_graph_jobs", {"type": "build"})
    yield Step("count_graph_jobs")
    yield Step("post_graph_job_event", one, sample("graph-job-event"))
    yield Step("list_graph_job_events", one)
    yield Step("delete_graph_job", one)


def test_the_story_calls_every_operation() -> None:
    assert {step.operation for step in story()} == operations(page()).keys()


def test_a_generated_client_calls_every_operation(api: Api, generated: ModuleType) -> None:
    found = operations(page())
    with api.scheduler.locks.acquire("planner", timedelta(0), tenant_id=TENANT):
        pass
    with generated.AuthenticatedClient(base_url=str(api.http.base_url), token="acme/tester") as client:
        for step in story():
            answer = call(generated, client, found[step.operation], step)
            assert answer.status_code < HTTPStatus.MULTIPLE_CHOICES, (step.operation, answer.content)
            if answer.status_code != HTTPStatus.NO_CONTENT:
                # What the client understood is what was sent, in its own spelling of instants.
                sent, understood = json.loads(answer.content), answer.parsed.to_dict()
                assert spelt(understood) == spelt(sent), step.operation


def spelt(value: object) -> str:
    """Return JSON without the fractions of instants and without an order of properties."""
    return SPELLING.sub("+", json.dumps(value, sort_keys=True))


def call(generated: ModuleType, client: object, operation: dict[str, Any], step: Step) -> Any:  # noqa: ANN401  # generated
    """Call the function of an operation with arguments as its annotations ask for."""
    tag = operation["tags"][0].replace(" ", "_")
    function = import_module(f"{generated.__name__}.api.{tag}.{step.operation}").sync_detailed
    models = import_module(f"{generated.__name__}.models")
    arguments: dict[str, Any] = {}
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in step.arguments:
            value = step.arguments[parameter["name"]]
            names = re.findall(r"schemas/(\w+)", json.dumps(parameter))  # of an enumeration, if it has one
            make = getattr(models, names[0]) if names else lambda text: text
            argument = (
                "type_" if parameter["name"] == "type" else to_snake(parameter["name"].replace("-", "_"))
            )
            arguments[argument] = [make(item) for item in value] if isinstance(value, list) else make(value)
    assert len(arguments) == len(step.arguments), step
    if step.body is not None:
        arguments["body"] = getattr(models, body_model(operation, step.body)).from_dict(step.body)
    if not step.operation.endswith("z"):
        arguments["tenant_id"] = TENANT
    return function(client=client, **arguments)


def body_model(operation: dict[str, Any], body: dict[str, Any]) -> str:
    """Return the name of the model of a body."""
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    return "GraphBuildJob" if body["id"].startswith("gbj_") else "GraphOverlayJob"

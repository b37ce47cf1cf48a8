"""The service as people run it: processes over HTTP, on both databases with only the switch changed.

Schedules fall due, two workers execute the jobs, one is killed while it holds a job, which the other ends.
The clock and the ids are the test's, so all that can be read over HTTP is equal on both, byte for byte. So
are the metrics that Prometheus reads.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.programs import CLOCK, HELD, FileClock
from tests.service.serving import JSON, OfPath, listening
from tests.support.databases import environment_of, without_retention
from twinstore.observing.counters import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.service.conftest import Api
    from tests.support.databases import MongoServer, PostgresServer
    from tests.support.servers import Settings


def scraped(api: Api) -> dict[tuple[str, str, str, str], float]:
    """Return how often calls ended, by driver, entity, operation and outcome."""
    answer = api.http.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert all(f"# TYPE {metric.name} " in answer.text for metric in METRICS)
    assert "acme" not in answer.text
    return {
        (labels["driver"], labels["entity"], labels["operation"], labels["outcome"]): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == METRICS[0].name and (labels := sample.labels)
    }


def test_the_calls_of_requests_are_counted(api: Api) -> None:
    driver = api.scheduler.driver
    before = scraped(api)
    assert before[driver, "storage", "ensure_migrations", "ok"] == 1
    assert api.http.get("/tenants/acme/runs/nothing").status_code == 404
    after = scraped(api)
    grown = {key: after[key] - before.get(key, 0) for key in after if after[key] != before.get(key, 0)}
    assert grown == {(driver, "runs", "get_required", "not_found"): 1}
    assert "/metrics" not in api.http.get("/openapi.json").json()["paths"]


ROOT: Final = Path(__file__).parents[2]
SAMPLES: Final = ROOT / "samples/api/scheduler"
SWITCH: Final = {"mongo": "Mongo", "postgres": "Postgres"}
ACME: Final = "/tenants/acme"
LISTS: Final = (
    *("schedules", "triggers", "runs", "run-summaries", "impact-sets", "audit"),
    *("policy-runs", "policy-jobs", "policy-job-counts", "workers", "graph-jobs"),
)
# What is drawn, or the database's own: id and instants of an event that the library writes of a graph job.
DRAWN: Final = re.compile(rb'(?<="eventId": ")[0-9a-f-]{36}|(?<="ts": ")[^"]+|(?<="occurredAt": ")[^"]+')
DEADLINE: Final = 60.0
State = dict[str, bytes]


def at(minute: int) -> datetime:
    return datetime(2026, 1, 5, 12, minute, tzinfo=UTC)


def until(ready: Callable[[], bool], what: str) -> None:
    """Wait for something that other processes do."""
    end = time.monotonic() + DEADLINE
    while not ready():
        assert time.monotonic() < end, f"{what} did not come about within {DEADLINE:.0f} s"
        time.sleep(0.05)


@dataclass
class Programs:
    """The processes of one service, and a client of it."""

    environment: dict[str, str]
    url: str
    http: httpx.Client
    clock: FileClock
    stack: ExitStack

    def start(self, *arguments: str, fds: tuple[int, ...] = ()) -> subprocess.Popen[bytes]:
        """Start one; it is killed with the test at the latest."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.programs", *arguments],
            cwd=ROOT,
            env=self.environment,
            pass_fds=fds,
            stdin=subprocess.PIPE,
        )
        self.stack.callback(ended, process, signal.SIGKILL)
        return process

    def worker(self, name: str) -> subprocess.Popen[bytes]:
        """Start a worker, which waits until it is let go."""
        pauses = ("--lease", "120", "--renew", "0.05", "--pause", "0.1")
        return self.start("work", "--url", self.url, "--tenant", "acme", "--id", name, *pauses)

    def get(self, path: str) -> Any:  # noqa: ANN401  # JSON
        """Read something, ``{}`` where it is not there."""
        answer = self.http.get(f"{ACME}{path}")
        return answer.json() if answer.is_success else {}

    def put(self, path: str, body: object) -> None:
        """Write something."""
        answer = self.http.put(f"{ACME}{path}", content=json.dumps(body), headers=JSON)
        assert answer.is_success, answer.text

    def run_of(self, schedule: str) -> dict[str, Any]:
        """Return the only run of a schedule."""
        items = self.get(f"/schedules/{schedule}/runs")["items"]
        assert len(items) <= 1
        return dict(items[0]) if items else {}

    def logs_of(self, schedule: str) -> list[dict[str, Any]]:
        """Return the log of that run."""
        run = self.run_of(schedule)
        return list(self.get(f"/runs/{run['id']}/logs")["items"]) if run else []

    def job_of(self, schedule: str) -> dict[str, Any]:
        """Return the job of that run."""
        run = self.run_of(schedule).get("id", "")
        return next((job for job in self.get("/policy-jobs")["items"] if job["runId"] == run), {})


def ended(process: subprocess.Popen[bytes], number: signal.Signals) -> int:
    """Send a signal and wait for the end."""
    process.send_signal(number)
    status = process.wait(DEADLINE)
    if process.stdin is not None:
        process.stdin.close()
    return status


def let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


@contextmanager
def running(settings: Settings, folder: Path) -> Iterator[Programs]:
    """Start the service with the configuration in the environment."""
    clock = FileClock(folder / "clock")
    clock.set_to(at(0))
    environment = environment_of(settings) | {
        "SCHEDULER_SERVICE_TOKEN": "acme/worker",
        CLOCK: str(folder / "clock"),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'samples/service'}",
    }
    with ExitStack() as stack:
        listener = stack.enter_context(listening())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        http = stack.enter_context(httpx.Client(base_url=url, timeout=DEADLINE, auth=OfPath()))
        programs = Programs(environment, url, http, clock, stack)
        service = programs.start("serve", str(listener.fileno()), fds=(listener.fileno(),))
        yield programs
        # It ends as it is asked to; by the signal itself in versions of uvicorn that pass it on.
        assert ended(service, signal.SIGTERM) in {0, -signal.SIGTERM}


def lived_through(programs: Programs) -> State:
    """Let everything happen; return all that can be read over HTTP at the end."""
    firing = programs.start("fire", "--every", "0.1")
    dies, lives = programs.worker("worker-a"), programs.worker("worker-b")
    assert programs.http.get("/readyz").status_code == 200
    for minute, policy in ((1, "policy-1"), (2, HELD), (3, "policy-3")):
        schedule = json.loads((SAMPLES / "schedule-minimal.json").read_bytes())
        changes = {"id": f"sch-{minute}", "name": f"at {minute}", "whenCron": f"{minute} 12 * * *"}
        times = {"createdAt": at(0).isoformat(), "updatedAt": at(0).isoformat()}
        body = schedule | changes | times | {"onlyIf": {"policyRevision": policy}}
        programs.put(f"/schedules/sch-{minute}", body)

    let_go(dies)
    programs.clock.set_to(at(1))
    until(lambda: programs.job_of("sch-1").get("status") == "completed", "the first job")

    programs.clock.set_to(at(2))
    until(lambda: bool(programs.logs_of("sch-2")), "the first words of the held job")
    let_go(lives)
    programs.clock.set_to(at(3))
    until(lambda: programs.job_of("sch-3").get("status") == "completed", "the job of the other worker")
    # It keeps renewing its lease, so no other worker takes the job while it lives.
    until(lambda: programs.job_of("sch-2").get("leaseExpiresAt") == at(5).isoformat(), "the renewal")
    until(lambda: heartbeat(programs, "worker-a") == at(3), "the heartbeat")
    ended(dies, signal.SIGKILL)

    programs.clock.set_to(at(6))
    until(lambda: programs.job_of("sch-2").get("status") == "completed", "the job of the killed worker")
    until(lambda: heartbeat(programs, "worker-b") == at(6), "a heartbeat")
    programs.clock.set_to(at(9))
    until(lambda: programs.get("/workers/worker-a").get("status") == "dead", "the end of the silent worker")
    until(lambda: heartbeat(programs, "worker-b") == at(9), "the last heartbeat")
    add_documents(programs)
    assert [ended(process, signal.SIGTERM) for process in (lives, firing)] == [0, 0]
    return state_of(programs)


def heartbeat(programs: Programs, worker: str) -> datetime | None:
    """Return when a worker was heard of last."""
    text = programs.get(f"/workers/{worker}").get("lastHeartbeatAt")
    return None if text is None else datetime.fromisoformat(text)


def add_documents(programs: Programs) -> None:
    """Write what no worker writes."""
    programs.put("/impact-sets/snap_example_0001", json.loads((SAMPLES / "impact-set.json").read_bytes()))
    for name in ("graph-build-job", "graph-overlay-job"):
        body = (SAMPLES / f"{name}.json").read_bytes()
        assert programs.http.post(f"{ACME}/graph-jobs", content=body, headers=JSON).is_success


def state_of(programs: Programs) -> State:
    """Read every list, the logs of every run and the events of every graph job."""
    paths = [f"/{name}" for name in LISTS]
    paths += [f"/runs/{run['id']}/logs" for run in programs.get("/runs")["items"]]
    paths += [f"/graph-jobs/{job['id']}/events" for job in programs.get("/graph-jobs")["items"]]
    found = {path: programs.http.get(f"{ACME}{path}") for path in paths}
    assert all(answer.is_success for answer in found.values())
    return {
        path: DRAWN.sub(b"drawn", answer.content) if path.endswith("/events") else answer.content
        for path, answer in found.items()
    }


@pytest.fixture(scope="module")
def states(
    mongo_server: MongoServer, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], State]]:
    """Give what a service leaves on a database, which it lives through once."""
    found: dict[str, State] = {}
    with mongo_server.database() as mongo, postgres_server.migrated_database() as postgres:

        def state(driver: str) -> State:
            if driver not in found:
                both = [cast("Settings", part.config["Persistence"]) for part in (mongo, postgres)]
                sections = both[0] | both[1] | {"Scheduler": SWITCH[driver]}
                with running(
                    without_retention({"Persistence": sections}), tmp_path_factory.mktemp(driver)
                ) as programs:
                    found[driver] = lived_through(programs)
            return found[driver]

        yield state


@pytest.mark.parametrize("driver", ["postgres", pytest.param("mongo", marks=pytest.mark.long)])
def test_jobs_are_executed_although_a_worker_is_killed(driver: str, states: Callable[[str], State]) -> None:
    state = {path: json.loads(content) for path, content in states(driver).items()}
    jobs = {job["policyId"]: job for job in state["/policy-jobs"]["items"]}
    assert {name: (job["status"], job["attemptCount"]) for name, job in jobs.items()} == {
        "policy-1": ("completed", 1),
        HELD: ("completed", 2),
        "policy-3": ("completed", 1),
    }
    assert [run["state"] for run in state["/runs"]["items"]] == ["completed"] * 3
    logs = [entry["message"] for entry in state[f"/runs/{jobs[HELD]['runId']}/logs"]["items"]]
    assert logs == ["attempt 1 of worker-a", "attempt 2 of worker-b", "evaluated"]
    assert {item["id"]: item["status"] for item in state["/workers"]["items"]} == {
        "worker-a": "dead",
        "worker-b": "stopped",
    }
    assert [item["fireCount"] for item in state["/triggers"]["items"]] == [1] * 3
    assert [item["counters"]["completed"] for item in state["/run-summaries"]["items"]] == [1] * 3
    actions = [record["action"] for record in state["/audit"]["items"]]
    assert {action: actions.count(action) for action in actions} == dict.fromkeys(
        ("schedule.stored", "schedule.fired", "run.queued", "run.running", "run.completed"), 3
    )


@pytest.mark.long
def test_the_state_is_the_same_on_both_databases_byte_for_byte(states: Callable[[str], State]) -> None:
    assert states("mongo") == states("postgres")

"""While no server answers, calls end with an error that says so and shows clients neither host nor port."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from scheduler_service.app import create_app
from scheduler_service.calls import Service
from tests.service.serving import JSON, by_name, served
from twinstore import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from tests.support.servers import Settings

SCHEDULE: Final = Path(__file__).parents[2] / "samples/api/scheduler/schedule-minimal.json"


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Keep a port on which no server listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def stores(address: str) -> dict[str, Settings]:
    secret = f"service:s3cret@{address}"
    return {
        "mongo": {
            "ConnectionString": f"mongodb://{secret}/?replicaSet=hidden",
            "Database": "scheduler",
            "ServerSelectionTimeoutMs": 300,
        },
        "postgres": {"ConnectionString": f"postgresql://{secret}/hidden"},
    }


@pytest.fixture(params=["mongo", "postgres"])
def api(request: pytest.FixtureRequest, nowhere: str) -> Iterator[httpx.Client]:
    """Serve from a store that has gone away since the service started."""
    driver = str(request.param)
    app = create_app({"Persistence": {"Scheduler": "Memory"}}, authenticate=by_name)
    gone: Settings = {"Scheduler": driver, driver.capitalize(): stores(nowhere)[driver]}
    with open_storage({"Persistence": gone}) as storage, served(app) as client:
        service: Service = app.state.service
        app.state.service = replace(service, storage=storage)
        yield client


def test_calls_say_that_the_store_is_away_and_not_where_it_is(api: httpx.Client, nowhere: str) -> None:
    path = "/tenants/acme/schedules/sch_minimal"
    answers = (
        api.get("/readyz"),
        api.get(path),
        api.put(path, content=SCHEDULE.read_bytes(), headers=JSON),
        api.get("/tenants/acme/workers"),
        api.get("/tenants/acme/locks/planner"),
    )
    for answer in answers:
        problem = answer.json()
        assert answer.status_code in {503, 504}, answer.text
        assert (problem["code"], problem["retryable"]) in {("connection_error", True), ("timeout", True)}
        assert answer.headers["Retry-After"] == "1"
        for secret in (*nowhere.split(":"), "s3cret", "hidden", "mongo", "postgres"):
            assert secret not in json.dumps(problem).lower()
    assert api.get("/healthz").status_code == 200

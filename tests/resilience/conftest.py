"""Stores of every kind for the tests of processes, threads and units: one migrated store for each file."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pytest

import twinstore
from tests.support.pgbouncer import pooler_before

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerStorage

SERVERS: Final = ("mongo", "postgres", pytest.param("pooler", marks=pytest.mark.pgbouncer))

FOLDER: Final = Path(__file__).parent
SPREAD: Final = ("mongo", "postgres")
STORES: Final = ("every_store", "every_server")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the full form what repeats a case on one more store.

    Variants of a test are spread over both servers and all run in memory. The kit behind a pooler uses
    connections in every way already.
    """
    met: Counter[tuple[str, object]] = Counter()
    for item in items:
        if item.path.parent != FOLDER or not isinstance(item, pytest.Function):
            continue
        params = item.callspec.params if hasattr(item, "callspec") else {}
        kind = next((params[name] for name in STORES if name in params), None)
        if kind == "pooler":
            item.add_marker(pytest.mark.long)
        elif kind in SPREAD and len(params) > 1:
            case = (f"{item.path}::{item.originalname}", kind)
            if met[case] % 2 != SPREAD.index(kind):
                item.add_marker(pytest.mark.long)
            met[case] += 1


@pytest.fixture(scope="module", params=["memory", *SERVERS])
def every_store(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Return the settings of a migrated store of each kind; each test uses a separate tenant."""
    with ExitStack() as stack:
        yield settings_of(request.param, request, stack)


@pytest.fixture(scope="module", params=SERVERS)
def every_server(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Return the same of the stores that several processes share."""
    with ExitStack() as stack:
        yield settings_of(request.param, request, stack)


@pytest.fixture(
    scope="module",
    params=[
        "postgres",
        pytest.param("memory", marks=pytest.mark.long),
        pytest.param("mongo", marks=pytest.mark.long),
        pytest.param("pooler", marks=[pytest.mark.long, pytest.mark.pgbouncer]),
    ],
)
def forking_store(request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Return the same for whole programs: in a bounded run of the driver that forks hurt most."""
    with ExitStack() as stack:
        yield settings_of(request.param, request, stack)


@pytest.fixture
def storage(every_store: Settings) -> Iterator[SchedulerStorage]:
    """Open a storage on every store."""
    with twinstore.add_scheduler_storage(every_store) as opened:
        yield opened


def settings_of(kind: str, request: pytest.FixtureRequest, stack: ExitStack) -> Settings:
    """Return the settings of a migrated store, which lives as long as the stack."""
    if kind == "memory":
        return {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": f"test-{uuid4().hex}"}}}
    if kind == "mongo":
        database = request.getfixturevalue("module_mongo_database")
        return dict(database.config)
    if kind == "postgres":
        return dict(request.getfixturevalue("module_postgres_database").config)
    # The rows of the tests without it are in the other database.
    server = request.getfixturevalue("postgres_server")
    pooler = stack.enter_context(pooler_before(server.url))
    return pooler.config(stack.enter_context(server.migrated_database()))

"""The sample service on each database, one server and one database for the tests of a file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from scheduler_service.app import create_app
from tests.service.serving import by_name, served
from tests.support.databases import fresh_settings
from twinstore import ManualClock, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from twinstore import SchedulerStorage

FOLDER: Final = Path(__file__).parent
# After every instant of the samples, so that what they store can be changed.
NOW: Final = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
# What the service decides is tried on one database in a bounded run; the full form takes both.
OF_FILE: Final = {"test_bodies.py": "mongo", "test_openapi.py": "mongo"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the other database of each file to the full form."""
    for item in items:
        if item.path.parent == FOLDER and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            wanted = OF_FILE.get(item.path.name, "postgres")
            if item.callspec.params.get("api", wanted) != wanted:
                item.add_marker(pytest.mark.long)


@dataclass(frozen=True, slots=True)
class Api:
    """A service: its client, its clock, and the storage behind it."""

    http: httpx.Client
    clock: ManualClock
    scheduler: SchedulerStorage


@pytest.fixture(scope="module", params=["mongo", "postgres"])
def api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Serve on a database that the switch alone chooses."""
    clock = ManualClock(NOW)
    with (
        fresh_settings(request.param, request) as settings,
        open_storage(settings, clock=clock) as storage,
        served(create_app(settings, clock=clock, authenticate=by_name, docs=True, metrics=True)) as client,
    ):
        yield Api(client, clock, storage.scheduler)

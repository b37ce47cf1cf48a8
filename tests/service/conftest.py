"""The sample service on each database, one server and one database for the tests of a file."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pytest

from scheduler_service.app import create_app
from tests.service.serving import served
from tests.stores import fresh_settings
from twinstore import ManualClock, open_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from twinstore import SchedulerStorage

# After every instant of the samples, so that what they store can be changed.
NOW: Final = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


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
        served(create_app(settings, clock=clock)) as client,
    ):
        yield Api(client, clock, storage.scheduler)

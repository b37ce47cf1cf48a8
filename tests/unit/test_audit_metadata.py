"""The default metadata of the audit service is given where a storage is opened, or by the settings."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import twinstore
from twinstore import aio
from twinstore.clock import Clock, FixedClock, ManualClock, SystemClock, truncate_to_millisecond
from twinstore.errors import ConfigurationError
from twinstore.models.cron import next_fire
from twinstore.testing.scheduler.builders import make_audit_event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore import SchedulerStorage

EVENT = make_audit_event("acme", metadata={"ZONE": "us"})
GIVEN = {"audit_metadata": {"Host": "h-1", "zone": "eu"}}
EXPECTED = {"host": "h-1", "zone": "us"}


def config(**storage: object) -> Mapping[str, object]:
    return {
        "Persistence": {"Scheduler": "Memory", "Memory": {"Store": uuid4().hex}},
        "Scheduler": {"Storage": storage},
    }


def written(storage: SchedulerStorage) -> list[dict[str, str]]:
    """Return the metadata of an event that is written alone, in a session and in a unit of work."""
    found = [dict(storage.audit_service.write(EVENT).metadata)]
    with storage.sessions.open("acme") as session:
        found.append(dict(session.audit_service.write(EVENT).metadata))
    with storage.transaction("acme") as unit:
        found.append(dict(unit.audit_service.write(EVENT).metadata))
    return found


def test_it_is_an_argument_of_every_function_that_opens_a_storage() -> None:
    with twinstore.add_scheduler_memory_storage(config(), options=GIVEN) as storage:
        assert written(storage) == [EXPECTED] * 3
    with twinstore.add_scheduler_storage(config(), options=GIVEN) as storage:
        assert written(storage) == [EXPECTED] * 3
    with twinstore.open_storage(config(), options={"scheduler": GIVEN}) as opened:
        assert written(opened.scheduler) == [EXPECTED] * 3


def test_it_is_an_argument_of_the_storage_for_asyncio() -> None:
    async def work() -> dict[str, str]:
        async with aio.open_storage(config(), options={"scheduler": GIVEN}) as opened:
            return dict((await opened.scheduler.audit_service.write(EVENT)).metadata)

    assert asyncio.run(asyncio.wait_for(work(), timeout=100)) == EXPECTED


def test_it_is_a_section_of_the_settings_below_what_the_host_gives_at_run_time() -> None:
    settings = config(AuditMetadata={"Host": "of-the-file", "Release": "7"})
    with twinstore.add_scheduler_storage(settings) as storage:
        assert written(storage) == [{"host": "of-the-file", "release": "7", "zone": "us"}] * 3
    with twinstore.add_scheduler_storage(settings, options=GIVEN) as storage:
        assert written(storage) == [{"host": "h-1", "release": "7", "zone": "us"}] * 3


def test_it_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("Scheduler__Storage__AuditMetadata__HOST", "h-2")
    with twinstore.add_scheduler_storage(config()) as storage:
        assert written(storage) == [{"host": "h-2", "zone": "us"}] * 3


@pytest.mark.parametrize("value", ["a\x00b", 3])
def test_what_no_metadata_can_be_is_refused_before_anything_is_opened(value: object) -> None:
    with pytest.raises(
        ConfigurationError, match=r"Scheduler:Storage:AuditMetadata:host .*\(the argument options\)"
    ):
        twinstore.open_storage(config(), options={"scheduler": {"audit_metadata": {"host": value}}})
    refused = "Scheduler:Storage:AuditMetadata in the argument options is a section, but has a value"
    with pytest.raises(ConfigurationError, match=refused):
        twinstore.open_storage(config(), options={"scheduler": {"audit_metadata": "host"}})


START = datetime(2025, 10, 26, 14, 5, 0, 123_999, tzinfo=UTC)


@pytest.mark.parametrize("clock", [SystemClock(), FixedClock(START), ManualClock(START)])
def test_every_clock_answers_aware_utc_in_whole_milliseconds(clock: Clock) -> None:
    now = clock.now()
    assert now.tzinfo is UTC
    assert now.microsecond % 1000 == 0
    assert isinstance(clock, Clock)


def test_the_system_clock_follows_the_operating_system() -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    assert before <= SystemClock().now() <= datetime.now(UTC)


def test_truncation_cuts_and_never_rounds_up() -> None:
    assert truncate_to_millisecond(START).microsecond == 123_000


def test_truncation_converts_another_offset_to_utc() -> None:
    local = datetime(2025, 10, 26, 16, 5, tzinfo=timezone(timedelta(hours=2)))
    assert truncate_to_millisecond(local) == datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
    assert truncate_to_millisecond(local).tzinfo is UTC


class DriverInstant(datetime):
    """What a date library hands over: a subclass, which stays one through conversion and arithmetic."""


@pytest.mark.parametrize("offset", [UTC, timezone(timedelta(hours=2))])
def test_a_clock_returns_plain_instants_whatever_it_was_given(offset: timezone) -> None:
    local = DriverInstant(2025, 10, 26, 14, 5, 0, 123_456, offset)
    told = FixedClock(local).now()
    assert type(told) is datetime
    assert told == datetime(2025, 10, 26, 14, 5, 0, 123_000, offset)
    assert type(next_fire("* * * * *", "UTC", local)) is datetime


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="no UTC offset"):
        FixedClock(datetime(2025, 1, 1))  # noqa: DTZ001  # the mistake under test


def test_an_instant_that_leaves_the_calendar_in_utc_is_refused() -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        truncate_to_millisecond(datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))))


def test_a_manual_clock_moves_only_on_request() -> None:
    clock = ManualClock(START)
    assert clock.now() == clock.now()
    assert clock.advance(timedelta(seconds=2)) == clock.now()
    assert clock.now() == truncate_to_millisecond(START) + timedelta(seconds=2)


def test_a_manual_clock_does_not_run_backwards_by_accident() -> None:
    clock = ManualClock(START)
    with pytest.raises(ValueError, match="must not be negative"):
        clock.advance(timedelta(microseconds=-1))
    clock.set_to(START - timedelta(days=1))
    assert clock.now() == truncate_to_millisecond(START) - timedelta(days=1)


def test_a_clock_shows_its_instant() -> None:
    assert repr(FixedClock(START)) == "FixedClock(2025-10-26T14:05:00.123000+00:00)"

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from twinstore.clock import Clock, FixedClock, ManualClock, SystemClock, truncate_to_millisecond
from twinstore.models.cron import next_fire

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
def test_a_clock_tells_plain_instants_whatever_it_was_given(offset: timezone) -> None:
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


def test_a_manual_clock_moves_only_when_told() -> None:
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

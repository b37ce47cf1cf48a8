from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twinstore.models.cron import CronError, next_fire, passed_and_next, validate_cron, validate_timezone

MINUTE = timedelta(minutes=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def series(cron: str, zone: str, after: str, count: int) -> list[str]:
    """The next firings as wall-clock texts with their offset."""
    instant, found = at(after), []
    for _ in range(count):
        instant = next_fire(cron, zone, instant)
        found.append(instant.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes"))
    return found


# ------------------------------------------------------------------------------------- expressions


@pytest.mark.parametrize(
    ("expression", "stored"),
    [
        ("  0   12 *\t* * ", "0 12 * * *"),
        ("*/15 0-23/2 1,15 JAN-mar Mon-FRI", "*/15 0-23/2 1,15 JAN-mar Mon-FRI"),
        ("05 007 * * 7", "05 007 * * 7"),
        ("0 0 29 feb *", "0 0 29 feb *"),
        ("0 0 30 2 1", "0 0 30 2 1"),
        ("* * * * fri-sun", "* * * * fri-sun"),
    ],
)
def test_an_admitted_expression_is_kept_but_for_its_blanks(expression: str, stored: str) -> None:
    assert validate_cron(expression) == stored


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "has 0 fields, not five"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields.*seconds and years are not supported"),
        ("0 * * * * * 2025", "has 7 fields"),
        ("@daily", "macro '@daily' is not supported; write 0 0 * * *"),
        ("@reboot", "macro '@reboot' is not supported; write five fields"),
        ("0 0 ? * *", r"day of month: '\?'.*write \*"),
        ("0 0 L * *", "day of month: 'L'.*list the days"),
        ("0 0 15W * *", "day of month: '15W'.*list the days"),
        ("0 0 * * 5L", "day of week: '5L'.*list the days"),
        ("0 0 * * 1#2", "day of week: '1#2'.*nth weekday"),
        ("H * * * *", "minute: 'H'.*hashed and random"),
        ("H(0-9)/3 * * * *", "minute: 'H.*hashed and random"),
        ("0 R * * *", "hour: 'R'.*hashed and random"),
        ("10-5 * * * *", "minute: range '10-5' runs backwards; write two ranges such as 10-59,0-5"),
        ("0 0 * * sat-mon", "day of week: range 'sat-mon' runs backwards"),
        ("0 0 * nov-feb *", "month: range 'nov-feb' runs backwards"),
        ("*/0 * * * *", r"minute: step of '\*/0' must be a number from 1"),
        ("*/x * * * *", "minute: step"),
        ("*/ * * * *", "minute: step"),
        ("*/5/2 * * * *", "minute: step"),
        ("1,,2 * * * *", "minute has an empty entry; remove the extra comma"),
        (", * * * *", "minute has an empty entry"),
        ("-1 * * * *", "minute: '-1' is not accepted; use 0 to 59"),
        ("1- * * * *", "minute: '1-' is not accepted"),
        ("*-5 * * * *", r"minute: '\*-5' is not accepted"),
        ("60 * * * *", "minute: '60' is not accepted; use 0 to 59"),
        ("* 24 * * *", "hour: '24' is not accepted; use 0 to 23"),
        ("* * 0 * *", "day of month: '0' is not accepted; use 1 to 31"),
        ("* * * 13 *", "month: '13' is not accepted; use 1 to 12 or jan/feb"),
        ("* * * * 8", "day of week: '8' is not accepted; use 0 to 7 or sun/mon"),
        ("jan * * * *", "minute: 'jan' is not accepted"),
        ("* * * january *", "month: 'january' is not accepted"),
        ("\u0663 * * * *", "minute: '\u0663' is not accepted"),
        ("0 0 30 2 *", "never fires: no month in it has such a day"),
        ("0 0 31 4,6,9,11 *", "never fires"),
        ("9" * 5000 + " * * * *", "has 5008 characters; at most 1000"),
        ("9" * 900 + " * * * *", "minute: '9{40}' is not accepted"),
    ],
)
def test_a_refusal_names_the_part_and_the_remedy(expression: str, message: str) -> None:
    with pytest.raises(CronError, match=message) as caught:
        validate_cron(expression)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@given(st.text(alphabet="0123456789*,-/ ?LWH#@janfrisu", max_size=30))
def test_any_text_is_either_admitted_or_refused_with_a_cron_error(text: str) -> None:
    try:
        stored = validate_cron(text)
    except CronError:
        return
    assert validate_cron(stored) == stored == " ".join(text.split())
    assert next_fire(stored, "UTC", at("2025-01-01T00:00Z")) > at("2025-01-01T00:00Z")


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", " Asia/Tokyo "])
def test_a_zone_of_the_database_is_accepted(name: str) -> None:
    assert validate_timezone(name) == name.strip()


@pytest.mark.parametrize(
    "name",
    ["", "..", "../UTC", "/etc/passwd", "America", "localtime", "UTC\0", "Mars/Base", "x" * 100, "+02:00"],
)
def test_anything_else_is_refused_as_a_zone(name: str) -> None:
    with pytest.raises(CronError, match="is not a known time zone") as caught:
        validate_timezone(name)
    assert len(str(caught.value)) < 300


def test_a_misspelt_zone_gets_a_suggestion() -> None:
    with pytest.raises(CronError, match="did you mean Europe/Berlin"):
        validate_timezone("europe/berlin")


# ------------------------------------------------------------------------------------- plain calendar


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("* * * * *", "2025-01-01T00:00:00Z", "2025-01-01T00:01Z"),
        ("* * * * *", "2025-01-01T00:00:59.999Z", "2025-01-01T00:01Z"),
        ("0 0 * * *", "2025-01-01T00:00:00Z", "2025-01-02T00:00Z"),
        ("0 0 * * *", "2024-12-31T23:59:59.999Z", "2025-01-01T00:00Z"),
        ("0 0 29 2 *", "2025-01-01T00:00Z", "2028-02-29T00:00Z"),
        ("0 0 29 2 *", "2096-03-01T00:00Z", "2104-02-29T00:00Z"),
        ("0 0 31 * *", "2025-01-31T00:00Z", "2025-03-31T00:00Z"),
        ("0 0 30 * *", "2025-01-30T00:00Z", "2025-03-30T00:00Z"),
        ("0 0 31 12 *", "2025-12-31T00:00Z", "2026-12-31T00:00Z"),
        ("*/15 * * * *", "2025-01-01T00:31Z", "2025-01-01T00:45Z"),
        ("5/15 * * * *", "2025-01-01T00:51Z", "2025-01-01T01:05Z"),
        ("1-10/3 * * * *", "2025-01-01T00:07Z", "2025-01-01T00:10Z"),
        ("1-10/3 * * * *", "2025-01-01T00:10Z", "2025-01-01T01:01Z"),
        ("5-5 * * * *", "2025-01-01T00:05Z", "2025-01-01T01:05Z"),
        ("0 0 * * 0", "2025-01-01T00:00Z", "2025-01-05T00:00Z"),
        ("0 0 * * 7", "2025-01-01T00:00Z", "2025-01-05T00:00Z"),
        ("0 0 * * SuN", "2025-01-01T00:00Z", "2025-01-05T00:00Z"),
        ("0 0 * * 7/2", "2025-01-04T00:00Z", "2025-01-05T00:00Z"),
        ("0 0 * MAR Mon", "2025-01-01T00:00Z", "2025-03-03T00:00Z"),
        ("0 0 30 2 1", "2025-01-01T00:00Z", "2025-02-03T00:00Z"),
    ],
)
def test_the_next_instant_in_utc(cron: str, after: str, expected: str) -> None:
    assert next_fire(cron, "UTC", at(after)) == at(expected)


@pytest.mark.parametrize(
    ("field", "days"),
    [
        ("5-7", {5, 6, 7}),
        ("fri-sun", {5, 6, 7}),
        ("0,6", {6, 7}),
        ("*/2", {7, 2, 4, 6}),
        ("1/2", {1, 3, 5}),
        ("0-7", set(range(1, 8))),
        ("7-7", {7}),
        ("sun-tue", {7, 1, 2}),
        ("1-7/3", {1, 4, 7}),
    ],
)
def test_weekday_fields_name_the_iso_weekdays(field: str, days: set[int]) -> None:
    instant, found = at("2025-01-01T00:00Z"), set[int]()
    while (instant := next_fire(f"0 0 * * {field}", "UTC", instant)) < at("2025-02-01T00:00Z"):
        found.add(instant.isoweekday())
    assert found == days


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ("13 * 5", [3, 10, 13, 17, 24, 31]),
        ("1-31 * 5", list(range(2, 32))),
        ("*/10 * 5", [3, 10, 11, 17, 21, 24, 31]),
        ("* * 5", [3, 10, 17, 24, 31]),
        ("13,* * 5", [3, 10, 17, 24, 31]),
        ("13 * *", [13]),
    ],
)
def test_a_day_matches_if_either_restricted_day_field_does(days: str, expected: list[int]) -> None:
    instant, found = at("2025-01-01T00:00Z"), list[int]()
    while (instant := next_fire(f"0 0 {days}", "UTC", instant)) < at("2025-02-01T00:00Z"):
        found.append(instant.day)
    assert found == expected


def test_the_answer_is_utc_whatever_the_offset_of_the_question() -> None:
    asked = datetime(2025, 7, 1, 9, 30, tzinfo=timezone(timedelta(hours=9)))
    assert next_fire("0 3 * * *", "Europe/Berlin", asked).isoformat() == "2025-07-01T01:00:00+00:00"


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(CronError, match="no UTC offset"):
        next_fire("* * * * *", "UTC", datetime(2025, 1, 1))  # noqa: DTZ001  # the mistake under test


# ------------------------------------------------------------------------------------- clock changes


# By zone: the expression, the instant before, and what fires next.
CLOCK_CHANGES = {
    "Europe/Berlin": [
        ("30 2 * * *", "2025-03-29T12:00Z", "2025-03-30T03:00+02:00 2025-03-31T02:30+02:00"),
        ("0,30 2,3 * * *", "2025-03-30T00:59Z", "2025-03-30T03:00+02:00 2025-03-30T03:30+02:00"),
        ("*/20 2 * * *", "2025-03-29T12:00Z", "2025-03-30T03:00+02:00 2025-03-31T02:00+02:00"),
        ("30 * * * *", "2025-03-30T00:00Z", "2025-03-30T01:30+01:00 2025-03-30T03:30+02:00"),
        ("30 * 30 3 *", "2025-03-30T00:30Z", "2025-03-30T03:30+02:00"),
        ("30 */2 * * *", "2025-03-29T23:45Z", "2025-03-30T03:00+02:00 2025-03-30T04:30+02:00"),
        ("30 2 * * *", "2025-10-25T12:00Z", "2025-10-26T02:30+02:00 2025-10-27T02:30+01:00"),
        ("30 2 * * *", "2025-10-26T00:45Z", "2025-10-27T02:30+01:00"),
        (
            "30 * * * *",
            "2025-10-25T23:45Z",
            "2025-10-26T02:30+02:00 2025-10-26T02:30+01:00 2025-10-26T03:30+01:00",
        ),
    ],
    "America/New_York": [
        ("30 2 * * *", "2025-03-08T12:00Z", "2025-03-09T03:00-04:00 2025-03-10T02:30-04:00"),
        ("30 1 * * *", "2025-11-01T12:00Z", "2025-11-02T01:30-04:00 2025-11-03T01:30-05:00"),
        ("30 * * * *", "2025-11-02T05:00Z", "2025-11-02T01:30-04:00 2025-11-02T01:30-05:00"),
    ],
    # Half an hour: 02:00-02:30 is skipped in October, 01:30-02:00 repeated in April.
    "Australia/Lord_Howe": [
        ("15 2 * * *", "2025-10-04T00:00Z", "2025-10-05T02:30+11:00 2025-10-06T02:15+11:00"),
        ("45 1 * * *", "2025-04-05T00:00Z", "2025-04-06T01:45+11:00 2025-04-07T01:45+10:30"),
        ("45 * * * *", "2025-04-05T14:00Z", "2025-04-06T01:45+11:00 2025-04-06T01:45+10:30"),
    ],
    # Standard time is the summer time of Morocco: the clock goes back for Ramadan.
    "Africa/Casablanca": [
        ("30 2 * * *", "2025-02-22T12:00Z", "2025-02-23T02:30+01:00 2025-02-24T02:30+00:00"),
        ("30 2 * * *", "2025-04-05T12:00Z", "2025-04-06T03:00+01:00 2025-04-07T02:30+01:00"),
    ],
    # Havana and Cairo change at midnight, so the first hour of the day is missing or repeated.
    "America/Havana": [
        ("0 0 * * *", "2025-03-08T12:00Z", "2025-03-09T01:00-04:00 2025-03-10T00:00-04:00"),
        ("0 0 * * *", "2025-11-01T12:00Z", "2025-11-02T00:00-04:00 2025-11-03T00:00-05:00"),
    ],
    # Samoa skipped 30 December 2011.
    "Pacific/Apia": [
        ("0 9 * * *", "2011-12-29T10:00Z", "2011-12-29T09:00-10:00 2011-12-31T00:00+14:00"),
        ("0 * 30 12 *", "2011-12-29T10:00Z", "2012-12-30T00:00+14:00"),
    ],
    # Troll jumps by two hours.
    "Antarctica/Troll": [
        ("30 1,2 * * *", "2025-03-29T12:00Z", "2025-03-30T03:00+02:00 2025-03-31T01:30+02:00"),
    ],
}


@pytest.mark.parametrize(
    ("zone", "cron", "after", "expected"),
    [(zone, *change) for zone, changes in CLOCK_CHANGES.items() for change in changes],
)
def test_clock_changes(zone: str, cron: str, after: str, expected: str) -> None:
    found = expected.split()
    assert series(cron, zone, after, len(found)) == found


# ------------------------------------------------------------------------------------- an independent oracle


@dataclass(frozen=True)
class Field:
    text: str
    values: frozenset[int]


def fields(low: int, high: int) -> st.SearchStrategy[Field]:
    """A field together with the values it means, made in ways that share nothing with the parser."""
    number = st.integers(low, high)
    single = number.map(lambda value: Field(str(value), frozenset({value})))
    spans = st.tuples(number, number, st.integers(1, 9)).map(
        lambda t: Field(
            f"{min(t[:2])}-{max(t[:2])}/{t[2]}", frozenset(range(min(t[:2]), max(t[:2]) + 1, t[2]))
        )
    )
    steps = st.integers(1, 40).map(lambda n: Field(f"*/{n}", frozenset(range(low, high + 1, n))))
    starts = st.tuples(number, st.integers(1, 9)).map(
        lambda t: Field(f"{t[0]}/{t[1]}", frozenset(range(t[0], high + 1, t[1])))
    )
    part = st.one_of(single, spans, steps, starts)
    several = st.lists(part, min_size=1, max_size=3).map(
        lambda parts: Field(
            ",".join(p.text for p in parts), frozenset[int]().union(*(p.values for p in parts))
        )
    )
    return st.one_of(st.just(Field("*", frozenset(range(low, high + 1)))), several)


@dataclass(frozen=True)
class Expression:
    minute: Field
    hour: Field
    day: Field
    weekday: Field

    @property
    def text(self) -> str:
        return f"{self.minute.text} {self.hour.text} {self.day.text} * {self.weekday.text}"

    def matches(self, wall: datetime) -> bool:
        by_day, by_weekday = wall.day in self.day.values, wall.isoweekday() % 7 in self.weekday.values
        either = "*" not in (self.day.text, self.weekday.text)
        day = (by_day or by_weekday) if either else (by_day and by_weekday)
        return day and wall.hour in self.hour.values and wall.minute in self.minute.values


EXPRESSIONS = st.builds(Expression, fields(0, 59), fields(0, 23), fields(1, 31), fields(0, 6))
CHANGES = [
    ("Europe/Berlin", "2025-03-29T00:00Z"),
    ("Europe/Berlin", "2025-10-25T00:00Z"),
    ("America/New_York", "2025-03-08T12:00Z"),
    ("America/New_York", "2025-11-01T12:00Z"),
    ("Australia/Lord_Howe", "2025-04-05T00:00Z"),
    ("Australia/Lord_Howe", "2025-10-04T00:00Z"),
    ("Africa/Casablanca", "2025-02-22T12:00Z"),
    ("Africa/Casablanca", "2025-04-05T12:00Z"),
    ("America/Havana", "2025-03-08T12:00Z"),
    ("America/Havana", "2025-11-01T12:00Z"),
    ("Antarctica/Troll", "2025-03-29T12:00Z"),
    ("Antarctica/Troll", "2025-10-25T12:00Z"),
    ("Pacific/Apia", "2011-12-29T12:00Z"),
    ("Asia/Pyongyang", "2018-05-04T00:00Z"),
    ("America/Caracas", "2016-04-30T12:00Z"),
    ("Asia/Kathmandu", "2024-02-28T00:00Z"),
    ("UTC", "2025-12-31T00:00Z"),
]
WINDOW = 40 * 60


@cache
def walls(zone: str, start: str) -> tuple[tuple[datetime, datetime], ...]:
    """Every minute of a window as instant and local time."""
    instants = [at(start) + index * MINUTE for index in range(WINDOW + 1)]
    return tuple((instant, instant.astimezone(ZoneInfo(zone))) for instant in instants)


def oracle(expression: Expression, zone: str, start: str) -> Iterable[datetime]:
    for (_, before), (instant, local) in pairwise(walls(zone, start)):
        wall, previous = local.replace(tzinfo=None), before.replace(tzinfo=None)
        if expression.hour.text == "*":
            due = expression.matches(wall)
        else:
            skipped = [previous + index * MINUTE for index in range(1, (wall - previous) // MINUTE)]
            due = any(map(expression.matches, skipped)) or (local.fold == 0 and expression.matches(wall))
        if due:
            yield instant


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, st.sampled_from(CHANGES), st.integers(0, WINDOW * 60 - 1))
def test_the_instants_equal_a_minute_by_minute_walk(
    expression: Expression, change: tuple[str, str], seconds: int
) -> None:
    zone, start = change
    expected = list(oracle(expression, zone, start))
    end = at(start) + WINDOW * MINUTE
    passed, following = passed_and_next(expression.text, zone, at(start), end)
    assert (passed, following) == (len(expected), next_fire(expression.text, zone, end))
    instant = at(start)
    for due in expected[:40]:
        instant = next_fire(expression.text, zone, instant)
        assert instant == due
    assert len(expected) > 40 or next_fire(expression.text, zone, instant) > end
    after = at(start) + timedelta(seconds=seconds, milliseconds=1)
    if (later := next((instant for instant in expected if instant > after), None)) is not None:
        assert next_fire(expression.text, zone, after) == later


# ------------------------------------------------------------------------------------- counting and limits


def test_the_end_of_a_count_belongs_to_it_and_the_start_does_not() -> None:
    start, end = at("2025-01-01T00:00Z"), at("2025-01-01T01:00Z")
    half = timedelta(minutes=30)
    assert passed_and_next("*/30 * * * *", "UTC", start, end) == (2, end + half)
    assert passed_and_next("*/30 * * * *", "UTC", start, end - timedelta(milliseconds=1)) == (1, end)
    assert passed_and_next("*/30 * * * *", "UTC", start, start) == (0, start + half)


def test_a_count_stops_at_its_limit() -> None:
    start, end = at("2000-01-01T00:00Z"), at("2025-01-01T00:00Z")
    following = end + MINUTE
    assert passed_and_next("* * * * *", "Europe/Berlin", start, end) == (10_000, following)
    assert passed_and_next("* * * * *", "Europe/Berlin", start, end, limit=7) == (7, following)
    assert passed_and_next("* * * * *", "Europe/Berlin", start, end, limit=0) == (0, following)


def test_the_end_of_the_calendar_is_a_clear_error() -> None:
    with pytest.raises(CronError, match=re.escape("has no instant after 9997-01-01")):
        next_fire("0 0 29 2 *", "America/New_York", at("9997-01-01T00:00Z"))
    with pytest.raises(CronError, match="is outside"):
        next_fire("* * * * *", "UTC", datetime.max.replace(tzinfo=UTC))
    with pytest.raises(CronError, match="is outside"):
        next_fire("* * * * *", "UTC", datetime.min.replace(tzinfo=UTC))


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "Pacific/Niue"])
def test_the_years_next_to_the_limits_still_work(zone: str) -> None:
    assert next_fire("* * * * *", zone, at("9999-12-29T23:00Z")) == at("9999-12-29T23:01Z")
    assert next_fire("0 * * * *", zone, at("0001-01-02T00:00Z")) > at("0001-01-02T00:00Z")
    start, end = at("9999-12-29T00:00Z"), at("9999-12-30T00:00Z")
    assert passed_and_next("0 * * * *", zone, start, end - MINUTE) == (23, end)


def test_daylight_saving_is_still_known_in_the_last_year() -> None:
    assert series("0 12 * * *", "Europe/Berlin", "9999-07-01T00:00Z", 1) == ["9999-07-01T12:00+02:00"]


def test_a_name_of_a_zone_that_is_too_long_is_refused_before_near_ones_are_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("twinstore.models.cron.get_close_matches")
    with pytest.raises(CronError, match="10000000 characters; at most 100"):
        validate_timezone("x" * 10_000_000)

"""Dates inside free JSON: which object represents one, and what documents hold instead."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import bson
import orjson
import pydantic
import pytest
from bson import DBRef
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64
from hypothesis import given
from hypothesis import strategies as st

from twinstore.catalog.row import Row
from twinstore.errors import DocumentDecodeError
from twinstore.models import json_text
from twinstore.models.fields import date_in, date_object
from twinstore.models.shapes import Kind, ValueShape
from twinstore.scheduler.catalog import EXECUTION_LOGS
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore_mongo.bulk.scan import StoredForm
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.free_json import encode_dates, free_map, map_converter, references

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.models.json_text import JsonObject, JsonValue

CODEC = codec_of(EXECUTION_LOGS)
FORM = StoredForm.of(EXECUTION_LOGS)
OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
TEXT = "2025-10-26T14:05:00.120+00:00"
WHEN = datetime(2025, 10, 26, 14, 5, 0, 120_000, tzinfo=UTC)
AT: JsonObject = {"$date": TEXT}


def entry(data: JsonObject) -> ExecutionLogEntry:
    return ExecutionLogEntry.model_validate(
        {
            "tenantId": "acme",
            "runId": "run",
            "sequence": 1,
            "level": "info",
            "message": "",
            "loggedAt": WHEN,
            "data": data,
        }
    )


def document_with(data: object) -> dict[str, Any]:
    return {**CODEC.encode(Row(entry({}))), "data": data}


def in_repository(document: dict[str, Any]) -> dict[str, Any]:
    """Read a document as the driver does for a repository."""
    return converted(bson.decode(bson.encode(document), OPTIONS))


def in_export(document: dict[str, Any]) -> dict[str, Any]:
    """Read it as a copy does, which marks the instants of the model alone."""
    return bson.decode(bson.encode(document), OPTIONS) | {"loggedAt": WHEN}


WAYS = (in_repository, in_export)


def read_with(data: object, way: Callable[[dict[str, Any]], dict[str, Any]]) -> JsonObject:
    return CODEC.decode(way(document_with(data))).model.data


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (WHEN, TEXT),
        (WHEN.replace(microsecond=0), "2025-10-26T14:05:00+00:00"),
        (WHEN.replace(microsecond=120_999), TEXT),
        (WHEN.astimezone(timezone(timedelta(hours=5, minutes=30))), TEXT),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00+00:00"),
        (datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), "9999-12-31T23:59:59.999+00:00"),
    ],
)
def test_an_instant_stands_in_free_json_as_its_canonical_text(instant: datetime, text: str) -> None:
    assert date_object(instant) == {"$date": text}
    found = date_in({"$date": text})
    assert found is not None
    assert date_object(found) == {"$date": text}


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"$date": "2025-10-26T14:05:00Z"},
        {"$date": "2025-10-26T14:05:00.000+00:00"},
        {"$date": "2025-10-26T14:05:00.12+00:00"},
        {"$date": "2025-10-26T14:05:00.120000+00:00"},
        {"$date": "2025-10-26T14:05:00.120001+00:00"},
        {"$date": "2025-10-26T15:05:00+01:00"},
        {"$date": "2025-10-26t14:05:00+00:00"},
        {"$date": "2025-02-30T14:05:00+00:00"},
        {"$date": "0000-01-01T00:00:00+00:00"},
        {"$date": "2025-10-26"},
        {"$date": f"{TEXT} "},
        {"$date": ""},
        {"$date": None},
        {"$date": 1},
        {"$date": [TEXT]},
        {"$date": {"$numberLong": "1"}},
        {"$Date": TEXT},
        {"$date": TEXT, "b": 1},
    ],
    ids=str,
)
def test_any_other_object_stays_the_object_that_it_is(value: JsonObject) -> None:
    assert date_in(value) is None
    assert CODEC.encode(Row(entry({"a": value, "b": [value]})))["data"] == {"a": value, "b": [value]}


def test_a_date_is_written_at_every_depth_and_the_model_keeps_its_objects() -> None:
    data: JsonObject = {
        "a": AT,
        "b": [1, AT, [AT, {"c": AT}]],
        "d": {"$ref": "runs", "$id": AT},
        "e": {"f": {"g": 1}},
        "$date": "beside others",
    }
    row = Row(entry(data))
    kept = deepcopy(row.model.wire())
    assert CODEC.encode(row)["data"] == {
        "a": WHEN,
        "b": [1, WHEN, [WHEN, {"c": WHEN}]],
        "d": {"$ref": "runs", "$id": WHEN},
        "e": {"f": {"g": 1}},
        "$date": "beside others",
    }
    assert row.model.wire() == kept
    for way in WAYS:
        assert CODEC.decode(way(CODEC.encode(row))) == row


def test_the_map_itself_stays_a_map_whatever_it_holds() -> None:
    assert CODEC.encode(Row(entry(AT)))["data"] == AT
    assert read_with(AT, in_repository) == AT
    for way in WAYS:
        with pytest.raises(DocumentDecodeError, match="data"):
            read_with(WHEN, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_stored_date_and_the_object_of_one_read_alike(
    way: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    stored = {"a": WHEN, "b": [Int64(2**40), WHEN], "c": {"d": [{"e": WHEN}]}, "f": DBRef("runs", WHEN)}
    shown: JsonObject = {
        "a": AT,
        "b": [2**40, AT],
        "c": {"d": [{"e": AT}]},
        "f": {"$ref": "runs", "$id": AT},
    }
    assert read_with(stored, way) == shown
    assert read_with(shown, way) == shown


def test_a_date_outside_the_years_of_the_models_makes_the_document_bad() -> None:
    for instant in (bson.DatetimeMS(-62_135_596_800_001), bson.DatetimeMS(253_402_300_800_000)):
        with pytest.raises(DocumentDecodeError, match="data: DatetimeMS is not a JSON value"):
            read_with({"a": instant}, in_repository)


def test_a_datetime_in_free_json_is_refused_with_what_to_give_instead() -> None:
    with pytest.raises(pydantic.ValidationError, match=r"module\.date_object"):
        ExecutionLogEntry.model_validate({**entry({}).wire(), "data": {"a": WHEN}})


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (WHEN, AT),
        (AT, {"\0object": AT}),
        ({"$date": "2025-10-26T14:05:00Z"}, {"$date": "2025-10-26T14:05:00Z"}),
        ([WHEN, {"b": AT}], [AT, {"b": {"\0object": AT}}]),
        (DBRef("runs", WHEN), {"$ref": "runs", "$id": AT}),
        (Int64(1), {"\0int64": 1}),
    ],
    ids=str,
)
def test_a_comparison_sees_a_date_as_its_object_and_a_stored_object_under_a_mark(
    stored: object, shown: JsonValue
) -> None:
    document = bson.decode(bson.encode(document_with({"a": stored})), OPTIONS)
    content, _ = FORM.shown(document, ("run", 1))
    assert orjson.loads(content)["doc"]["data"] == {"a": shown}


def test_what_may_be_of_several_types_is_no_free_json() -> None:
    several, free = ValueShape(Kind.MAP, object), ValueShape(Kind.MAP, dict)
    assert (map_converter(several, free_map, references), map_converter(free, free_map, references)) == (
        references,
        free_map,
    )
    listed = map_converter(ValueShape(Kind.LIST, tuple, ValueShape(Kind.MAP, dict, free)), encode_dates, None)
    assert listed is not None
    # The maps of which the description knows stay maps, however they look.
    assert listed([{"a": AT, "b": {"c": AT}}]) == [{"a": AT, "b": {"c": WHEN}}]


FILLING = "x" * json_text.LARGE_TEXT
# What servers and other programs write, at the limits of 64 bits and of floats.
NUMBERS = [
    *("0", "-0", "-0.0", "1.0", "1e20", "1E-7", "1e308", "5e-324", "1e-400", "2.2250738585072011e-308"),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809"),
    *(
        "18446744073709551615",
        "18446744073709551616",
        f"1{'0' * 20}",
        f"-1{'0' * 300}",
        "123456789012345678.5",
    ),
]
BEYOND = ["1e400", "-1e309", "1" + "0" * 400, "99999999999999999999e299", "NaN", "Infinity"]


def large(value: str) -> str:
    return f'{{"filling":"{FILLING}","value":{value}}}'


def same(value: object, other: object) -> bool:
    return repr(value) == repr(other)  # types of numbers, and the sign of zero


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_the_same_in_a_large_text(number: str) -> None:
    small = orjson.loads(number)
    for text in (large(number), large(number).encode()):
        found = json_text.loads(text)
        assert isinstance(found, dict)
        assert same(found["value"], small)


@pytest.mark.parametrize("number", BEYOND)
def test_a_number_beyond_all_floats_is_refused_in_texts_of_any_size(number: str) -> None:
    for text in (f'{{"value":{number}}}', large(number)):
        with pytest.raises(orjson.JSONDecodeError):
            json_text.loads(text)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES)
def test_any_value_is_the_same_in_a_large_text(value: object) -> None:
    text = json.dumps(value)  # integers of any width
    found = json_text.loads(large(text))
    assert isinstance(found, dict)
    assert same(found["value"], orjson.loads(text))

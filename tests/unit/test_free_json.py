"""Typed values inside free JSON: which object represents one, and what documents hold instead."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

import bson
import orjson
import pydantic
import pytest
from bson import (
    Binary,
    DatetimeMS,
    DBRef,
    Decimal128,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
)
from bson import (
    Timestamp as BsonTimestamp,
)
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.int64 import Int64
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.free_lists import MIXED, Mixed
from tests.unit.fast.hand_made import native_library
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DocumentDecodeError
from twinstore.fast import digests
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalJsonSerializer, describe_failure
from twinstore.models.fields import (
    date_in,
    date_object,
)
from twinstore.models.shapes import Kind, ValueShape, has_floats
from twinstore.models.typed_objects import (
    binary_in,
    binary_object,
    decimal_in,
    decimal_object,
    is_typed_object,
    oid_in,
    oid_object,
)
from twinstore.scheduler.catalog import EXECUTION_LOGS
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.testing.datasets import NOTE, PLACE, WARE, Dataset
from twinstore.testing.drawing import models
from twinstore_backfill.verify.expected import Expected, Refused, RowExpectation
from twinstore_mongo.bulk.digests import digest_form
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.scan import CollectionScan, StoredForm
from twinstore_mongo.mapping.codec import codec_of, converted
from twinstore_mongo.mapping.free_json import encode_typed, free_map, map_converter, references
from twinstore_mongo.mapping.layout import longs_of
from twinstore_mongo.schema.validators import validator_of
from twinstore_postgres.mapping.columns import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.models.json_text import JsonObject, JsonValue

CODEC = codec_of(EXECUTION_LOGS)
FORM = StoredForm.of(EXECUTION_LOGS)
OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
DATASET = Dataset(Tenant("acme"), "batch")
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
        with pytest.raises(DocumentDecodeError, match=r"data\.a: DatetimeMS is not a JSON value"):
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
    listed = map_converter(ValueShape(Kind.LIST, tuple, ValueShape(Kind.MAP, dict, free)), encode_typed, None)
    assert listed is not None
    # The maps of which the description knows stay maps, however they look.
    assert listed([{"a": AT, "b": {"c": AT}}]) == [{"a": AT, "b": {"c": WHEN}}]


TYPED: list[tuple[object, Any]] = [
    (ObjectId("65a1f0c2b7e4d90012345678"), {"$oid": "65a1f0c2b7e4d90012345678"}),
    *(
        (Decimal128(text), {"$numberDecimal": text})
        for text in (
            *("0", "1.50", "-1.50", "0.00", "1E+3", "0E+3", "0.000001", "1E-7", "0E-6176", "0E+6111"),
            *("9" * 34, f"0.{'1' * 34}", f"-9.{'9' * 33}E+6144", "1E-6176"),
        )
    ),
    *(
        (Binary(content, subtype), {"$binary": {"base64": text, "subType": f"{subtype:02x}"}})
        for content, text in ((b"", ""), (b"\0\xff", "AP8="), (bytes(16), "AAAAAAAAAAAAAAAAAAAAAA=="))
        for subtype in (0, 2, 3, 4, 6, 9, 128, 255)
    ),
]


@pytest.mark.parametrize(("stored", "shown"), TYPED, ids=repr)
def test_ids_decimals_and_bytes_go_there_and_back_at_every_depth(stored: object, shown: JsonObject) -> None:
    data = {"a": stored, "b": [1, stored, [{"c": stored}]], "d": {"$ref": "runs", "$id": stored}}
    document = document_with(data)
    raw = bson.encode(document)
    for way in WAYS:
        row = CODEC.decode(way(document))
        assert row.model.data == {
            "a": shown,
            "b": [1, shown, [{"c": shown}]],
            "d": {"$ref": "runs", "$id": shown},
        }
        assert bson.decode(bson.encode(CODEC.encode(row))) == bson.decode(raw)
        assert bson.encode(CODEC.encode(row)["data"]["b"][2][0]) == bson.encode({"c": stored})
    content, _ = FORM.shown(bson.decode(raw, OPTIONS), ("run", 1))
    assert orjson.loads(content)["doc"]["data"]["b"] == [1, shown, [{"c": shown}]]


@pytest.mark.parametrize("shown", [shown for _, shown in TYPED], ids=repr)
def test_an_object_of_such_a_form_reads_alike_and_a_comparison_marks_it(shown: JsonObject) -> None:
    assert read_with({"a": [shown]}, in_repository) == {"a": [shown]}
    content, _ = FORM.shown(bson.decode(bson.encode(document_with({"a": [shown]}))), ("run", 1))
    assert orjson.loads(content)["doc"]["data"] == {"a": [{"\0object": shown}]}
    # The map itself is none, and stays one.
    assert CODEC.encode(Row(entry(shown)))["data"] == shown


@pytest.mark.parametrize(
    "value",
    [
        *({"$oid": text} for text in ("", "65A1F0C2B7E4D90012345678", "0" * 23, "0" * 25, "0" * 23 + "g")),
        {"$oid": 1},
        {"$oid": "0" * 24, "a": 1},
        *(
            {"$numberDecimal": text}
            for text in (
                *(
                    "",
                    "1e3",
                    "1E3",
                    "1E+03",
                    "01",
                    "+1",
                    ".5",
                    "1.",
                    "1_0",
                    " 1",
                    "\N{ARABIC-INDIC DIGIT ONE}",
                ),
                *("NaN", "Infinity", "-Infinity", "-0", "-0.00", "-0E+3", "1" * 35, "1E+6112", "1E-6177"),
                *("100E+1", "0.0000001", "1E+999999999", "9" * 1000),
            )
        ),
        {"$numberDecimal": 1},
        {"$numberDecimal": "1", "a": 1},
        *(
            {"$binary": {"base64": text, "subType": "00"}}
            for text in ("AA", "AA=", "AB==", "AA==\n", "A-_=", "\N{BUG}", "=")
        ),
        *({"$binary": {"base64": "", "subType": text}} for text in ("", "0", "000", "0A", "0x", "-1", "\n0")),
        {"$binary": {"base64": "", "subType": 0}},
        {"$binary": {"base64": 0, "subType": "00"}},
        {"$binary": {"base64": ""}},
        {"$binary": {"base64": "", "subType": "00", "a": 1}},
        {"$binary": "", "$type": "00"},
        {"$uuid": "6f0c1a52-7b0e-4f5e-9d0a-2c8f6f6e5b01"},
        {"$numberLong": "1"},
        {"$regularExpression": {"pattern": "a", "options": ""}},
    ],
    ids=str,
)
def test_an_object_in_another_form_is_an_object_on_both_ways(value: JsonObject) -> None:
    assert not is_typed_object(value)
    data: JsonObject = {"a": value, "b": [value]}
    assert CODEC.encode(Row(entry(data)))["data"] == data
    content, _ = FORM.shown(bson.decode(bson.encode(document_with(data))), ("run", 1))
    assert orjson.loads(content)["doc"]["data"] == data


# A coefficient above the greatest one, which counts as zero, and a zero in the long form.
ENCODED_OTHERWISE = tuple(
    Decimal128.from_bid(bytes.fromhex(digits))
    for digits in ("00000000648e8d37c087adbe09ed4130", "0000000000000000000000000000106c")
)


@pytest.mark.parametrize(
    ("stored", "rule"),
    [
        (Decimal128("NaN"), "decimal is NaN"),
        (Decimal128("sNaN"), "decimal is NaN"),
        (Decimal128("Infinity"), "decimal is infinite"),
        (Decimal128("-Infinity"), "decimal is infinite"),
        (Decimal128("-0"), "decimal is minus zero"),
        (Decimal128("-0.00"), "decimal is minus zero"),
        *((value, "Decimal128 is not a JSON value") for value in ENCODED_OTHERWISE),
        (Regex("a", "i"), "Regex is not a JSON value"),
        (BsonTimestamp(1, 2), "Timestamp is not a JSON value"),
        (MinKey(), "MinKey is not a JSON value"),
        (MaxKey(), "MaxKey is not a JSON value"),
        (DatetimeMS(253_402_300_800_000), "DatetimeMS is not a JSON value"),
    ],
    ids=repr,
)
def test_what_no_object_represents_is_refused_by_its_path_and_name_and_marked(
    stored: object, rule: str
) -> None:
    data = {"a": [1, {"b.c": stored}]}
    for way in WAYS:
        with pytest.raises(DocumentDecodeError, match=rf"data\.a\.1\.b\.c: {rule}"):
            read_with(data, way)
    content, _ = FORM.shown(bson.decode(bson.encode(document_with(data)), OPTIONS), ("run", 1))
    ((name, _),) = orjson.loads(content)["doc"]["data"]["a"][1]["b.c"].items()
    assert name == "\0bson"


def element(kind: int, name: str, value: bytes) -> bytes:
    return bytes([kind]) + name.encode() + b"\0" + value


def framed(elements: bytes) -> bytes:
    return (len(elements) + 5).to_bytes(4, "little") + elements + b"\0"


def raw_with(value: tuple[int, bytes]) -> bytes:
    """Return a log entry that holds a value at ``data.a.1.b``, in a list that holds a number first."""
    inner = framed(element(0x03, "1", framed(element(value[0], "b", value[1]))))
    inner = framed(element(0x10, "0", bytes(4)) + inner[4:-1])
    data = element(0x03, "data", framed(element(0x04, "a", inner)))
    return framed(bson.encode({**CODEC.encode(Row(entry({})))})[4:-1].replace(EMPTY_DATA, data))


EMPTY_DATA = element(0x03, "data", framed(b""))
A_TEXT = b"\2\0\0\0a\0"
# Of each the bytes, why a copy puts it into quarantine, and how a comparison names it.
OTHER_TYPES: dict[str, tuple[tuple[int, bytes], str, str]] = {
    "undefined": ((0x06, b""), "undefined is a type of BSON that no copy keeps", "$undefined"),
    "pointer": ((0x0C, A_TEXT + bytes(12)), "pointer is a type of BSON that no copy keeps", "$pointer"),
    "code": ((0x0D, A_TEXT), "code is a type of BSON that no copy keeps", "$code"),
    "symbol": ((0x0E, A_TEXT), "symbol is a type of BSON that no copy keeps", "$symbol"),
    "code with scope": (
        (0x0F, (4 + len(A_TEXT) + 5).to_bytes(4, "little") + A_TEXT + framed(b"")),
        "code with scope is a type of BSON that no copy keeps",
        "$code",
    ),
    "regex": ((0x0B, b"a\0i\0"), "Regex is not a JSON value", "$regularExpression"),
    "timestamp": ((0x11, bytes(8)), "Timestamp is not a JSON value", "$timestamp"),
    "least": ((0xFF, b""), "MinKey is not a JSON value", "$minKey"),
    "greatest": ((0x7F, b""), "MaxKey is not a JSON value", "$maxKey"),
    "no number": (
        (0x13, Decimal128("NaN").bid),
        "decimal is NaN, which not every store can hold",
        "$numberDecimal",
    ),
    "a number encoded otherwise": (
        (0x13, ENCODED_OTHERWISE[0].bid),
        "Decimal128 is not a JSON value",
        "$numberDecimal",
    ),
}


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_a_copy_and_a_comparison_name_the_path_and_the_type_of_what_they_refuse(name: str) -> None:
    value, rule, form = OTHER_TYPES[name]
    raw = raw_with(value)
    (record,) = Exporter(CODEC).records(raw)
    assert record.model is None
    assert (record.error or "").removeprefix("ExecutionLogEntry ") == f"data.a.1.b: {rule}"
    (row,) = CollectionScan.of(EXECUTION_LOGS).rows(raw)
    refused = RowExpectation(EXECUTION_LOGS).of(row)
    assert isinstance(refused, Refused)
    assert refused.reason == f"data.a[1].b: a value of the form bson ({form})"


def test_a_copy_names_what_a_document_holds_twice_and_how_a_list_is_numbered() -> None:
    number = element(0x10, "b", bytes(4))
    twice = raw_with((0x03, framed(number + number)))
    numbered = raw_with((0x04, framed(number)))
    errors = [Exporter(CODEC).records(raw)[0].error for raw in (twice, numbered)]
    assert errors == [
        "data.a.1.b.b: the name occurs twice",
        "data.a.1.b: the items of the list are not numbered in order",
    ]


@pytest.mark.parametrize(("stored", "shown"), [(WHEN, AT), *TYPED[:3]], ids=repr)
def test_a_comparison_counts_a_stored_object_under_its_name(stored: object, shown: JsonObject) -> None:
    raw = bson.encode(document_with({"a": [shown], "b": stored}))
    (row,) = CollectionScan.of(EXECUTION_LOGS).rows(raw)
    expected = RowExpectation(EXECUTION_LOGS).of(row)
    assert isinstance(expected, Expected)
    kind = "date_object" if shown is AT else "typed_object"
    assert [(change.kind, change.path) for change in expected.changes] == [(kind, "doc.data.a[0]")]
    assert orjson.loads(expected.content)["doc"]["data"] == {"a": [shown], "b": shown}


def test_makers_of_objects_refuse_what_does_not_come_back() -> None:
    assert decimal_object(Decimal("1E+3")) == {"$numberDecimal": "1E+3"}
    assert binary_object(b"\0\xff", 4) == {"$binary": {"base64": "AP8=", "subType": "04"}}
    assert binary_in(binary_object(b"a", 3)) == (b"a", 3)
    assert decimal_in(decimal_object(Decimal("1.50"))) == Decimal("1.50")
    assert oid_in(oid_object("0" * 24)) == "0" * 24
    for number in ("NaN", "-Infinity", "-0.0", "1" * 35, "1E-6177", "1E+6112"):
        with pytest.raises(ValueError, match="at most 34 digits"):
            decimal_object(Decimal(number))
    with pytest.raises(ValueError, match="24 lower-case"):
        oid_object("0" * 23 + "A")
    with pytest.raises(ValueError, match="subtype"):
        binary_object(b"", 256)


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(-6200, 6200))
def test_a_decimal_that_has_an_object_is_one_of_128_bits(number: Decimal, exponent: int) -> None:
    number = Decimal((number.as_tuple().sign, number.as_tuple().digits, exponent))
    try:
        shown = decimal_object(number)
    except ValueError:
        return
    found = Decimal128(str(number))
    assert (str(found), found.to_decimal().as_tuple()) == (shown["$numberDecimal"], number.as_tuple())


@given(st.binary(), st.integers(0, 255))
def test_bytes_of_any_subtype_come_back(content: bytes, subtype: int) -> None:
    assert binary_in(binary_object(content, subtype)) == (content, subtype)


mixed = partial(Mixed, id="a", tenant_id="t")


def test_a_list_of_free_json_holds_anything_in_its_order() -> None:
    given: list[JsonValue] = [None, 1.0, {"b": [AT, None], "a": 1}, [], "x", {"$oid": "0" * 24}, AT]
    model = Mixed(
        id="a", tenant_id="t", things=given, labels=("x", None, ""), numbers=(None, 1), instants=(None, WHEN)
    )
    assert CanonicalJsonSerializer.serialize(model).decode() == (
        '{"id":"a","tenantId":"t",'
        '"things":[null,1,{"a":1,"b":[{"$date":"2025-10-26T14:05:00.120+00:00"},null]},[],"x",'
        '{"$oid":"000000000000000000000000"},{"$date":"2025-10-26T14:05:00.120+00:00"}],'
        '"labels":["x",null,null],"numbers":[null,1],"instants":[null,"2025-10-26T14:05:00.120+00:00"],'
        '"spots":[],"notes":{}}'
    )
    codec = codec_of(MIXED)
    document = codec.encode(Row(model))
    assert document["things"] == [None, 1, {"a": 1, "b": [WHEN, None]}, [], "x", ObjectId("0" * 24), WHEN]
    assert (document["labels"], document["numbers"]) == (("x", None, None), (None, 1))
    assert codec.decode(in_repository(document)).model == model
    content, _ = StoredForm.of(MIXED).shown(bson.decode(bson.encode(document), OPTIONS), ("a",))
    assert content == json_text.dumps_sorted({"doc": model.wire(), "storage": {}})


@settings(max_examples=50)
@given(models(Mixed))
def test_any_such_row_comes_back_and_a_comparison_shows_what_the_model_has(model: Mixed) -> None:
    raw = bson.encode(codec_of(MIXED).encode(Row(model)))
    assert codec_of(MIXED).decode(converted(bson.decode(raw, OPTIONS))).model == model
    (row,) = CollectionScan.of(MIXED).rows(raw)
    assert row.content == json_text.dumps_sorted({"doc": model.wire(), "storage": {}})


def test_native_code_shows_such_lists_as_the_scan_does_and_declines_typed_values() -> None:
    native = native_library()
    form = digests.document_form(native, digest_form(MIXED))
    plain: list[Any] = [None, 1, {"a": [None, 1.5, AT]}, ["x", AT], AT]
    typed: list[Any] = [*plain, {"$oid": "0" * 24}]
    looks_alike: list[Any] = [{"$oid": 1}]
    for things in (plain, typed, looks_alike):
        model = mixed(things=things, labels=("x", None), numbers=(None, 1), instants=(WHEN, None))
        raw = bson.encode(codec_of(MIXED).encode(Row(model)))
        (row,) = CollectionScan.of(MIXED).rows(raw)
        assert row.content == json_text.dumps_sorted({"doc": model.wire(), "storage": {}})
        shown = digests.render_document(native, form, raw)
        assert shown == (row.content if things is plain else None)


@pytest.mark.parametrize(
    ("things", "path"),
    [
        ({}, "things"),
        ("a", "things"),
        (("a",), "things"),
        ([[1, {"a": {1}}]], "things.0.1.a"),
        ([0, "\0"], "things.1"),
    ],
)
def test_what_is_no_list_of_free_json_is_refused_at_its_place(things: object, path: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        Mixed.model_validate({"id": "a", "tenantId": "t", "things": things})
    assert describe_failure(Mixed, caught.value).startswith(f"Mixed {path}: ")


def test_maps_with_free_names_may_hold_free_json() -> None:
    oid: JsonObject = {"$oid": "0" * 24}
    model = mixed(notes={"$oid": {"a": oid}, "x": oid})
    document = codec_of(MIXED).encode(Row(model))
    # What the description knows as a map stays one.
    assert document["notes"] == {"$oid": {"a": ObjectId("0" * 24)}, "x": oid}
    assert codec_of(MIXED).decode(in_repository(document)).model == model


def test_lists_of_anything_and_lists_with_nulls_are_jsonb_and_validators_allow_them() -> None:
    types = {column.name: column.sql_type for column in columns_of(MIXED)}
    assert {types[name] for name in ("things", "labels", "numbers", "instants", "notes")} == {"jsonb"}
    properties = validator_of(MIXED)["$jsonSchema"]["properties"]
    assert properties["things"] == {"bsonType": "array", "items": {}}
    assert properties["labels"]["items"] == {"anyOf": [{"bsonType": "null"}, {"bsonType": "string"}]}
    assert (longs_of(MIXED), has_floats(Mixed)) == ((), True)


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, True, False),
        ([0], [False], False),
        ({"a": {"b": 1}}, {"a": {"b": True}}, False),
        (1.5, 1.5, True),
        (Int64(7), 7, True),
        (None, None, True),
        ([1, "a"], [1, "a"], True),
    ],
)
def test_models_are_equal_where_their_json_is(one: object, other: object, *, same: bool) -> None:
    first, second = (NOTE.row(DATASET, 1, extra={"a": value}).model for value in (one, other))
    assert (first == second) is same
    assert (CanonicalJsonSerializer.serialize(first) == CanonicalJsonSerializer.serialize(second)) is same
    assert hash(PLACE.row(DATASET, 1).model) == hash(PLACE.row(DATASET, 1).model)


def test_models_of_decimals_are_equal_where_their_scale_is() -> None:
    prices = [WARE.row(DATASET, 1, price=Decimal(text)).model for text in ("1.0", "1.00", "1.0")]
    assert prices[0] == prices[2] != prices[1]

"""Canonical JSON: one spelling of every value, and no silent change."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import cached_property
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.catalog.tenancy import Tenant
from twinstore.errors import DocumentDecodeError, ValidationError
from twinstore.models import json_text
from twinstore.models.canonical import (
    CanonicalJsonSerializer,
    CanonicalModel,
    decode_stored,
    describe_failure,
)
from twinstore.models.fields import FreeObject
from twinstore.models.validation import revalidated
from twinstore.scheduler import ImpactSet, Run, RunStats, Schedule, Selector, selector_digest
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.selectors import digest_for
from twinstore.testing.scheduler.builders import make_schedule
from twinstore.testing.taskrunner.builders import make_pack_run

CREATED = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
DIGEST = "sha256:" + "a" * 64
RUN = {"id": "r", "tenantId": "t", "trigger": "cron", "state": "planning", "createdAt": CREATED}

free_text = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
free_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(json_text.INT64_MIN, json_text.INT64_MAX)
    | st.floats(-1e15, 1e15)
    | free_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(free_text, inner, max_size=4),
    max_leaves=12,
)


def run(**changes: object) -> Run:
    return Run.model_validate({**RUN, **changes})


def refused(text: str | bytes, cls: type[Run] = Run) -> str:
    with pytest.raises(ValidationError) as caught:
        CanonicalJsonSerializer.deserialize(cls, text)
    return str(caught.value)


def text_of(**changes: object) -> str:
    return json.dumps({**RUN, "createdAt": "2025-10-26T14:05:00+00:00", **changes})


def test_text_is_written_as_itself_and_only_json_specials_are_escaped() -> None:
    reason = 'é😀\u2028\x7f"\\\b\f\n\r\t\x01\x1f'
    data = CanonicalJsonSerializer.serialize(run(reason={"manualReason": f"a{reason}z"}))
    assert 'aé😀\u2028\x7f\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001fz'.encode() in data


def test_properties_stand_in_field_order_and_start_with_the_version() -> None:
    data = json.loads(CanonicalJsonSerializer.serialize(run(scheduleId="s")))
    assert " ".join(data) == "schemaVersion id tenantId scheduleId trigger state stats createdAt"


def test_pretty_text_has_two_blanks_and_one_final_line_feed() -> None:
    data = CanonicalJsonSerializer.serialize_pretty(run())
    assert data.startswith(b'{\n  "schemaVersion": "scheduler.run@1",\n')
    assert data.endswith(b"}\n")
    assert not data.endswith(b"\n\n")


@pytest.mark.parametrize("version", [None, "", "  ", "scheduler.run@1"])
def test_a_missing_or_blank_version_becomes_the_current_one(version: str | None) -> None:
    assert run(schemaVersion=version).schema_version == "scheduler.run@1"


def test_another_version_is_refused() -> None:
    assert "scheduler.run@1" in refused(text_of(schemaVersion="scheduler.run@2"))


def test_nulls_and_empty_deltas_are_omitted_and_empty_lists_stay() -> None:
    assert "deltas" not in run(deltas=[]).wire()
    assert "reason" not in run(reason=None).wire()
    selector = ImpactSet.model_validate({"selector": {"scope": "all-images"}, "generatedAt": CREATED})
    assert b'"namespaces":[],"repositories":[],"digests":[],"includeTags":[],"labels":[]' in (
        CanonicalJsonSerializer.serialize(selector)
    )


@pytest.mark.parametrize(
    ("given_value", "written"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (1e16, "10000000000000000"),
        (0.1, "0.1"),
        (1e-05, "1e-05"),
        (-2.5e-7, "-2.5e-07"),
    ],
)
def test_numbers_have_the_spelling_of_python(given_value: float, written: str) -> None:
    assert json_text.dumps(json_text.encodable(json_text.normalise(given_value))).decode() == written


class Reading(CanonicalModel):
    """Something that holds free JSON."""

    values: FreeObject


class Readings(CanonicalModel):
    """A list of it."""

    readings: tuple[Reading, ...]


@pytest.mark.parametrize("value", [1e-5, 9.9e-5, -2.5e-7, 1e-4, 0.1])
def test_small_numbers_of_a_model_and_of_a_list_of_models_have_the_spelling_of_python(value: float) -> None:
    written = CanonicalJsonSerializer.serialize(make_pack_run(None, "a", plan={"x": value})).decode()
    assert f'"plan":{{"x":{value!r}}}' in written
    model = Readings(readings=(Reading(values={"x": [value]}),))
    written = f'{{"readings":[{{"values":{{"x":[{value!r}]}}}}]}}'
    assert CanonicalJsonSerializer.serialize(model).decode() == written
    pretty = CanonicalJsonSerializer.serialize_pretty(model).decode()
    assert repr(value) in pretty


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e19, 2**63, "a\x00", "\ud800", {"\x00": 1}])
def test_values_that_a_store_would_change_are_refused(value: json_text.JsonValue) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_text.normalise(value)


@given(free_json)
def test_free_json_keeps_its_bytes_through_decoding(value: json_text.JsonValue) -> None:
    first = json_text.dumps(json_text.encodable(json_text.normalise(value)))
    again = json_text.dumps(json_text.encodable(json_text.normalise(json_text.parse_json(first))))
    assert again == first
    text = first.decode()
    assert json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"), sort_keys=True) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"id": 1, "id": 2}', "duplicate key 'id'"),
        ('{"a": {"b": 1, "b": 1}}', "duplicate key 'b'"),
        ('{"a": NaN}', "NaN"),
        ("\ufeff{}", "BOM"),
        ("{", "JSON is not acceptable"),
        (b"\xff", "UTF-8"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_malformed_input_names_its_problem(text: str | bytes, problem: str) -> None:
    assert problem in refused(text)


def test_unknown_properties_are_refused_by_path() -> None:
    assert "stats.extra: Unknown property" in refused(text_of(stats={"extra": 1}))


def test_messages_name_the_path_and_never_the_value() -> None:
    message = refused(text_of(error="secret-payload", stats={"queued": "secret-payload"}))
    assert "stats.queued" in message
    assert "secret-payload" not in message


@pytest.mark.parametrize("value", [True, "1", 1.5, -1, 2**63, None])
def test_counters_refuse_what_is_not_a_whole_number(value: object) -> None:
    assert "stats.queued" in refused(text_of(stats={"queued": value}))


def test_a_whole_float_is_a_number() -> None:
    assert RunStats.model_validate({"queued": 3.0}).queued == 3


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2025-10-26T14:05:00Z", "2025-10-26T14:05:00+00:00"),
        ("2025-10-26t14:05:00z", "2025-10-26T14:05:00+00:00"),
        ("2025-10-26T16:05:00+02:00", "2025-10-26T14:05:00+00:00"),
        ("2025-10-26T14:05:00.5Z", "2025-10-26T14:05:00.500+00:00"),
        ("2025-10-26T14:05:00.123999999Z", "2025-10-26T14:05:00.123+00:00"),
        ("2025-10-26T14:05:00.000999Z", "2025-10-26T14:05:00+00:00"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+00:00"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999+00:00"),
    ],
)
def test_timestamps_become_utc_with_whole_milliseconds(text: str, stored: str) -> None:
    assert json.loads(CanonicalJsonSerializer.serialize(run(createdAt=text)))["createdAt"] == stored


@pytest.mark.parametrize(
    "value",
    [
        "2025-10-26T14:05:00",
        "2025-10-26",
        "2025-10-26T14:05Z",
        "2025-13-26T14:05:00Z",
        "20251026T140500Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
        1761487500,
        datetime(2025, 10, 26),  # noqa: DTZ001  # a naive value is the point
        None,
    ],
)
def test_naive_and_malformed_timestamps_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="createdAt"):
        run(createdAt=value)


def test_an_instant_means_the_same_in_every_offset() -> None:
    local = CREATED.astimezone(timezone(timedelta(hours=-7)))
    assert CanonicalJsonSerializer.digest(run(createdAt=local)) == CanonicalJsonSerializer.digest(run())


class DriverInstant(datetime):
    """An instant as a driver or a data library hands it over: a subclass."""


@pytest.mark.parametrize("offset", [UTC, timezone(timedelta(hours=-7))])
@pytest.mark.parametrize("microsecond", [0, 123_000, 123_456])
def test_an_instant_of_a_subclass_becomes_a_plain_one(offset: timezone, microsecond: int) -> None:
    handed = DriverInstant(2025, 10, 26, 14, 5, 0, microsecond, offset)
    plain = datetime(2025, 10, 26, 14, 5, 0, microsecond, offset)
    made = run(createdAt=handed)
    assert type(made.created_at) is datetime
    assert CanonicalJsonSerializer.serialize(made) == CanonicalJsonSerializer.serialize(run(createdAt=plain))


def test_python_names_and_wire_names_mean_the_same() -> None:
    assert (
        Run.model_validate(
            {"tenant_id": "t", "id": "r", "trigger": "cron", "state": "planning", "created_at": CREATED}
        )
        == run()
    )


@pytest.mark.parametrize("alias", ["whenCron", "cronExpression", "when_cron"])
def test_the_time_rule_has_an_alias(alias: str) -> None:
    schedule = Schedule.model_validate(
        {
            "id": "s",
            "tenantId": "t",
            "name": "n",
            alias: "0  1 * *  *",
            "selection": {"scope": "all-images"},
            "createdAt": CREATED,
            "createdBy": "me",
        }
    )
    assert schedule.wire()["whenCron"] == "0 1 * * *"


def test_a_selector_digest_ignores_order_duplicates_and_an_explicit_owner() -> None:
    one = Selector.model_validate({"scope": "by-namespace", "namespaces": ["b", "a", " a ", ""]})
    two = Selector.model_validate({"scope": "by-namespace", "namespaces": ["a", "b"], "tenantId": "t"})
    assert selector_digest(one, "t") == selector_digest(two, "t")
    assert selector_digest(one, "t") != selector_digest(one, "u")
    for selector in (one, two):
        for tenant in ("t", "u"):
            assert digest_for(selector, Tenant(tenant)) == selector_digest(selector, tenant)


def test_a_stored_document_that_forms_no_model_names_entity_and_key() -> None:
    with pytest.raises(DocumentDecodeError) as caught:
        decode_stored(Run, {**RUN, "state": "lost"}, entity="runs", key="r", driver="Mongo")
    assert (caught.value.entity, caught.value.key, caught.value.code) == ("runs", "r", "undecodable")
    assert "state" in str(caught.value)
    assert "lost" not in str(caught.value)


def test_a_changed_copy_is_validated_like_a_new_model() -> None:
    assert run().evolve(state=RunState.CANCELLED, finished_at=CREATED).state == "cancelled"
    with pytest.raises(ValueError, match="finishedAt"):
        run().evolve(state=RunState.COMPLETED)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": ""}, "id"),
        ({"id": "x" * 257}, "id"),
        ({"id": "a\nb"}, "control character"),
        ({"tenantId": "a:b"}, "colon"),
        ({"tenantId": "x" * 129}, "tenantId"),
        ({"tenantId": " system "}, "reserved"),
        ({"deltas": [{"imageDigest": DIGEST}, {"imageDigest": DIGEST}]}, "once"),
        ({"deltas": [{"imageDigest": DIGEST.upper()}]}, "imageDigest"),
    ],
)
def test_a_field_of_a_run_that_no_store_may_hold_is_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        run(**changes)
    assert problem in describe_failure(Run, caught.value)


def test_a_refused_value_begins_with_its_rule_under_the_name_that_a_client_sends() -> None:
    schedule = make_schedule("acme", "s")
    broken = {**schedule.wire(), "cronExpression": "daily", "timezone": "Mars"}
    del broken["whenCron"]
    calls: dict[str, Callable[[], Schedule]] = {
        "cronExpression": lambda: Schedule.model_validate(broken),
        "whenCron": lambda: schedule.evolve(when_cron="daily", timezone="Mars"),
    }
    for name, call in calls.items():
        with pytest.raises(pydantic.ValidationError) as caught:
            call()
        shown = {problem["loc"]: problem["msg"] for problem in caught.value.errors()}
        assert set(shown) == {(name,), ("timezone",)}
        assert shown[(name,)].startswith("cron expression has 1 fields")
        assert shown[("timezone",)].startswith("'Mars' is not a known time zone")


FIVE = "minute, hour, day of month, month, day of week"


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        (
            "when_cron",
            "0 0 0 7 * *",
            f"cron expression has 6 fields, not five ({FIVE}); seconds and years are not supported",
        ),
        ("when_cron", "@dayly", "cron macros are not supported; write five fields such as 0 0 * * *"),
        ("when_cron", "61 * * * *", "cron field minute: an entry is not accepted; use 0 to 59"),
        ("when_cron", "0 0 L * *", "cron field day of month: 'L' and 'W' are not supported; list the days"),
        ("when_cron", "9-8 * * * *", "cron field minute: a range runs backwards; write two ranges"),
        ("when_cron", "*/77777 * * * *", "cron field minute: a step must be a number from 1"),
        (
            "when_cron",
            "0 0 30 2 *",
            "cron expression never fires: no month in it has such a day; change the day or the month",
        ),
        ("timezone", "europe/berlin", "not a known time zone; use an IANA name such as Europe/Berlin or UTC"),
        ("timezone", "x" * 101, "time zone name has 101 characters; at most 100 are admitted"),
    ],
)
def test_a_refused_time_names_its_rule_without_the_value(name: str, value: str, rule: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        make_schedule("acme", "s").evolve(**{name: value})
    (problem,) = caught.value.errors()
    assert describe_failure(Schedule, caught.value, quote=False) == f"Schedule {problem['loc'][0]}: {rule}"


@pytest.mark.parametrize("value", [float("nan"), 2**64, "a\x00", "\ud800", {1}, {1: 2}])
def test_refused_free_json_begins_with_its_rule_and_repeats_nothing_of_the_value(value: object) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        pydantic.TypeAdapter(FreeObject).validate_python({"a": value})
    (problem,) = caught.value.errors()
    assert problem["msg"].startswith(("number", "whole number", "text", "set", "int"))
    assert describe_failure(Run, caught.value, quote=False) == f"Run a: {problem['msg']}"


class Remembering(Run):
    """A run of a host that computes something once."""

    @cached_property
    def loud(self) -> str:
        """Return the id in capitals."""
        return self.id.upper()


def test_what_a_class_of_a_host_remembers_is_no_field_of_the_model() -> None:
    own = Remembering.model_validate(RUN)
    assert own.loud == "R"
    assert revalidated(own, Run, "run") == run()
    changed = own.evolve(id="s")
    assert (changed.id, changed.loud) == ("s", "S")


def test_no_name_of_a_change_is_taken_for_an_argument() -> None:
    # As in a body of a request that a service passes on.
    changes: dict[str, Any] = {"self": 1}
    with pytest.raises(pydantic.ValidationError, match="self"):
        RunStats().evolve(**changes)

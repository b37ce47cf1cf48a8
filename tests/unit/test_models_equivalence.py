"""The types of fields answer like their plain reference: same values, same refusals, same words.

The rules between fields are tried in ``test_modelrules`` and, model by model, in ``test_model_rules``.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Final
from zoneinfo import ZoneInfo

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import reference_fields
from twinstore import scheduler
from twinstore.models import fields
from twinstore.models.fields import explain

Document = dict[str, Any]
T0 = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
DIGESTS: Final = [f"sha256:{letter * 64}" for letter in "abc"]


class BigInt(int):
    """An integer of a driver: a subclass, as the ones of BSON are."""


class AwareDatetime(datetime):
    """An instant of a driver."""


FINDING: Document = {"purl": "pkg:a/b@1", "vulnerabilityId": "CVE-1", "severity": "low", "link": "x"}
INSTANTS: Final = [
    T0,
    T0 + timedelta(milliseconds=1500),
    T0.replace(tzinfo=None),
    T0.replace(microsecond=123999),
    T0.replace(fold=1),
    T0.astimezone(ZoneInfo("Europe/Berlin")),
    T0.replace(tzinfo=ZoneInfo("UTC")),
    T0.astimezone(timezone(timedelta(minutes=-90))),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
    datetime.max.replace(tzinfo=UTC),
    AwareDatetime(2025, 10, 26, 14, 5, tzinfo=UTC),
    date(2025, 10, 26),
]
INSTANT_TEXTS: Final = [
    "2025-10-26T14:05:00+00:00",
    "2025-10-26T14:05:00.123+00:00",
    "2025-10-26T14:05:00,123+00:00",
    "2025-10-26T14:05:00.123456789Z",
    "2025-10-26t14:05:00z",
    "2025-10-26 14:05:00+00:00",
    "2025-10-26T14:05:00",
    "2025-10-26T14:05:00-00:00",
    "2025-10-26T14:05:00.12+00:00",
    "20251026T140500.000+00:00",
    "2025-W43-7T14:05:00+00:00",
    "2025-W4-7T114:05:00+00:00",
    "2025-13-26T14:05:00+00:00",
    "2025-10-26T24:00:00+00:00",
    "2025-10-26T14:05:60+00:00",
    "2025-10-26T14:05:Z\x00+00:00",
    "2025-10-26T14:05:00.1Z\x00+00:00",
    "0001-01-01T00:00:00+23:59",
    "٢٠٢٥-10-26T14:05:00+00:00",
]
TEXTS: Final = [
    *("", " ", "x", " x ", "a\x00b", "a\nb", "é", "\ud800", "a:b", "System", "SYSTEM-1", "canceled", "vexer"),
    *("system", " system ", "error", "completed", "running", "planning", "all-images", "unknown", "3"),
    *("x" * 128, "x" * 129, "x" * 200, "x" * 201, "x" * 256, "x" * 257, *DIGESTS, DIGESTS[0].upper()),
    *("scheduler.run@2", "scheduler.impact-set@1", *INSTANT_TEXTS),
]
NUMBERS: Final = [0, 1, 3, 9, -1, 3.0, 3.5, -0.0, 1e19, 2**63 - 1, 2**63, -(2**63), float(2**63), BigInt(4)]
ODD: Final = [None, True, False, float("nan"), float("inf"), b"x", [], {}, (), ["x"], {"x": "y"}, [None]]
VALUES: Final[list[object]] = [*INSTANTS, *TEXTS, *NUMBERS, *ODD, *scheduler.RunState, FINDING]
near_instants = st.sampled_from(INSTANT_TEXTS).flatmap(
    lambda text: st.builds(
        lambda place, character: text[:place] + character + text[place + 1 :],
        st.integers(0, len(text)),
        st.sampled_from([*"0123456789-+:.,TtZzW \n٢", ""]),
    )
)
values = st.one_of(
    st.sampled_from(VALUES), st.integers(), st.floats(), st.text(max_size=4), near_instants, st.datetimes()
)
TYPES: Final = (
    *("Actor", "Count", "DigestSet", "DigestText", "Flag", "Id", "Int64", "LowerKeyMap", "Name"),
    *("OptionalReference", "OptionalText", "PositiveInt", "SimpleIdentifier", "StringSet", "TenantId"),
    *("Text", "TextMap", "Timestamp", "Trimmed"),
)


def field_answer(adapter: pydantic.TypeAdapter[Any], value: object) -> str:
    try:
        return repr(adapter.validate_python(value))
    except pydantic.ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        return str([(problem["loc"], explain(problem)) for problem in problems])


@pytest.mark.parametrize("name", TYPES)
def test_every_field_type_answers_like_the_plain_one(name: str) -> None:
    fast = pydantic.TypeAdapter[Any](getattr(fields, name))
    plain = pydantic.TypeAdapter[Any](getattr(reference_fields, name))

    @given(
        value=st.one_of(
            values, st.lists(values, max_size=3), st.dictionaries(st.sampled_from(TEXTS), values, max_size=3)
        )
    )
    def compare(value: object) -> None:
        assert field_answer(fast, value) == field_answer(plain, value)

    compare()
    for value in VALUES:
        assert field_answer(fast, value) == field_answer(plain, value)


@given(text=near_instants)
def test_an_instant_in_text_is_read_like_the_plain_one(text: str) -> None:
    fast, plain = (pydantic.TypeAdapter[Any](kind.Timestamp) for kind in (fields, reference_fields))
    assert field_answer(fast, text) == field_answer(plain, text)

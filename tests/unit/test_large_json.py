"""Large JSON texts are read by another parser, and mean the same as small ones."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.models import json_text

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

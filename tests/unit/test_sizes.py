"""How large a row may be is counted as MongoDB counts it, and is told before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import bson
import hypothesis
import pytest
from bson.int64 import Int64
from hypothesis import strategies as st

from twinstore.access import Row
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUNS
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.sizes import MOST_BYTES, check_batch, check_size, json_size, places_size, size_of
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_run

TENANT: Final = "acme"
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=10)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.just(datetime(2025, 1, 1, tzinfo=UTC)),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=60,
)


def in_64_bits(value: Any) -> Any:  # noqa: ANN401  # any JSON
    """Return a value whose integers MongoDB stores in 64 bits."""
    if isinstance(value, dict):
        return {name: in_64_bits(item) for name, item in value.items()}
    if isinstance(value, list):
        return [in_64_bits(item) for item in value]
    return Int64(value) if type(value) is int else value


@hypothesis.given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_document_is_as_large_as_its_bson(document: dict[str, Any]) -> None:
    assert size_of(document) == len(bson.encode(in_64_bits(document)))


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 99, 100, 101, 12345])
def test_the_places_of_a_list_are_counted(count: int) -> None:
    assert places_size(count) == sum(len(str(number)) for number in range(count))


def entry(message: str) -> Row[ExecutionLogEntry]:
    """Return a row with a text of any length."""
    return Row(ExecutionLogEntry(tenant_id=TENANT, run_id="r", sequence=1, logged_at=START, message=message))


def test_a_row_of_the_limit_fits_and_one_more_byte_does_not() -> None:
    fixed = size_of(entry("").model.wire()) + size_of({})
    check_size(EXECUTION_LOGS, entry("x" * (MOST_BYTES - fixed)))
    with pytest.raises(ValidationError) as caught:
        check_size(EXECUTION_LOGS, entry("x" * (MOST_BYTES - fixed + 1)))
    assert caught.value.message.startswith(
        "The execution log entry 'r:1' has 16.71 MB, and a row may have 16.71 MB (counted as MongoDB does, "
    )
    assert (caught.value.entity, caught.value.key) == ("execution_logs", "r:1")


def test_rows_of_one_call_share_the_limit() -> None:
    check_batch(EXECUTION_LOGS, [entry("x" * 4_000_000) for _ in range(4)])
    with pytest.raises(ValidationError, match=r"The 5 rows of execution_logs in this call have 20\.00 MB"):
        check_batch(EXECUTION_LOGS, [entry("x" * 4_000_000) for _ in range(5)])


def test_markers_count() -> None:
    row = Row(make_run(TENANT, "run"), {"marker": "x" * MOST_BYTES})
    with pytest.raises(ValidationError, match=r"has 16\.71 MB"):
        check_size(RUNS, row)


def test_small_values_are_counted_although_their_json_is_short() -> None:
    model = entry("").model.evolve(data={"list": [0] * 1_200_000})
    assert json_size(Row(model)) < 2_500_000
    with pytest.raises(ValidationError, match=r"has 19\.\d\d MB"):
        check_size(EXECUTION_LOGS, Row(model))

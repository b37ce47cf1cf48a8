"""Row sizes are counted as MongoDB counts them, and rows that are too large are refused before any write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import bson
import hypothesis
import pytest
from bson.int64 import Int64
from hypothesis import strategies as st

import twinstore
from twinstore.access import guard
from twinstore.access.guard import (
    MAX_BYTES,
    check_batch,
    check_size,
    exact_size,
    index_digits_size,
    max_row_size,
    max_row_size_by_json,
    size_of,
)
from twinstore.catalog.row import Row
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.scheduler.rules.run_summaries import projected
from twinstore.scheduler.run_summaries import ERROR_LENGTH, RunSnapshot, RunSummary
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_run, make_schedule, moved
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES

if TYPE_CHECKING:
    from pydantic import JsonValue

    from twinstore.scheduler.runs import Run
    from twinstore.testing.examples import ModuleExamples

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
    max_leaves=25,
)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | NAMES,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=25,
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
    assert index_digits_size(count) == sum(len(str(number)) for number in range(count))


def entry(message: str) -> Row[ExecutionLogEntry]:
    """Return a row with a text of any length."""
    return Row(ExecutionLogEntry(tenant_id=TENANT, run_id="r", sequence=1, logged_at=START, message=message))


def test_a_row_of_the_limit_fits_and_one_more_byte_does_not() -> None:
    fixed = size_of(entry("").model.wire()) + size_of({})
    check_size(EXECUTION_LOGS, entry("x" * (MAX_BYTES - fixed)))
    with pytest.raises(ValidationError) as caught:
        check_size(EXECUTION_LOGS, entry("x" * (MAX_BYTES - fixed + 1)))
    assert caught.value.message.startswith(
        "The execution log entry 'r:1' has 16.71 MB, and a row may have 16.71 MB (counted as MongoDB does, "
    )
    assert (caught.value.entity, caught.value.key) == ("execution_logs", "r:1")


def test_rows_of_one_call_share_the_limit() -> None:
    check_batch(EXECUTION_LOGS, [entry("x" * 4_000_000) for _ in range(4)])
    with pytest.raises(ValidationError, match=r"The 5 rows of execution_logs in this call have 20\.00 MB"):
        check_batch(EXECUTION_LOGS, [entry("x" * 4_000_000) for _ in range(5)])


def test_a_row_that_is_stored_above_the_limit_may_change_and_not_grow_by_much() -> None:
    stored = entry("x" * (MAX_BYTES + 1_000_000))
    check_size(EXECUTION_LOGS, entry("x" * (MAX_BYTES + 1_000_100)), stored)
    check_size(EXECUTION_LOGS, entry("x" * (MAX_BYTES + 1)), stored)
    with pytest.raises(ValidationError, match=r"has 17\.\d\d MB"):
        check_size(EXECUTION_LOGS, entry("x" * (MAX_BYTES + 1_100_000)), stored)
    with pytest.raises(ValidationError, match=r"has 17\.\d\d MB"):
        check_size(EXECUTION_LOGS, entry("x" * (MAX_BYTES + 1_000_000)), entry("small"))
    check_batch(EXECUTION_LOGS, [stored, entry("y")], [stored, None])


def test_markers_count() -> None:
    row = Row(make_run(TENANT, "run"), {"marker": "x" * MAX_BYTES})
    with pytest.raises(ValidationError, match=r"has 16\.71 MB"):
        check_size(RUNS, row)


def test_small_values_are_counted_with_their_places_and_gain_no_more_than_the_bound_by_json(
    monkeypatch: pytest.MonkeyPatch, *, long_form: bool
) -> None:
    count = 1_200_000 if long_form else 120_000
    if not long_form:
        monkeypatch.setattr(guard, "MAX_BYTES", MAX_BYTES // 10)
    many: list[JsonValue] = [0] * count
    row = Row(entry("").model.evolve(data={"list": many}))
    with pytest.raises(ValidationError, match=r"has 19\.\d\d MB" if long_form else r"has 1\.8\d MB"):
        check_size(EXECUTION_LOGS, row)
    assert max_row_size_by_json(row) >= exact_size(row)


@hypothesis.given(st.dictionaries(NAMES, JSON, max_size=5))
def test_the_quick_bound_is_never_too_small(data: dict[str, Any]) -> None:
    row = Row(entry("text").model.evolve(data=data))
    assert max_row_size(row) >= exact_size(row)
    assert max_row_size_by_json(row) >= exact_size(row)


def test_a_row_without_json_is_counted() -> None:
    broken = entry("").model.model_copy(update={"message": "\ud800"})
    assert max_row_size_by_json(Row(broken)) > MAX_BYTES
    check_size(EXECUTION_LOGS, Row(broken))


@pytest.mark.parametrize("module", [SCHEDULER_EXAMPLES, TASKRUNNER_EXAMPLES, TRACKING_EXAMPLES])
def test_the_quick_bound_holds_for_every_entity(module: ModuleExamples) -> None:
    for item in module.examples:
        for model in (item.small(TENANT, "a"), item.rich(TENANT, "a")):
            row = item.row(TENANT, model)
            assert min(max_row_size(row), max_row_size_by_json(row)) >= exact_size(row), item.name


def test_rows_that_an_older_version_has_stored_above_the_limit_go_on_living(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "x" * 5000
    with twinstore.open_storage({"Persistence": {"Scheduler": "Memory"}}) as storage:
        session = storage.scheduler
        session.initializer.ensure_migrations()
        schedule = session.schedules.upsert(make_schedule(TENANT, "s", subscribers=people(5)))
        run = session.runs.create(make_run(TENANT, "r", schedule_id="s", reason={"manualReason": long}))
        summary = RunSummary.of(TENANT, "s", (long_snapshot(run),), START)
        session.run_summaries.upsert(summary)
        monkeypatch.setattr(guard, "MAX_BYTES", 4000)
        monkeypatch.setattr(guard, "SIZE_ALLOWANCE", 500)
        assert session.schedules.soft_delete(TENANT, "s", "eve", START)
        assert session.schedules.restore(TENANT, "s", "eve", START)
        assert session.schedules.upsert(schedule.evolve(enabled=False)).enabled is False
        assert session.runs.update(moved(run, RunState.QUEUED))
        session.run_summaries.upsert(summary)
        with pytest.raises(ValidationError, match="a row may have"):
            session.schedules.upsert(schedule.evolve(subscribers=people(10)))
        with pytest.raises(ValidationError, match="a row may have"):
            session.schedules.upsert(make_schedule(TENANT, "new", subscribers=people(5)))


def test_errors_that_an_older_version_has_summarised_whole_are_cut_with_the_next_run() -> None:
    old = make_run(TENANT, "old", schedule_id="s")
    summary = RunSummary.of(TENANT, "s", (long_snapshot(old),), START)
    run = make_run(TENANT, "new", schedule_id="s")
    after = projected(summary, run, "s", START)
    (kept,) = (entry for entry in after.recent if entry.run_id == "old")
    assert kept == long_snapshot(old).cut
    assert len(kept.error or "") < 2 * ERROR_LENGTH
    assert projected(after, run, "s", START) == after


def people(number: int) -> tuple[str, ...]:
    """Return this many long names."""
    return tuple(f"{place}{'x' * 1000}" for place in range(number))


def long_snapshot(run: Run) -> RunSnapshot:
    """Return a snapshot as it was made before errors were cut."""
    return RunSnapshot.of(moved(run, RunState.ERROR)).evolve(error="x" * 100_000)

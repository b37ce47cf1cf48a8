"""What the figures rest on: the documents, and how samples become medians and ratios."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import bson
import pytest

from benchmarks.data import DAYS, documents, recent_start
from benchmarks.goals import GoalResult
from benchmarks.groups import FURTHER
from benchmarks.options import parse
from benchmarks.page import PAGE
from benchmarks.schedule import Case, Group, Sample, Samples, measure
from twinstore.canonical import CanonicalJsonSerializer
from twinstore.jsontext import dumps
from twinstore.scheduler import Run

NOW = datetime(2026, 3, 14, 15, 9, 26, tzinfo=UTC)


def test_the_same_numbers_give_the_same_documents() -> None:
    assert list(documents(50, recent_start(NOW))) == list(documents(50, recent_start(NOW)))


def test_documents_have_about_700_bytes() -> None:
    sizes = [len(bson.encode(document)) for document in documents(2000, recent_start(NOW))]
    assert 650 <= sum(sizes) / len(sizes) <= 750


def test_documents_are_runs_in_canonical_form() -> None:
    for document in documents(300, recent_start(NOW)):
        wire = {name: value for name, value in document.items() if not name.startswith("_")}
        model = Run.model_validate({**wire, "id": document["_id"]})
        ordered = {"schemaVersion": wire.pop("schemaVersion"), "id": document["_id"], **wire}
        assert CanonicalJsonSerializer.serialize(model) == dumps(ordered)


def test_no_document_is_due_for_removal_while_it_is_measured() -> None:
    oldest = next(documents(1, recent_start(NOW)))["createdAt"]
    assert isinstance(oldest, datetime)
    assert NOW - oldest < timedelta(days=DAYS + 4)


def test_ratios_are_taken_within_a_round() -> None:
    samples = Samples()
    for slow, fast in ((1.0, 2.0), (10.0, 20.0), (5.0, 20.0)):
        samples.add("ours", Sample(units=100, seconds=fast))
        samples.add("raw", Sample(units=100, seconds=slow))
    ratio = samples.ratio("ours", "raw")
    assert (ratio.middle, ratio.least, ratio.most) == (0.5, 0.25, 0.5)
    assert samples.time_ratio("ours", "raw").middle == 2.0


def test_cases_take_turns_and_slices_of_a_round_are_one_sample() -> None:
    turns: list[str] = []

    def case(name: str) -> Case:
        def run() -> Sample:
            turns.append(name)
            return Sample(units=3, seconds=1.5)

        return Case(name=name, run=run)

    group = Group(name="g", title="", unit="operations", cases=[case("a"), case("b")], slices=2)
    samples = measure(group, 2, lambda _: None)
    assert turns == ["a", "b"] * 4
    assert samples.by_case["a"] == [Sample(units=6, seconds=3.0)] * 2


@pytest.mark.parametrize(
    ("measured", "wanted", "unit", "reached"),
    [
        (0.5, 0.45, "x", True),
        (0.4, 0.45, "x", False),
        (149.0, 150.0, "MB", True),
        (151.0, 150.0, "MB", False),
        (1.1, 1.15, "x the time", True),
        (1.2, 1.15, "x the time", False),
    ],
)
def test_memory_and_time_have_a_ceiling_and_everything_else_a_floor(
    measured: float, wanted: float, unit: str, *, reached: bool
) -> None:
    assert GoalResult("goal", measured, wanted, unit).reached is reached


def test_the_page_takes_as_many_rounds_as_its_groups_need() -> None:
    options = parse(["--page", "--documents", "150000"])
    assert set(options.only) == set(PAGE)
    assert (options.of("copy").runs, options.of("copy").documents) == (5, 150_000)
    assert (options.of("tools").runs, options.of("tools").documents) == (3, 100_000)
    assert parse(["--page", "--only", "scale"]).only == ("scale",)


def test_what_takes_long_is_measured_only_where_it_is_named() -> None:
    assert not set(parse([]).only) & set(FURTHER)
    assert parse(["--documents", "7"]).of("scale").documents == 7

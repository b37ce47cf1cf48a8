"""Unique names that move between rows: a copy that overwrites brings them over, on every driver.

Those that move within one range and from one range to the next. Every case runs in memory; each server sees
one of each kind, and the others in the full form alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pytest

from tests.migration_tool.copy.test_pairs import Places, opened, places
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.copies import Pair
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.copy.report import CopyResult

__all__ = ["places"]

Names = dict[str, str]
T: Final = "acme"
# By key, in the order of which rows are copied.
BEFORE: Final[Names] = {"s-1": "one", "s-2": "two", "s-3": "three", "s-4": "four"}


IN_MEMORY: Final = "memory to memory"
INTO_TABLES, INTO_DOCUMENTS = "mongo to postgres", "postgres to mongo"
SIDES: Final = (IN_MEMORY, INTO_TABLES, INTO_DOCUMENTS)


def on_all(cases: Mapping[str, tuple[object, ...]], bounded: Mapping[str, str]) -> list[object]:
    """Return the cases for all sides; between servers the full form alone has what is not bounded."""
    return [
        pytest.param(
            sides,
            *values,
            marks=[] if sides == IN_MEMORY or bounded.get(sides) == name else [pytest.mark.long],
            id=f"{sides}-{name}",
        )
        for sides in SIDES
        for name, values in cases.items()
    ]


@pytest.fixture
def pair(request: pytest.FixtureRequest, places: Places, tmp_path: Path) -> Iterator[Pair]:
    source, _, target = request.param.split()
    with opened("scheduler", places(source), places(target), tmp_path) as pair:
        for key, name in BEFORE.items():
            pair.source.storage.schedules.upsert(make_schedule(T, key, name=name))
        assert pair.copy().exit is Exit.OK
        yield pair


def rename(storage: SchedulerStorage, names: Names) -> None:
    """Give schedules other names, by way of unused names."""
    for key in names:
        storage.schedules.upsert(make_schedule(T, key, name=f"on the way {key}"))
    for key, name in names.items():
        storage.schedules.upsert(make_schedule(T, key, name=name))


def overwritten(pair: Pair, size: int) -> CopyResult:
    return pair.copy(on_conflict="overwrite", range_size=size)


def names_in(storage: SchedulerStorage) -> Names:
    return {item.id: item.name for item in storage.schedules.list(T)}


def reasons(result: CopyResult) -> dict[str, str]:
    return {
        str(cast("list[str]", item["key"])[0]): str(item["reason"])
        for item in result.quarantine
        if item["entity"] == "schedules"
    }


# With the rows of a range: one each, or all together.
MOVES: Final[dict[str, tuple[Names, int]]] = {
    "circle over ranges": ({"s-1": "two", "s-2": "three", "s-3": "four", "s-4": "one"}, 1),
    "circle in one": ({"s-1": "two", "s-2": "three", "s-3": "four", "s-4": "one"}, 1000),
    "chain over ranges": ({"s-1": "two", "s-2": "three", "s-3": "new"}, 1),
    "swap and new in one": ({"s-2": "three", "s-3": "two", "s-0": "four", "s-4": "five"}, 1000),
}


@pytest.mark.parametrize(
    ("pair", "names", "size"),
    on_all(MOVES, {INTO_TABLES: "circle over ranges", INTO_DOCUMENTS: "swap and new in one"}),
    indirect=["pair"],
)
def test_names_that_move_are_never_quarantined(pair: Pair, names: Names, size: int) -> None:
    rename(pair.source.storage, names)
    result = overwritten(pair, size)
    assert (result.exit, result.complete, reasons(result)) == (Exit.OK, True, {})
    assert names_in(pair.target.storage) == {**BEFORE, **names}
    assert len(pair.target.storage.triggers.list(T)) == len({**BEFORE, **names})
    totals = result.totals.of("schedules")
    assert totals["written"] + totals["unchanged"] == totals["read"] == len({**BEFORE, **names})
    assert pair.verify().verdict == "PASS"
    again = overwritten(pair, size)
    assert (again.exit, again.totals.all()["written"]) == (Exit.OK, 0)


@pytest.mark.parametrize(
    ("pair", "key", "size"),
    on_all({"before it": ("s-0", 1), "behind it": ("s-9", 1000)}, {}),
    indirect=["pair"],
)
def test_a_row_that_was_deleted_and_made_again_under_its_name_comes_over(
    pair: Pair, key: str, size: int
) -> None:
    pair.source.storage.schedules.soft_delete(T, "s-2", "ada", at(60))
    pair.source.storage.schedules.upsert(make_schedule(T, key, name="two"))
    result = overwritten(pair, size)
    assert (result.exit, reasons(result)) == (Exit.OK, {})
    assert names_in(pair.target.storage) == {"s-1": "one", "s-3": "three", "s-4": "four", key: "two"}
    assert pair.verify().verdict == "PASS"


@pytest.mark.parametrize(
    ("pair", "size"),
    on_all({"over ranges": (1,), "in one": (1000,)}, {INTO_TABLES: "in one", INTO_DOCUMENTS: "over ranges"}),
    indirect=["pair"],
)
def test_what_a_row_of_the_target_alone_holds_names_it_and_the_others_move(pair: Pair, size: int) -> None:
    pair.target.storage.schedules.upsert(make_schedule(T, "mine", name="new"))
    rename(pair.source.storage, {"s-1": "two", "s-2": "one", "s-3": "new", "s-4": "three"})
    result = overwritten(pair, size)
    # The fourth waits for the third, which keeps its name.
    held = "a unique value is held by another row of the target: its name by the schedule"
    assert reasons(result) == {"s-3": f"{held} 'mine'", "s-4": f"{held} 's-3'"}
    assert result.exit is Exit.INCONCLUSIVE
    expected = {"mine": "new", "s-1": "two", "s-2": "one", "s-3": "three", "s-4": "four"}
    assert names_in(pair.target.storage) == expected
    # Once it is out of the way, the same command brings the rest over.
    pair.target.storage.schedules.soft_delete(T, "mine", "ada", at(60))
    result = overwritten(pair, size)
    assert (result.exit, reasons(result)) == (Exit.OK, {})


@pytest.mark.parametrize("pair", on_all({"": ()}, {}), indirect=True)
def test_without_overwriting_the_reason_names_the_holder_too(pair: Pair) -> None:
    pair.source.storage.schedules.upsert(make_schedule(T, "s-5", name="five"))
    pair.target.storage.schedules.upsert(make_schedule(T, "mine", name="five"))
    result = pair.copy()
    (reason,) = reasons(result).values()
    assert "name" in reason
    assert "'s-5' exists already" not in reason
    assert result.totals.of(SCHEDULES.name)["quarantined"] == 1


@pytest.mark.parametrize("pair", on_all({"": ()}, {}), indirect=True)
def test_a_limit_of_the_quarantine_counts_what_nothing_frees_and_only_that(pair: Pair) -> None:
    circle, size = MOVES["circle over ranges"]
    rename(pair.source.storage, circle)
    strict = {"on_conflict": "overwrite", "range_size": size, "max_quarantine": 0}
    assert pair.copy(**strict).exit is Exit.OK  # type: ignore[arg-type]  # options of a copy
    pair.target.storage.schedules.upsert(make_schedule(T, "mine", name="new"))
    rename(pair.source.storage, {"s-4": "new"})
    stopped = pair.copy(**strict)  # type: ignore[arg-type]  # the same
    assert (stopped.complete, stopped.stopped) == (
        False,
        "more than 0 quarantined documents (--max-quarantine)",
    )

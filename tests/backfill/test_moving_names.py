"""Unique names that move between rows: a copy that overwrites brings them over, on every driver.

Those that move within one range and from one range to the next; servers see the less telling ones of each in
the full form alone.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest

from tests.backfill.toolkit import Pair, open_store
from twinstore.config import load_settings
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.copy.reporting import CopyResult

Names = dict[str, str]
T: Final = "acme"
# By key, in the order of which rows are copied.
BEFORE: Final[Names] = {"s-1": "one", "s-2": "two", "s-3": "three", "s-4": "four"}


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, Any]:
    persistence: dict[str, Any] = {"Memory": {"Store": uuid4().hex}}
    for database in (mongo_database, postgres_database):
        persistence |= cast("dict[str, Any]", database.config["Persistence"])
    return {"Persistence": persistence, "Scheduler": {"Storage": {"RunRetentionDays": 0}}}


@contextmanager
def opened(settings: Mapping[str, Any], source: str, target: str, directory: Path) -> Iterator[Pair]:
    loaded = load_settings(dict(settings), environ={})
    persistence = {**settings["Persistence"], "Memory": {"Store": uuid4().hex}}
    other = load_settings({**settings, "Persistence": persistence}, environ={})
    with ExitStack() as stack:
        left = stack.enter_context(open_store("scheduler", source, loaded))
        right = stack.enter_context(open_store("scheduler", target, other))
        for store in (left, right):
            store.storage.initializer.ensure_migrations()
        yield Pair(left, right, directory)


IN_MEMORY: Final = "memory to memory"
SIDES: Final = (IN_MEMORY, "mongo to postgres", "postgres to mongo")


def on_all(cases: Mapping[str, tuple[object, ...]], bounded: Sequence[str]) -> list[object]:
    """Return the cases for all sides; on servers those that are not bounded stand in the full form alone."""
    return [
        pytest.param(
            sides,
            *values,
            marks=[] if sides == IN_MEMORY or name in bounded else [pytest.mark.long],
            id=f"{sides}-{name}",
        )
        for sides in SIDES
        for name, values in cases.items()
    ]


@pytest.fixture
def pair(request: pytest.FixtureRequest, settings: dict[str, Any], tmp_path: Path) -> Iterator[Pair]:
    source, _, target = request.param.split()
    with opened(settings, source, target, tmp_path) as pair:
        for key, name in BEFORE.items():
            pair.source.storage.schedules.upsert(make_schedule(T, key, name=name))
        assert pair.copy().exit is Exit.OK
        yield pair


def rename(storage: SchedulerStorage, names: Names) -> None:
    """Give schedules other names, by way of names that nobody has."""
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
    on_all(MOVES, ["circle over ranges", "swap and new in one"]),
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
    on_all({"before it": ("s-0", 1), "behind it": ("s-9", 1000)}, ["before it"]),
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
    ("pair", "size"), on_all({"over ranges": (1,), "in one": (1000,)}, ["over ranges"]), indirect=["pair"]
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


@pytest.mark.parametrize("pair", SIDES, indirect=True)
def test_without_overwriting_the_reason_names_the_holder_too(pair: Pair) -> None:
    pair.source.storage.schedules.upsert(make_schedule(T, "s-5", name="five"))
    pair.target.storage.schedules.upsert(make_schedule(T, "mine", name="five"))
    result = pair.copy()
    (reason,) = reasons(result).values()
    assert "name" in reason
    assert "'s-5' exists already" not in reason
    assert result.totals.of(SCHEDULES.name)["quarantined"] == 1


@pytest.mark.parametrize("pair", SIDES, indirect=True)
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

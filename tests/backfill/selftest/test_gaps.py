"""A verification or a copy with a fault: the self-test says so."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.backfill.toolkit import fill, server_settings
from twinstore.bulk.corruption import Role
from twinstore.bulk.rows import ScanRow
from twinstore.catalog.entity import Derived
from twinstore.config import load_settings
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, SCHEDULES
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.selftest.corruptions import Kind
from twinstore_backfill.selftest.engine import (
    Planted,
    ScratchSide,
    copy_all,
    judge,
    open_scratch,
    surroundings,
    verified,
)
from twinstore_backfill.verify.ranges import RowComparison
from twinstore_mongo.bulk.view import MongoView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import KeyRange
    from twinstore.scheduler.storage import SchedulerStorage

STOP = StopSwitch()


@pytest.fixture
def sides(
    empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> Iterator[tuple[ScratchSide, ScratchSide]]:
    """Open two scratch databases, the first with rows in it."""
    settings = load_settings(server_settings(empty_mongo_database, postgres_database), environ={})
    with (
        open_scratch("scheduler", "Mongo", settings) as left,
        open_scratch("scheduler", "Postgres", settings) as right,
    ):
        fill(cast("SchedulerStorage", left.store.storage))
        yield left, right


def planted(target: ScratchSide, entity: Entity, field: str, kind: Kind) -> Planted:
    """Plant one corruption into the first row that it fits into."""
    around = surroundings(target, {})[entity.name]
    for key, row in sorted(target.rows(entity).items()):
        for item in around.corruptions(key, row.values):
            if (item.spot.field, item.kind, item.form) == (field, kind, ""):
                after = target.planter.change(entity, row, item.of(row.values))
                return Planted(item, row, after, target.key_of(entity, after))
    raise AssertionError(f"{kind} fits nowhere into {field}")


def line(item: Planted, *paths: str) -> dict[str, object]:
    """Return a row of a file of differences."""
    return {"entity": "audit", "key": list(item.key or ()), "kind": "different", "paths": list(paths)}


def test_a_verification_that_ignores_case_is_caught(
    sides: tuple[ScratchSide, ScratchSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    item = planted(right, AUDIT, "doc.category", Kind.CASE)
    assert judge([item], verified(left, right, STOP)[1]) == ([(item, "")], [])
    compare = RowComparison._both  # noqa: SLF001  # the fault is planted where pairs are judged

    def lenient(self: RowComparison, source: ScanRow, target: ScanRow) -> None:
        alike = source.content.lower() == target.content.lower()
        compare(self, source, source if alike else target)

    monkeypatch.setattr(RowComparison, "_both", lenient)
    assert judge([item], verified(left, right, STOP)[1]) == ([(item, "different is not named")], [])


def test_only_the_corrupted_field_of_the_right_row_counts(sides: tuple[ScratchSide, ScratchSide]) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    item = planted(right, AUDIT, "doc.category", Kind.BLANK)
    ((_, problem),), alarms = judge([item], [line(item, "doc.message")])
    assert (problem, alarms) == ("the field is not named: doc.message", [])
    ((_, problem),), alarms = judge([item], [line(item, "doc.category", "doc.message")])
    assert (problem, alarms) == ("other fields are named: doc.message", [])
    # Found, but planted by no one.
    _, ((alarm),) = judge([], verified(left, right, STOP)[1])
    assert alarm | line(item, "doc.category") == alarm


def test_rows_that_lists_pass_over_are_logged_again_after_a_verification(
    sides: tuple[ScratchSide, ScratchSide], caplog: pytest.LogCaptureFixture
) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    planted(left, AUDIT, "doc.category", Kind.NULL)
    verified(right, left, STOP)
    logger = logging.getLogger("twinstore.undecodable")
    logger.warning("found")
    assert [record.message for record in caplog.records if record.name == logger.name] == ["found"]


def test_a_wrong_normaliser_in_the_copy_is_found(
    sides: tuple[ScratchSide, ScratchSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = sides
    read = MongoView.records

    def shouting(
        self: MongoView,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
    ) -> Iterator[list[Record]]:
        for batch in read(self, entity, within, tenant_id=tenant_id, batch_size=batch_size):
            for record in batch:
                if entity == SCHEDULES and record.model is not None:
                    record.model = record.model.evolve(name=cast("Any", record.model).name.upper())
            yield batch

    with monkeypatch.context() as patched:
        patched.setattr(MongoView, "records", shouting)
        # Rows that native code reads do not pass through a normaliser.
        patched.setattr(MongoView, "packed", shouting)
        copy_all(left, right, STOP)
    report, lines = verified(left, right, STOP)
    assert report.verdict == "FAIL"
    assert {(line["entity"], line["kind"], *line["paths"]) for line in lines} == {
        ("schedules", "different", "doc.name")
    }
    assert len(lines) == len(right.planter.rows(SCHEDULES))


def test_a_wrong_digest_function_in_the_copy_is_found(sides: tuple[ScratchSide, ScratchSide]) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    for entity in reversed(left.entities):
        left.planter.clear(entity)
    digest = next(item for item in IMPACT_SNAPSHOTS.derived if item.name == "contentDigest")
    with other_function(digest):
        copy_all(right, left, STOP)
    report, lines = verified(right, left, STOP)
    assert report.verdict == "FAIL"
    assert {(line["entity"], line["kind"], *line["paths"]) for line in lines} == {
        ("impact_snapshots", "different", "beside.contentDigest")
    }
    assert len(lines) == len(left.planter.rows(IMPACT_SNAPSHOTS))


@contextmanager
def other_function(derived: Derived) -> Iterator[None]:
    """Compute a derived field wrongly for the length of a block."""
    right = derived.value, derived.of_content
    # Frozen, because a description never changes; the fault is in the functions that it names.
    object.__setattr__(derived, "value", lambda _model, _storage: "sha256:wrong")
    object.__setattr__(derived, "of_content", lambda _content: "sha256:wrong")
    try:
        yield
    finally:
        for name, function in zip(("value", "of_content"), right, strict=True):
            object.__setattr__(derived, name, function)


def test_the_least_change_of_a_place_is_told_by_its_role(sides: tuple[ScratchSide, ScratchSide]) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    item = planted(right, IMPACT_SNAPSHOTS, "beside.imageCount", Kind.STEP)
    assert item.item.spot.role is Role.DERIVED
    assert item.after is not None
    assert item.before is not None
    assert item.after.values["image_count"] == cast("int", item.before.values["image_count"]) + 1
    changed = {name for name, value in item.after.values.items() if value != item.before.values[name]}
    assert changed == {"image_count"}

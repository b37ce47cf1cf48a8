"""A verification or a copy with a fault: the self-test says so."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.backfill.toolkit import fill, server_settings
from twinstore.bulk import ScanRow
from twinstore.catalog import Derived
from twinstore.config import load_settings
from twinstore.planting import Role
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, SCHEDULES
from twinstore_backfill.selftest.herd import Herd
from twinstore_backfill.selftest.judging import Line, judge
from twinstore_backfill.selftest.kinds import Kind
from twinstore_backfill.selftest.moving import copy_all, verified
from twinstore_backfill.selftest.planning import Planned
from twinstore_backfill.selftest.planting import Planted, plant, undo
from twinstore_backfill.selftest.preparing import surroundings
from twinstore_backfill.selftest.scratch import ScratchSide, open_scratch
from twinstore_backfill.stopping import StopSwitch
from twinstore_backfill.verify.ranges import RowComparison
from twinstore_mongo.bulk_view import MongoView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase, MongoServer, PostgresDatabase, PostgresServer
    from twinstore.bulk import KeyRange, Record
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerStorage

STOP = StopSwitch()


@contextmanager
def opened(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> Iterator[tuple[ScratchSide, ScratchSide]]:
    """Open two scratch databases, the first with rows of one tenant in it."""
    settings = load_settings(server_settings(mongo_database, postgres_database), environ={})
    with (
        open_scratch("scheduler", "Mongo", settings) as left,
        open_scratch("scheduler", "Postgres", settings) as right,
    ):
        fill(cast("SchedulerStorage", left.store.storage), ["acme"])
        yield left, right


@pytest.fixture
def sides(
    empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> Iterator[tuple[ScratchSide, ScratchSide]]:
    with opened(empty_mongo_database, postgres_database) as sides:
        yield sides


@pytest.fixture(scope="module")
def copied_sides(
    mongo_server: MongoServer, postgres_server: PostgresServer
) -> Iterator[tuple[ScratchSide, ScratchSide]]:
    """Copy once for the tests that take back what they plant."""
    with (
        mongo_server.database() as mongo_database,
        postgres_server.migrated_database() as postgres_database,
        opened(mongo_database, postgres_database) as (left, right),
    ):
        copy_all(left, right, STOP)
        yield left, right


@contextmanager
def planted(target: ScratchSide, entity: Entity, field: str, kind: Kind) -> Iterator[Planted]:
    """Plant one corruption into the first row that it fits into, for the length of a block."""
    rows = {item.name: target.planter.rows(item) for item in target.entities}
    around = surroundings(target, rows, Herd({}))[entity.name]
    by_key = {row.key: row for row in rows[entity.name] if row.key is not None}
    for key in sorted(by_key):
        done = plant(around, by_key, Planned((field, kind.value, ""), key, key))
        if isinstance(done, Planted):
            try:
                yield done
            finally:
                undo(target.planter, [done])
            return
    raise AssertionError(f"{kind} fits nowhere into {field}")


def test_a_verification_that_ignores_case_is_caught(
    copied_sides: tuple[ScratchSide, ScratchSide], monkeypatch: pytest.MonkeyPatch
) -> None:
    left, right = copied_sides
    compare = RowComparison._both  # noqa: SLF001  # the fault is planted where pairs are judged

    def lenient(self: RowComparison, source: ScanRow, target: ScanRow) -> None:
        alike = source.content.lower() == target.content.lower()
        compare(self, source, source if alike else target)

    with planted(right, AUDIT, "doc.category", Kind.CASE) as item:
        lines = verified(left, right, STOP).lines
        assert judge([item], lines).found == [item]
        assert judge([], lines).false_alarms == [Line("audit", item.key, "different", ("doc.category",))]
        monkeypatch.setattr(RowComparison, "_both", lenient)
        judgement = judge([item], verified(left, right, STOP).lines)
    assert [missed for missed, _ in judgement.missed] == [item]
    assert (judgement.found, judgement.false_alarms) == ([], [])


def test_another_field_of_the_right_row_is_not_enough(copied_sides: tuple[ScratchSide, ScratchSide]) -> None:
    with planted(copied_sides[1], AUDIT, "doc.category", Kind.STEP) as item:
        elsewhere = [Line("audit", item.key, "different", ("doc.message",))]
        too_much = [Line("audit", item.key, "different", ("doc.category", "doc.message"))]
    ((missed, problem),) = judge([item], elsewhere).missed
    assert (missed, problem) == (item, "the field is not named: doc.message")
    ((_, problem),) = judge([item], too_much).missed
    assert problem == "other fields are named: doc.message"


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
    found = verified(left, right, STOP)
    assert found.report.verdict == "FAIL"
    assert {(line.entity, line.kind, line.paths) for line in found.lines} == {
        ("schedules", "different", ("doc.name",))
    }
    assert len(found.lines) == len(right.planter.rows(SCHEDULES))


def test_a_wrong_digest_function_in_the_copy_is_found(sides: tuple[ScratchSide, ScratchSide]) -> None:
    left, right = sides
    copy_all(left, right, STOP)
    for entity in reversed(left.entities):
        left.planter.clear(entity)
    digest = next(item for item in IMPACT_SNAPSHOTS.derived if item.name == "contentDigest")
    with other_function(digest):
        copy_all(right, left, STOP)
    found = verified(right, left, STOP)
    assert found.report.verdict == "FAIL"
    assert {(line.entity, line.kind, line.paths) for line in found.lines} == {
        ("impact_snapshots", "different", ("beside.contentDigest",))
    }
    assert len(found.lines) == len(left.planter.rows(IMPACT_SNAPSHOTS))


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


def test_the_least_change_of_a_place_is_told_by_its_role(
    copied_sides: tuple[ScratchSide, ScratchSide],
) -> None:
    with planted(copied_sides[1], IMPACT_SNAPSHOTS, "beside.imageCount", Kind.STEP) as item:
        pass
    assert item.mutation.role is Role.DERIVED
    assert item.after is not None
    assert item.before is not None
    assert item.after.values["image_count"] == cast("int", item.before.values["image_count"]) + 1
    changed = {name for name, value in item.after.values.items() if value != item.before.values[name]}
    assert changed == {"image_count"}

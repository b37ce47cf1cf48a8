"""What writes without a driver: it reads what is stored, changes one thing, and names what refuses it."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

import pytest
from bson.int64 import Int64

from tests.support.copies import fill, open_store
from twinstore.bulk.corruption import STORED_NULL, CorruptionRefusedError, DuplicateMember, Role, StoredPlace
from twinstore.config import load_settings
from twinstore.plugins.drivers import load_backend
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULER, SCHEDULES
from twinstore_backfill.selftest.corruptions import moved
from twinstore_backfill.selftest.engine import ScratchSide

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.corruption import RawRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key


@contextmanager
def opening(backend: str, database: MongoDatabase | PostgresDatabase) -> Iterator[ScratchSide]:
    """Open a filled store with its corruption writer."""
    keep = {"Scheduler": {"Storage": {"RunRetentionDays": 0}}}
    settings = load_settings({**database.config, **keep}, environ={})
    spec = load_backend(backend, module="scheduler")
    assert spec.corruption_writer is not None
    with open_store("scheduler", backend, settings) as store:
        store.storage.initializer.ensure_migrations()
        fill(cast("Any", store.storage))
        with spec.corruption_writer(settings.backend_settings("scheduler", spec)) as corruption_writer:
            yield ScratchSide(cast("Any", store), corruption_writer)


@pytest.fixture
def tables(postgres_database: PostgresDatabase) -> Iterator[ScratchSide]:
    with opening("Postgres", postgres_database) as side:
        yield side


@pytest.fixture
def documents(mongo_database: MongoDatabase) -> Iterator[ScratchSide]:
    with opening("Mongo", mongo_database) as side:
        yield side


@pytest.fixture(params=["Mongo", "Postgres"])
def side(
    request: pytest.FixtureRequest, mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> Iterator[ScratchSide]:
    backend: str = request.param
    with opening(backend, mongo_database if backend == "Mongo" else postgres_database) as side:
        yield side


def contents(side: ScratchSide, entity: Entity) -> dict[Key, Mapping[str, object]]:
    return {key: dict(row.values) for key, row in side.rows(entity).items()}


def rows(side: ScratchSide, entity: Entity) -> list[RawRow]:
    return [row for _, row in sorted(side.rows(entity).items())]


def place(side: ScratchSide, entity: Entity, field: str) -> StoredPlace:
    return next(place for place in side.places(entity) if place.field == field)


def test_every_row_is_read_with_its_key(side: ScratchSide) -> None:
    for entity in SCHEDULER.entities:
        assert len(side.rows(entity)) == sum(side.store.bulk.counts(entity).values())


def test_places_come_from_the_server_with_what_the_description_calls_them(side: ScratchSide) -> None:
    places = {place.field: (place.role, place.part) for place in side.places(IMPACT_SNAPSHOTS)}
    assert places["snapshotId"][0] is Role.KEY
    assert places["tenantId"][0] is Role.TENANT
    assert places["runId"] == (Role.MARKER, "storage")
    assert places["contentDigest"] == (Role.DERIVED, "beside")
    repeated = (Role.REPEATED, "beside") if side.corruption_writer.tabular else (Role.FIELD, "doc")
    assert places["generatedAt"] == repeated
    assert [place.part for place in side.places(RUNS) if place.role is Role.COUNTER] == ["beside"]


def test_a_change_is_one_change_and_can_be_taken_back(side: ScratchSide) -> None:
    (before, *_), name = rows(side, AUDIT), place(side, AUDIT, "category").name
    stored = contents(side, AUDIT)
    after = side.corruption_writer.change(AUDIT, before, {**before.values, name: "other"})
    assert after is not None
    assert dict(after.values) == {**before.values, name: "other"}
    found = contents(side, AUDIT)
    assert {key for key in found if found[key] != stored[key]} == {side.key_of(AUDIT, before)}
    side.corruption_writer.change(AUDIT, after, before.values)
    assert contents(side, AUDIT) == stored


def test_what_looks_like_a_reference_keeps_the_order_of_its_names(documents: ScratchSide) -> None:
    (row, *_), reference = rows(documents, AUDIT), {"$id": 1, "$ref": "runs", "$db": "other"}
    writer, values = documents.corruption_writer, {**row.values, "metadata": {"a": [reference]}}
    planted = writer.change(AUDIT, row, values)
    assert planted is not None
    assert [*cast("Any", planted.values)["metadata"]["a"][0].items()] == [*reference.items()]
    with pytest.raises(CorruptionRefusedError, match="no change"):
        writer.change(AUDIT, planted, values)
    changed = writer.change(AUDIT, planted, {**planted.values, "category": "other"})
    restored = writer.change(AUDIT, changed, planted.values)
    assert restored is not None
    assert restored.place == planted.place


def test_rows_come_and_go_and_the_key_can_change(side: ScratchSide) -> None:
    (row, other, *_), name = rows(side, AUDIT), place(side, AUDIT, "id").name
    count = len(rows(side, AUDIT))
    added = side.corruption_writer.change(AUDIT, None, {**row.values, name: "another"})
    assert side.key_of(AUDIT, added) == ("another",)
    assert side.corruption_writer.change(AUDIT, added, None) is None
    moved = side.corruption_writer.change(AUDIT, row, {**row.values, name: "moved"})
    assert side.key_of(AUDIT, moved) == ("moved",)
    side.corruption_writer.change(AUDIT, other, None)
    assert len(rows(side, AUDIT)) == count - 1
    assert side.rows(AUDIT).keys().isdisjoint({side.key_of(AUDIT, row), side.key_of(AUDIT, other)})


def test_a_key_that_is_taken_is_refused_by_name_and_nothing_is_lost(side: ScratchSide) -> None:
    (one, two, *_), name = rows(side, SCHEDULES), place(side, SCHEDULES, "id").name
    stored = contents(side, SCHEDULES)
    with pytest.raises(CorruptionRefusedError) as refused:
        side.corruption_writer.change(SCHEDULES, one, {**one.values, name: two.values[name]})
    constraint = "schedules_pkey" if side.corruption_writer.tabular else "_id_"
    assert (refused.value.constraint, refused.value.unique) == (constraint, True)
    assert contents(side, SCHEDULES) == stored


def test_what_a_type_cannot_represent_is_refused(side: ScratchSide) -> None:
    (row, *_), name = rows(side, AUDIT), place(side, AUDIT, "occurredAt").name
    value = cast("datetime", row.values[name])
    with pytest.raises(CorruptionRefusedError, match="no change"):
        side.corruption_writer.change(
            AUDIT, row, {**row.values, name: value.replace(microsecond=value.microsecond + 499)}
        )
    with pytest.raises(CorruptionRefusedError, match="no change"):
        side.corruption_writer.change(AUDIT, row, row.values)


def test_a_table_names_its_constraints(tables: ScratchSide) -> None:
    row = rows(tables, SCHEDULES)[0]
    for change, constraint in (
        ({"name": None}, "not null of name"),
        ({"created_by": ""}, "schedules_created_by_check"),
        ({"deleted_by": "x"}, "schedules_deletion_markers"),
        ({"mode": 2**20}, "the type int2"),
    ):
        with pytest.raises(CorruptionRefusedError) as refused:
            tables.corruption_writer.change(SCHEDULES, row, {**row.values, **change})
        assert (refused.value.constraint, refused.value.unique) == (constraint, False)


def test_a_table_distinguishes_a_null_of_json(tables: ScratchSide) -> None:
    row = rows(tables, RUNS)[0]
    after = tables.corruption_writer.change(RUNS, row, {**row.values, "stats": STORED_NULL})
    assert after is not None
    assert after.values["stats"] is STORED_NULL


def test_a_document_holds_a_name_twice(documents: ScratchSide) -> None:
    row = rows(documents, RUNS)[0]
    stats = cast("dict[str, object]", row.values["stats"])
    doubled = {**stats, "newLow": DuplicateMember(stats["newLow"])}
    after = documents.corruption_writer.change(RUNS, row, {**row.values, "stats": doubled})
    assert after is not None
    # To take it back is a change, although the decoded values are the same.
    assert documents.corruption_writer.change(RUNS, after, row.values) is not None


def test_json_has_other_spellings_of_a_number_and_a_column_has_none(tables: ScratchSide) -> None:
    stats, column = place(tables, RUNS, "stats"), place(tables, RUNS, "row_version")
    assert dict(tables.corruption_writer.forms(stats, 7)) == {"number with a fraction": 7.0}
    assert dict(tables.corruption_writer.forms(stats, value=True)) == {"number": 1}
    assert list(tables.corruption_writer.forms(column, 7)) == []


def test_bson_has_other_types_of_a_number_and_an_instant(documents: ScratchSide) -> None:
    stats, forms = place(documents, RUNS, "stats"), documents.corruption_writer.forms
    assert dict(forms(stats, 7)) == {"int64": Int64(7), "double": 7.0}
    assert dict(forms(stats, Int64(7))) == {"int32": 7, "double": 7.0}
    assert dict(forms(stats, value=True)) == {"int32": 1}
    instant = datetime(2025, 10, 26, 14, 5)  # noqa: DTZ001  # as BSON has it
    assert dict(forms(stats, instant)) == {
        "text": "2025-10-26T14:05:00.000+00:00",
        "object": {"$date": "2025-10-26T14:05:00+00:00"},
    }


def test_every_part_of_the_schema_can_be_dropped_and_made_again(side: ScratchSide) -> None:
    verify = side.store.storage.initializer.verify
    assert verify() == ()
    kinds: set[str] = set()
    for entity in SCHEDULER.entities:
        for part in list(side.corruption_writer.parts(entity)):
            kinds.add(part.kind)
            part.drop()
            assert verify() != (), part
            part.make()
            assert verify() == (), part
    security = {"policy", "row-level security", "forced row-level security"}
    keys = {"primary key", "unique key", "foreign key"}
    assert kinds == {"unique index", "index"} | (keys | security if side.corruption_writer.tabular else set())


def test_an_omitted_identity_is_generated(documents: ScratchSide) -> None:
    row = rows(documents, RUN_SUMMARIES)[0]
    values = {name: value for name, value in row.values.items() if name != "_id"}
    after = documents.corruption_writer.change(RUN_SUMMARIES, row, values)
    assert after is not None
    assert type(after.values["_id"]).__name__ == "ObjectId"
    assert documents.key_of(RUN_SUMMARIES, after) == documents.key_of(RUN_SUMMARIES, row)


def test_an_instant_in_the_last_year_moves_back() -> None:
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)
    assert moved(last, timedelta(milliseconds=1)) == last - timedelta(milliseconds=1)


def test_a_number_beyond_64_bits_is_refused(documents: ScratchSide) -> None:
    stored, (row, *_) = contents(documents, AUDIT), rows(documents, AUDIT)
    with pytest.raises(CorruptionRefusedError, match="64 bits"):
        documents.corruption_writer.change(AUDIT, row, {**row.values, "number": 2**64})
    assert contents(documents, AUDIT) == stored

"""What writes past a driver: it reads what is stored, changes one thing, and names what refuses it."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

import pytest
from bson.int64 import Int64

from tests.backfill.toolkit import fill, open_store
from twinstore.config import load_settings
from twinstore.ledger import LEDGER_MODULE
from twinstore.planting import STORED_NULL, Doubled, Planter, PlantRefusedError, Role
from twinstore.plugins import load_backend
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULER, SCHEDULES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase, PostgresDatabase
    from twinstore.catalog import Entity
    from twinstore.planting import RawRow
    from twinstore_backfill.stores import Store

ENTITIES = (*SCHEDULER.entities, *LEDGER_MODULE.catalog.entities)
Opened = tuple["Store[Any]", Planter]


@contextmanager
def opening(backend: str, database: MongoDatabase | PostgresDatabase) -> Iterator[Opened]:
    """Open a filled store with its planter."""
    keep = {"Scheduler": {"Storage": {"RunRetentionDays": 0}}}
    settings = load_settings({**database.config, **keep}, environ={})
    spec = load_backend(backend, module="scheduler")
    assert spec.planter is not None
    with open_store("scheduler", backend, settings) as store:
        store.storage.initializer.ensure_migrations()
        store.bulk.ledger_initializer.ensure_migrations()
        fill(store.storage)
        with spec.planter(settings.backend_settings("scheduler", spec), ENTITIES) as planter:
            yield cast("Store[Any]", store), planter


@pytest.fixture
def tables(postgres_database: PostgresDatabase) -> Iterator[Planter]:
    with opening("Postgres", postgres_database) as (_, planter):
        yield planter


@pytest.fixture
def documents(mongo_database: MongoDatabase) -> Iterator[Planter]:
    with opening("Mongo", mongo_database) as (_, planter):
        yield planter


@pytest.fixture(params=["Mongo", "Postgres"])
def opened(
    request: pytest.FixtureRequest, mongo_database: MongoDatabase, postgres_database: PostgresDatabase
) -> Iterator[Opened]:
    backend: str = request.param
    with opening(backend, mongo_database if backend == "Mongo" else postgres_database) as opened:
        yield opened


def first(planter: Planter, entity: Entity) -> RawRow:
    return min(planter.rows(entity), key=lambda row: row.key or ())


def named(planter: Planter, entity: Entity, field: str) -> str:
    """Return the stored name of a field."""
    return next(place.name for place in planter.places(entity) if place.field == field)


def test_every_row_is_read_with_its_key(opened: Opened) -> None:
    store, planter = opened
    for entity in SCHEDULER.entities:
        assert len(planter.rows(entity)) == sum(store.bulk.counts(entity).values())
        assert all(row.key is not None for row in planter.rows(entity))


def test_places_come_from_the_server_with_what_the_description_calls_them(opened: Opened) -> None:
    _, planter = opened
    places = {place.field: place for place in planter.places(IMPACT_SNAPSHOTS)}
    assert places["snapshotId"].role is Role.KEY
    assert places["tenantId"].role is Role.TENANT
    assert (places["runId"].role, places["runId"].part) == (Role.MARKER, "storage")
    assert (places["contentDigest"].role, places["contentDigest"].part) == (Role.DERIVED, "beside")
    at = places["generatedAt"]
    assert (at.role, at.part) == ((Role.REPEATED, "beside") if planter.tabular else (Role.FIELD, "doc"))
    counters = [place for place in planter.places(RUNS) if place.role is Role.COUNTER]
    assert [place.part for place in counters] == ["beside"]


def test_a_change_is_one_change_and_can_be_taken_back(opened: Opened) -> None:
    store, planter = opened
    before, name = first(planter, AUDIT), named(planter, AUDIT, "category")
    contents = {row.key: dict(row.values) for row in planter.rows(AUDIT)}
    after = planter.change(AUDIT, before, {**before.values, name: "other"})
    assert after is not None
    assert dict(after.values) == {**before.values, name: "other"}
    changed = {row.key for row in planter.rows(AUDIT) if dict(row.values) != contents[row.key]}
    assert changed == {before.key}
    planter.change(AUDIT, after, before.values)
    assert {row.key: dict(row.values) for row in planter.rows(AUDIT)} == contents
    assert sum(store.bulk.counts(AUDIT).values()) == len(contents)


def test_rows_come_and_go(opened: Opened) -> None:
    _, planter = opened
    row, name = first(planter, RUNS), named(planter, RUNS, "id")
    added = planter.change(RUNS, None, {**row.values, name: "another"})
    assert added is not None
    assert added.key == ("another",)
    assert planter.change(RUNS, added, None) is None
    planter.change(RUNS, row, None)
    assert row.key not in {other.key for other in planter.rows(RUNS)}


def test_the_key_can_change(opened: Opened) -> None:
    _, planter = opened
    row, name = first(planter, AUDIT), named(planter, AUDIT, "id")
    count = len(planter.rows(AUDIT))
    after = planter.change(AUDIT, row, {**row.values, name: "moved"})
    assert after is not None
    assert (after.key, len(planter.rows(AUDIT))) == (("moved",), count)


def test_a_key_that_is_taken_is_refused_by_name_and_nothing_is_lost(opened: Opened) -> None:
    _, planter = opened
    one, two = planter.rows(SCHEDULES)[:2]
    name = named(planter, SCHEDULES, "id")
    count = len(planter.rows(SCHEDULES))
    with pytest.raises(PlantRefusedError) as refused:
        planter.change(SCHEDULES, one, {**one.values, name: two.values[name]})
    assert (refused.value.constraint, refused.value.unique) == (
        ("schedules_pkey", True) if planter.tabular else ("_id_", True)
    )
    assert len(planter.rows(SCHEDULES)) == count


def test_several_changes_come_to_what_each_comes_to_and_a_refusal_stops_none(opened: Opened) -> None:
    _, planter = opened
    one, two, three, four = sorted(planter.rows(AUDIT), key=lambda row: row.key or ())[:4]
    category, key = named(planter, AUDIT, "category"), named(planter, AUDIT, "id")
    new = {**four.values, key: "new"}
    changed, taken, moved, same, added, gone = planter.change_all(
        AUDIT,
        [
            (one, {**one.values, category: "other"}),
            (two, {**two.values, key: "moved", category: one.values[category]}),
            (three, {**three.values, key: "next"}),
            (four, dict(four.values)),
            (None, new),
            (four, None),
        ],
    )
    stored = {row.key: row for row in planter.rows(AUDIT)}
    for found, wanted in ((changed, one.key), (taken, ("moved",)), (moved, ("next",)), (added, ("new",))):
        assert not isinstance(found, PlantRefusedError)
        assert found == stored[wanted]
    assert isinstance(same, PlantRefusedError)
    assert gone is None
    assert stored.keys().isdisjoint({two.key, three.key, four.key})
    # Whatever came before it and after it stands.
    *_, refused = planter.change_all(AUDIT, [(stored["new",], None), (None, {**stored["next",].values})])
    assert isinstance(refused, PlantRefusedError)
    assert refused.unique
    assert ("new",) not in {row.key for row in planter.rows(AUDIT)}


def test_what_a_type_cannot_tell_is_refused(opened: Opened) -> None:
    _, planter = opened
    row, name = first(planter, AUDIT), named(planter, AUDIT, "occurredAt")
    value = cast("datetime", row.values[name])
    with pytest.raises(PlantRefusedError, match="keeps it as it was"):
        planter.change(AUDIT, row, {**row.values, name: value.replace(microsecond=value.microsecond + 499)})


def test_a_table_names_its_constraints(tables: Planter) -> None:
    row = first(tables, SCHEDULES)
    for change, constraint in (
        ({"name": None}, "not null of name"),
        ({"created_by": ""}, "schedules_created_by_check"),
        ({"deleted_by": "x"}, "schedules_deletion_markers"),
        ({"mode": 2**20}, "the type int2"),
    ):
        with pytest.raises(PlantRefusedError) as refused:
            tables.change(SCHEDULES, row, {**row.values, **change})
        assert (refused.value.constraint, refused.value.unique) == (constraint, False)


def test_a_table_tells_a_null_of_json_and_holds_each_name_once(tables: Planter) -> None:
    row = first(tables, RUNS)
    stats = cast("dict[str, object]", row.values["stats"])
    with pytest.raises(PlantRefusedError, match="jsonb keeps it as it was"):
        tables.change(RUNS, row, {**row.values, "stats": Doubled(stats, "newLow")})
    after = tables.change(RUNS, row, {**row.values, "stats": STORED_NULL})
    assert after is not None
    assert after.values["stats"] is STORED_NULL


def test_a_document_holds_a_name_twice(documents: Planter) -> None:
    row = first(documents, RUNS)
    stats = cast("dict[str, object]", row.values["stats"])
    after = documents.change(RUNS, row, {**row.values, "stats": Doubled(stats, "newLow")})
    assert after is not None
    # To take it back is a change, although the decoded values are the same.
    assert documents.change(RUNS, after, row.values) is not None


def test_json_has_other_spellings_of_a_number_and_a_column_has_none(tables: Planter) -> None:
    places = {place.field: place for place in tables.places(RUNS)}
    assert dict(tables.forms(places["stats"], 7)) == {"number with a fraction": 7.0}
    assert dict(tables.forms(places["stats"], value=True)) == {"number": 1}
    column = next(place for place in tables.places(RUNS) if place.role is Role.COUNTER)
    assert list(tables.forms(column, 7)) == []


def test_bson_has_other_types_of_a_number_and_an_instant(documents: Planter) -> None:
    place = next(place for place in documents.places(RUNS) if place.field == "stats")
    assert dict(documents.forms(place, 7)) == {"int64": Int64(7), "double": 7.0}
    assert dict(documents.forms(place, Int64(7))) == {"int32": 7, "double": 7.0}
    assert dict(documents.forms(place, value=True)) == {"int32": 1}
    instant = datetime(2025, 10, 26, 14, 5)  # noqa: DTZ001  # as BSON has it
    assert dict(documents.forms(place, instant)) == {
        "text": "2025-10-26T14:05:00.000+00:00",
        "object": {"$date": "2025-10-26T14:05:00+00:00"},
    }


def test_every_part_of_the_schema_can_be_dropped_and_made_again(opened: Opened) -> None:
    store, planter = opened
    assert store.storage.initializer.verify() == ()
    for entity in SCHEDULER.entities:
        for part in planter.parts(entity):
            make = planter.drop(entity, part)
            assert store.storage.initializer.verify() != (), part
            make()
            assert store.storage.initializer.verify() == (), part


def test_the_keys_of_a_table_are_among_its_parts(opened: Opened) -> None:
    _, planter = opened
    kinds = {part.kind for entity in SCHEDULER.entities for part in planter.parts(entity)}
    if planter.tabular:
        assert kinds == {
            "primary key",
            "unique key",
            "foreign key",
            "unique index",
            "index",
            "policy",
            "row-level security",
            "forced row-level security",
        }
    else:
        assert kinds == {"unique index", "index"}


def test_an_identity_that_is_left_out_is_made(documents: Planter) -> None:
    row = first(documents, RUN_SUMMARIES)
    values = {name: value for name, value in row.values.items() if name != "_id"}
    after = documents.change(RUN_SUMMARIES, row, values)
    assert after is not None
    assert (after.key, type(after.values["_id"]).__name__) == (row.key, "ObjectId")

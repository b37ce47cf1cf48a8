from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from twinstore.catalog.entity import Entity, Layout, Marker
from twinstore.catalog.indexes import EVERYWHERE
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT, Tenant
from twinstore.errors import ValidationError
from twinstore.models.shapes import Kind
from twinstore.scheduler.catalog import IMPACT_SNAPSHOTS, RUNS, SCHEDULER, SCHEDULES
from twinstore.testing.datasets import DEVICE, NOTE, Dataset
from twinstore.testing.entities import COUNTERS, DEVICES, ENTRIES, KIT, NOTES, PARTS
from twinstore.testing.scheduler.builders import make_impact_set
from twinstore_postgres.mapping.codec import Json
from twinstore_postgres.mapping.columns import Origin, columns_of, is_uuid
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from twinstore.scheduler.impact_snapshots import ImpactSet

MARKERS = {"archivedAt": "archived_at", "archivedBy": "archived_by", "revision": "revision"}


def types_of(*names: str) -> dict[str, str]:
    """Return columns of the notes by type."""
    found = {column.name: column.sql_type for column in columns_of(NOTES)}
    return {name: found[name] for name in names}


def test_a_type_follows_from_the_model() -> None:
    assert types_of(
        "id",
        "level",
        "colour",
        "urgent",
        "rank",
        "width",
        "due_at",
        "tags",
        "steps",
        "seats",
        "words",
        "spot",
        "spots",
    ) == {
        "id": "text",
        "level": "int2",
        "colour": "text",
        "urgent": "bool",
        "rank": "int8",
        "width": "int4",
        "due_at": "timestamptz",
        "tags": "text[]",
        "steps": "int8[]",
        "seats": "int4[]",
        "words": "jsonb",
        "spot": "jsonb",
        "spots": "jsonb",
    }
    assert types_of("archived_at", "archived_by", "revision") == {
        "archived_at": "timestamptz",
        "archived_by": "text",
        "revision": "int8",
    }


def test_a_key_has_the_types_of_its_parts() -> None:
    keys = {
        entity.name: [table_of(entity).column(name).sql_type for name in entity.key]
        for entity in KIT.entities
    }
    assert keys == {
        "notes": ["text"],
        "places": ["text", "text"],
        "devices": ["uuid"],
        "parts": ["uuid", "text"],
        "entries": ["uuid", "int8"],
        "lines": ["text", "int8"],
        "events": ["uuid"],
        "counters": ["int8"],
        "parcels": ["text"],
        "scans": ["text", "int8"],
        "tickets": ["int8"],
        "stubs": ["int8", "text"],
        "wares": ["text"],
        "stamps": ["text", "uuid"],
        "crates": ["uuid"],
    }


def test_a_payload_stands_behind_what_it_is_found_by() -> None:
    columns = columns_of(DEVICES)
    assert [column.origin for column in columns] == [
        *[Origin.FIELD] * len(DEVICES.beside),
        *[Origin.MARKER] * 2,
        *[Origin.DERIVED] * 2,
        Origin.PAYLOAD,
    ]
    assert [column.sql_type for column in columns[-3:]] == ["text", "int4", "jsonb"]


def test_a_column_may_be_absent_where_its_value_may() -> None:
    nullable = {column.name for column in columns_of(SCHEDULES) if column.nullable}
    assert nullable == {"deleted_at", "deleted_by"}
    assert {column.name for column in columns_of(IMPACT_SNAPSHOTS) if column.nullable} == {"run_id"}
    # Omitted from the wire form when empty, but stored.
    assert not table_of(RUNS).column("deltas").nullable
    # The model allows it to be absent; the key does not.
    assert not table_of(ENTRIES).column("sequence").nullable


def test_two_things_of_one_name_cannot_share_a_column() -> None:
    with pytest.raises(TypeError, match="runs has two columns error"):
        columns_of(replace(RUNS, storage=(Marker(name="error", kind=Kind.TEXT),)))


def test_an_unknown_field_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(ValidationError, match="counters has no field 'nothing'; it has amount, batch"):
        table_of(COUNTERS).column("nothing")


def test_a_table_is_derived_once() -> None:
    assert all(table_of(entity) is table_of(entity) for entity in SCHEDULER.entities)
    assert table_of(replace(RUNS)) is not table_of(RUNS)


@pytest.mark.parametrize("number", range(6))
def test_a_row_has_the_values_of_the_model_and_its_markers(number: int) -> None:
    dataset = Dataset(Tenant("tenant"), "batch")
    row = NOTE.row(dataset, number)
    table = table_of(NOTES)
    values = dict(zip([column.name for column in table.columns], table.encode(row), strict=True))
    assert (values["level"], values["tags"], values["due_at"]) == (
        row.model.level.number,
        list(row.model.tags),
        row.model.due_at,
    )
    assert values["colour"] == (None if row.model.colour is None else row.model.colour.value)
    assert (values["spot"] is None) == (row.model.spot is None)
    assert all(type(values[name]) is Json for name in ("words", "spots"))
    assert {
        name: values[column] for name, column in MARKERS.items() if values[column] is not None
    } == row.storage


@pytest.mark.parametrize("number", range(3))
def test_derived_columns_are_the_same_from_the_model_and_from_its_json(number: int) -> None:
    row = DEVICE.row(Dataset(NO_TENANT, "batch"), number)
    for entity, model, storage in (
        (DEVICES, row.model, row.storage),
        (IMPACT_SNAPSHOTS, *snapshot()),
    ):
        table = table_of(entity)
        values = dict(
            zip([column.field for column in table.columns], table.encode(Row(model, storage)), strict=True)
        )
        for derived in entity.derived:
            assert values[derived.name] == derived.value(model, storage)


def snapshot() -> tuple[ImpactSet, dict[str, object]]:
    return make_impact_set(), {"snapshotId": "i", "tenantId": "t", "selectorDigest": "d"}


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("00000000-0000-0000-0000-00000000000a", True),
        ("00000000-0000-0000-0000-00000000000A", False),
        ("{00000000-0000-0000-0000-00000000000a}", False),
        ("0000000000000000000000000000000a", False),
        ("", False),
        (7, False),
    ],
)
def test_only_the_lower_case_text_of_a_uuid_can_be_found(text: object, *, canonical: bool) -> None:
    assert is_uuid(text) == canonical
    assert table_of(PARTS).column("deviceId").bound(text) == (text if canonical else None)


@pytest.mark.parametrize("entity", [*SCHEDULER.entities, *KIT.entities], ids=lambda entity: entity.name)
def test_what_lists_may_name_are_the_columns(entity: Entity) -> None:
    of_tables_alone = {item.name for item in entity.derived if item.stores != EVERYWHERE}
    # Nothing compares bytes.
    unqueried = of_tables_alone | {name for name, kind in entity.known.items() if kind is Kind.BYTES}
    # The properties that no field names are no column of a payload.
    unpathed = entity.unpathed if entity.layout is Layout.COLUMNS else frozenset[str]()
    assert set(table_of(entity).by_field) - unqueried == entity.queried | unpathed

"""Rows are distinguished by their keys, including UUIDs and a key that several tenants have."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final
from uuid import UUID

import psycopg
import pytest

from tests.drivers.postgres.deployment import make_tables, module_on
from twinstore.bulk.port import Conflict
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.fast.library import SWITCH
from twinstore.fast.records import PackedBatch
from twinstore.testing.entities import EVENTS, KIT, MODULE, NOTES, PLACES, Event, Note, Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.databases import PostgresDatabase
    from twinstore.access.protocol import Access
    from twinstore.bulk.port import OnConflict, Record
    from twinstore.catalog.entity import Entity
    from twinstore_postgres.backend import PostgresBackend

ROWS: Final = 6

pytestmark = pytest.mark.native


def key(number: int) -> str:
    return str(UUID(int=number * 2**100 + number))


@pytest.fixture
def backend(empty_postgres_database: PostgresDatabase) -> Iterator[PostgresBackend[Access]]:
    """Open a table with some rows."""
    make_tables(empty_postgres_database, KIT)
    with module_on(empty_postgres_database, MODULE) as opened:
        access = opened.repositories
        access.insert(NOTES, ALL_TENANTS, Row(Note(id="n", tenant_id="acme", batch="b", title="t")))
        for number in range(ROWS):
            sequence = number + 1
            event = Event(
                event_id=key(number), note_id="n", sequence=sequence, tenant_id="acme", batch="b", message="m"
            )
            access.insert(EVENTS, ALL_TENANTS, Row(event))
            place = Place(shelf=f"s{number}", slot="0", tenant_id="acme", batch="b")
            access.insert(PLACES, ALL_TENANTS, Row(place))
        yield opened


def change(database: PostgresDatabase, *statements: bytes) -> None:
    with psycopg.connect(database.superuser_url, autocommit=True) as admin:
        for statement in statements:
            admin.execute(statement)


def read(backend: PostgresBackend[Access], entity: Entity) -> Sequence[Record]:
    with backend.bulk.view() as view:
        (batch,) = view.packed(entity, KeyRange())
    return batch


@pytest.mark.parametrize("on_conflict", ["fail", "overwrite"])
def test_rows_with_uuids_are_compared_with_those_that_are_stored(
    empty_postgres_database: PostgresDatabase, backend: PostgresBackend[Access], on_conflict: OnConflict
) -> None:
    batch = read(backend, EVENTS)
    assert isinstance(batch, PackedBatch)
    assert batch.packed == ROWS
    change(
        empty_postgres_database,
        b"DELETE FROM kit.events WHERE event_id = '%s'" % key(2).encode(),
        b"UPDATE kit.events SET batch = 'other' WHERE event_id = '%s'" % key(4).encode(),
    )
    with backend.bulk.writer(EVENTS, on_conflict=on_conflict) as writer:
        writer.write(batch)
        outcome = writer.flush()
        writer.commit()
    # What is only appended to is never overwritten.
    assert outcome.conflicts == (Conflict((key(4),), Tenant("acme")),)
    assert (outcome.written, outcome.unchanged) == ({"acme": 1}, {"acme": ROWS - 2})


@pytest.mark.parametrize("switch", ["on", "off"])
def test_a_key_that_several_tenants_have_is_written_for_the_first_of_them(
    empty_postgres_database: PostgresDatabase,
    backend: PostgresBackend[Access],
    monkeypatch: pytest.MonkeyPatch,
    switch: str,
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    # As a copy reads several tenants: one after the other.
    batches = [read(backend, PLACES)]
    for tenant in (b"umbrella", b"zeta"):
        change(empty_postgres_database, b"UPDATE kit.places SET tenant_id = '%s'" % tenant)
        batches.append(read(backend, PLACES))
    change(empty_postgres_database, b"DELETE FROM kit.places")
    with backend.bulk.writer(PLACES) as writer:
        for batch in batches:
            assert isinstance(batch, PackedBatch) is (switch == "on")
            writer.write(batch)
        outcome = writer.flush()
        writer.commit()
    assert (outcome.written, outcome.unchanged) == ({"acme": ROWS}, {})
    assert Counter(item.label for item in outcome.conflicts) == {"umbrella": ROWS, "zeta": ROWS}

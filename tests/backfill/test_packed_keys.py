"""Packed rows whose key is a UUID are written like any other, also where some of them are stored already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

import psycopg
import pytest

from tests.contract.deployments.postgres import make_tables, module_on
from twinstore.access import Row
from twinstore.bulk import Conflict, KeyRange
from twinstore.fast.packed import PackedBatch
from twinstore.tenancy import ALL_TENANTS, Tenant
from twinstore.testing.entities import EVENTS as ENTITY
from twinstore.testing.entities import KIT, MODULE, NOTES, Event, Note

if TYPE_CHECKING:
    from tests.databases import PostgresDatabase
    from twinstore.bulk import OnConflict

ROWS: Final = 6

pytestmark = pytest.mark.native


def key(number: int) -> str:
    return str(UUID(int=number * 2**100 + number))


@pytest.mark.parametrize("on_conflict", ["fail", "overwrite"])
def test_rows_with_uuids_are_compared_with_those_that_are_stored(
    empty_postgres_database: PostgresDatabase, on_conflict: OnConflict
) -> None:
    make_tables(empty_postgres_database, KIT)
    with module_on(empty_postgres_database, MODULE) as backend:
        access = backend.repositories
        access.insert(NOTES, ALL_TENANTS, Row(Note(id="n", tenant_id="acme", batch="b", title="t")))
        for number in range(ROWS):
            event = Event(
                event_id=key(number),
                note_id="n",
                sequence=number + 1,
                tenant_id="acme",
                batch="b",
                message="m",
            )
            access.insert(ENTITY, ALL_TENANTS, Row(event))
        with backend.bulk.view() as view:
            (batch,) = view.packed(ENTITY, KeyRange())
        assert isinstance(batch, PackedBatch)
        assert batch.packed == ROWS
        with psycopg.connect(empty_postgres_database.superuser_url, autocommit=True) as admin:
            admin.execute("DELETE FROM kit.events WHERE event_id = %s", [key(2)])
            admin.execute("UPDATE kit.events SET batch = 'other' WHERE event_id = %s", [key(4)])
        with backend.bulk.writer(ENTITY, on_conflict=on_conflict) as writer:
            writer.write(batch)
            outcome = writer.flush()
            writer.commit()
    # What is only appended to is never overwritten.
    assert outcome.conflicts == (Conflict((key(4),), Tenant("acme")),)
    assert (outcome.written, outcome.unchanged) == ({"acme": 1}, {"acme": ROWS - 2})

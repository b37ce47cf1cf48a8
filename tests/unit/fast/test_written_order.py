"""Native code writes the names of models in the order in which PostgreSQL keeps them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.unit.fast.programs import as_written, programs
from tests.unit.fast.test_copy_rows import EXAMPLES, TENANT, fields_sent, stored, written
from twinstore.catalog.row import Row
from twinstore.fast.nodes import NodeKind
from twinstore.models import json_text

if TYPE_CHECKING:
    from tests.support.databases import PostgresDatabase
    from twinstore.fast.nodes import Node


def named(node: Node) -> bytes:
    return json_text.dumps({field.name: None for field in node.fields})


def test_the_order_is_that_of_the_server(postgres_database: PostgresDatabase) -> None:
    models = [
        (node, program.nodes)
        for program in programs().values()
        for node in program.nodes
        if node.kind is NodeKind.OBJECT and node.fields
    ]
    changed = 0
    with psycopg.connect(postgres_database.superuser_url) as connection:
        for node, nodes in models:
            (kept,) = connection.execute("SELECT %s::jsonb::text", [named(node).decode()]).fetchone() or ("",)
            ordered = list(json.loads(as_written(named(node), node, nodes)))
            assert ordered == list(json.loads(kept))
            changed += ordered != [field.name for field in node.fields]
    # Some models have their fields in another order, so that there is something to see.
    assert changed > len(models) // 2


@pytest.mark.parametrize("name", ["runs", "schedules"])
def test_the_server_finds_nothing_to_sort(name: str, postgres_database: PostgresDatabase) -> None:
    (example,) = (item for item in EXAMPLES if item.name == name)
    model = example.small(TENANT, "one")
    raw = stored(example.entity, Row(model, example.markers(TENANT, model)))
    row = written(example.entity, raw)
    assert row is not None
    found = 0
    with psycopg.connect(postgres_database.superuser_url) as connection:
        for field in fields_sent(example.entity, raw):
            if field is None or not field.startswith(b"\x01{"):
                continue
            query = "SELECT %s::jsonb::text"
            (kept,) = connection.execute(query, [field[1:].decode()]).fetchone() or ("",)
            compact = json_text.dumps(json.loads(kept))
            assert b"\x01" + compact in row
            found += compact != field[1:]
    assert found

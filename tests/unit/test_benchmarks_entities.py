"""The rows of every entity that the benchmark copies: all entities have some, and children have parents."""

from __future__ import annotations

import pytest

from benchmarks.entities.filling import copied_entities
from benchmarks.entities.rows import BELOW, ROWS
from benchmarks.entities.tables import per_byte
from benchmarks.modules.data import start
from benchmarks.schedule import Sample, Samples
from twinstore.catalog import Entity

ENTITIES = copied_entities()
COUNT = 200


@pytest.mark.parametrize("entity", ENTITIES, ids=lambda entity: entity.name)
def test_rows_have_keys_of_their_own_and_parents(entity: Entity) -> None:
    first = start()
    rows = [ROWS[entity.module][entity.name](number, first) for number in range(COUNT)]
    keys = {entity.key_of(row.model, row.storage) for row in rows}
    assert len(keys) == COUNT
    assert all(entity.admits_key(key) for key in keys)
    if entity.parent is not None:
        parent = entity.parent.entity
        needed = range(-int(-COUNT // BELOW.get(entity.name, 1)))
        parents = [ROWS[parent.module][parent.name](number, first) for number in needed]
        field = parent.key[0]
        owners = {parent.value(row.model, row.storage, field) for row in parents}
        wanted = {entity.value(row.model, row.storage, entity.parent.field) for row in rows}
        assert wanted <= owners


def test_no_module_has_rows_of_something_else() -> None:
    assert {(entity.module, entity.name) for entity in ENTITIES} == {
        (module, name) for module, rows in ROWS.items() for name in rows
    }


def test_the_rate_per_byte_counts_what_a_row_weighs() -> None:
    samples = Samples()
    samples.add("runs, copy", Sample(units=100, seconds=1))
    samples.add("audit, copy", Sample(units=150, seconds=1))
    assert per_byte({"runs": 700.0, "audit": 350.0}, samples, "audit", "copy") == 0.75

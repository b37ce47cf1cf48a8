"""What is taken of a source and made of it: the same for a seed, of all tenants, with parents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from tests.backfill.toolkit import COPIED, fill, memory_pair
from twinstore.bulk.release import copy_writer
from twinstore.models.shapes import shapes_of
from twinstore.scheduler.catalog import AUDIT, RUNS, TRIGGERS
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore_backfill.selftest.rows import key_of_parent, made_rows, sampled, variants
from twinstore_memory.rows import plant, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.backfill.toolkit import Pair
    from twinstore.scheduler.runs import Run


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


def test_a_seed_chooses_the_same_rows_and_another_one_others(pair: Pair) -> None:
    port = pair.source.bulk
    # Of an entity that no other one refers to: the rows that its children name come on top.
    first, again, other = (sampled(port, 4, seed)["audit"].records for seed in (1, 1, 2))
    assert list(first) == list(again) == sorted(first)
    assert set(first) != set(other)
    assert len(first) == len(other) == 4


def test_every_tenant_gives_rows_and_what_one_lacks_another_gives(pair: Pair) -> None:
    storage = pair.source.storage
    for number in range(40):
        storage.runs.create(make_run("large", f"large-{number}"))
    tenants = sampled(pair.source.bulk, 30, 0)["runs"].tenants
    assert tenants == {"acme": 7, "umbrella": 7, "large": 16}


def test_the_parents_of_what_was_taken_come_along(pair: Pair) -> None:
    storage = pair.source.storage
    for number in range(30):
        storage.schedules.upsert(make_schedule("acme", f"more-{number:02}"))
    samples = sampled(pair.source.bulk, 10, 3)
    parents = {key_of_parent(TRIGGERS, record) for record in samples["triggers"].records.values()}
    assert parents <= samples["schedules"].records.keys()


def test_more_tenants_than_rows_are_wanted_give_as_many_rows_as_are_wanted(pair: Pair) -> None:
    assert [len(sampled(pair.source.bulk, 1, seed)["audit"].records) for seed in range(4)] == [1, 1, 1, 1]


def test_variants_of_a_row_have_every_field_and_as_few_as_may_be(pair: Pair) -> None:
    record = next(iter(sampled(pair.source.bulk, 50, 0)["runs"].records.values()))
    record.model = make_run("acme", "r", finished_at=None)
    filled, bare = variants(RUNS, record)
    names = {shape.wire for shape in shapes_of(RUNS.model)}
    given, least = (set(cast("Run", item.model).wire()) for item in (filled, bare))
    # These three stand in other states than this one, which a model changes with their instants only.
    assert given >= names - {"error", "finishedAt", "startedAt"}
    assert "é" in str(cast("Run", filled.model).reason)
    assert least == {"schemaVersion", "id", "tenantId", "trigger", "state", "stats", "createdAt"}
    assert (filled.key, bare.key) == (record.key, record.key)


def test_variants_have_keys_and_parents_of_their_own_that_a_store_accepts(pair: Pair) -> None:
    samples = sampled(pair.source.bulk, 50, 0)
    made = made_rows(samples, lambda _: True)
    pair.copy()
    for entity in COPIED:
        records = sorted(made[entity.name], key=lambda record: record.key or ())
        keys = {record.key for record in records}
        assert len(keys) == len(records) > 0
        assert keys.isdisjoint(samples[entity.name].records)
        with copy_writer(pair.target.bulk, entity) as writer:
            writer.write(records)
            assert writer.flush().rejected == ()
            writer.commit()
    parents = {key_of_parent(TRIGGERS, record) for record in made["triggers"]}
    assert parents <= {record.key for record in made["schedules"]}
    assert len(parents) == len(made["triggers"])


def test_a_row_that_no_copy_takes_is_counted_and_left_out(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        rows = stored_rows(pair.stores[0], AUDIT)
        key, row = min(rows.items())
        plant(pair.stores[0], replace(row, document={**row.document, "occurredAt": "some day"}))
        sample = sampled(pair.source.bulk, 50, 0)["audit"]
    assert (sample.unreadable, len(sample.records)) == (1, len(rows) - 1)
    assert key not in sample.records

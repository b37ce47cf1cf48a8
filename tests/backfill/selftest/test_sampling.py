"""What is taken of a source and made of it: the same for a seed, of all tenants, with parents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from tests.backfill.toolkit import COPIED, fill, memory_pair
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES, TRIGGERS
from twinstore.shapes import shapes_of
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore_backfill.selftest.herd import Herd
from twinstore_backfill.selftest.sampling import key_of_parent, sampled
from twinstore_backfill.selftest.specimens import variants
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


def test_what_is_made_has_a_key_of_its_own_and_is_taken_by_a_store(pair: Pair) -> None:
    samples = sampled(pair.source.bulk, 50, 0)
    herd = Herd(samples)
    herd.vary()
    for entity in COPIED:
        (key, *_) = samples[entity.name].records
        made = herd.copy_of(entity, key)
        assert made is not None
        assert made not in samples[entity.name].records
    herd.write(pair.target.bulk)
    for entity in COPIED:
        stored = sum(pair.target.bulk.counts(entity).values())
        assert stored == len(herd.keys(entity)) == len(samples[entity.name].records) + herd.added[entity.name]
        assert herd.made[entity.name] <= set(herd.keys(entity))


def test_a_copy_of_a_child_has_a_parent_of_its_own(pair: Pair) -> None:
    samples = sampled(pair.source.bulk, 50, 0)
    herd = Herd(samples)
    (key, *_) = samples["triggers"].records
    before = herd.keys(SCHEDULES)
    assert herd.copy_of(TRIGGERS, key) is not None
    assert len(herd.keys(SCHEDULES)) == len(before) + 1


def test_a_row_that_no_copy_takes_is_counted_and_left_out(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        rows = stored_rows(pair.stores[0], AUDIT)
        key, row = min(rows.items())
        plant(pair.stores[0], replace(row, document={**row.document, "occurredAt": "some day"}))
        sample = sampled(pair.source.bulk, 50, 0)["audit"]
    assert (sample.unreadable, len(sample.records)) == (1, len(rows) - 1)
    assert key not in sample.records

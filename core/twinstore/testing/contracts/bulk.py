"""What whole entities promise to tools: counts, ranges, views and range writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore import jsontext
from twinstore.bulk import KeyRange
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUNS,
    SCHEDULER,
    SCHEDULES,
)
from twinstore.tenancy import Tenant
from twinstore.testing.base import Contract
from twinstore.testing.bench import Bench
from twinstore.testing.builders import (
    at,
    rich_audit_record,
    rich_impact_set,
    rich_run_summary,
    rich_schedule,
)
from twinstore.testing.contracts.runs import finished
from twinstore.testing.copying import (
    contents,
    records_of,
)
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.probe import Deployment

__all__ = ["BulkContract"]

each_entity = pytest.mark.parametrize("entity", SCHEDULER.entities, ids=lambda entity: entity.name)
EVERYTHING: Final = KeyRange()


def populate(bench: Bench) -> None:
    """Store rows of every entity, ids in awkward order, soft-deleted and derived ones among them."""
    storage, tenant = bench.storage, bench.tenant
    for number, text in enumerate(EDGE_TEXTS):
        schedule = rich_schedule(tenant, bench.id(text), name=f"{text}{number}")
        storage.schedules.upsert(schedule)
        storage.audit.append(rich_audit_record(tenant, bench.id(text), occurred_at=at(-number)))
    storage.schedules.soft_delete(tenant, bench.id(EDGE_TEXTS[0]), "eve", at(99))
    storage.runs.create(bench.run("planned", schedule_id="s"))
    finished(bench, "finished", 5)
    storage.impact_snapshots.upsert(tenant, rich_impact_set(tenant))
    storage.impact_snapshots.upsert(tenant, rich_impact_set(tenant, snapshot_id=bench.id("own")), run_id="r")
    storage.run_summaries.upsert(rich_run_summary(tenant, bench.id("s")))
    storage.run_summaries.upsert(bench.summary("t"))
    for item in SCHEDULER_EXAMPLES.of_the_system:
        for text in EDGE_TEXTS:
            item.store(storage.unbound, tenant, item.rich(tenant, bench.id(text)))


class BulkContract(Contract, capability="bulk"):
    """Reading whole entities past the repositories, without losing anything."""

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, deployment: Deployment, storage: SchedulerStorage) -> Bench:
        """Fill a tenant once for all tests of the class; none of them may change it."""
        bench = Bench(deployment, storage)
        populate(bench)
        return bench

    def test_the_entities_are_those_of_the_module(self, bench: Bench) -> None:
        assert bench.storage.bulk.entities() == SCHEDULER.entities

    def test_the_identity_names_the_store_and_no_secret(self, bench: Bench, lone_bench: Bench) -> None:
        with bench.storages(1) as (other,):
            assert other.bulk.identity == bench.storage.bulk.identity
            assert other.bulk.place == bench.storage.bulk.place
        assert lone_bench.storage.bulk.identity != bench.storage.bulk.identity
        assert "@" not in bench.storage.bulk.identity + bench.storage.bulk.place

    @each_entity
    def test_rows_are_counted_by_tenant(self, lone_bench: Bench, entity: Entity) -> None:
        assert lone_bench.storage.bulk.counts(entity) == {}
        populate(lone_bench)
        populate(lone_bench.elsewhere)
        counts = lone_bench.storage.bulk.counts(entity)
        assert counts == {
            lone_bench.tenant: lone_bench.count(entity),
            lone_bench.foreign: lone_bench.elsewhere.count(entity),
        }
        only = lone_bench.storage.bulk.counts(entity, tenant_id=lone_bench.foreign)
        assert only == {lone_bench.foreign: counts[lone_bench.foreign]}
        assert lone_bench.storage.bulk.counts(entity, tenant_id="nobody") == {}

    @each_entity
    @pytest.mark.parametrize("rows", [1, 3, 1000])
    def test_ranges_cover_every_key_once_and_in_order(self, filled: Bench, entity: Entity, rows: int) -> None:
        bulk = filled.storage.bulk
        ranges = list(bulk.cut(entity, rows, tenant_id=filled.tenant))
        assert (ranges[0].lower, ranges[-1].upper) == (None, None)
        assert [item.upper for item in ranges[:-1]] == [item.lower for item in ranges[1:]]
        found = [
            record.key for within in ranges for record in records_of(bulk, entity, within, filled.tenant)
        ]
        assert found == sorted(found, key=lambda key: key or ())
        assert len(found) == len(set(found)) == filled.count(entity)

    @each_entity
    def test_nothing_is_covered_by_one_unbounded_range(self, bench: Bench, entity: Entity) -> None:
        assert list(bench.storage.bulk.cut(entity, 10, tenant_id=bench.tenant)) == [EVERYTHING]
        assert records_of(bench.storage.bulk, entity, EVERYTHING, bench.tenant) == []

    @each_entity
    @pytest.mark.parametrize("batch_size", [2, 5, 1000])
    def test_batches_are_never_larger_than_asked(
        self, filled: Bench, entity: Entity, batch_size: int
    ) -> None:
        bulk = filled.storage.bulk
        for read in ("records", "rows"):
            with bulk.view() as view:
                batches = getattr(view, read)(
                    entity, EVERYTHING, tenant_id=filled.tenant, batch_size=batch_size
                )
                sizes = list(map(len, batches))
            assert sum(sizes) == filled.count(entity)
            assert all(0 < size <= batch_size for size in sizes)

    @each_entity
    def test_a_range_includes_its_lower_and_excludes_its_upper_key(
        self, filled: Bench, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        keys = [record.key for record in records_of(bulk, entity, EVERYTHING, filled.tenant)]
        within = KeyRange(keys[0], keys[-1])
        assert [record.key for record in records_of(bulk, entity, within, filled.tenant)] == keys[:-1]
        assert list(contents(bulk, entity, filled.tenant, within)) == keys[:-1]
        last = KeyRange(keys[-1], None)
        assert [record.key for record in records_of(bulk, entity, last, filled.tenant)] == keys[-1:]

    @each_entity
    def test_an_exported_row_is_the_model_with_its_markers(self, filled: Bench, entity: Entity) -> None:
        for record in records_of(filled.storage.bulk, entity, EVERYTHING, filled.tenant):
            assert record.key is not None
            row = filled.probe.read(entity, record.key)
            assert row is not None
            assert isinstance(record.model, entity.model)
            assert (record.owner, record.error, record.raw) == (Tenant(filled.tenant), None, None)
            assert (dict(record.storage), record.text_timestamp) == (dict(row.markers), False)

    @each_entity
    def test_a_scanned_row_has_the_canonical_bytes_of_model_and_markers(
        self, filled: Bench, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        expected = {
            record.key: jsontext.dumps_sorted({"doc": record.model.wire(), "storage": dict(record.storage)})
            for record in records_of(bulk, entity, EVERYTHING, filled.tenant)
            if record.model is not None
        }
        assert contents(bulk, entity, filled.tenant) == expected
        assert list(contents(bulk, entity, filled.tenant)) == list(expected)

    @each_entity
    def test_fetch_finds_single_rows_and_leaves_out_the_others(self, filled: Bench, entity: Entity) -> None:
        bulk = filled.storage.bulk
        rows = contents(bulk, entity, filled.tenant)
        wanted = [key for key in list(rows)[::2] if key is not None]
        absent = tuple("absent" for _ in entity.key)
        with bulk.view() as view:
            found = {row.key: row.content for row in view.rows_of(entity, [*wanted, absent])}
            assert found == {key: rows[key] for key in wanted}
            assert list(view.rows_of(entity, [])) == []

    @each_entity
    def test_single_records_are_those_of_the_range(self, filled: Bench, entity: Entity) -> None:
        bulk = filled.storage.bulk
        all_records = {item.key: item for item in records_of(bulk, entity, EVERYTHING, filled.tenant)}
        wanted = [key for key in list(all_records)[::2] if key is not None]
        absent = tuple("absent" for _ in entity.key)
        with bulk.view() as view:
            found = {item.key: item for item in view.records_of(entity, [*wanted, absent])}
            assert found == {key: all_records[key] for key in wanted}
            assert list(view.records_of(entity, [])) == []

    def test_a_view_reads_one_list_after_the_other(self, filled: Bench) -> None:
        with filled.storage.bulk.view() as view:
            for entity in SCHEDULER.entities:
                records = view.records(entity, EVERYTHING, tenant_id=filled.tenant)
                rows = view.rows(entity, EVERYTHING, tenant_id=filled.tenant)
                keys = [record.key for batch in records for record in batch]
                assert keys == [row.key for batch in rows for row in batch] != []

    def test_a_list_may_be_left_half_read(self, filled: Bench) -> None:
        with filled.storage.bulk.view() as view:
            first = next(view.records(SCHEDULES, EVERYTHING, tenant_id=filled.tenant, batch_size=1))
        assert len(first) == 1
        assert records_of(filled.storage.bulk, SCHEDULES, EVERYTHING, filled.tenant)[0].key == first[0].key

    def test_the_instant_of_retention_is_scanned(self, filled: Bench) -> None:
        for entity, expected in ((RUNS, {None, at(5)}), (IMPACT_SNAPSHOTS, {at(0.123)}), (AUDIT, {None})):
            with filled.storage.bulk.view() as view:
                batches = view.rows(entity, EVERYTHING, tenant_id=filled.tenant)
                assert {row.expires for batch in batches for row in batch} == expected

    @each_entity
    def test_a_broken_row_is_exported_with_its_reason_and_still_scanned(
        self, bench: Bench, entity: Entity
    ) -> None:
        populate(bench)
        bulk = bench.storage.bulk
        before = contents(bulk, entity, bench.tenant)
        broken = next(iter(before))
        assert broken is not None
        bench.probe.poison(entity, broken, "p0is0n")
        records = records_of(bulk, entity, EVERYTHING, bench.tenant)
        bad = [record for record in records if record.error is not None]
        assert [(record.key, record.model, record.owner) for record in bad] == [
            (broken, None, Tenant(bench.tenant))
        ]
        assert "p0is0n" in (bad[0].raw or "")
        after = contents(bulk, entity, bench.tenant)
        assert {key for key in after if after[key] != before[key]} == {broken}
        assert b"p0is0n" in after[broken]
